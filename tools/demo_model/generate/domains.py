"""Everyday tools with the sentences people really say. Training only: the evaluation uses drawn words instead.

A row of everyday.txt is NAME | description | parameters | requests. A parameter is name:kind or name?:kind (optional),
where kind is a key of KINDS or =one/of/these; a request holds {parameter} slots and may end in <parameter=value>.
An optional parameter that a request does not mention is left out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tools.demo_model.generate.synonyms import another
from tools.demo_model.generate.toolkit import Made, styled
from tools.demo_model.generate.values import Slot, listed, text_value
from tools.demo_model.words import Words

KINDS: dict[str, tuple[str, str]] = {
    "city": ("string", "city"),
    "person": ("string", "person"),
    "email": ("string", "email"),
    "date": ("string", "date"),
    "time": ("string", "time"),
    "code": ("string", "code"),
    "path": ("string", "path"),
    "url": ("string", "url"),
    "phrase": ("string", "phrase"),
    "text": ("string", "sentence"),
    "word": ("string", "word"),
    "name": ("string", "invented"),
    "int": ("integer", ""),
    "num": ("number", ""),
    "address": ("string", "address"),
    "country": ("string", "country"),
    "color": ("string", "color"),
    "digits": ("string", "digits"),
    "domain": ("string", "domain"),
    "people": ("array", "person"),
    "cities": ("array", "city"),
    "paths": ("array", "path"),
    "words": ("array", "word"),
}


def _load() -> list[tuple[str, str, list[tuple[str, str, bool]], list[str]]]:
    """Rows as (name, description, [(parameter, kind, required)], requests)."""
    table = []
    for row in (Path(__file__).parent / "everyday.txt").read_text(encoding="utf-8").strip().splitlines():
        name, description, params, requests = (part.strip() for part in row.split(" | "))
        split = [(part.split(":")[0], part.split(":", 1)[1]) for part in params.split()]
        fields = [(head.rstrip("?"), kind, not head.endswith("?")) for head, kind in split]
        table.append((name, description, fields, [request.strip() for request in requests.split(" ; ")]))
    return table


TABLE = _load()


def everyday(words: Words, index: int | None = None) -> tuple[Made, str]:
    """A declared everyday tool and a request for it; slots not mentioned hold None."""
    rng = words.rng
    name, description, fields, requests = TABLE[rng.randrange(len(TABLE)) if index is None else index]
    description = rng.choice(description.split(" ; "))
    sentence = rng.choice(requests)
    forced: dict[str, Any] = {}
    if sentence.endswith(">"):
        sentence, mark = sentence[:-1].rsplit("<", 1)
        key, word = mark.split("=")
        forced[key] = word == "true"
    slots, shown = [], {}
    for field, kind, required in fields:
        slot, text = _slot(words, field, kind, required)
        if field in forced:
            slot, text = _with_value(slot, forced[field]), ""
        elif "{" + field + "}" not in sentence:
            slot = _with_value(slot, None)
        slots.append(slot)
        shown[field] = text
    verb, _, noun = name.partition("_")
    if rng.random() < 0.35:
        # The sentence keeps its words, the declaration gets others of the same meaning.
        verb, noun = another(rng, verb), another(rng, noun)
        slots = [_renamed(slot, another(rng, slot.name)) for slot in slots]
        description = "" if rng.random() < 0.3 or not noun else f"{verb.capitalize()} a {noun.replace('_', ' ')}."
    name = styled(words, [verb, *noun.split("_")]) if noun else verb
    shape = "plain" if description else "nodesc"
    made = Made(
        name=name,
        verb=verb,
        noun=noun.replace("_", " ") or "it",
        description=description,
        slots=tuple(slots),
        shape=shape,
    )
    return made, sentence.format(**shown)


def _renamed(slot: Slot, name: str) -> Slot:
    return Slot(
        name=name,
        phrase=name.replace("_", " "),
        type=slot.type,
        schema=slot.schema,
        required=slot.required,
        value=slot.value,
    )


def _with_value(slot: Slot, value: Any) -> Slot:
    return Slot(
        name=slot.name, phrase=slot.phrase, type=slot.type, schema=slot.schema, required=slot.required, value=value
    )


def _slot(words: Words, field: str, kind: str, required: bool) -> tuple[Slot, str]:
    """A parameter with a value, and the value's words."""
    rng = words.rng
    phrase = field.replace("_", " ")
    schema: dict[str, Any]
    value: Any
    if kind.startswith("="):
        options = kind[1:].split("/")
        schema, value = {"type": "string", "enum": options}, rng.choice(options)
        type_, text = "enum", value
    elif kind == "bool":
        schema, value, type_, text = {"type": "boolean"}, rng.random() < 0.5, "boolean", ""
    else:
        type_, text_kind = KINDS[kind]
        schema = {"type": type_}
        if type_ == "integer":
            value = rng.randint(1, rng.choice((9, 30, 99, 500)))
        elif type_ == "number":
            value = round(rng.uniform(1, rng.choice((20, 500, 5000))), rng.choice((1, 2)))
        elif type_ == "array":
            schema["items"] = {"type": "string"}
            value = [text_value(words, text_kind) for _ in range(rng.randint(1, 3))]
        else:
            value = text_value(words, text_kind)
        text = listed(words, value) if isinstance(value, list) else str(value)
    if rng.random() < 0.4:
        schema["description"] = rng.choice(("The {}", "{}", "{} to use")).format(phrase).capitalize()
    return Slot(name=field, phrase=phrase, type=type_, schema=schema, required=required, value=value), text
