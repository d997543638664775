"""Argument values: what a parameter of some type may hold, and how a person writes it.

A `Slot` is one declared parameter with its value for this conversation. Invariant: `spoken(slot, ...)` lets a reader
find exactly `slot.value` again, so that an exact answer is always possible.
"""

from __future__ import annotations

from typing import Any

import attrs

from tools.demo_model.words import Words

NUMBER_WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]
KIND_NAMES = {
    "city": "city location destination origin place town",
    "person": "name person recipient owner customer author guest assignee contact user",
    "email": "email to recipient_email address mail",
    "date": "date day start_date due_date deadline when",
    "time": "time start_time at hour",
    "code": "id code order_id sku ticket reference account_number serial key",
    "path": "path file filename file_path folder source target",
    "url": "url link site website endpoint",
    "phrase": "title query subject text topic label description note keyword",
    "sentence": "message text body content comment reason",
    "word": "tag category name term item product keyword word",
    "invented": "name label project channel host queue item",
}
TYPE_NAMES = {
    "integer": "count limit amount quantity size days number max_results page seats guests minutes age level",
    "number": "price amount weight temperature rate distance ratio score",
    "boolean": "urgent notify verbose recursive public force confirm enabled include_tax dry_run archived round_trip",
    "enum": "unit priority status mode format size color language level sort kind",
    "array": "items tags names ids recipients categories fields values keywords attendees",
}
ENUMS = [
    "celsius fahrenheit",
    "low medium high",
    "small medium large",
    "red green blue yellow",
    "asc desc",
    "json csv xml",
    "open closed pending",
    "daily weekly monthly",
    "email sms push",
    "metric imperial",
    "en fr de es",
    "economy business first",
    "public private",
    "draft sent archived",
    "north south east west",
    "cash card transfer",
    "fast slow normal",
    "am pm",
    "active inactive",
    "info warning error",
]


STREETS = [
    "Street",
    "Road",
    "Avenue",
    "Drive",
    "Court",
    "Square",
    "Way",
    "Row",
    "Close",
    "Terrace",
    "Boulevard",
    "St",
    "Alley",
    "Park",
    "Hill",
    "Gardens",
]
COLORS = [
    "red",
    "green",
    "blue",
    "yellow",
    "black",
    "white",
    "brown",
    "grey",
    "orange",
    "purple",
    "pink",
    "turquoise",
    "beige",
    "crimson",
]


@attrs.frozen(kw_only=True)
class Slot:
    """One parameter. phrase: how people name it; value: the exact argument, None when it is left out.

    kind: what sort of text it holds; unit: what a number counts, in the plural; both empty where nothing is known.
    """

    name: str
    phrase: str
    type: str
    schema: dict[str, Any]
    required: bool
    value: Any
    kind: str = ""
    unit: str = ""


def phrase_of(words: Words) -> str:
    """Two or three words, lower case."""
    rng = words.rng
    parts = [words.draw("adjectives"), words.noun()]
    if rng.random() < 0.3:
        parts.append(words.noun())
    return " ".join(parts)


def text_value(words: Words, kind: str) -> str:
    """A string of one kind."""
    rng = words.rng
    if kind == "city":
        return words.city()
    if kind == "person":
        return words.person()
    if kind == "email":
        who = f"{words.noun()}{rng.choice(('', '.', '_'))}{words.noun()}"
        return f"{who}@{words.invented()}.{rng.choice(('com', 'org', 'net', 'io'))}"
    if kind == "date":
        return f"20{rng.randint(10, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"
    if kind == "time":
        return f"{rng.randint(0, 23):02d}:{rng.choice((0, 5, 10, 15, 20, 30, 40, 45, 50, 55)):02d}"
    if kind == "code":
        return code_value(words)
    if kind == "path":
        folders = "/".join(words.noun() for _ in range(rng.randint(0, 2)))
        ending = rng.choice(("txt", "py", "md", "csv", "json", "log", "pdf", "png"))
        return f"{rng.choice(('', '/', './'))}{folders}{'/' if folders else ''}{words.noun()}.{ending}"
    if kind == "url":
        return f"https://{words.invented()}.{rng.choice(('com', 'org', 'dev'))}/{words.noun()}"
    if kind == "phrase":
        return phrase_of(words) if rng.random() < 0.7 else phrase_of(words).capitalize()
    if kind == "sentence":
        return (
            words.record("sentences")
            if rng.random() < 0.5
            else f"{words.person()} {words.draw('verbs')} the {phrase_of(words)}"
        )
    if kind == "address":
        return address_value(words)
    if kind == "country":
        return words.draw("countries")
    if kind == "job":
        return words.draw("jobs")
    if kind == "color":
        return rng.choice(COLORS)
    if kind == "digits":
        return "".join(rng.choice("0123456789") for _ in range(rng.randint(4, 10)))
    if kind == "domain":
        return f"{words.invented()}.{rng.choice(('com', 'org', 'net', 'io', 'dev'))}"
    if kind == "thing":
        return words.noun() if rng.random() < 0.8 else f"{words.draw('adjectives')} {words.noun()}"
    if kind == "invented":
        return words.invented() if rng.random() < 0.5 else words.invented().capitalize()
    return words.noun()


