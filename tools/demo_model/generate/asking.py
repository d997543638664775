"""Requests for a tool in many sentence forms, put together from parts: what is wanted, and where each value stands.

Invariant: every value stands in the text as it is in the arguments (a boolean by its parameter's words), and where a
value stands without its parameter's name, its type alone says whose it is.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from tools.demo_model.generate.phrases import (
    around,
    phrase,
    plural,
    thing_words,
    upper_first,
)
from tools.demo_model.generate.toolkit import Made, request
from tools.demo_model.generate.values import NUMBER_WORDS, Slot, listed
from tools.demo_model.words import Words

PREPOSITIONS = ("for", "to", "at", "from", "in", "of", "on", "with", "by", "near", "about")
CLEAR_KINDS = frozenset(("email", "date", "time", "url", "path", "address", "digits"))
LAYOUTS = {
    "core_first": 30,
    "values_first": 12,
    "sentences": 10,
    "terse": 9,
    "object": 12,
    "fact": 10,
    "no_noun": 4,
    "data": 4,
    "lines": 4,
    "plain": 5,
}


def value_text(words: Words, slot: Slot, *, may_quote: bool = True) -> str:
    """The value as people write it; a boolean as a word."""
    rng = words.rng
    value = slot.value
    if isinstance(value, bool):
        return rng.choice(("true", "yes", "on", "true", "y") if value else ("false", "no", "off", "false", "n"))
    if isinstance(value, list):
        return listed(words, [str(item) for item in value])
    if isinstance(value, int) and 1 <= value <= 12 and rng.random() < 0.06:
        return NUMBER_WORDS[value]
    if may_quote and slot.type == "string" and rng.random() < 0.13:
        quote = rng.choice(('"', '"', "'", "`"))
        return str(value) if quote in str(value) else f"{quote}{value}{quote}"
    return str(value)


def can_stand_bare(slot: Slot, slots: Sequence[Slot]) -> bool:
    """Whether the value alone says that it is this parameter's."""
    if slot.type == "boolean":
        return False
    if slot.type == "enum":
        return all(other is slot or str(slot.value) not in other.schema.get("enum", ()) for other in slots)
    same = [other for other in slots if other is not slot and (other.type == slot.type or _both_numbers(other, slot))]
    if slot.type == "array":
        return not same and len(slot.value) > 1
    if slot.type == "string" and slot.kind in CLEAR_KINDS:
        return all(other.kind != slot.kind for other in same)
    return not [other for other in same if other.kind not in CLEAR_KINDS or slot.type != "string"]


def _both_numbers(one: Slot, other: Slot) -> bool:
    return {one.type, other.type} == {"integer", "number"}


def fragment(words: Words, slot: Slot, *, bare: bool) -> str:
    """A value with what ties it to its parameter."""
    rng = words.rng
    name = slot.phrase if rng.random() < 0.88 else slot.name
    if isinstance(slot.value, bool) and rng.random() < 0.7:
        return phrase(words, "bool_true" if slot.value else "bool_false").format(n=name)
    text = value_text(words, slot)
    if slot.unit and rng.random() < 0.75:
        return phrase(words, "unit").format(v=text, us=slot.unit)
    if bare:
        section = {"enum": "bare_enum", "array": "bare_list", "string": "bare_text"}.get(slot.type, "bare_integer")
        return phrase(words, section).format(v=text)
    return phrase(words, "named").format(n=name, v=text)


def fragments(words: Words, slots: Sequence[Slot], among: Sequence[Slot], bare_share: float = 0.7) -> list[str]:
    """One fragment a slot. among: all values of the request."""
    return [
        fragment(words, slot, bare=can_stand_bare(slot, among) and words.rng.random() < bare_share) for slot in slots
    ]


def joined(words: Words, parts: Sequence[str]) -> str:
    """Fragments one after another."""
    style = words.rng.choice(("and", "comma", "space", "semicolon", "mixed", "comma_and"))
    if style == "mixed":
        out = parts[0]
        for part in parts[1:]:
            out += words.rng.choice((", ", " and ", " ", "; ", " - ", ", and ")) + part
        return out
    if style in ("and", "comma_and") and len(parts) > 1:
        return ", ".join(parts[:-1]) + (", and " if style == "comma_and" else " and ") + parts[-1]
    return {"comma": ", ", "semicolon": "; ", "space": " "}.get(style, ", ").join(parts)


