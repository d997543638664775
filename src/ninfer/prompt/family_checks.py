"""The conversations by which a template of the family is recognised: rendered by it and by our variant.

Between them they show every part of the format in every mode in which an official template may treat it differently.
They are data: variables of a template, with words of our own.
"""

from collections.abc import Iterator, Mapping

from ninfer.conversation import EFFORTS

MARK = "probe-of-a-turn"

TOOLS: list[Mapping[str, object]] = [
    {
        "type": "function",
        "function": {"name": "find", "description": "<é> \"q\" & 'r'", "parameters": {"z": 1, "a": []}},
    },
    {"type": "function", "function": {"name": "stop"}},
]
"""Two declarations with members in no order."""

_ARGUMENTS: dict[str, object] = {"z": "two\nlines ", "a": True, "n": 2.5, "l": [1, None], "o": {"k": "é"}, "e": ""}


def _system(content: str) -> Mapping[str, object]:
    return {"role": "system", "content": content}


def _user(content: str) -> Mapping[str, object]:
    return {"role": "user", "content": content}


def _assistant(content: str, reasoning: str | None = None, *calls: str) -> Mapping[str, object]:
    message: dict[str, object] = {"role": "assistant", "content": content}
    if reasoning is not None:
        message["reasoning_content"] = reasoning
    if calls:
        message["tool_calls"] = [
            {"type": "function", "id": name, "function": {"name": name, "arguments": arguments}}
            for name, arguments in zip(calls, (_ARGUMENTS, {}), strict=False)
        ]
    return message


def _tool(content: str) -> Mapping[str, object]:
    return {"role": "tool", "tool_call_id": "find", "content": content}


_CHATS: list[list[Mapping[str, object]]] = [
    [_user(" one \n")],
    [_system(" rules \n"), _user("")],
    [_system(" \n"), _user("one")],
    [_user("one"), _assistant(" two ", " because\n"), _user("three"), _assistant("four"), _user("five")],
    [_user("one"), _assistant("two", ""), _assistant("", "why"), _user("three"), _user("four")],
    [_user("one"), _assistant("", "look", "find", "stop"), _tool(" r\n"), _tool(""), _user("two")],
    [
        _system("s"),
        _user("one"),
        _assistant(" said ", None, "find"),
        _tool("r"),
        _assistant("", "hm", "stop"),
        _tool("x"),
    ],
    [_user("one"), _assistant("", None, "stop", "find"), _tool("r"), _assistant("two"), _assistant("three", "x")],
]


def _checks() -> Iterator[Mapping[str, object]]:
    modes: list[dict[str, object]] = [{}, {"enable_thinking": True}, {"enable_thinking": False}]
    keeps: list[dict[str, object]] = [{"preserve_thinking": True}, {"preserve_thinking": False}]
    for chat in _CHATS:
        yield {"messages": chat, "tools": None, "add_generation_prompt": False}
        for tools in (None, TOOLS):
            said = {"messages": chat, "tools": tools, "add_generation_prompt": True}
            yield from ({**said, **mode} for mode in modes)
            yield from ({**said, **keep} for keep in keeps)
    for chat in _CHATS[:3]:
        for tools in (None, TOOLS):
            said = {"messages": chat, "tools": tools, "add_generation_prompt": True}
            yield from ({**said, **mode, "reasoning_effort": effort} for mode in modes for effort in EFFORTS)


CHECKS = tuple(_checks())
"""Variables of the check renderings."""
