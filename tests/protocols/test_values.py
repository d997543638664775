"""Values of a request in messages: short, ASCII, in JSON's words."""

import pytest

from ninfer.protocols.values import SHOWN_CHARS, shown, shown_name


@pytest.mark.contract("ERR-004")
@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("caf\u00e9", '"caf\\u00e9"'),
        ("a" * SHOWN_CHARS, f'"{"a" * SHOWN_CHARS}"'),
        ("a" * (SHOWN_CHARS + 1), f'"{"a" * SHOWN_CHARS}"... (61 characters)'),
        (None, "null"),
        (True, "true"),
        (3, "3"),
        (3.5, "3.5"),
        (10**SHOWN_CHARS, f"1{'0' * (SHOWN_CHARS - 1)}... (61 digits)"),
        ([], "an array of 0 items"),
        ((1,), "an array of 1 item"),
        ({"a": 1}, "an object of 1 member"),
        ({"a": 1, "b": 2}, "an object of 2 members"),
    ],
)
def test_a_value(value: object, said: str) -> None:
    assert shown(value) == said


@pytest.mark.parametrize(
    ("name", "said"), [("ab", "ab"), ('\u00e9"', '\\u00e9\\"'), ("a" * (SHOWN_CHARS + 1), f"{'a' * SHOWN_CHARS}...")]
)
def test_a_name(name: str, said: str) -> None:
    assert shown_name(name) == said