def spoken_thing(words: Words, made: Made) -> tuple[str, str]:
    """The verb and noun that the request uses: the tool's, or words of the same meaning."""
    rng = words.rng
    if words.side == "train" and rng.random() < 0.3:
        *first, last = made.noun.split()
        return words.synonym(made.verb, "verb"), " ".join([*first, words.synonym(last, "noun")])
    return made.verb, made.noun


def core(words: Words, made: Made) -> str:
    """What is wanted, without values."""
    verb, noun = spoken_thing(words, made)
    texts = thing_words(words, verb, noun)
    if words.rng.random() < 0.08:
        other = made.name
        return words.rng.choice(
            ("Call {}", "Use {}", "Run {}", "{}", "Use the tool {}", "I need {}", "{} please")
        ).format(other)
    section = words.rng.choices(("imperative", "noun_first", "question"), (40, 32, 28))[0]
    return phrase(words, section).format(**texts)


QUESTION_WORDS = (
    "What",
    "Which",
    "Who",
    "Where",
    "When",
    "How",
    "Is",
    "Are",
    "Do",
    "Does",
    "Any",
    "Has",
    "Can",
    "Could",
    "Would",
    "May",
    "Might",
)


def end(words: Words, text: str) -> str:
    """Punctuation at the end, if any."""
    if text[-1] in ".?!)" or "\n" in text:
        return text
    if text.startswith(QUESTION_WORDS):
        return text + words.rng.choice(("?", "?", "?", ""))
    return text + words.rng.choice((".", ".", ".", "", "!"))


def _core_first(words: Words, made: Made, slots: list[Slot]) -> str:
    link = words.rng.choice((" ", " ", " ", " ", ", ", ": ", " - ", "; "))
    return end(words, core(words, made) + link + joined(words, fragments(words, slots, slots)))


def _values_first(words: Words, made: Made, slots: list[Slot]) -> str:
    rng = words.rng
    cut = rng.randint(1, len(slots))
    front = joined(words, fragments(words, slots[:cut], slots))
    back = fragments(words, slots[cut:], slots)
    text = core(words, made)
    if not text.startswith("I ") and rng.random() < 0.7:
        text = text[0].lower() + text[1:]
    front = upper_first(front) if not front.startswith(_raw_values(slots)) else front
    text = front + rng.choice((", ", ", ", ": ", "; ", " - ", ". ")) + text
    return end(words, text + (rng.choice((" ", ", ")) + joined(words, back) if back else ""))


def _raw_values(slots: Sequence[Slot]) -> tuple[str, ...]:
    """Beginnings that must keep their letters."""
    return tuple(str(item) for slot in slots for item in (slot.value if isinstance(slot.value, list) else [slot.value]))


def _named_sentence(words: Words, slot: Slot) -> str:
    name = slot.phrase if words.rng.random() < 0.85 else slot.name
    return phrase(words, "named_sentence").format(n=name, N=upper_first(name), v=value_text(words, slot))


def _sentences(words: Words, made: Made, slots: list[Slot]) -> str:
    rng = words.rng
    facts = [_named_sentence(words, slot) for slot in slots]
    text = core(words, made)
    text += "" if text[-1] in ".?!" else "?" if text.startswith(QUESTION_WORDS) else "."
    return " ".join([text, *facts] if rng.random() < 0.65 else [*facts, text])


def _terse(words: Words, made: Made, slots: list[Slot]) -> str:
    rng = words.rng
    _, noun = spoken_thing(words, made)
    head = rng.choice(
        (noun, upper_first(noun), plural(noun), f"{made.verb} {noun}", upper_first(f"{made.verb} {noun}"))
    )
    parts = []
    for slot in slots:
        text = value_text(words, slot, may_quote=False)
        if slot.unit and rng.random() < 0.6:
            parts.append(f"{text} {slot.unit}")
        elif can_stand_bare(slot, slots) and rng.random() < 0.75:
            parts.append(text)
        else:
            parts.append(
                rng.choice(("{n} {v}", "{n}: {v}", "{n}={v}", "{n} {v}", "{v} {n}")).format(n=slot.phrase, v=text)
                if not isinstance(slot.value, bool)
                else f"{slot.phrase}{rng.choice((': ', ' ', '='))}{text}"
            )
    if rng.random() < 0.2:
        parts.insert(rng.randint(0, len(parts)), head)
    else:
        parts.insert(0, head)
    sep = rng.choice((", ", " ", " / ", " - ", "; ", " | ", ", "))
    return sep.join(parts) + rng.choice(("", "", ".", "!"))


