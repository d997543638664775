"""Which program a round runs: exactly one per number of rows, compiled before the first unit."""

import attrs
import pytest

from ninfer.engine.device import DecodeRow, Pending, PrefillUnit
from ninfer.engine.programs import JaxDevice
from ninfer.engine.types import Plan, Prompt, Sampling
from tests.engine.programs.conftest import CHUNK_TOKENS, CONTEXT_TOKENS, LANES, POOL_PAGES
from tests.fakes.engine import ManualEngine, limits


@attrs.define(eq=False)
class CountingDevice:
    """A real device, and how many rows each round had."""

    inner: JaxDevice
    rows: list[int] = attrs.field(factory=list)
    total_pages: int = POOL_PAGES
    total_slots: int = LANES

    @property
    def compilations(self) -> int:
        return self.inner.compilations

    def prepare(self) -> None:
        """It is prepared."""

    def prefill(self, unit: PrefillUnit) -> Pending:
        return self.inner.prefill(unit)

    def decode(self, rows: tuple[DecodeRow, ...]) -> Pending:
        self.rows.append(len(rows))
        pending = self.inner.decode(rows)
        assert pending.read_logits().shape[0] == len(rows)  # no row that nobody asked for
        return pending

    def recover(self) -> bool:
        return self.inner.recover()


@pytest.mark.contract("EXEC-002", "EXEC-003", "EXEC-005")
def test_each_round_runs_the_program_of_its_size(device: JaxDevice) -> None:
    assert [facts.name for facts in device.programs] == [
        f"prefill {CHUNK_TOKENS}",
        *[f"decode {n}" for n in range(1, LANES + 1)],
    ]
    compiled = device.compilations
    counting = CountingDevice(device)
    within = limits(lanes=LANES, pages=POOL_PAGES, context_tokens=CONTEXT_TOKENS, chunk_tokens=CHUNK_TOKENS)
    made = ManualEngine(counting, within)
    for lane in range(LANES):  # they come one by one and leave one by one
        plan = Plan(sampling=Sampling(temperature=0), max_new_tokens=6 + 4 * lane)
        made.submit(Prompt((1 + lane,) * 5), plan)
    made.step()
    made.finish()
    assert set(counting.rows) == set(range(1, LANES + 1))
    peak = counting.rows.index(LANES)
    assert counting.rows[: peak + 1] == sorted(counting.rows[: peak + 1])
    assert counting.rows[peak:] == sorted(counting.rows[peak:], reverse=True)
    assert device.compilations == compiled
