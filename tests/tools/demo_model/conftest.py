"""Word lists small enough to read, so that the generators run without the packages that the real lists come from."""

import json
import random
from pathlib import Path

import pytest

from tools.demo_model.words import Words

LETTERS = "abcdefghijklmnoprstuvw"


def invented_lists() -> dict[str, list[object]]:
    """Lists of made-up words in every category."""
    rng = random.Random(4)

    def some(count: int, name: bool = False) -> list[object]:
        words = {"".join(rng.choice(LETTERS) for _ in range(rng.randint(4, 8))) for _ in range(count)}
        return sorted(word.capitalize() if name else word for word in words)

    plain = ("nouns", "verbs", "adjectives", "dictionary", "jobs")
    names = ("first_names", "last_names", "cities", "countries")
    lists = {kind: some(200) for kind in plain} | {kind: some(200, name=True) for kind in names}
    lists["girls"], lists["boys"] = lists["first_names"][:100], lists["first_names"][100:]
    lists["capitals"] = [["Norway", "Oslo", "EU", "Krone"]]
    lists["elements"] = [["iron", "Fe", 26]]
    lists["definitions"] = [["lamp", "noun", "a thing that gives light"]]
    lists["sentences"] = ["The window was tightly sealed.", "Many towns grew near the river."]
    lists["known_definitions"] = lists["definitions"]
    lists["noun_synonyms"] = [[one, other] for one, other in zip(lists["nouns"], lists["nouns"][1:], strict=False)]
    lists["verb_synonyms"] = [[one, other] for one, other in zip(lists["verbs"], lists["verbs"][1:], strict=False)]
    return lists


@pytest.fixture(scope="session")
def word_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The lists as the file that the tools read."""
    path = tmp_path_factory.mktemp("words") / "words.json"
    path.write_text(json.dumps(invented_lists()), encoding="utf-8")
    return path


@pytest.fixture(params=["train", "eval"])
def words(request: pytest.FixtureRequest) -> Words:
    """Draws of one side, always from the same seed."""
    return Words(invented_lists(), random.Random(11), request.param)