def _object(words: Words, made: Made, slots: list[Slot]) -> str:
    """The first text, list or word is what the verb acts on."""
    rng = words.rng
    at = next((at for at, slot in enumerate(slots) if slot.type != "boolean" and can_stand_bare(slot, slots)), None)
    if at is None:
        return _core_first(words, made, slots)
    first, rest = slots[at], [*slots[:at], *slots[at + 1 :]]
    verb, noun = spoken_thing(words, made)
    text = value_text(words, first)
    if first.unit:
        text = f"{text} {first.unit}"
    texts = {**thing_words(words, verb, noun), "v": text, "prep": rng.choice(PREPOSITIONS)}
    acted = phrase(words, "object_first").format(**texts)
    asked = phrase(words, "imperative").format(vp=acted, Vp=upper_first(acted))
    if rest:
        asked += rng.choice((" ", " ", ", ", "; ")) + joined(words, fragments(words, rest, slots))
    return end(words, asked)


def _fact(words: Words, made: Made, slots: list[Slot]) -> str:
    """The first value is the one that needs, wants or has the thing."""
    rng = words.rng
    at = next((at for at, slot in enumerate(slots) if slot.type == "string" and can_stand_bare(slot, slots)), None)
    if at is None:
        return _values_first(words, made, slots)
    first, rest = slots[at], [*slots[:at], *slots[at + 1 :]]
    verb, noun = spoken_thing(words, made)
    text = value_text(words, first)
    texts = {**thing_words(words, verb, noun), "v": text, "V": text, "prep": rng.choice(PREPOSITIONS)}
    asked = phrase(words, "fact_first").format(**texts)
    if rest:
        asked += rng.choice((" ", ", ", "; ", ". ", ": ")) + joined(words, fragments(words, rest, slots))
    return end(words, asked)


def _no_noun(words: Words, made: Made, slots: list[Slot]) -> str:
    """Only the values and their parameters' names say which tool."""
    parts = fragments(words, slots, slots, bare_share=0.25)
    return end(words, f"{phrase(words, 'no_noun')}{words.rng.choice((' ', ', ', ': '))}{joined(words, parts)}")


def _data(words: Words, made: Made, slots: list[Slot]) -> str:
    """The values as an object."""
    rng = words.rng
    data = {slot.name: slot.value for slot in slots}
    text = json.dumps(data, ensure_ascii=False, indent=rng.choice((None, None, 2)))
    return core(words, made) + rng.choice((" with ", ": ", "\n", " using ", ", data: ", "\n\n", " - ")) + text


def _lines(words: Words, made: Made, slots: list[Slot]) -> str:
    """One value a line."""
    rng = words.rng
    dash, sep = rng.choice(("- ", "", "* ", "• ")), rng.choice((": ", " = ", ": ", " - ", "\t"))
    rows = [
        f"{dash}{rng.choice((slot.phrase, slot.phrase, slot.name, upper_first(slot.phrase)))}{sep}"
        f"{value_text(words, slot)}"
        for slot in slots
    ]
    head = core(words, made) + rng.choice((":", "", ".", ":"))
    return "\n".join([head, *rows] if rng.random() < 0.8 else [*rows, head])


_FORMS = {
    "core_first": _core_first,
    "values_first": _values_first,
    "sentences": _sentences,
    "terse": _terse,
    "object": _object,
    "fact": _fact,
    "no_noun": _no_noun,
    "data": _data,
    "lines": _lines,
}


def wide_request(words: Words, made: Made) -> str:
    """A user's message that asks for the tool with its values."""
    rng = words.rng
    slots = [slot for slot in made.slots if slot.value is not None]
    if not slots:
        return around(words, end(words, core(words, made)))
    if rng.random() < 0.4:
        rng.shuffle(slots)
    layout = rng.choices(list(LAYOUTS), list(LAYOUTS.values()))[0]
    if layout == "plain":
        return request(words, made)
    text = _FORMS[layout](words, made, slots)
    if rng.random() < 0.06:
        text = text.lower() if text.lower() == text or not _has_capitals(slots) else text
    return around(words, text)


def _has_capitals(slots: Sequence[Slot]) -> bool:
    return any(text != text.lower() for text in (*_raw_values(slots), *(slot.name for slot in slots)))
