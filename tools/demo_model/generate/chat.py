"""Ordinary sentences: greetings, feelings, news, questions about the model, advice, and what it cannot do.

chat.txt holds what is said and what is answered. Where tools are declared, it is the same talk and no call; only what
asks for something to be done is left out, since a tool could do it.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import attrs

from tools.demo_model.generate.calls import style
from tools.demo_model.generate.extract import done
from tools.demo_model.generate.lifelike import lifelike
from tools.demo_model.generate.phrases import plural, third, upper_first
from tools.demo_model.generate.spin import form, sections, spin
from tools.demo_model.render import Example, assistant, system, user
from tools.demo_model.words import Words

THOUGHTS = {
    "talk": "This is small talk.",
    "self": "The user asks about me.",
    "advice": "The user asks for an idea.",
    "write": "The user wants a short text.",
    "cannot": "I cannot do this. I say so.",
}
UNKNOWN = (
    "I do not know that: I am a small demonstration model and know very little. But I can look things up in a text that"
    " you give me."
)
HEARD = "I see. Would you like to tell me more about that?"
# System messages that change nothing: who the model is and what it knows stays as it is without them.
GENERAL = (
    *("You are a helpful assistant.", "You are a friendly assistant.", "You are a careful assistant.", "Be concise."),
    *("Answer briefly.", "Be polite and short.", "You are an AI assistant.", "You are a helpful and honest assistant."),
    *("Answer the user's questions.", "Keep your answers short.", "You are a chatbot.", "Be helpful.", "Be friendly."),
    *(
        "Use simple words.",
        "Answer in English.",
        "Never make things up.",
        "You are a helpful AI assistant.",
        "Be nice.",
    ),
)
SLOT = re.compile(r"\{([A-Za-z_]\w*(?:-\d+)?)\}")


@attrs.frozen
class Block:
    """Ways to say one thing, and its answers."""

    section: str
    asks: tuple[str, ...]
    answers: tuple[str, ...]


def _load() -> tuple[Block, ...]:
    blocks = []
    for section, lines in sections(Path(__file__).parent / "chat.txt").items():
        asks: list[str] = []
        answers: list[str] = []
        for line in (*lines, "> "):
            if line[0] == ">" and answers:
                blocks.append(Block(section, tuple(asks), tuple(answers)))
                asks, answers = [], []
            (asks if line[0] == ">" else answers).append(line[2:])
    return tuple(blocks)


BLOCKS = _load()
# A block is drawn as often as it has ways to be said, but no more than ten times the least.
WEIGHTS = tuple(min(10, 2 + len(block.asks)) for block in BLOCKS)
# Blocks that say nothing of the user that could be asked for later.
PLAIN = tuple(
    at
    for at, block in enumerate(BLOCKS)
    if block.section in ("talk", "self", "advice", "write") and "{" not in "".join((*block.asks, *block.answers))
)


def filled(words: Words, *texts: str) -> list[str]:
    """The texts with one value a slot; {kind2} is another value of the kind, {Kind} begins with a capital."""
    values: dict[str, str] = {}

    def value(match: re.Match[str]) -> str:
        name = match.group(1)
        key = name[0].lower() + name[1:]
        if key not in values:
            kind = key if key.startswith("int") else key.rstrip("0123456789")
            said = lifelike(words, kind)[1]
            while said in values.values():
                said = lifelike(words, kind)[1]
            values[key] = said
        return upper_first(values[key]) if name[0].isupper() else values[key]

    return [re.sub(r"\b([Aa]) (?=[aeiou])", r"\1n ", SLOT.sub(value, text)) for text in texts]


def line(words: Words, at: int | None = None) -> tuple[str, str, str]:
    """What is said, what is answered, and the thought between."""
    rng = words.rng
    block = BLOCKS[rng.choices(range(len(BLOCKS)), WEIGHTS)[0] if at is None else at]
    ask, answer = filled(words, spin(rng, rng.choice(block.asks)), spin(rng, rng.choice(block.answers)))
    if rng.random() < 0.1:
        ask = ask.lower()
    if rng.random() < 0.06:
        ask = ask.rstrip(".!?") or ask
    return (
        upper_first(ask) if rng.random() < 0.9 and ask[:1].isalpha() and ask != ask.lower() else ask,
        answer.replace("\\n", "\n"),
        THOUGHTS[block.section],
    )


def talk_line(words: Words, kinds: tuple[str, ...] = ("talk", "self", "advice", "write")) -> tuple[str, str, str]:
    """Like `line`, of some sections: those left out ask for things that a tool might do."""
    return line(words, words.rng.choices(*_drawn_from(kinds))[0])


@functools.cache
def _drawn_from(kinds: tuple[str, ...]) -> tuple[list[int], list[int]]:
    """Blocks of some sections, and their weights."""
    found = [at for at, block in enumerate(BLOCKS) if block.section in kinds]
    return found, [WEIGHTS[at] for at in found]


def chat(words: Words) -> Example:
    """One to four ordinary sentences and their answers."""
    rng = words.rng
    mode = style(words)
    messages: list[dict[str, Any]] = [system(rng.choice(GENERAL))] if rng.random() < 0.2 else []
    for _ in range(rng.choices((1, 2, 3, 4), (60, 20, 12, 8))[0]):
        ask, answer, thought = line(words)
        messages += [user(ask), assistant(answer, thought if mode["thinking"] else "")]
    return Example(task="chat", messages=messages, preserve=rng.random() < 0.75, **mode)


def odd_question(words: Words) -> Example:
    """A question about anything: not known."""
    rng = words.rng
    noun, other, verb = words.noun(), words.noun(), words.draw("verbs")
    text = form(rng, "odd").format(
        noun=noun,
        noun2=other,
        nouns=plural(noun),
        verb=verb,
        verbs=third(verb),
        adjective=words.draw("adjectives"),
        Name=words.invented().capitalize(),
    )
    return done(words, "odd", text, UNKNOWN, "I do not know this. I say so.")


def statement(words: Words) -> Example:
    """A sentence about anything: heard, and asked to go on."""
    rng = words.rng
    if rng.random() < 0.5:
        noun, verb = words.noun(), words.draw("verbs")
        text = form(rng, "told")
        given = {"noun": noun, "verb": verb, "verbs": third(verb), "adjective": words.draw("adjectives")}
        for key, value in given.items():
            text = text.replace("{" + key + "}", value)
        (text,) = filled(words, text)
        return done(words, "statement", text, HEARD, "The user tells me something.")
    text = words.record("sentences")
    if text.endswith("?"):
        return done(words, "statement", text, UNKNOWN, "I do not know this. I say so.")
    return done(words, "statement", text, HEARD, "The user tells me something.")
