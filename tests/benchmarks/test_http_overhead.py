"""The overhead benchmark counts right, whatever pieces a stream comes in, and keeps to its marks in a document."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.http_overhead import MARKS, Results, spread, tables, write
from benchmarks.overhead_server import EVENT
from benchmarks.raw_client import DONE, BadAnswer, Rate, Stream

HEAD = b"HTTP/1.1 200 \r\ncontent-type: text/event-stream\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer(sizes: list[int]) -> bytes:
    """A stream whose pieces hold so many events each."""
    return HEAD + b"".join(chunk(EVENT * size) for size in sizes) + chunk(DONE) + b"0\r\n\r\n"


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_counts_do_not_depend_on_the_pieces_that_are_read(sizes: list[int], data: st.DataObject) -> None:
    body = answer(sizes)
    cuts = sorted(data.draw(st.sets(st.integers(1, len(body) - 1), max_size=12)))
    stream = Stream(0.0)
    for at, until in zip([0, *cuts], [*cuts, len(body)], strict=True):
        assert not stream.ended
        stream.feed(body[at:until], 1.0)
    assert stream.ended
    assert stream.events == sum(sizes) + 1
    assert stream.pieces == len(sizes) + 1
    assert stream.first_text_s == 1.0


def test_another_status_is_no_measurement() -> None:
    with pytest.raises(BadAnswer):
        Stream(0.0).feed(b"HTTP/1.1 429 \r\n\r\n", 0.0)


def test_tables_give_median_and_spread() -> None:
    assert spread([3.0, 1.0, 2.0], ".1f") == "2.0 (1.0 to 3.0)"
    floor = Results([0.001], [0.002], {1: [Rate(10_000.4, 1.0)]})
    ours = Results([0.003, 0.004, 0.005], [0.006], {1: [Rate(5_000, 2.0)]})
    lines = tables({"constants": floor, "ninfer": ours})
    assert "| ninfer | 4.00 (3.00 to 5.00) | 6.00 (6.00 to 6.00) | 3.00 |" in lines
    assert "| constants | 1 | 10,000 (10,000 to 10,000) | 1.0 |" in lines


def test_only_what_stands_between_the_marks_is_replaced(tmp_path: Path) -> None:
    document = tmp_path / "d.md"
    begin, end = f"<!-- {MARKS}: begin -->", f"<!-- {MARKS}: end -->"
    document.write_text(f"before\n{begin}\nold\n{end}\nafter\n", encoding="utf-8")
    for _ in range(2):
        write(document, ["new"], MARKS)
        assert document.read_text(encoding="utf-8") == f"before\n{begin}\n\nnew\n\n{end}\nafter\n"
    document.write_text("no marks", encoding="utf-8")
    with pytest.raises(SystemExit):
        write(document, ["new"], MARKS)
