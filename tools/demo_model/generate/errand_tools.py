"""Tools that people have at home and at work, and single ordinary requests for them.

errands.txt and errands_more.txt hold the tools and what is said, addons.txt what may be added; forms.txt turns what is
wanted into whole requests. A tool's declared name may be any of its names, so that it is found by meaning. Training
only: no word of it is kept for evaluation.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any

import attrs

from tools.demo_model.generate import chat
from tools.demo_model.generate.lifelike import lifelike, option, otherwise
from tools.demo_model.generate.phrases import upper_first
from tools.demo_model.generate.spin import form, forms, spin
from tools.demo_model.generate.toolkit import Made, styled
from tools.demo_model.generate.values import Slot
from tools.demo_model.words import Words

FILES = ("errands.txt", "errands_more.txt")
# Tools whose requests could be taken for one another stand together in no conversation.
CONFUSABLE = tuple(frozenset(line.split()) for line in forms()["confusable"])
# Parameters that may hold a fraction.
MEASURES = frozenset(["degrees", "temperature", "amount", "price", "value", "kilograms", "bill", "max_price", "hours"])


@attrs.frozen
class Field:
    """A parameter: names it may have, what it holds, whether it must be given."""

    names: tuple[str, ...]
    kind: str
    required: bool


@attrs.frozen
class Row:
    """A tool of errands.txt. patterns: (mark, pattern, values that its words mean)."""

    domain: str
    names: tuple[str, ...]
    descriptions: tuple[str, ...]
    fields: tuple[Field, ...]
    patterns: tuple[tuple[str, str, dict[str, Any]], ...]


def _row(block: list[str]) -> Row:
    head, *lines = block
    first, about, params = (part.strip() for part in f"{head} ".split("|"))
    _, domain, names = first.split()
    fields = []
    for param in params.split():
        name, kind = param.split(":", 1)
        fields.append(Field(tuple(name.rstrip("?").split(",")), kind.replace("~", " "), not name.endswith("?")))
    patterns = []
    for line in lines:
        mark, text = line.split(" ", 1)
        meant: dict[str, Any] = {}
        if text.endswith(">"):
            text, ending = text[:-1].rsplit("<", 1)
            pairs = (pair.split("=") for pair in ending.split(","))
            meant = {key: {"true": True, "false": False}.get(value, value) for key, value in pairs}
        patterns.append((mark, text, meant))
    return Row(domain, tuple(names.split("/")), tuple(about.split(" ; ")), tuple(fields), tuple(patterns))


@functools.cache
def rows() -> tuple[Row, ...]:
    """The tools of errands.txt."""
    blocks: list[list[str]] = []
    lines = [line for name in FILES for line in (Path(__file__).parent / name).read_text(encoding="utf-8").splitlines()]
    for line in lines:
        if line.startswith("@"):
            blocks.append([line])
        elif line.strip() and not line.startswith("#"):
            blocks[-1].append(line)
    return tuple(_row(block) for block in blocks)


def _schema(words: Words, field: Field, name: str) -> dict[str, Any]:
    """A parameter's schema in one of several styles."""
    rng = words.rng
    spoken = name.replace("_", " ")
    if field.kind.startswith("="):
        schema: dict[str, Any] = {"type": "string", "enum": field.kind[1:].split("/")}
    elif field.kind == "bool":
        schema = {"type": "boolean"}
    elif field.kind.startswith("int"):
        schema = {"type": rng.choice(("integer", "integer", "integer", "number"))}
    elif field.kind.startswith("list."):
        schema = {"type": "array", "items": {"type": "string"}}
    else:
        schema = {"type": "string"}
    if rng.random() < 0.4:
        special = {
            "bool": "true to switch on, false for off" if spoken in ("on", "power", "state") else f"Whether {spoken}"
        }
        about = special.get(field.kind, rng.choice(("The {}", "{}", "{} to use", "Which {}", "The {} the user names")))
        schema["description"] = upper_first(about.format(spoken))
    return schema


def made_of(
    words: Words, row: Row, mark: str = "", text: str = ""
) -> tuple[Made, str, dict[str, tuple[Any, str]], str]:
    """The declared tool, the pattern spun with its slots open, the drawn values, and the pattern's mark."""
    rng = words.rng
    fitting = [one for one in row.patterns if not mark or one[0] == mark] or list(row.patterns)
    found, pattern, meant = rng.choice(fitting)
    said = text or spin(rng, pattern)
    slots, shown = [], {}
    for field in row.fields:
        name = rng.choice(field.names) if rng.random() < 0.6 else field.names[0]
        name = (
            "".join(part.capitalize() if at else part for at, part in enumerate(name.split("_")))
            if rng.random() < 0.06
            else name
        )
        key = field.names[0]
        value: Any = meant.get(key)
        schema = _schema(words, field, name)
        if "{" + key + "}" in said:
            if field.kind.startswith("="):
                value = rng.choice(field.kind[1:].split("/"))
                shown[key] = (value, option(words, value))
            else:
                shown[key] = lifelike(words, field.kind)
                value = shown[key][0]
                if key in MEASURES and schema["type"] == "number" and isinstance(value, int) and rng.random() < 0.35:
                    value = round(value + rng.choice((0.5, 0.25, 0.2, 0.75, rng.randint(1, 99) / 100)), 2)
                    shown[key] = (value, str(value))
        slots.append(
            Slot(
                name=name,
                phrase=name.replace("_", " "),
                type="string",
                schema=schema,
                required=field.required,
                value=value,
                kind=field.kind,
            )
        )
    named = row.names[0] if rng.random() < 0.4 else rng.choice(row.names)
    verb, _, noun = row.names[0].partition("_")
    made = Made(
        name=styled(words, named.split("_")),
        verb=verb if noun else "use",
        noun=(noun or verb).replace("_", " "),
        description=rng.choice(row.descriptions),
        slots=tuple(slots),
        shape="nodesc"
        if named == row.names[0] and rng.random() < 0.12
        else rng.choices(("plain", "closed"), (12, 1))[0],
    )
    return made, said, shown, found


