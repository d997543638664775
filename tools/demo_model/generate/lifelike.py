"""Values that people say in ordinary requests: foods, errands, days and times in words. Training text only.

Free texts come from lifelike.txt or from the word lists, so that what is learned is to copy and not the list.
Invariant: `lifelike` gives the value as an argument holds it and the text that says it, and the text holds the value.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from tools.demo_model.generate.phrases import plural
from tools.demo_model.generate.spin import form, forms, items, spin
from tools.demo_model.generate.values import MONTHS, NUMBER_WORDS, listed, phrase_of, text_value
from tools.demo_model.words import Words

LISTS = items(Path(__file__).parent / "lifelike.txt")
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DAYS = (
    *("tomorrow", "today", "tonight", "the day after tomorrow", "next week", "this weekend", "next weekend"),
    *("tomorrow morning", "tomorrow evening", "this afternoon", "this evening", "next month"),
)
DECADES = ["twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety"]
TEENS = ["thirteen", "fourteen", "fifteen", "sixteen", "seventeen", "eighteen", "nineteen"]
SPANS = {15: "a quarter of an hour", 30: "half an hour", 60: "an hour", 90: "an hour and a half", 120: "two hours"}
HOLIDAYS = (
    *("Christmas Eve", "New Year's Eve", "Easter Sunday", "Halloween", "Christmas", "my birthday", "Valentine's Day"),
)
CLOCKS = (
    "{h} [am|pm|o'clock]",
    "{h}[am|pm]",
    "{h}:{m}",
    "{h}:{m} [am|pm]",
    "[half past|quarter past|quarter to|ten past|five to] [six|seven|eight|nine|ten|five|four|three|two]",
    "[noon|midnight]",
    "{h}",
)
# Kinds whose values may also be any drawn word or phrase, and what draws it.
OPEN = {
    "food": "word",
    "household": "word",
    "product": "thing",
    "errand": "do",
    "title": "phrase",
    "subject": "phrase",
    "song": "Title",
    "film": "Title",
    "query": "phrase",
    "note": "sentence",
    "message": "sentence",
    "topic": "words",
    "device": "word",
    "issue": "sentence",
    "phrase": "sentence",
    "placename": "word",
    "branch": "slug",
    "commit": "phrase",
    "table": "words",
    "service": "name",
    "title_name": "Name",
    "petname": "Name",
    "dish": "phrase",
    "channel": "word",
    "team": "Name",
    "company": "Name",
    "artist": "person",
    "package": "name",
    "drug": "name",
    "filename": "path",
    "folder": "folder",
    "codefolder": "folder",
    "part": "words",
}

# How people say what a list of values calls otherwise.
SPOKEN = {
    "USD": "USD|dollars|US dollars|dollars",
    "EUR": "EUR|euros|euro|Euros",
    "GBP": "GBP|pounds|British pounds",
    "JPY": "JPY|yen|Japanese yen",
    "CHF": "CHF|francs|Swiss francs",
    "SEK": "SEK|Swedish kronor|kronor",
    "celsius": "celsius|Celsius|degrees Celsius",
    "fahrenheit": "fahrenheit|Fahrenheit|degrees Fahrenheit",
    "kilometers": "kilometers|km|kilometres",
    "meters": "meters|metres|m",
    "kilograms": "kilograms|kg|kilos",
    "liters": "liters|litres|l",
    "csv": "csv|CSV",
    "json": "json|JSON",
    "xlsx": "xlsx|Excel",
    "pdf": "pdf|PDF",
}


def option(words: Words, value: str) -> str:
    """One of the values of a list as people say it."""
    return words.rng.choice(SPOKEN[value].split("|")) if value in SPOKEN else value


def day(words: Words) -> str:
    """A day as people say it, without a preposition."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.4:
        return rng.choice(DAYS)
    if roll < 0.7:
        return rng.choice(("", "", "", "next ", "this ")) + rng.choice(WEEKDAYS)
    if roll < 0.8:
        return text_value(words, "date")
    if roll < 0.83:
        return rng.choice(HOLIDAYS)
    if roll < 0.86:
        return rng.choice(
            (
                f"{rng.randint(1, 12)}/{rng.randint(1, 28)}",
                f"{rng.randint(1, 28)}.{rng.randint(1, 12)}.",
                f"the {rng.randint(4, 20)}th",
            )
        )
    month, number = rng.choice(MONTHS), rng.randint(1, 28)
    ending = "th" if 10 < number < 20 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return rng.choice(
        (
            f"{month} {number}",
            f"{month} {number}",
            f"{month} {number}{ending}",
            f"{month} {number}, 20{rng.randint(24, 32)}",
            f"{number} {month}",
            f"the {number}{ending} of {month}",
        )
    )


def with_preposition(said: str) -> str:
    """A day as it stands in a sentence: on Friday, tomorrow."""
    return said if said in DAYS or said.startswith(("next ", "this ")) else f"on {said}"


def clock(words: Words) -> str:
    """A time of day as people say it."""
    rng = words.rng
    form = spin(rng, rng.choice(CLOCKS))
    return form.format(
        h=rng.randint(1, 12) if rng.random() < 0.8 else rng.randint(13, 23),
        m=rng.choice(("00", "15", "30", "45", "05", "20")),
    )


