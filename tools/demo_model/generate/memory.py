"""Conversations in which the user tells something and asks for it later, corrects it, or asks what was said.

memory.txt holds what is told, asked and answered. Invariant: an answer holds the newest value that was told, and what
was not told is said to be unknown.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs

from tools.demo_model.generate import chat, extract, reason
from tools.demo_model.generate.calls import style
from tools.demo_model.generate.phrases import system_line
from tools.demo_model.generate.spin import form, spin
from tools.demo_model.render import Example, assistant, system, user
from tools.demo_model.words import Words

NOTED = (
    *["I will remember that."] * 6,
    "Thank you for telling me.",
    "Good to know.",
    "All right, I have noted it.",
    "I see.",
)
UNKNOWN = "You have not told me that."


@attrs.frozen
class Fact:
    """Ways to tell, and the questions with their answers."""

    told: tuple[str, ...]
    asked: tuple[tuple[str, str], ...]


def _load() -> tuple[Fact, ...]:
    facts: list[Fact] = []
    told: list[str] = []
    asked: list[tuple[str, str]] = []
    asks: list[str] = []
    for row in (*(Path(__file__).parent / "memory.txt").read_text(encoding="utf-8").splitlines(), "+ "):
        mark, text = row[:1], row[2:].strip()
        if mark == "+":
            if asked:
                facts.append(Fact(tuple(told), tuple(asked)))
                told, asked = [], []
            told.append(text)
        elif mark == "?":
            asks.append(text)
        elif mark == "=":
            asked += [(ask, text) for ask in asks]
            asks = []
    return tuple(facts)


FACTS = _load()


def _told(words: Words, fact: Fact, ask: str, answer: str) -> tuple[str, str, str]:
    """One way to tell the fact, a question and its answer, filled alike."""
    rng = words.rng
    slots = set(chat.SLOT.findall(answer))
    fitting = [form for form in fact.told if slots <= set(chat.SLOT.findall(form))]
    told, asked, answered = chat.filled(words, spin(rng, rng.choice(fitting or fact.told)), spin(rng, ask), answer)
    return told, asked, answered


def _corrected(words: Words, fact: Fact, ask: str, answer: str, told: tuple[str, str, str]) -> tuple[str, str, str]:
    """The same fact with another value for the same question; as it was where nothing else could be meant."""
    for _ in range(60):
        new = _told(words, fact, ask, answer)
        if new[1] == told[1] and new[2] != told[2]:
            return new
        if "{" not in ask and new[2] != told[2]:
            return new[0], told[1], new[2]
    return told


def _value_of(form: str, answer: str) -> str:
    """The one value of an answer whose form is given; empty where there are several."""
    if form.count("{") != 1:
        return ""
    before, after = form.split("{")[0], form.split("}")[1]
    return answer[len(before) : len(answer) - len(after)]


def _noted(words: Words, told: tuple[str, str, str]) -> str:
    """What is said to something told."""
    if told[2].startswith("Your name is "):
        return f"Nice to meet you, {told[2][13:-1]}!"
    return words.rng.choice(NOTED)


def _filler(words: Words, thinks: bool) -> list[dict[str, Any]]:
    """A turn about something else."""
    rng = words.rng
    if rng.random() < 0.75:
        ask, answer, thought = chat.line(words, rng.choice(chat.PLAIN))
        return [user(ask), assistant(answer, thought if thinks else "")]
    maker = rng.choice((reason.arithmetic, reason.compare, extract.copy, reason.date))
    turn = maker(words)
    while turn.thinking != thinks:
        turn = maker(words)
    return turn.messages[-2:]


def _questions(words: Words, known: list[tuple[str, str, str]]) -> list[tuple[str, str]]:
    """(question, answer) about some of what is known; now and then two questions in one message."""
    rng = words.rng
    asked = rng.sample(known, rng.randint(1, len(known)))
    if len(asked) < 2 or rng.random() > 0.35:
        return [(ask, answer) for _, ask, answer in asked]
    (_, one, first), (_, two, second), *others = asked
    link = rng.choice((" ", " And ", " and "))
    joint = f"{one.rstrip('?')} and {two[0].lower()}{two[1:]}" if link == " and " else one + link + two
    return [(joint, f"{first} {second}"), *((ask, answer) for _, ask, answer in others)]


def _british(message: dict[str, Any]) -> dict[str, Any]:
    """A user's message in British spelling."""
    if message["role"] != "user":
        return message
    return {**message, "content": message["content"].replace("avorite", "avourite").replace("color", "colour")}


