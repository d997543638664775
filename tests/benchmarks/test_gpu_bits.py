"""The histories that are compared: who is in which round, and that lane 0 is the one that is kept."""

import attrs
import numpy as np
import pytest

from benchmarks.gpu_bits import ALONE, LANES, PROMPT_TOKENS, TOGETHER, History, compare, run
from ninfer.engine.device import DecodeRow, PrefillUnit, UnitResult

PROMPTS = [tuple(range(size)) for size in PROMPT_TOKENS]
PAGES = 2


@attrs.frozen
class Output:
    """Logits of a fake round."""

    logits: np.ndarray


@attrs.frozen
class Unit:
    """A fake unit; its tokens are the rows' positions."""

    tokens: tuple[int, ...]

    @property
    def output(self) -> Output:
        return Output(np.array(self.tokens, np.float32)[:, None])

    def read(self) -> UnitResult:
        return UnitResult(self.tokens)


@attrs.define
class Positions:
    """A device that answers a row with its position, and, if it leaks, with the number of rows added."""

    leaks: bool = False
    rounds: list[tuple[DecodeRow, ...]] = attrs.field(factory=list)

    def prefill(self, unit: PrefillUnit) -> Unit:
        return Unit((len(unit.tokens),))

    def decode(self, rows: tuple[DecodeRow, ...]) -> Unit:
        self.rounds.append(rows)
        return Unit(tuple(row.position + self.leaks * len(rows) for row in rows))


def found(history: History, steps: int = 10) -> tuple[np.ndarray, Positions]:
    device = Positions()
    return run(device, history, PROMPTS, steps, PAGES), device  # type: ignore[arg-type]


def test_others_come_and_go_and_lane_0_goes_on() -> None:
    changing = History(name="changing", rows=(1, 3, 8, 5, 1), turn=3, last=True)
    kept, device = found(changing)
    assert [len(rows) for rows in device.rounds] == [1, 1, 3, 3, 8, 8, 5, 5, 1, 1]
    assert kept[:, 0].tolist() == list(range(len(PROMPTS[0]), len(PROMPTS[0]) + 10))
    assert {rows[-1].slot for rows in device.rounds} == {3}
    for rows in device.rounds:
        pages = [page for row in rows for page in row.pages]
        assert len(set(pages)) == len(pages) <= LANES * PAGES
    np.testing.assert_array_equal(kept, found(ALONE)[0])


@pytest.mark.parametrize(("leaks", "wrong"), [(False, 0), (True, 1)])
def test_a_row_that_sees_its_neighbours_is_told(leaks: bool, wrong: int, capsys: pytest.CaptureFixture[str]) -> None:
    device = Positions(leaks=leaks)
    assert compare(device, (TOGETHER,), 240_000, 5, PAGES, "q4") == wrong  # type: ignore[arg-type]
    equal = 0 if leaks else 5
    assert f"q4: {equal} of 5 tokens and {equal} of 5 logits rows equal alone and among 8" in capsys.readouterr().out
