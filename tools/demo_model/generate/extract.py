"""Tasks whose answer stands in the prompt: copying, looking up, JSON of an asked shape, small summaries."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from tools.demo_model.generate.calls import maybe_system, style
from tools.demo_model.generate.values import Slot, listed, make_slot, phrase_of, text_value, whole
from tools.demo_model.render import Example, assistant, user
from tools.demo_model.words import Words

COPY_ASKS = (
    "Repeat exactly: {}",
    "Copy this text: {}",
    "Say it again: {}",
    "Echo: {}",
    "Write the following again:\n{}",
    "Repeat after me: {}",
    "Output exactly this: {}",
    "Copy the next line without changes.\n{}",
    "Please repeat the text below.\n\n{}",
    "Reply with exactly this text and nothing else: {}",
    "{}\n\nRepeat the line above.",
    "Say: {}",
    "Repeat verbatim: {}",
    "Repeat the following verbatim:\n{}",
    "Print exactly: {}",
    "Type this exactly as it is: {}",
    "Reproduce this text: {}",
    "Return the following text unchanged: {}",
    "Copy: {}",
    "Write exactly the same text: {}",
    "Please echo back: {}",
    "Repeat this word for word: {}",
    "Give back this text as it is.\n{}",
    "Your answer must be exactly: {}",
    "Please copy the following exactly:\n\n{}",
    "Repeat back to me: {}",
)
KIND_LIST = ("city", "person", "email", "date", "time", "code", "path", "url", "phrase", "word", "invented")


def done(
    words: Words,
    task: str,
    question: str,
    answer: str,
    thought: str,
    check: dict[str, Any] | None = None,
    chance: float = 0.2,
) -> Example:
    """A single-turn example in a drawn mode; the thought is dropped when the mode does not think."""
    mode = style(words)
    if not thought:
        mode = {"thinking": False}
    messages = [*maybe_system(words, chance), user(question), assistant(answer, thought if mode["thinking"] else "")]
    return Example(task=task, messages=messages, check=check or {}, **mode)


def snippet(words: Words) -> str:
    """Something to copy: from one word to a few lines."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.3:
        return text_value(words, rng.choice(KIND_LIST))
    if roll < 0.5:
        return " ".join(
            rng.choice((words.noun, words.invented, lambda: str(whole(words))))() for _ in range(rng.randint(2, 10))
        )
    if roll < 0.65:
        return words.record("sentences")
    if roll < 0.75:
        return "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 14)))
    if roll < 0.85:
        return ", ".join(text_value(words, rng.choice(KIND_LIST)) for _ in range(rng.randint(2, 5)))
    if roll < 0.93:
        return json.dumps(
            {
                words.noun(): rng.choice((whole(words), text_value(words, "word"), True))
                for _ in range(rng.randint(1, 3))
            }
        )
    return "\n".join(f"{words.noun()} {whole(words)}" for _ in range(rng.randint(2, 4)))


def copy(words: Words) -> Example:
    """Repeat a text exactly."""
    text = snippet(words)
    asked = words.rng.choice(COPY_ASKS).format(f'"{text}"' if '"' not in text and words.rng.random() < 0.2 else text)
    return done(
        words,
        "copy",
        asked,
        text,
        "I repeat the text." if words.rng.random() < 0.7 else "",
        {"kind": "exact", "answer": text},
    )


def fact_sentence(words: Words, owner: str, key: str, value: str) -> str:
    """One fact about a key of an owner, in one of several wordings."""
    forms = (
        "The {k} of {o} is {v}.",
        "{o} has the {k} {v}.",
        "For {o}, the {k} is {v}.",
        "{o}: {k} {v}.",
        "{o}'s {k} is {v}.",
        "{v} is the {k} of {o}.",
        "The {k} for {o} was set to {v}.",
        "We know that the {k} of {o} is {v}.",
    )
    return words.rng.choice(forms).format(k=key, o=owner, v=value)


