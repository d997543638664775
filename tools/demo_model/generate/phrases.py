"""Sentence forms out of phrases.txt, and the little grammar that filling them takes. Knows no task."""

from __future__ import annotations

from pathlib import Path

from tools.demo_model.words import Words


def _load() -> dict[str, tuple[str, ...]]:
    """Section -> its lines."""
    sections: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in (Path(__file__).parent / "phrases.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("[") and line.endswith("]") and " " not in line and "{" not in line:
            lines = sections.setdefault(line[1:-1], [])
        elif line and not line.startswith("# Sentence"):
            lines.append(line)
    return {name: tuple(found) for name, found in sections.items()}


PHRASES = _load()


def phrase(words: Words, section: str) -> str:
    """A form of one section, its braces still open."""
    return words.rng.choice(PHRASES[section])


def upper_first(text: str) -> str:
    """The text with a capital first letter."""
    return text[:1].upper() + text[1:]


def plural(noun: str) -> str:
    """The regular plural of a noun's last word."""
    if noun.endswith(("s", "x", "z", "ch", "sh")):
        return noun + "es"
    if noun.endswith("y") and noun[-2:-1] not in "aeiou":
        return noun[:-1] + "ies"
    return noun + "s"


def third(verb: str) -> str:
    """The regular third person of a verb: sends, fixes, carries."""
    return plural(verb)


def with_article(words: Words, noun: str) -> str:
    """a kettle, the kettle, my kettle, kettle."""
    article = words.rng.choice(("the", "the", "a", "a", "a", "my", "our", "this", "that", "some", "another", "one", ""))
    if article == "a" and noun[0] in "aeiou":
        article = "an"
    return f"{article} {noun}".strip()


def thing_words(words: Words, verb: str, noun: str) -> dict[str, str]:
    """What the forms about a verb and a thing may name."""
    np = with_article(words, noun)
    vp = f"{verb} {np}"
    return {
        "vp": vp,
        "Vp": upper_first(vp),
        "np": np,
        "Np": upper_first(np),
        "noun": noun,
        "Noun": upper_first(noun),
        "nouns": plural(noun),
        "Nouns": upper_first(plural(noun)),
        "verb": verb,
        "Verb": upper_first(verb),
        "verbs": third(verb),
        "Verbs": upper_first(third(verb)),
    }


def around(words: Words, text: str, chance: float = 0.16) -> str:
    """The text, now and then with other sentences before or after it."""
    rng = words.rng
    ended = text if text[-1] in ".?!" else text + ("\n" if "\n" in text else ".")
    if rng.random() < chance:
        lead = words.record("sentences") if rng.random() < 0.35 else phrase(words, "lead")
        text = f"{lead}{rng.choice((' ', ' ', ' ', chr(10)))}{text}"
        ended = f"{lead} {ended}"
    if rng.random() < chance * 0.7:
        tail = words.record("sentences") if rng.random() < 0.2 else phrase(words, "tail")
        text = f"{ended}{rng.choice((' ', ' ', chr(10)))}{tail}"
    return text


def system_line(words: Words) -> str:
    """A system message."""
    rng = words.rng
    return phrase(words, "system").format(
        nouns=plural(words.noun()),
        name=words.invented().capitalize(),
        person=words.person(),
        city=words.city(),
        date=f"20{rng.randint(20, 39)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}",
        time=f"{rng.randint(0, 23):02d}:{rng.randint(0, 59):02d}",
        word=words.noun(),
        sentence=words.record("sentences"),
    )
