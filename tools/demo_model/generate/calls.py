"""Tool conversations: choose, fill, refuse, answer from a result, chain two calls."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tools.demo_model.generate.domains import everyday
from tools.demo_model.generate.synonyms import alike
from tools.demo_model.generate.toolkit import Made, arguments, leave_out, make_box, make_tool, request, vp
from tools.demo_model.generate.values import text_value, whole
from tools.demo_model.render import Example, assistant, system, tool_result, user
from tools.demo_model.words import Words

REFUSAL = "I cannot {verb} the {noun}: none of my tools can do that."
SYSTEMS = (
    "You are a helpful assistant.",
    "You are a careful assistant.",
    "Answer briefly.",
    "You are {name}, an assistant for {noun} questions.",
    "Be polite and short.",
    "You help the team of {name}.",
    "Use the tools when they help.",
    "Today is {date}.",
)


def maybe_system(words: Words, chance: float = 0.3) -> list[dict[str, Any]]:
    """Sometimes a system message."""
    if words.rng.random() > chance:
        return []
    text = words.rng.choice(SYSTEMS).format(
        name=words.invented().capitalize(), noun=words.noun(), date=text_value(words, "date")
    )
    return [system(text)]


def style(words: Words) -> dict[str, Any]:
    """Whether to think and how hard."""
    roll = words.rng.random()
    if roll < 0.5:
        return {"thinking": False}
    return {"thinking": True, "effort": "low" if roll < 0.6 else "high" if roll < 0.7 else None}


def call_thought(mode: dict[str, Any], made: Made, box: list[Made]) -> str:
    """Reasoning before a call; empty without thinking."""
    if not mode["thinking"]:
        return ""
    if mode["effort"] == "low":
        return f"{made.name} fits."
    given = "".join(f" {key} = {json.dumps(value, ensure_ascii=False)};" for key, value in arguments(made).items())
    text = f"The user wants to {made.verb} {made.noun}. {made.name} fits.{given[:-1] + '.' if given else ''}"
    if mode["effort"] == "high":
        others = [other.name for other in box if other.name != made.name]
        if others:
            text = f"Tools: {', '.join(other.name for other in box)}. {text}"
    return text


def pick(words: Words) -> tuple[Made, list[Made], str]:
    """A target, the declared tools, the request."""
    rng = words.rng
    size = rng.choices((1, 2, 3, 4, 5, 6), (8, 20, 24, 22, 15, 11))[0] if words.side == "train" else rng.randint(2, 6)
    if words.side == "train" and rng.random() < 0.25:
        made, sentence = everyday(words)
        box = [made]
        while len(box) < size:
            other = everyday(words)[0] if rng.random() < 0.7 else make_tool(words, most=3)
            if (
                other.name != made.name
                and other.name not in [one.name for one in box]
                and not alike(other.noun, made.noun)
            ):
                box.append(other)
        rng.shuffle(box)
        return made, box, sentence
    made = make_tool(words)
    if words.side == "eval" and not made.slots:
        return pick(words)
    box = make_box(words, made, size)
    made = leave_out(words, made)
    return made, box, request(words, made)


def call(words: Words) -> Example:
    """One request, one right call."""
    mode = style(words)
    made, box, sentence = pick(words)
    answer = assistant("", call_thought(mode, made, box), [(made.name, arguments(made))])
    messages = [*maybe_system(words), user(sentence), answer]
    check = {"kind": "call", "name": made.name, "arguments": arguments(made)}
    return Example(task="call", messages=messages, tools=[one.declaration() for one in box], check=check, **mode)


def refuse(words: Words) -> Example:
    """Tools are declared, none fits: say so and do not call."""
    mode = style(words)
    made, box, sentence = pick(words)
    if len(box) == 1:
        box = [*box, make_tool(words, most=2)]
    box = [
        one for one in box if one.name != made.name and not (alike(one.verb, made.verb) and alike(one.noun, made.noun))
    ]
    thought = f"The user wants to {made.verb} {made.noun}. No tool fits." if mode["thinking"] else ""
    answer = assistant(REFUSAL.format(verb=made.verb, noun=made.noun), thought)
    messages = [*maybe_system(words), user(sentence), answer]
    return Example(
        task="refuse", messages=messages, tools=[one.declaration() for one in box], check={"kind": "no_call"}, **mode
    )


def two_calls(words: Words) -> Example:
    """Two requests in one message: two calls, in order."""
    mode = style(words)
    first, box, one = pick(words)
    second = make_tool(words, most=2)
    while second.name in [other.name for other in box] or second.noun == first.noun:
        second = make_tool(words, most=2)
    two = request(words, second)
    box.insert(words.rng.randrange(len(box) + 1), second)
    joint = words.rng.choice((" Then ", " After that, ", " Also, ", "\nAnd "))
    sentence = one.rstrip() + ("" if one.rstrip()[-1] in ".?!" else ".") + joint + two[0].lower() + two[1:]
    thought = f"Two calls: {first.name}, then {second.name}." if mode["thinking"] else ""
    answer = assistant("", thought, [(first.name, arguments(first)), (second.name, arguments(second))])
    return Example(
        task="two_calls", messages=[user(sentence), answer], tools=[made.declaration() for made in box], **mode
    )


def _result(words: Words) -> tuple[dict[str, Any], str]:
    """A tool's result as a mapping, and the key that is asked for."""
    rng = words.rng
    result: dict[str, Any] = {}
    while len(result) < rng.randint(1, 4):
        roll = rng.random()
        key = (
            words.noun()
            if roll < 0.6
            else rng.choice(
                ["status", "id", "total", "price", "name", "result", "code", "message", "temperature", "state", "owner"]
            )
        )
        if key in result:
            continue
        kind = rng.random()
        if kind < 0.4:
            result[key] = whole(words)
        elif kind < 0.95:
            result[key] = text_value(
                words, rng.choice(("word", "code", "city", "person", "phrase", "date", "time", "invented"))
            )
        else:
            result[key] = round(rng.uniform(0, 100), 1)
    return result, rng.choice(list(result))


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _result_text(words: Words, result: dict[str, Any]) -> str:
    """As JSON, or as lines."""
    roll = words.rng.random()
    if roll < 0.7:
        return json.dumps(result, ensure_ascii=False)
    return ("\n" if roll < 0.9 else ", ").join(f"{key}: {_plain(value)}" for key, value in result.items())