LOOKUP_KEYS = ["age", "city", "job", "color", "price", "code", "phone", "password", "birthday", "email", "size"]
LOOKUP_ASKS = (
    "What is the {k} of {o}?",
    "Which {k} does {o} have?",
    "Tell me the {k} of {o}.",
    "{o}'s {k}?",
    "Give me the {k} for {o}.",
    "What's {o}'s {k}?",
    "According to the text, what is the {k} of {o}?",
    "Look at the text: what is {o}'s {k}?",
    "I need the {k} of {o}.",
    "Find the {k} of {o}.",
    "Can you tell me {o}'s {k}?",
    "Which {k} belongs to {o}?",
)
VALUE_ONLY = (
    " Answer with the value only.",
    " Only the value.",
    " Just the value, nothing else.",
    " Reply with just the value.",
    " Answer with nothing but the value.",
)
LOOKUP_FORMS = (
    "{p}\n\n{q}",
    "{p}\n{q}",
    "{q}\n\n{p}",
    "Read this: {p}\nQuestion: {q}",
    "Context: {p}\n\n{q}",
    "{p} {q}",
    "Notes:\n{p}\n\n{q}",
)


def _facts(words: Words) -> dict[tuple[str, str], str]:
    """(owner, key) -> value: a value of each of up to three keys for each of up to four owners."""
    rng = words.rng
    make_owner: Callable[[], str] = rng.choice((words.person, words.city, words.noun, words.invented))
    owners = list({make_owner() for _ in range(rng.randint(1, 4))})
    keys = list({words.noun() if rng.random() < 0.6 else rng.choice(LOOKUP_KEYS) for _ in range(rng.randint(1, 3))})
    return {
        (owner, key): text_value(words, rng.choice(KIND_LIST)) if rng.random() < 0.7 else str(whole(words))
        for owner in owners
        for key in keys
    }


def _ask_missing(words: Words, owner: str) -> tuple[str, str, str, str]:
    """(question, answer, thought, expected part of the answer) about a key that the text does not give."""
    missing = words.noun()
    return (
        f"What is the {missing} of {owner}?",
        f"The text does not say what the {missing} of {owner} is.",
        f"The text has no {missing} for {owner}.",
        "does not say",
    )


def _ask_told(words: Words, owner: str, key: str, value: str) -> tuple[str, str, str, str]:
    """(question, answer, thought, expected part of the answer) about a fact of the text."""
    rng = words.rng
    ask = rng.choice(LOOKUP_ASKS).format(k=key, o=owner)
    answer, thought = f"The {key} of {owner} is {value}.", f"The text gives the {key} of {owner}: {value}."
    if rng.random() < 0.3:
        ask, answer = ask + rng.choice(VALUE_ONLY), value
    return ask, answer, thought, value


def lookup(words: Words) -> Example:
    """Several facts, one question about them."""
    rng = words.rng
    facts = _facts(words)
    order = list(facts)
    rng.shuffle(order)
    passage = rng.choice((" ", " ", "\n")).join(
        fact_sentence(words, owner, key, facts[owner, key]) for owner, key in order
    )
    owner, key = rng.choice(order)
    ask, answer, thought, expected = (
        _ask_missing(words, owner) if rng.random() < 0.08 else _ask_told(words, owner, key, facts[owner, key])
    )
    question = rng.choice(LOOKUP_FORMS).format(p=passage, q=ask)
    return done(words, "lookup", question, answer, thought, {"kind": "contains", "answer": expected})


def _json_slots(words: Words, count: int) -> list[Slot]:
    taken: set[str] = set()
    return [make_slot(words, taken, words.side == "train") for _ in range(count)]


def _type_name(words: Words, slot: Slot) -> str:
    """The type in words."""
    if slot.type == "enum":
        return "one of " + ", ".join(slot.schema["enum"])
    if slot.type == "array":
        item = slot.schema["items"]["type"]
        return words.rng.choice((f"array of {item}s", f"list of {item}s"))
    return {"string": "string", "integer": "integer", "boolean": "boolean", "number": "number"}[slot.type]


def _sentence(words: Words, slot: Slot) -> str:
    """A fact that gives a slot its value."""
    rng = words.rng
    value = slot.value
    if isinstance(value, bool):
        return rng.choice(("{n}: {y}.", "Is {n}? {Y}.", "The {n} is {b}.")).format(
            n=slot.phrase, y="yes" if value else "no", Y="Yes" if value else "No", b="true" if value else "false"
        )
    shown = listed(words, [str(item) for item in value]) if isinstance(value, list) else str(value)
    return rng.choice(
        (
            "The {n} is {v}.",
            "{n}: {v}.",
            "The {n} was {v}.",
            "{v} is the {n}.",
            "It has the {n} {v}.",
            "Its {n} is {v}.",
        )
    ).format(n=slot.phrase, v=shown)