def address_value(words: Words) -> str:
    """A street address: 12 Hill Road, Rosenweg 4, 8 Dorn St, Leeds."""
    rng = words.rng
    number = f"{rng.randint(1, rng.choice((20, 99, 400)))}{rng.choice(('', '', '', '', 'a', 'b'))}"
    names = (
        lambda: words.noun().capitalize(),
        lambda: words.draw("last_names"),
        lambda: words.invented(2).capitalize(),
        lambda: words.draw("adjectives").capitalize(),
    )
    street = f"{rng.choice(names)()} {rng.choice(STREETS)}"
    if rng.random() < 0.1:
        return f"{words.invented(2).capitalize()}{rng.choice(('weg', 'gatan', 'straat', 'gata'))} {number}"
    if rng.random() < 0.1:
        street = f"{rng.choice(('North', 'South', 'East', 'West', 'Old', 'Upper'))} {street}"
    town = f", {words.city()}" if rng.random() < 0.12 else ""
    return f"{number} {street}{town}"


def code_value(words: Words) -> str:
    """An identifier such as a person copies from a screen."""
    rng = words.rng
    letters = "".join(rng.choice("ABCDEFGHJKLMNPQRSTUVWXYZ") for _ in range(rng.randint(1, 3)))
    digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(2, 6)))
    lower = "".join(rng.choice("abcdef0123456789") for _ in range(rng.randint(5, 10)))
    return rng.choice(
        (
            f"{letters}-{digits}",
            f"{letters}{digits}",
            lower,
            f"{words.noun()}-{digits}",
            f"{words.invented()}_{digits}",
            digits,
        )
    )


def whole(words: Words) -> int:
    """An integer, small ones more often."""
    rng = words.rng
    top = rng.choice((9, 12, 40, 99, 365, 999, 9999, 99999, 9999999))
    value = rng.randint(0 if top > 9 else 1, top)
    return -value if rng.random() < 0.06 else value


def make_slot(words: Words, taken: set[str], common: bool) -> Slot:
    """A parameter with a fresh name. common: names may come from the everyday lists, else from the word lists alone."""
    rng = words.rng
    kind_type = rng.choices(("string", "integer", "boolean", "enum", "array", "number"), (45, 19, 11, 12, 10, 3))[0]
    kind = rng.choice(list(KIND_NAMES)) if kind_type == "string" else ""
    usual = (KIND_NAMES[kind] if kind else TYPE_NAMES[kind_type]).split()
    while True:
        name = rng.choice(usual) if common and rng.random() < 0.5 else fresh_name(words)
        if name.lower() not in taken:
            taken.add(name.lower())
            break
    schema, value = _schema_and_value(words, kind_type, kind)
    phrase = name.replace("_", " ").lower() if name.islower() else _split_camel(name)
    roll = rng.random()
    if roll < 0.35:
        schema["description"] = (
            rng.choice(("The {}", "{}", "{} to use", "The {} of the item", "Which {}", "Value of the {}"))
            .format(phrase)
            .strip()
        )
    elif roll < 0.5:
        # The description is the only bridge from what people say to the name.
        phrase = f"{words.draw('adjectives')} {words.draw('nouns')}" if rng.random() < 0.5 else words.draw("nouns")
        schema["description"] = rng.choice(("The {}", "{}", "The {} to use", "Sets the {}")).format(phrase)
    elif roll < 0.7 and kind_type == "string" and common:
        schema["description"] = {
            "date": "Date as YYYY-MM-DD",
            "time": "Time as HH:MM",
            "email": "Email address",
            "url": "Full URL",
        }.get(kind, f"The {phrase}")
    if kind_type in ("string", "integer") and rng.random() < 0.06:
        # An example in the declaration is not a value of this request.
        example = text_value(words, kind) if kind_type == "string" else whole(words)
        schema["description"] = (
            f"{schema.get('description', phrase.capitalize())}"
            f", {rng.choice(('e.g.', 'for example', 'such as'))} {example}"
        )
    elif "description" in schema and rng.random() < 0.06:
        schema["description"] += rng.choice(
            (" (required)", ", as given by the user", " as text", " for this call", ". Ask if unclear.")
        )
    required = rng.random() < 0.8
    return Slot(name=name, phrase=phrase, type=kind_type, schema=schema, required=required, value=value, kind=kind)


