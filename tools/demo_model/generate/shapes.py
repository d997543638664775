"""JSON out of little reports: what is told has roles, what is asked for has keys, types and an order of its own.

The shape is described in many ways: keys with types in a sentence, a list, a schema, an example, a type declaration.
Invariant: the answer has exactly the asked keys in the asked order, with values that stand in the text.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs

from tools.demo_model.generate.asking import PREPOSITIONS
from tools.demo_model.generate.calls import style
from tools.demo_model.generate.phrases import plural, system_line, third, upper_first
from tools.demo_model.generate.reading import owner_name
from tools.demo_model.generate.values import fresh_name, listed, text_value
from tools.demo_model.render import Example, assistant, system, user
from tools.demo_model.words import Words

ROLES = {
    "p": ("person", "name person who customer buyer owner user author client member guest employee sender contact by"),
    "q": ("person", "other partner receiver friend second_person helper seller opponent whom colleague"),
    "o": ("thing", "item thing object product what article good kind subject piece"),
    "c": ("city", "city town place location where destination"),
    "a": ("address", "address street home where place location"),
    "n": ("number", "count number amount quantity total how_many value n size"),
    "m": ("number", "second_number other_value m extra rest more"),
    "d": ("date", "date day when on deadline"),
    "t": ("time", "time hour at when clock"),
    "x": ("code", "id code reference order ticket code_number reference_id"),
    "e": ("email", "email mail contact address e_mail"),
    "w": ("phrase", "title text name subject topic label"),
    "l": ("color", "color shade look tint"),
    "y": ("country", "country nation origin land"),
    "s": ("list", "items things list parts tags contents"),
}
TYPE_WORDS = {
    "str": ("string", "string", "str", "text", "String", "a string", "word or words"),
    "int": ("integer", "integer", "int", "number", "whole number", "Integer", "an integer", "numeric"),
    "bool": ("boolean", "boolean", "bool", "true or false", "true/false", "a boolean"),
    "list": ("array of strings", "list of strings", "array", "list", "string[]", "list[str]", "array of text"),
}
SCHEMA_TYPES: dict[str, dict[str, Any]] = {
    "str": {"type": "string"},
    "int": {"type": "integer"},
    "bool": {"type": "boolean"},
    "list": {"type": "array", "items": {"type": "string"}},
}
ASKS = (
    "Reply with {}.",
    "Give {}.",
    "Write {}.",
    "I need {}.",
    "I want {} and no other text.",
    "Put this into {}.",
    "Express that as {}.",
    "Format it as {}.",
    "Could you give me {}?",
    "Can you turn this into {}?",
    "Please produce {}.",
    "Your reply must be {}.",
    "Your whole reply is {}.",
    "The answer should be {}.",
    "Only {}, please.",
    "As {}, please.",
    "Extract the data as {}.",
    "Parse this to {}.",
    "Fill {}.",
    "Respond in {}.",
    "Show me {}.",
    "Represent the facts by {}.",
    "Store it in {}.",
    "Send {} back.",
    "What is this as {}?",
    "Nothing but {}.",
    "Make {} of it.",
)
HEADS = (
    "a JSON object with {k}",
    "JSON with {k}",
    "a JSON object holding {k}",
    "a JSON object made of {k}",
    "one JSON object; its members are {k}",
    "an object in JSON with the members {k}",
    "JSON. The fields are {k}",
    "a JSON record with the fields {k}",
    "JSON having the properties {k}",
    "a JSON dictionary with these keys: {k}",
    "a JSON map from {k} to their values",
    "valid JSON with exactly {k}",
    "JSON ({k})",
    "JSON: {k}",
    "JSON, please with {k}",
    "a JSON object. Keys: {k}",
    "a JSON object. It has {c} keys: {k}",
    "a JSON object of {c} keys, namely {k}",
    "a small JSON object (keys {k})",
    "an object whose keys are {k}, written in JSON",
    "data in JSON format containing {k}",
)


@attrs.frozen
class Field:
    """An asked member. type: str, int, bool or list."""

    key: str
    type: str
    value: Any


def _role_value(words: Words, kind: str) -> tuple[str, Any]:
    """(type, value) of a role's kind."""
    if kind == "number":
        return "int", words.rng.randint(1, words.rng.choice((9, 40, 99, 999, 20000)))
    if kind == "list":
        return "list", list(dict.fromkeys(words.noun() for _ in range(words.rng.randint(2, 4))))
    if kind == "person" and words.rng.random() < 0.4:
        return "str", words.invented(words.rng.choice((2, 3))).capitalize()
    return "str", text_value(words, kind)