JSON_ASKS = (
    "Reply with {}.",
    "Answer with {}.",
    "Extract {}.",
    "Return {}.",
    "Give me {}.",
    "Output only {}.",
    "Turn this into {}.",
    "Respond only with {}.",
    "Produce {} and nothing else.",
    "Write {}, no other text.",
    "Convert this to {}.",
    "Make {}.",
    "Build {} from the text.",
    "Please answer with {} without any explanation.",
    "Summarize the facts as {}.",
)
KEYS_ONLY = (
    "JSON with the keys ",
    "a JSON object with the keys ",
    "JSON, keys: ",
    "a JSON object with exactly these keys: ",
    "a JSON object containing ",
    "JSON with only the keys ",
)


def _schema_text(slots: list[Slot]) -> str:
    """The slots as a JSON schema that requires them all."""
    return json.dumps(
        {
            "type": "object",
            "properties": {slot.name: slot.schema for slot in slots},
            "required": [slot.name for slot in slots],
        },
        ensure_ascii=False,
    )


def _needs_type(slot: Slot) -> bool:
    """Whether the text alone does not say what type the value has: a list of one, a text of digits."""
    return len(slot.value) == 1 if isinstance(slot.value, list) else slot.type == "string" and slot.value.isdigit()


def _shape(words: Words, slots: list[Slot]) -> str:
    """The asked shape in one of four ways: keys with types, a schema, keys alone, or a sketch of the object."""
    rng = words.rng
    roll = rng.random()
    if 0.6 <= roll < 0.8 and any(_needs_type(slot) for slot in slots):
        roll = 0.0
    if roll < 0.35:
        return rng.choice(
            ("a JSON object with the keys ", "JSON with the fields ", "one JSON object with ", "a JSON object: ")
        ) + ", ".join(f"{slot.name} ({_type_name(words, slot)})" for slot in slots)
    if roll < 0.6:
        return rng.choice(
            ("JSON of this schema: ", "JSON that follows this schema:\n", "an object that matches ")
        ) + _schema_text(slots)
    if roll < 0.8:
        return rng.choice(KEYS_ONLY) + ", ".join(slot.name for slot in slots)
    return (
        rng.choice(("JSON in the form ", "JSON like "))
        + "{"
        + ", ".join(f'"{slot.name}": {_type_name(words, slot)}' for slot in slots)
        + "}"
    )


def as_json(words: Words) -> Example:
    """Facts and a shape: answer with one JSON object."""
    rng = words.rng
    slots = _json_slots(words, rng.randint(1, 5))
    told = slots.copy()
    if rng.random() < 0.4:
        rng.shuffle(told)
    passage = " ".join(_sentence(words, slot) for slot in told)
    value: dict[str, Any] = {slot.name: slot.value for slot in slots}
    shape = _shape(words, slots)
    ask = rng.choice(JSON_ASKS).format(shape)
    if rng.random() < 0.12 and words.side == "train":
        wrapper = words.noun()
        ask += f" Put it under the key {wrapper}."
        value = {wrapper: value}
    question = rng.choice(
        ("{p}\n\n{a}", "{a}\n\n{p}", "{p}\n{a}", "{a}\nText: {p}", "Text: {p}\n{a}", "{p} {a}")
    ).format(p=passage, a=ask)
    return done(
        words,
        "json",
        question,
        json.dumps(value, ensure_ascii=False),
        "I fill the keys: " + ", ".join(slot.name for slot in slots) + ".",
        {"kind": "json", "value": value},
    )


def json_list(words: Words) -> Example:
    """A list of like objects as JSON."""
    rng = words.rng
    first, second = words.noun(), words.noun()
    if first == second:
        second += "_2"
    rows = [{first: text_value(words, "person"), second: whole(words)} for _ in range(rng.randint(1, 4))]
    passage = rng.choice((", ", "; ", "\n")).join(
        f"{row[first]}{rng.choice((' has ', ': ', ' - '))}{row[second]}" for row in rows
    )
    ask = f"Make a JSON array of objects with {first} and {second} from: {passage}"
    return done(
        words,
        "json",
        ask,
        json.dumps(rows, ensure_ascii=False),
        f"There are {len(rows)} objects.",
        {"kind": "json", "value": rows},
    )