def fresh_name(words: Words) -> str:
    """A parameter name from the word lists, in some naming style."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.45:
        return words.noun()
    first = words.draw("adjectives") if rng.random() < 0.5 else words.noun()
    second = words.noun()
    return f"{first}_{second}" if roll < 0.85 else first + second.capitalize()


def _split_camel(name: str) -> str:
    """maxResults -> max results."""
    return "".join(f" {letter.lower()}" if letter.isupper() else letter for letter in name).replace("_", " ").strip()


def _schema_and_value(words: Words, kind_type: str, kind: str) -> tuple[dict[str, Any], Any]:
    """JSON schema and a value that satisfies it."""
    rng = words.rng
    if kind_type == "string":
        return {"type": "string"}, text_value(words, kind)
    if kind_type == "integer":
        return {"type": "integer"}, whole(words)
    if kind_type == "number":
        return {"type": "number"}, round(rng.uniform(0, rng.choice((1, 10, 100, 1000))), rng.choice((1, 2)))
    if kind_type == "boolean":
        return {"type": "boolean"}, rng.random() < 0.5
    if kind_type == "enum":
        if words.side == "train" and rng.random() < 0.35:
            options = rng.choice(ENUMS).split()
        else:
            options = list({option_word(words) for _ in range(rng.randint(2, 5))})
            rng.shuffle(options)
        return {"type": "string", "enum": options}, rng.choice(options)
    item = rng.choice(("string", "string", "string", "integer"))
    count = rng.randint(1, 4)
    kind = rng.choice(("word", "word", "invented", "person", "city", "code"))
    value = [whole(words) if item == "integer" else text_value(words, kind) for _ in range(count)]
    return {"type": "array", "items": {"type": item}}, value


def option_word(words: Words) -> str:
    """An enum value."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.7:
        return words.noun()
    if roll < 0.85:
        return words.draw("adjectives")
    return words.noun().upper() if roll < 0.92 else f"{words.draw('adjectives')}_{words.noun()}"


def written(words: Words, slot: Slot) -> str:
    """The value as a person writes it in a sentence."""
    rng = words.rng
    value = slot.value
    if isinstance(value, bool):
        return rng.choice(("true", "yes", "on") if value else ("false", "no", "off"))
    if isinstance(value, int) and 2 <= value <= 12 and rng.random() < 0.12:
        return NUMBER_WORDS[value]
    if isinstance(value, list):
        return listed(words, [str(item) for item in value])
    if slot.type == "string" and rng.random() < (0.35 if " " in value else 0.15):
        quote = rng.choice(('"', '"', "'"))
        return value if quote in value else f"{quote}{value}{quote}"
    return str(value)


def listed(words: Words, items: list[str]) -> str:
    """Items as a list in a sentence."""
    roll = words.rng.random()
    if len(items) == 1:
        return items[0] if roll < 0.8 else f"[{items[0]}]"
    if roll < 0.55:
        return ", ".join(items[:-1]) + " and " + items[-1]
    return ", ".join(items) if roll < 0.85 else "[" + ", ".join(items) + "]"