def moment(words: Words) -> tuple[str, str]:
    """A day, a time or both: (value, text)."""
    rng = words.rng
    roll = rng.random()
    if roll < 0.3:
        value = day(words)
        return value, with_preposition(value)
    if roll < 0.55:
        value = clock(words)
        return value, f"at {value}"
    if roll < 0.65:
        value = f"in {rng.randint(2, 50)} {rng.choice(('minutes', 'hours', 'days'))}"
        return value, value
    value = f"{day(words)} at {clock(words)}"
    first = value.split(" at ")[0]
    return value, f"{with_preposition(first)}{value[len(first) :]}"


def drawn(words: Words, how: str) -> str:
    """A free text out of the word lists."""
    rng = words.rng
    if how == "do":
        return f"{words.draw('verbs')} the {phrase_of(words) if rng.random() < 0.3 else words.noun()}"
    if how == "words":
        return plural(words.noun())
    if how == "Title":
        return phrase_of(words).title()
    if how == "Name":
        return words.invented().capitalize()
    if how == "name":
        return words.invented()
    if how == "slug":
        return f"{words.noun()}{rng.choice('-/_')}{words.noun()}"
    if how == "folder":
        return rng.choice(("", "/", "~/")) + words.noun() + rng.choice(("", f"/{words.noun()}"))
    if how == "sentence":
        text = words.record("sentences").rstrip(".")
        return text[0].lower() + text[1:] if not text.startswith("I ") and rng.random() < 0.7 else text
    return text_value(words, how)


def in_words(value: int) -> str:
    """A whole number from 1 to 99 in words; other numbers in digits."""
    if not 1 <= value <= 99:
        return str(value)
    if value <= 12:
        return NUMBER_WORDS[value]
    if value < 20:
        return TEENS[value - 13]
    ones = value % 10
    return DECADES[value // 10 - 2] + (f"-{NUMBER_WORDS[ones]}" if ones else "")


def otherwise(words: Words, text: str) -> str:
    """The text with measures as people say them: half an hour, $20, 50%."""
    rng = words.rng

    def span(match: re.Match[str]) -> str:
        value = int(match.group(1))
        return SPANS[value] if value in SPANS and rng.random() < 0.5 else match.group(0)

    text = re.sub(r"\b(\d+) minutes\b", span, text)
    if rng.random() < 0.3:
        text = re.sub(r"\b(\d+(?:\.\d+)?) dollars\b", r"$\1", text)
    if rng.random() < 0.2:
        text = re.sub(r"\b(\d+(?:\.\d+)?) euros\b", r"€\1", text)
    return re.sub(r"(\d) percent\b", r"\1%", text) if rng.random() < 0.4 else text


def number(words: Words, low: int, high: int) -> tuple[int, str]:
    """A whole number and how it is said."""
    rng = words.rng
    value = rng.randint(low, high)
    if rng.random() < 0.3:
        value = max(low, min(high, rng.choice((2, 3, 5, 10, 15, 20, 30, 45, 60, 90, 100))))
    if rng.random() < 0.12:
        return value, in_words(value)
    return value, str(value)


def plain_value(words: Words, kind: str) -> str:
    """A text of one kind of lifelike.txt or of values.py."""
    rng = words.rng
    if kind == "city" and rng.random() < 0.4:
        return rng.choice(LISTS["bigcity"])
    if kind == "first":
        return words.draw("first_names") if rng.random() < 0.8 else words.invented(2).capitalize()
    if kind == "relative_or_first":
        return rng.choice(LISTS["relative"]) if rng.random() < 0.3 else words.draw("first_names")
    if kind in ("noun", "last_names", "verbs"):
        return words.noun() if kind == "noun" else words.draw(kind)
    if kind == "date_words":
        return f"{rng.choice(MONTHS)} {rng.randint(1, 28)}"
    if kind == "flightno":
        return f"{''.join(rng.choice('ABEFIKLNQRSTU') for _ in range(2))}{rng.choice(('', ' '))}{rng.randint(10, 9999)}"
    if kind == "sum":
        a, b, c = (rng.randint(1, rng.choice((12, 100, 999))) for _ in range(3))
        one, two = rng.choice("+-*/"), rng.choice("+-*/")
        return rng.choice((f"{a} {one} {b}", f"{a}{one}{b}", f"({a} {one} {b}) {two} {c}", f"{a} {one} {b} {two} {c}"))
    if kind == "month_name":
        return rng.choice(MONTHS)
    if kind == "weekday":
        return rng.choice(WEEKDAYS)
    if f"value_{kind}" in forms() and rng.random() < 0.45:
        return _put_together(words, kind)
    if kind in LISTS:
        if kind in OPEN and rng.random() < 0.4:
            return drawn(words, OPEN[kind])
        return rng.choice(LISTS[kind])
    return text_value(words, kind)


def _put_together(words: Words, kind: str) -> str:
    """A value out of forms.txt."""
    text = form(words.rng, f"value_{kind}")
    return re.sub(r"\{([a-z_]+(?:\d+-\d+)?)\d?\}", lambda match: lifelike(words, match.group(1))[1], text)


def lifelike(words: Words, kind: str) -> tuple[Any, str]:
    """(value, text) of a kind: a key of lifelike.txt or of values.py, day, clock, moment, intA-B, list.KIND."""
    if kind.startswith("int"):
        low, high = kind[3:].split("-")
        return number(words, int(low), int(high))
    if kind.startswith("list."):
        values = list(dict.fromkeys(plain_value(words, kind[5:]) for _ in range(words.rng.choice((2, 2, 3, 3, 4)))))
        return values, listed(words, values).strip("[]")
    if kind == "day":
        value = day(words)
        return value, with_preposition(value)
    if kind == "clock":
        value = clock(words)
        return value, value
    if kind == "moment":
        return moment(words)
    value = plain_value(words, kind)
    return value, value
