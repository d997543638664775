"""Judges replies to the second generator's cases, by a checker of its own.

Nothing that wrote or judges the training's conversations is asked, but for the rendering of the prompt, which is the
template's. Knows no model and no engine.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import attrs

from tools.demo_model.eval_second import Case, Message, Tool
from tools.demo_model.render import Example, assistant


@attrs.frozen(kw_only=True)
class Answer:
    """What a reply says. damaged: it has a piece of a call's markup that is no whole call."""

    text: str
    calls: tuple[tuple[str, Mapping[str, object]], ...] = ()
    damaged: bool = False


def take_apart(reply: str, tools: Sequence[Tool], *, thinking: bool) -> Answer:
    """Visible text and calls of a reply; a reply that never ends its thinking says nothing."""
    visible = reply.partition("</think>")[2] if thinking else reply
    text, *rest = visible.split("<tool_call>")
    calls: list[tuple[str, Mapping[str, object]]] = []
    for piece in rest:
        body, closed, after = piece.partition("</tool_call>")
        call = _call(body.strip(), tools) if closed and not after.strip() else None
        if call is None:
            return Answer(text=visible.strip(), damaged=True)
        calls.append(call)
    return Answer(text=text.strip(), calls=tuple(calls), damaged="<function=" in text)


def _call(body: str, tools: Sequence[Tool]) -> tuple[str, Mapping[str, object]] | None:
    """(name, typed arguments) of the inside of one call; None where it is not well-formed."""
    head, opened, rest = body.removeprefix("<function=").partition(">\n")
    inside, closed, after = rest.partition("</function>")
    if not (body.startswith("<function=") and opened and closed) or after:
        return None
    arguments: dict[str, object] = {}
    while inside:
        key, opened, rest = inside.removeprefix("<parameter=").partition(">\n")
        value, closed, after = rest.partition("\n</parameter>\n")
        if not (inside.startswith("<parameter=") and opened and closed) or key in arguments:
            return None
        arguments[key] = _typed(value, _declared_type(tools, head, key))
        inside = after
    return head, arguments


def _declared_type(tools: Sequence[Tool], name: str, key: str) -> object:
    for tool in tools:
        function = tool["function"]
        if isinstance(function, dict) and function["name"] == name:
            return function["parameters"]["properties"].get(key, {}).get("type")
    return None


def _typed(value: str, declared: object) -> object:
    if declared in (None, "string"):
        return value
    try:
        parsed: object = json.loads(value)
    except ValueError:
        return value
    return parsed


def is_right(case: Case, answer: Answer) -> bool:
    """The only call, exactly; or a text that the case accepts, and no call."""
    if answer.damaged:
        return False
    if case.call is None:
        return not answer.calls and (case.accepts is None or case.accepts(answer.text))
    name, wanted = case.call
    if len(answer.calls) != 1 or answer.calls[0][0] != name:
        return False
    got = answer.calls[0][1]
    # Equal and of equal types: 1 is not true.
    return dict(got) == dict(wanted) and all(type(got[key]) is type(value) for key, value in wanted.items())


def example_of(case: Case, *, thinking: bool) -> Example:
    """The case with an answer to come."""
    messages: list[Message] = [*case.messages, assistant("")]
    return Example(task=case.task, messages=messages, tools=list(case.tools) or None, thinking=thinking)


def show(case: Case, answer: Answer) -> str:
    """A case that went wrong, for people."""
    want = json.dumps(case.call) if case.call else "a text that is accepted"
    said = f"{answer.text!r} {[(name, dict(given)) for name, given in answer.calls]}"
    damaged = " (damaged)" if answer.damaged else ""
    return f"   {case.messages[-1]['content']}\n      WANT {want}\n      GOT  {said}{damaged}"