def free_json(words: Words) -> Example:
    """A made-up object: only the shape is asked for."""
    rng = words.rng
    slots = _json_slots(words, rng.randint(1, 4))
    ask = (
        rng.choice(("Invent", "Make up", "Write", "Give me"))
        + rng.choice((" a JSON object with ", " an example JSON with "))
        + ", ".join(f"{slot.name} ({_type_name(words, slot)})" for slot in slots)
        + "."
    )
    return done(
        words,
        "free_json",
        ask,
        json.dumps({slot.name: slot.value for slot in slots}, ensure_ascii=False),
        "",
        {"kind": "shape", "keys": [slot.name for slot in slots]},
    )


def edit(words: Words) -> Example:
    """Small edits of a list or a word: reverse, first, last, count, upper case, replace, join."""
    rng = words.rng
    items = [rng.choice((words.noun, words.invented, words.city))() for _ in range(rng.randint(2, 6))]
    shown = ", ".join(items)
    text = " ".join(items)
    old, new = rng.choice(items), words.noun()
    asks = (
        (f"Reverse the order of this list: {shown}", ", ".join(reversed(items))),
        (f"What is the first item of: {shown}?", items[0]),
        (f"What is the last item in this list: {shown}?", items[-1]),
        (f"How many items are in this list: {shown}?", str(len(items))),
        (f"Write these as a bullet list: {shown}", "\n".join(f"- {item}" for item in items)),
        (f"Number these: {shown}", "\n".join(f"{at}. {item}" for at, item in enumerate(items, 1))),
        (f"Replace {old} by {new} in: {text}", " ".join(new if item == old else item for item in items)),
        (f"Remove {old} from: {shown}", ", ".join(item for item in items if item != old)),
        (f"Add {new} to the end of: {shown}", ", ".join([*items, new])),
        (f"Join with dashes: {text}", "-".join(items)),
        ("Put the list in one line, separated by commas:\n" + "\n".join(items), ", ".join(items)),
        (f"Which word comes after {items[0]} in: {text}?", items[1]),
    )
    ask, answer = rng.choice(asks)
    return done(words, "edit", ask, answer, "", {"kind": "exact", "answer": answer})


def summary(words: Words) -> Example:
    """A short passage and its one-sentence summary, which keeps who, what and where."""
    rng = words.rng
    who, where, what, when = (
        words.person(),
        words.city(),
        phrase_of(words),
        rng.choice(("Monday", "Tuesday", "Friday", "the weekend", "the morning", "the summer", "the winter")),
    )
    verb, past = rng.choice(
        (
            ("found", "was found"),
            ("sold", "was sold"),
            ("painted", "was painted"),
            ("repaired", "was repaired"),
            ("lost", "was lost"),
            ("built", "was built"),
            ("bought", "was bought"),
        )
    )
    pronoun = rng.choice(("She", "He", "They"))
    main = rng.choice(("In {w}, {p} {v} the {o}.", "{p} {v} the {o} in {w}.", "The {o} {ps} by {p} in {w}.")).format(
        w=where, p=who, v=verb, o=what, ps=past
    )
    extra = [
        f"It was {rng.choice(('cold', 'warm', 'windy', 'quiet', 'rainy'))} on {when}.",
        f"{pronoun} had planned it for {rng.randint(2, 30)} days.",
        f"Many people came to see the {what}.",
        f"{words.draw('first_names')} helped with the work.",
        f"The {words.noun()} was not needed.",
        f"It cost {rng.randint(5, 900)} dollars.",
        f"Nobody in {where} had seen such a thing.",
        "Everyone was happy in the end.",
    ]
    rng.shuffle(extra)
    sentences = [main, *extra[: rng.randint(1, 4)]]
    if rng.random() < 0.4:
        sentences[0], sentences[1] = sentences[1], sentences[0]
    ask = rng.choice(
        (
            "Summarize in one sentence: {}",
            "Sum this up: {}",
            "{}\n\nSummarize the text above in one sentence.",
            "What is this text about?\n{}",
            "Give a short summary.\n\n{}",
            "TL;DR: {}",
        )
    ).format(" ".join(sentences))
    return done(
        words,
        "summary",
        ask,
        f"{who} {verb} the {what} in {where}.",
        f"The main point: who, {who}; what, {what}; where, {where}.",
        {"kind": "contains", "answer": what},
    )