def _report(words: Words) -> tuple[str, list[Field]]:
    """A report out of narratives.txt and its roles as fields."""
    rng = words.rng
    form = rng.choice(NARRATIVES)
    roles = [role for role in ROLES if "{" + role + "}" in form]
    drawn = {role: _role_value(words, ROLES[role][0]) for role in roles}
    shown = {role: listed(words, value) if kind == "list" else str(value) for role, (kind, value) in drawn.items()}
    # A key says a role by its usual names.
    fields = [Field(rng.choice(ROLES[role][1].split()), *drawn[role]) for role in roles]
    return form.format(**shown), fields


def _sentence_of_any(words: Words) -> tuple[str, list[Field]]:
    """A report with a drawn verb: who, how many of what, where; keys by role, by unit or by any name."""
    rng = words.rng
    who, number, thing, place = owner_name(words), rng.randint(1, 999), words.noun(), words.noun()
    does, prep, where = third(words.draw("verbs")), rng.choice(PREPOSITIONS), text_value(words, "address")
    code = text_value(words, rng.choice(("code", "invented", "word")))
    number_key = rng.choice((*ROLES["n"][1].split(), plural(thing), f"{thing}_count"))
    who_key, thing_key = rng.choice(ROLES["p"][1].split()), rng.choice(ROLES["o"][1].split())
    forms = (
        (f"{who} {does} {number} {plural(thing)} {prep} the {place}.", [("who", who), ("number", number)]),
        (f"{who} {does} {number} times {prep} the {thing}.", [("who", who), ("number", number), ("thing", thing)]),
        (
            f"{who} {does} {number} units of {thing} {prep} the {place}.",
            [("who", who), ("number", number), ("thing", thing)],
        ),
        (f"{number} {place} of the kind {thing} {prep} {who}.", [("who", who), ("number", number), ("thing", thing)]),
        (f"{who} {does} the {thing} {code} {prep} {where}.", [("who", who), (thing, code), ("where", where)]),
        (
            f"{prep.capitalize()} {where} {who} {does} {number} {plural(thing)}.",
            [("who", who), ("number", number), ("where", where)],
        ),
        (
            f"The {place} {code} {does} {number} {plural(thing)} {prep} {where}.",
            [(place, code), ("number", number), ("where", where)],
        ),
    )
    text, told = rng.choice(forms)
    names = {"who": who_key, "number": number_key, "thing": thing_key, "where": rng.choice(ROLES["a"][1].split())}
    kept = [
        (names.get(role, role), value if not isinstance(value, str) else value.removeprefix("the "))
        for role, value in told
    ]
    return upper_first(text) if not text.startswith(str(kept[0][1])) else text, [
        Field(key, "int" if isinstance(value, int) else "str", value) for key, value in kept
    ]


def _facts_line(words: Words) -> tuple[str, list[Field]]:
    """Names and values in a row, a table or a form."""
    rng = words.rng
    fields: list[Field] = []
    for _ in range(rng.randint(2, 5)):
        roll = rng.random()
        type_, value = (
            ("bool", rng.random() < 0.5)
            if roll < 0.2
            else _role_value(words, rng.choice(("number", "person", "thing", "city", "date", "code", "color", "list")))
        )
        fields.append(Field(fresh_name(words), type_, value))
    sep, mark = rng.choice(
        ((", ", ": "), ("\n", ": "), ("; ", " "), (" | ", "="), ("\n", " = "), (", ", " "), (". ", " is "))
    )
    shown = [
        f"{field.key if rng.random() < 0.5 else field.key.replace('_', ' ')}{mark}"
        + (
            rng.choice(("yes", "true", "on") if field.value else ("no", "false", "off"))
            if field.type == "bool"
            else listed(words, field.value)
            if field.type == "list"
            else str(field.value)
        )
        for field in fields
    ]
    rng.shuffle(shown)
    return sep.join(shown) + rng.choice(("", ".", "")), fields


def _load() -> tuple[str, ...]:
    rows = (Path(__file__).parent / "narratives.txt").read_text(encoding="utf-8").strip().splitlines()
    return tuple(row for row in rows if not row.startswith("#"))


NARRATIVES = _load()


