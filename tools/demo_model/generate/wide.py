"""Tool conversations in many sentence forms: choose and fill, refuse, answer from a result; tools in many styles."""

from __future__ import annotations

from typing import Any

from tools.demo_model.generate import chat
from tools.demo_model.generate.asking import wide_request
from tools.demo_model.generate.calls import call_thought, loop, style
from tools.demo_model.generate.domains import everyday
from tools.demo_model.generate.extract import summary
from tools.demo_model.generate.phrases import around, phrase, system_line
from tools.demo_model.generate.reading import copy_wide, read
from tools.demo_model.generate.shapes import json_wide
from tools.demo_model.generate.talk import opinion, small_talk, tell_story
from tools.demo_model.generate.toolkit import Made, arguments, leave_out, make_tool
from tools.demo_model.generate.wide_tools import apart, make_wide
from tools.demo_model.render import Example, assistant, system, user
from tools.demo_model.words import Words


def pick_wide(words: Words) -> tuple[Made, list[Made], str]:
    """A target, the declared tools, the request."""
    rng = words.rng
    size = rng.choices((1, 2, 3, 4, 5, 6), (6, 22, 25, 23, 15, 9))[0]
    if words.side == "eval":
        size = max(2, size)
    if words.side == "train" and rng.random() < 0.3:
        made, sentence = everyday(words)
        sentence = around(words, sentence)
    else:
        made = leave_out(words, make_wide(words))
        sentence = wide_request(words, made)
    box = [made]
    while len(box) < size:
        other = _other(words, made)
        if all(apart(one, other) for one in box):
            box.append(other)
    rng.shuffle(box)
    return made, box, sentence


def _other(words: Words, made: Made) -> Made:
    """A tool beside the right one."""
    roll = words.rng.random()
    if words.side == "train" and roll < 0.3:
        return everyday(words)[0]
    return make_wide(words, most=3) if roll < 0.85 else make_tool(words, most=3)


def before(words: Words, mode: dict[str, Any]) -> list[dict[str, Any]]:
    """What stands before the request: sometimes a system message, sometimes some small talk."""
    rng = words.rng
    messages: list[dict[str, Any]] = [system(system_line(words))] if rng.random() < 0.3 else []
    if rng.random() < 0.07:
        ask, answer, thought = chat.talk_line(words, ("talk", "advice"))
        messages += [user(ask), assistant(answer, thought if mode["thinking"] else "")]
    return messages


def call_wide(words: Words) -> Example:
    """One request, one right call."""
    mode = style(words)
    made, box, sentence = pick_wide(words)
    answer = assistant("", call_thought(mode, made, box), [(made.name, arguments(made))])
    return Example(
        task="call_wide",
        messages=[*before(words, mode), user(sentence), answer],
        tools=[one.declaration() for one in box],
        check={"kind": "call", "name": made.name, "arguments": arguments(made)},
        **mode,
    )


def refuse_wide(words: Words) -> Example:
    """The right tool is not declared: say so and do not call."""
    mode = style(words)
    while True:
        made, box, sentence = pick_wide(words)
        others = [one for one in box if one is not made]
        if others:
            break
    thought = f"The user wants to {made.verb} {made.noun}. No tool fits." if mode["thinking"] else ""
    return Example(
        task="refuse_wide",
        messages=[*before(words, mode), user(sentence), assistant(phrase(words, "refusal"), thought)],
        tools=[one.declaration() for one in others],
        check={"kind": "no_call"},
        **mode,
    )


def loop_wide(words: Words) -> Example:
    """Request, call, result, answer."""
    return loop(words, pick_wide)


def unneeded_wide(words: Words) -> Example:
    """Tools are there, but the question needs none."""
    rng = words.rng
    turn = rng.choice((small_talk, small_talk, opinion, opinion, tell_story, read, json_wide, copy_wide, summary))(
        words
    )
    tools = [
        (everyday(words)[0] if words.side == "train" and rng.random() < 0.4 else make_wide(words, most=3)).declaration()
        for _ in range(rng.randint(1, 5))
    ]
    return Example(
        task="unneeded",
        messages=turn.messages,
        tools=tools,
        thinking=turn.thinking,
        effort=turn.effort,
        check={"kind": "no_call"},
    )


def session(words: Words) -> Example:
    """Several requests one after another with the same tools, each called, answered from its result."""
    rng = words.rng
    mode = style(words)
    asked: list[tuple[Made, str]] = []
    box: list[Made] = []
    count = rng.randint(2, 4)
    while len(box) < count + rng.randint(0, 2):
        made = _other(words, box[0]) if len(asked) == count else leave_out(words, make_wide(words, most=3))
        sentence = wide_request(words, made)
        if len(asked) < count and words.side == "train" and rng.random() < 0.35:
            made, sentence = everyday(words)
        if all(apart(one, made) for one in box):
            box.append(made)
            asked += [(made, sentence)] if len(asked) < count else []
    rng.shuffle(box)
    messages: list[dict[str, Any]] = [system(system_line(words))] if rng.random() < 0.25 else []
    for made, sentence in asked:
        turn = answered(words, made, box, sentence, mode)
        messages += [message for message in turn.messages if message["role"] != "system"]
    tools = [one.declaration() for one in box]
    return Example(task="session", messages=messages, tools=tools, preserve=rng.random() < 0.85, **mode)


def answered(words: Words, made: Made, box: list[Made], sentence: str, mode: dict[str, Any]) -> Example:
    """One request of a session, in the session's mode."""
    while True:
        turn = loop(words, lambda _: (made, box, sentence))
        if (turn.thinking, turn.effort) == (mode["thinking"], mode.get("effort")):
            return turn
