"""Code fences, seen from the text before a point."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.reply.fences import FenceTracker


def inside(*pieces: str) -> bool:
    tracker = FenceTracker()
    for piece in pieces:
        tracker.feed(piece)
    return tracker.inside


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", False),
        ("a ``` b", False),
        ("```", True),
        ("```xml\n", True),
        ("```xml <", True),
        ("   ~~~\nx", True),
        ("    ```\n", False),
        ("``\n", False),
        ("```\nx\n```", True),  # the closing line may go on and be none
        ("```\nx\n```\n", False),
        ("```\nx\n``` y\n", True),
        ("````\n```\n", True),
        ("```\n````  \n", False),
        ("```\n~~~\n", True),
        ("```\n```\n```\n", True),
        ("```" + " " * 300 + "\n", True),
    ],
)
def test_inside(text: str, expected: bool) -> None:
    assert inside(text) == expected


@given(st.lists(st.sampled_from(["`", "```", "~~~", "\n", " ", "x", "x" * 300]), max_size=20))
def test_borders_do_not_show(pieces: list[str]) -> None:
    assert inside(*pieces) == inside("".join(pieces)) == inside(*"".join(pieces))