def _listed_keys(words: Words, fields: list[Field]) -> str:
    """The keys in a sentence, in one of many styles, mostly with types."""
    rng = words.rng
    quote = rng.choice(("", "", '"', '"', "'", "`", "**"))
    form = rng.choice(
        (
            "{k} ({t})",
            "{k} ({t})",
            "{k}: {t}",
            "{k} as {t}",
            "{k} [{t}]",
            "{k} - {t}",
            "{t} {k}",
            "{k} of type {t}",
            "{k} which is {t}",
            "{k}",
            "{k}",
            "{k}",
            "the key {k}",
            "{k}, {t},",
            "{k} <{t}>",
            "key {k} ({t})",
        )
    )
    parts = [form.format(k=f"{quote}{field.key}{quote}", t=rng.choice(TYPE_WORDS[field.type])) for field in fields]
    if rng.random() < 0.2:
        return "\n" + "\n".join(f"{rng.choice(('- ', '* '))}{part}" for part in parts) + "\n"
    if len(parts) == 1:
        return parts[0]
    last = rng.choice((", ", " and ", " and ", ", and "))
    return rng.choice((", ", ", ", "; ")).join(parts[:-1]) + last + parts[-1]


def _sketch(words: Words, fields: list[Field]) -> str:
    """An object, a schema or a declaration that shows the shape."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.3:
        schema = {
            "type": "object",
            "properties": {field.key: SCHEMA_TYPES[field.type] for field in fields},
            "required": [field.key for field in fields],
        }
        return rng.choice(("JSON for this schema: {}", "JSON by the schema {}", "an object valid under\n{}")).format(
            json.dumps(schema, indent=rng.choice((None, None, 2)))
        )
    if roll < 0.6:
        inside = ", ".join(f'"{field.key}": {rng.choice(TYPE_WORDS[field.type])}' for field in fields)
        return rng.choice(
            ("JSON shaped like {}", "JSON in this form: {}", "this: {}", "JSON after the pattern {}")
        ).format("{" + inside + "}")
    if roll < 0.8:
        example = {field.key: _example(words, field.type) for field in fields}
        return rng.choice(
            ("JSON as in this example: {}", "JSON of the same form as {}", "JSON like {} but with the right values")
        ).format(json.dumps(example, ensure_ascii=False))
    names = {"str": "string", "int": "number", "bool": "boolean", "list": "string[]"}
    inside = "; ".join(f"{field.key}: {names[field.type]}" for field in fields)
    return rng.choice(("JSON of the type {}", "a JSON value of this interface: {}")).format("{ " + inside + " }")


def _example(words: Words, type_: str) -> Any:
    """A value that only shows the type."""
    rng = words.rng
    if type_ == "int":
        return rng.choice((0, 1, 5, 10, rng.randint(1, 99)))
    if type_ == "bool":
        return rng.random() < 0.5
    return [words.noun()] if type_ == "list" else rng.choice(("...", "text", words.noun(), ""))


def json_wide(words: Words) -> Example:
    """A report and a shape: answer with one JSON object."""
    rng = words.rng
    mode = style(words)
    text, fields = rng.choices((_report, _sentence_of_any, _facts_line), (50, 32, 18))[0](words)
    while len({field.key for field in fields}) < len(fields):
        text, fields = _report(words)
    if len(fields) > 1 and rng.random() < 0.2:
        fields = rng.sample(fields, rng.randint(1, len(fields)))
    rng.shuffle(fields)
    while rng.random() < 0.12:
        text = f"{text} {words.record('sentences')}" if rng.random() < 0.5 else f"{words.record('sentences')} {text}"
    counted = {1: "one", 2: "two", 3: "three", 4: "four", 5: "five"}[len(fields)]
    shape = (
        rng.choice(HEADS).format(k=_listed_keys(words, fields), c=counted)
        if rng.random() < 0.7
        else _sketch(words, fields)
    )
    ask = rng.choice(ASKS).format(shape)
    form = rng.choice(
        ("{t} {a}", "{t} {a}", "{t}\n{a}", "{t}\n\n{a}", "{a}\n\n{t}", "{a} {t}", '{a}\n"{t}"', "Input: {t}\n{a}")
    )
    value = {field.key: field.value for field in fields}
    messages = [system(system_line(words))] if rng.random() < 0.12 else []
    thought = "I fill the keys: " + ", ".join(value) + "." if mode["thinking"] else ""
    return Example(
        task="json_wide",
        messages=[
            *messages,
            user(form.format(t=text, a=ask)),
            assistant(json.dumps(value, ensure_ascii=False), thought),
        ],
        check={"kind": "json", "value": value},
        **mode,
    )
