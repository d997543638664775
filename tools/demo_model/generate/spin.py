"""Sentence patterns with choices: `[a|b|c]` is one of them, nested as needed, `[|a]` may be left out.

Knows no words and no tasks. Invariant: {slots} pass through untouched, so a caller fills them after the choice.
"""

from __future__ import annotations

import functools
import random
import re
from pathlib import Path

# A text, or a choice between sequences of the same kind.
Part = str | tuple[tuple["Part", ...], ...]


@functools.cache
def parsed(pattern: str) -> tuple[Part, ...]:
    """The pattern as texts and choices."""
    at, parts = _sequence(pattern, 0)
    if at != len(pattern):
        raise ValueError(f"a bracket too much at {at}: {pattern}")
    return parts


def _sequence(pattern: str, at: int) -> tuple[int, tuple[Part, ...]]:
    """Parts up to a `|`, a `]` or the end, and where that stands."""
    parts: list[Part] = []
    text = at
    while at < len(pattern) and pattern[at] not in "|]":
        if pattern[at] != "[":
            at += 1
            continue
        if at > text:
            parts.append(pattern[text:at])
        options = []
        while pattern[at] != "]":
            at, option = _sequence(pattern, at + 1)
            if at == len(pattern):
                raise ValueError(f"an open bracket: {pattern}")
            options.append(option)
        parts.append(tuple(options))
        at += 1
        text = at
    if at > text:
        parts.append(pattern[text:at])
    return at, tuple(parts)


def spin(rng: random.Random, pattern: str) -> str:
    """One text of the pattern."""
    return _joined(rng, parsed(pattern))


def _joined(rng: random.Random, parts: tuple[Part, ...]) -> str:
    return "".join(
        part if isinstance(part, str) else _joined(rng, part[int(rng.random() * len(part))]) for part in parts
    )


def form(rng: random.Random, section: str) -> str:
    """A form of one section of forms.txt, its choices made."""
    return spin(rng, rng.choice(forms()[section]))


@functools.cache
def forms() -> dict[str, tuple[str, ...]]:
    """The sections of forms.txt."""
    return sections(Path(__file__).parent / "forms.txt")


def sections(path: Path) -> dict[str, tuple[str, ...]]:
    """Section -> lines of a file whose sections begin with `[name]`; lines that begin with # are remarks."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in path.read_text(encoding="utf-8").splitlines():
        if re.fullmatch(r"\[\w+\]", line):
            lines = found.setdefault(line[1:-1], [])
        elif line.strip() and not line.startswith("#"):
            lines.append(line.strip())
    return {name: tuple(rows) for name, rows in found.items()}


def items(path: Path) -> dict[str, tuple[str, ...]]:
    """Like `sections`, but a line holds items divided by semicolons."""
    return {
        name: tuple(item.strip() for row in rows for item in row.split(";") if item.strip())
        for name, rows in sections(path).items()
    }