def loop(words: Words, choose: Callable[[Words], tuple[Made, list[Made], str]] = pick) -> Example:
    """Request, call, result, answer with the value that was asked for. choose: as `pick`."""
    rng = words.rng
    mode = style(words)
    made, box, sentence = choose(words)
    result, key = _result(words)
    roll = rng.random()
    if roll < 0.12:
        error = rng.choice(
            ("not found", "timeout", "permission denied", "invalid {}", "no such {}", "service unavailable")
        ).format(made.noun)
        text, answer, expected = json.dumps({"error": error}), f"The call failed: {error}.", error
    elif roll < 0.2:
        text, answer, expected = (
            rng.choice(("ok", "done", "success", '{"ok": true}', '{"status": "ok"}')),
            f"Done: {made.verb} {made.noun}.",
            "Done",
        )
    elif roll < 0.35:
        text = _plain(result[key])
        answer, expected = f"The result is {text}.", text
    else:
        text = _result_text(words, result)
        if rng.random() < 0.6 or len(result) == 1:
            sentence += (
                rng.choice(
                    (
                        " What is the {}?",
                        " Tell me the {}.",
                        " I need the {}.",
                        " Then give me the {}.",
                        " Which {} does it report?",
                    )
                ).format(key)
                if sentence[-1] in ".?!"
                else rng.choice((" and tell me the {}.", ". What is the {}?", " and report the {}.")).format(key)
            )
            answer, expected = f"The {key} is {_plain(result[key])}.", _plain(result[key])
        else:
            answer = "Result: " + ", ".join(f"{name} {_plain(value)}" for name, value in result.items()) + "."
            expected = _plain(result[key])
    first = assistant("", call_thought(mode, made, box), [(made.name, arguments(made))])
    thought = (
        ""
        if not mode["thinking"]
        else "The tool answered."
        if mode["effort"] == "low"
        else f"The tool {made.name} answered. I report it."
    )
    messages = [*maybe_system(words), user(sentence), first, tool_result(text), assistant(answer, thought)]
    check = {"kind": "loop", "name": made.name, "arguments": arguments(made), "answer": expected}
    tail = _follow_up(words, result, text) if roll >= 0.35 and rng.random() < 0.25 and words.side == "train" else []
    return Example(
        task="loop",
        messages=messages + _with_mode(tail, mode),
        tools=[one.declaration() for one in box],
        check=check,
        preserve=rng.random() < 0.8,
        **mode,
    )


def _follow_up(words: Words, result: dict[str, Any], text: str) -> list[dict[str, Any]]:
    """A later question about the same result."""
    key = words.rng.choice(list(result))
    if words.rng.random() < 0.3:
        return [
            user(words.rng.choice(("Thanks!", "Thank you.", "Great, thanks.", "Perfect."))),
            assistant("You are welcome.", "The user is happy."),
        ]
    ask = words.rng.choice(("And the {}?", "What was the {}?", "What about the {}?", "Now tell me the {}.")).format(key)
    return [user(ask), assistant(f"The {key} is {_plain(result[key])}.", "It is in the result above.")]


def _with_mode(messages: list[dict[str, Any]], mode: dict[str, Any]) -> list[dict[str, Any]]:
    """Drop the thoughts when the conversation does not think."""
    if mode["thinking"]:
        return messages
    return [{**message, "reasoning_content": ""} if message["role"] == "assistant" else message for message in messages]


def chain(words: Words) -> Example:
    """The second call needs a value of the first result."""
    rng = words.rng
    mode = style(words)
    first, box, sentence = pick(words)
    second = make_tool(words, most=1)
    while (
        not second.slots
        or second.slots[0].type != "string"
        or second.noun == first.noun
        or second.name in [one.name for one in box]
    ):
        second = make_tool(words, most=1)
    box.insert(rng.randrange(len(box) + 1), second)
    key = second.slots[0].name
    value = text_value(words, rng.choice(("code", "word", "invented", "city")))
    result = {key: value, **{words.noun(): whole(words) for _ in range(rng.randint(0, 2))}}
    sentence = sentence.rstrip(".?! ") + rng.choice(
        (", then {} with that {}.", ". Then {} using the {} it gives.", " and {} for the {} you find.")
    ).format(vp(words, second.verb, second.noun), second.slots[0].phrase)
    done = text_value(words, rng.choice(("code", "word", "phrase")))
    messages = [
        user(sentence),
        assistant("", call_thought(mode, first, box), [(first.name, arguments(first))]),
        tool_result(_result_text(words, result)),
        assistant("", f"Now {second.name} with {value}." if mode["thinking"] else "", [(second.name, {key: value})]),
        tool_result(json.dumps({"result": done})),
        assistant(f"The result is {done}.", "Both calls are done." if mode["thinking"] else ""),
    ]
    return Example(task="chain", messages=messages, tools=[one.declaration() for one in box], **mode)
