"""Declared tools in many styles: names, descriptions and parameters that say the same thing in different ways.

What a tool is called, how it is described and how it is asked for may use different words of one meaning. Training
draws everyday parameter names, too; the evaluation draws names from its own words alone.
"""

from __future__ import annotations

from typing import Any

from tools.demo_model.generate.phrases import phrase, plural, thing_words, upper_first
from tools.demo_model.generate.synonyms import alike
from tools.demo_model.generate.toolkit import EVERYDAY_NOUNS, USUAL_VERBS, Made, styled
from tools.demo_model.generate.values import (
    KIND_NAMES,
    TYPE_NAMES,
    Slot,
    fresh_name,
    make_slot,
    option_word,
    text_value,
    whole,
)
from tools.demo_model.words import Words

WIDE_KINDS = {
    **KIND_NAMES,
    "address": "address street destination place location home pickup where site venue house",
    "country": "country nation destination origin region",
    "color": "color shade tint paint",
    "digits": "phone number card account code phone_number pin zip",
    "domain": "domain host server website",
    "job": "job role position profession occupation",
    "thing": "item object product article thing piece tool dish part goods gift",
}
TEXT_KINDS = (
    "city",
    "person",
    "address",
    "thing",
    "invented",
    "word",
    "phrase",
    "code",
    "date",
    "time",
    "country",
    "email",
    "path",
    "color",
    "digits",
    "job",
    "url",
    "domain",
    "sentence",
)
TEXT_WEIGHTS = (9, 10, 12, 12, 14, 8, 6, 7, 5, 4, 3, 3, 3, 3, 3, 3, 1, 1, 2)
TYPES = ("string", "integer", "boolean", "enum", "array", "number")
TYPE_WEIGHTS = (38, 24, 11, 14, 11, 2)


def _spaced(name: str) -> str:
    """max_results, maxResults -> max results."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).replace("_", " ").strip()


def _integer(words: Words, usual: bool) -> tuple[str, str, str]:
    """(name, phrase, unit) of a whole number: often it counts something."""
    rng = words.rng
    if rng.random() < 0.6:
        thing = words.noun()
        unit = plural(thing)
        name = rng.choice(
            (
                unit,
                unit,
                unit,
                f"{thing}_count",
                f"number_of_{unit}",
                f"num_{unit}",
                f"{thing}Count",
                f"max_{unit}",
                thing,
            )
        )
        return name, rng.choice((unit, _spaced(name))), unit
    name = rng.choice(TYPE_NAMES["integer"].split()) if usual and rng.random() < 0.6 else fresh_name(words)
    unit = rng.choice(("percent", "minutes", "dollars", "hours", "meters")) if rng.random() < 0.12 else ""
    return name, _spaced(name), unit


def _named(words: Words, type_: str, kind: str, usual: bool) -> tuple[str, str, str]:
    """(name, phrase, unit) of a parameter."""
    rng = words.rng
    if type_ == "integer":
        return _integer(words, usual)
    names = WIDE_KINDS[kind] if kind else TYPE_NAMES[type_]
    name = rng.choice(names.split()) if usual and rng.random() < 0.45 else fresh_name(words)
    if type_ == "array" and rng.random() < 0.5:
        name = plural(name)
    return name, _spaced(name), ""


def _value(words: Words, type_: str, kind: str) -> tuple[dict[str, Any], Any]:
    """Schema and a value of the type."""
    rng = words.rng
    if type_ == "string":
        return {"type": "string"}, text_value(words, kind)
    if type_ == "integer":
        return {"type": "integer"}, whole(words) if rng.random() < 0.5 else rng.randint(1, rng.choice((12, 50, 100)))
    if type_ == "array" and rng.random() < 0.85:
        kind = rng.choice(("invented", "person", "word", "thing", "city", "first"))
        count = rng.choice((1, 2, 2, 3, 3, 4))
        draw = (lambda: words.draw("first_names")) if kind == "first" else (lambda: text_value(words, kind))
        values = [draw() for _ in range(count)]
        if kind == "invented" and rng.random() < 0.6:
            values = [value.capitalize() for value in values]
        return {"type": "array", "items": {"type": "string"}}, list(dict.fromkeys(values))
    if type_ == "enum" and rng.random() < 0.6:
        options = list({option_word(words) for _ in range(rng.randint(2, 5))})
        rng.shuffle(options)
        return {"type": "string", "enum": options}, rng.choice(options)
    while True:
        slot = make_slot(words, set(), words.side == "train")
        if slot.type == type_:
            return {key: part for key, part in slot.schema.items() if key != "description"}, slot.value


def _described(words: Words, type_: str, name: str, verb: str, noun: str) -> str | None:
    """A parameter's description in one of many styles."""
    rng = words.rng
    if rng.random() < 0.2:
        return None
    special = {"integer": "param_integer", "boolean": "param_boolean", "enum": "param_enum", "array": "param_list"}
    section = special.get(type_, "param_text") if rng.random() < 0.45 else "param_description"
    meaning = words.meaning(name)
    form = phrase(words, section)
    while "{gloss}" in form and meaning is None:
        form = phrase(words, section)
    text = form.format(n=name, N=upper_first(name), noun=noun, verb=verb, type=type_, gloss=meaning)
    return text + rng.choice(("", "", "", "."))