def filled_in(said: str, shown: dict[str, tuple[Any, str]]) -> str:
    """The pattern with its values; a value whose text brings its preposition drops the sentence's own."""
    text = said.format(**{key: words for key, (_, words) in shown.items()})
    for doubled in (
        " on on ",
        " at at ",
        " by on ",
        " until on ",
        " starting on ",
        " from on ",
        " at on ",
        " for on ",
        " to at ",
        " to on ",
    ):
        text = text.replace(doubled, f" {doubled.split()[0]} " if doubled != " at on " else " on ")
    return text


def whole_request(words: Words, text: str, mark: str) -> str:
    """What is wanted or asked for as a whole request."""
    rng = words.rng
    if mark == "!":
        return form(rng, "wanted").format(c=text, C=upper_first(text))
    if mark == "~":
        return form(rng, "known").format(f=text, F=upper_first(text))
    return text


@functools.cache
def addons() -> dict[str, tuple[tuple[tuple[str, ...], str, str], ...]]:
    """Tool -> (parameter's names, kind, sentences) of what may be added to it."""
    found: dict[str, list[tuple[tuple[str, ...], str, str]]] = {}
    for line in (Path(__file__).parent / "addons.txt").read_text(encoding="utf-8").splitlines():
        if line and not line.startswith("#"):
            tools, names, kind, said = line.split(" | ")
            for tool in tools.split(","):
                found.setdefault(tool.strip(), []).append((tuple(names.split(",")), kind, said))
    return {tool: tuple(some) for tool, some in found.items()}


def _with_addon(words: Words, row: Row, made: Made) -> tuple[Made, str]:
    """The tool with one parameter more, and a sentence that sets it; often it is left unset, and nothing said."""
    rng = words.rng
    some = addons().get(row.names[0])
    if not some:
        return made, ""
    names, kind, said = rng.choice(some)
    name = rng.choice(names)
    if name in [slot.name for slot in made.slots]:
        return made, ""
    field = Field((name,), "bool" if kind in ("true", "false") else kind, False)
    value: Any = None
    text = ""
    if rng.random() < 0.65:
        if field.kind == "bool":
            value, shown = kind == "true", ""
        elif kind.startswith("="):
            value = rng.choice(kind[1:].split("/"))
            shown = option(words, value)
        else:
            value, shown = lifelike(words, kind)
        text = spin(rng, f"[{said}]").replace("{v}", shown)
    slot = Slot(
        name=name,
        phrase=name.replace("_", " "),
        type="string",
        schema=_schema(words, field, name),
        required=False,
        value=value,
        kind=field.kind,
    )
    return attrs.evolve(made, slots=(*made.slots, slot)), text


def _capital_first(made: Made, shown: dict[str, tuple[Any, str]], key: str) -> tuple[Made, dict[str, tuple[Any, str]]]:
    """The tool and values where a sentence begins with a value, which is then written with a capital."""
    value, said = shown[key]
    if value != said or "enum" in next(slot.schema for slot in made.slots if slot.value == value):
        return made, shown
    capital = upper_first(value)
    slots = tuple(attrs.evolve(slot, value=capital) if slot.value == value else slot for slot in made.slots)
    return attrs.evolve(made, slots=slots), {**shown, key: (capital, capital)}


def errand(words: Words, row: Row | None = None) -> tuple[Made, str]:
    """A declared tool and an ordinary request for it."""
    rng = words.rng
    row = row or rng.choice(rows())
    made, said, shown, mark = made_of(words, row)
    first = re.match(r"\{(\w+)\}", said) if mark == "=" else None
    if first and isinstance(shown[first.group(1)][0], str) and rng.random() < 0.5:
        made, shown = _capital_first(made, shown, first.group(1))
    text = otherwise(words, whole_request(words, filled_in(said, shown), mark))
    added = ""
    if rng.random() < 0.22:
        made, added = _with_addon(words, row, made)
    if rng.random() < 0.12 and not any(part != part.lower() for _, part in shown.values()):
        text = text.lower()
    if rng.random() < 0.12:
        text = text.rstrip(".!")
    if added:
        text = f"{text if text[-1:] in '.?!' else text + '.'} {added}"
    return made, text


def ordinary(words: Words, text: str, chance: float = 0.3) -> str:
    """The request, now and then among other sentences that ask for nothing."""
    rng = words.rng
    ended = text if text[-1:] in ".?!" else f"{text}."
    if rng.random() < chance:
        lead = form(rng, "lead_ordinary").replace("{adjective}", words.draw("adjectives"))
        text = ended = f"{chat.filled(words, lead)[0]} {ended if rng.random() < 0.8 else text}"
    if rng.random() < chance * 0.6:
        text = f"{ended if ended[-1:] in '.?!' else ended + '.'} {chat.filled(words, form(rng, 'tail_ordinary'))[0]}"
    return text


def confused(one: str, other: str) -> bool:
    """Whether two tools (by their first names) could answer one request."""
    return one == other or any(one in group and other in group for group in CONFUSABLE)


def first_name(made: Made) -> str:
    """What errands.txt calls the tool."""
    return made.noun.replace(" ", "_") if made.verb == "use" else f"{made.verb}_{made.noun.replace(' ', '_')}"
