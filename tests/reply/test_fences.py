"""Code fences, seen from the text before a point. CommonMark's own reader judges."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from ninfer.reply.fences import FenceTracker

COMMONMARK = MarkdownIt("commonmark").disable("html_block")


def inside(*pieces: str) -> bool:
    tracker = FenceTracker()
    for piece in pieces:
        tracker.feed(piece)
    return tracker.inside


def judged(text: str) -> bool:
    """Whether CommonMark takes what stands at the end of `text` for a part of a fence."""
    fences = [token for token in COMMONMARK.parse(f"{text}QED") if token.type == "fence"]
    return any("QED" in token.content or "QED" in token.info for token in fences)


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
        ("```\r\nx\r\n```\r\n", False),
        # A run of back-ticks with back-ticks behind it is code within a line (K4).
        ("```ls -la``` lists files. Running it.\n\n", False),
        ("Run this:\n```npm test```\n\n", False),
        ("```a`b\n", False),
        ("~~~a`b\n", True),
        # Behind markers of lists and quotes, closed by the indentation there (K4).
        ("- ```bash\n  ls\n  ```\n\nRunning.\n\n", False),
        ("- ```bash\n  ls\n", False),  # what comes next is not indented: the item has ended, and its fence with it
        ("- ```bash\n  ls\n  ", True),
        ("- a\n\n  ```\n  x\n\n  ", True),
        ("- ```\n  ls\n     ```\n", False),
        ("- ```\n  ls\n      ```\n  ", True),  # four columns: no closing line
        ("1. ```\n   ls\n   ```\n", False),
        ("10) ```\n    ls\n    ", True),
        ("-\t```\n\tls\n\t", True),
        ("> ```\n> x\n", False),
        ("> ```\n> x\n> ", True),
        ("> ```\n> x\n> ```\n> ", False),
        ("> - ```\n>   x\n>   ", True),
        ("> - ```\n> x\n> ", False),
        ("- > ```\n  > x\n", False),
        ("-      ```\n", False),
        ("-\n  ```\n  ", True),
        ("-\n\n  ```\n  ", True),
        ("-\n\n  ```\nx", True),  # an item that begins with a blank line has ended
        ("text\n14. ```\n    x\n    ", False),  # no list begins within a paragraph at 14
        ("text\n1. ```\n   x\n   ", True),
        ("- text\ngoes on\n  ```\nx", False),
        ("* * *\n    ```\n", False),
    ],
)
def test_inside(text: str, expected: bool) -> None:
    assert inside(text) == expected == judged(text)


@pytest.mark.parametrize(
    "text", ["```" + " " * 300 + "\n", "~~~ " + "x" * 300 + "`\n", "- " + "x" * 300 + "\n  ```\n  "]
)
def test_long_lines_open(text: str) -> None:
    assert inside(text)
    assert judged(text)


@pytest.mark.parametrize(
    "text", ["```" + " " * 300 + "`\n", "```\n```" + " " * 300 + "\n", "> " + "x" * 300 + " ```\n> "]
)
def test_long_lines_do_not(text: str) -> None:
    assert not inside(text)
    assert not judged(text)


marks = st.sampled_from(["`", "```", "~~~", "- ", "1. ", "2) ", "> ", "-", "#"])
spaces = st.sampled_from(["\n", "\n", "\n\n", " ", "  ", "    "])


@given(st.lists(marks | spaces | st.just("x"), max_size=20))
def test_commonmark_says_the_same(pieces: list[str]) -> None:
    text = "".join(pieces)
    assume("    >" not in text)  # the judge takes a quote's marker that is indented too far for one
    assert inside(text) == judged(text)


@given(
    st.lists(st.sampled_from(["`", "```", "~~~", "\n", " ", "x", "- ", "> ", "x" * 300, "`" + "x" * 300]), max_size=20)
)
def test_borders_do_not_show(pieces: list[str]) -> None:
    assert inside(*pieces) == inside("".join(pieces)) == inside(*"".join(pieces))