def make_wide_slot(words: Words, taken: set[str], verb: str, noun: str) -> Slot:
    """A parameter of a tool that does `verb` to `noun`."""
    rng = words.rng
    usual = words.side == "train"
    type_ = rng.choices(TYPES, TYPE_WEIGHTS)[0]
    kind = rng.choices(TEXT_KINDS, TEXT_WEIGHTS)[0] if type_ == "string" else ""
    while True:
        name, said, unit = _named(words, type_, kind, usual)
        if name.lower() not in taken:
            taken.add(name.lower())
            break
    schema, value = _value(words, type_, kind)
    described = _described(words, type_, said, verb, noun)
    if described and rng.random() < 0.5:
        schema = {**schema, "description": described}
    elif described:
        schema = {"description": described, **schema} if rng.random() < 0.2 else {**schema, "description": described}
    return Slot(
        name=name,
        phrase=said,
        type=type_,
        schema=schema,
        required=rng.random() < 0.85,
        value=value,
        kind=kind,
        unit=unit,
    )


def _description(words: Words, verb: str, noun: str, slots: tuple[Slot, ...]) -> str:
    """What the tool says of itself."""
    meaning = words.meaning(noun.split()[-1])
    form = phrase(words, "description")
    while ("{gloss}" in form and meaning is None) or ("{params}" in form and not slots):
        form = phrase(words, "description")
    said = [slot.phrase for slot in slots]
    listed = said[0] if len(said) == 1 else ", ".join(said[:-1]) + " and " + said[-1] if said else ""
    extra = phrase(words, "extra").format(word=words.noun(), words=plural(words.noun()))
    return form.format(**thing_words(words, verb, noun), params=listed, extra=extra, gloss=meaning).strip()


def _name(words: Words, verb: str, noun: str) -> str:
    """The function's name."""
    rng = words.rng
    roll = rng.random()
    parts = [verb, *noun.split()]
    if roll < 0.08:
        return words.invented()
    if roll < 0.16:
        parts = [
            *noun.split(),
            rng.choice(("service", "tool", "api", "helper", "manager", "info", "action", "request")),
        ]
    elif roll < 0.24:
        parts = [*noun.split(), verb]
    elif roll < 0.29:
        parts = noun.split()
    elif roll < 0.33:
        parts = [*parts, words.noun()]
    return styled(words, parts)


def make_wide(words: Words, verb: str | None = None, noun: str | None = None, most: int = 4) -> Made:
    """A tool in one of many styles; verb or noun may be given to make it close to another one."""
    rng = words.rng
    usual = words.side == "train"
    if verb is None:
        roll = rng.random()
        verb = (
            words.draw("verbs") if not usual or roll < 0.45 else rng.choice(USUAL_VERBS) if roll < 0.8 else words.noun()
        )
    if noun is None:
        if usual and rng.random() < 0.1:
            noun = rng.choice(EVERYDAY_NOUNS)
        else:
            noun = words.noun() if rng.random() < 0.72 else f"{words.noun()} {words.noun()}"
    taken: set[str] = set()
    count = min(rng.choices((0, 1, 2, 3, 4), (2, 28, 36, 22, 12))[0], most)
    if not usual:
        count = max(1, count)
    slots = tuple(make_wide_slot(words, taken, verb, noun) for _ in range(count))
    # Verb and noun of the name may be other words of the same meaning than those of the description.
    named_verb = words.synonym(verb, "verb") if usual and rng.random() < 0.2 else verb
    description = _description(words, verb, noun, slots)
    shape = rng.choices(("plain", "closed", "strict", "nodesc"), (84, 7, 4, 5))[0]
    name = _name(words, named_verb, noun)
    if shape == "nodesc" and noun.split()[-1].lower() not in name.lower():
        shape = "plain"
    return Made(name=name, verb=verb, noun=noun, description=description, slots=slots, shape=shape)


def apart(one: Made, other: Made) -> bool:
    """Whether no request fits both: other names, other things, other verbs, other parameters' words."""
    said = {slot.phrase for slot in one.slots}
    shares = [slot for slot in other.slots if slot.phrase in said]
    return (
        one.name != other.name
        and not any(alike(word, far) for word in one.noun.split() for far in other.noun.split())
        and not alike(one.verb, other.verb)
        and len(shares) < 2
    )