def recall(words: Words) -> Example:
    """Facts told in one or more messages, other talk, and questions about them."""
    rng = words.rng
    mode = style(words)
    thinks = mode["thinking"]
    facts = rng.sample(FACTS, rng.choices((1, 2, 3, 4), (42, 32, 18, 8))[0])
    known: list[tuple[str, str, str]] = []
    plans = []
    for fact in facts:
        ask, answer = rng.choice(fact.asked)
        plans.append((fact, ask, answer))
        known.append(_told(words, fact, ask, answer))
    messages: list[dict[str, Any]] = [system(system_line(words))] if rng.random() < 0.12 else []
    british = rng.random() < 0.15
    tell = "The user tells me something." if thinks else ""
    if len(known) > 1 and rng.random() < 0.5:
        messages += [user(" ".join(one[0] for one in known)), assistant(rng.choice(NOTED), tell)]
    else:
        for one in known:
            messages += [user(one[0]), assistant(_noted(words, one), tell)]
            messages += _filler(words, thinks) if rng.random() < 0.2 else []
    if rng.random() < 0.22:
        at = rng.randrange(len(known))
        new = _corrected(words, *plans[at], known[at])
        if new is not known[at]:
            known[at] = new
            text = form(rng, "correction").format(told=new[0])
            value = _value_of(plans[at][2], new[2])
            if value and len(known) == 1 and rng.random() < 0.6:
                text = form(rng, "short_correction").format(value=value)
            messages += [user(text), assistant("Thank you, I have changed it.", tell)]
    for _ in range(rng.choices((0, 1, 2), (5, 3, 2))[0]):
        messages += _filler(words, thinks)
    thought = "The user said it above." if thinks else ""
    answer = ""
    for ask, answer in _questions(words, known):
        messages += [user(ask), assistant(answer, thought)]
    roll = rng.random()
    if roll < 0.12:
        answer = " ".join(one[2] for one in known)
        messages += [user(form(rng, "all_told")), assistant(answer, thought)]
    elif roll < 0.24:
        other = rng.choice([fact for fact in FACTS if fact not in facts])
        told = _told(words, other, *rng.choice(other.asked))
        if told[1] not in [one[1] for one in known] and "the " not in told[1] and " it " not in told[1]:
            answer = UNKNOWN
            messages += [user(told[1]), assistant(UNKNOWN, "The user has not said it." if thinks else "")]
    if british:
        messages = [_british(message) for message in messages]
    return Example(
        task="recall",
        messages=messages,
        preserve=rng.random() < 0.75,
        check={"kind": "exact", "answer": answer},
        **mode,
    )


def said_before(words: Words) -> Example:
    """Questions about the conversation itself."""
    rng = words.rng
    mode = style(words)
    thinks = mode["thinking"]
    messages: list[dict[str, Any]] = []
    for _ in range(rng.randint(1, 3)):
        messages += _filler(words, thinks)
    users = [message["content"] for message in messages if message["role"] == "user"]
    roll = rng.random()
    if roll < 0.45:
        ask, answer = form(rng, "said"), f'You said: "{users[-1]}"'
    elif roll < 0.7:
        ask, answer = form(rng, "first_said"), f'You said: "{users[0]}"'
    else:
        ask, answer = form(rng, "yours"), f'I said: "{messages[-1]["content"]}"'
    messages += [user(ask), assistant(answer, "It stands above." if thinks else "")]
    return Example(
        task="said_before",
        messages=messages,
        preserve=rng.random() < 0.75,
        check={"kind": "exact", "answer": answer},
        **mode,
    )
