"""The benchmark drives a device as the worker does, and takes its times around that."""

from collections.abc import Iterator

import attrs
import pytest

from ninfer.engine.bench.rounds import Timer
from ninfer.engine.device import DecodeRow, PrefillUnit, UnitResult

WARM_UP_RUNS = 1


@attrs.define
class SlowDevice:
    """Takes a second a unit on its own clock, and keeps the order of dispatches and reads."""

    total_pages: int = 100
    total_slots: int = 8
    compilations: int = 0
    now_s: float = 0.0
    log: list[str] = attrs.field(factory=list)
    rounds: list[tuple[DecodeRow, ...]] = attrs.field(factory=list)
    units: list[PrefillUnit] = attrs.field(factory=list)
    faulty_round: int | None = None

    def prepare(self) -> None:
        """Nothing to do."""

    def recover(self) -> bool:
        return False

    def decode(self, rows: tuple[DecodeRow, ...]) -> "SlowPending":
        self.rounds.append(rows)
        return self._dispatch(faulty=len(self.rounds) - 1 == self.faulty_round)

    def prefill(self, unit: PrefillUnit) -> "SlowPending":
        self.units.append(unit)
        return self._dispatch(faulty=False)

    def _dispatch(self, *, faulty: bool) -> "SlowPending":
        number = sum(entry.startswith("dispatch") for entry in self.log)
        self.log.append(f"dispatch {number}")
        return SlowPending(self, number, faulty)

    def clock(self) -> float:
        return self.now_s


@attrs.frozen
class SlowPending:
    device: SlowDevice
    number: int
    faulty: bool

    def read(self) -> UnitResult:
        self.device.log.append(f"read {self.number}")
        self.device.now_s += 1.0
        return UnitResult((5,), frozenset({0}) if self.faulty else frozenset())


@pytest.fixture
def device() -> SlowDevice:
    return SlowDevice()


def timer(device: SlowDevice, *, runs: int = 3, steps: int = 4) -> Timer:
    return Timer(device=device, clock=device.clock, runs=runs, steps=steps, used_tokens=50)


def test_a_round_is_dispatched_before_the_one_in_front_is_read(device: SlowDevice) -> None:
    one = timer(device)
    one.run_rounds(one.take_seats(1, 128), 128)
    assert device.log == [
        *("dispatch 0", "read 0"),  # the seat
        *("dispatch 1", "dispatch 2", "read 1", "dispatch 3", "read 2", "dispatch 4", "read 3", "read 4"),
    ]


def test_rounds_run_at_the_end_of_the_context_and_feed_what_the_device_chose(device: SlowDevice) -> None:
    found = timer(device).decode(batch=2, context_tokens=192)
    assert found.step_s.values == (1.0, 1.0, 1.0)
    assert (found.batch, found.context_tokens, found.tokens_per_s) == (2, 192, 2.0)
    assert len(device.rounds) == (3 + WARM_UP_RUNS) * 4
    first_run = device.rounds[:4]
    assert [[row.position for row in rows] for rows in first_run] == [[p, p] for p in (188, 189, 190, 191)]
    assert [rows[0].token is None for rows in first_run] == [False, True, True, True]


def test_every_row_has_pages_of_its_own_and_the_device_knows_them(device: SlowDevice) -> None:
    timer(device).decode(batch=3, context_tokens=130)
    tables = [unit.pages for unit in device.units]
    assert tables == [(0, 1, 2), (3, 4, 5), (6, 7, 8)]
    assert [unit.slot for unit in device.units] == [0, 1, 2]
    assert all(tuple(row.pages for row in rows) == tuple(tables) for rows in device.rounds)


def test_faulty_rounds_are_counted(device: SlowDevice) -> None:
    device.faulty_round = 2
    assert timer(device).decode(batch=1, context_tokens=128).faulty_rounds == 1


def test_a_context_must_hold_a_prompt_and_the_rounds(device: SlowDevice) -> None:
    with pytest.raises(ValueError, match="has no room"):
        timer(device).decode(batch=1, context_tokens=67)


@pytest.mark.parametrize(
    ("tokens", "chunk", "starts", "lengths"), [(64, 64, [0], [64]), (200, 64, [0, 64, 128, 192], [64, 64, 64, 8])]
)
def test_a_prompt_goes_in_units_and_only_the_last_one_samples(
    device: SlowDevice, tokens: int, chunk: int, starts: list[int], lengths: list[int]
) -> None:
    found = timer(device, runs=2).prefill(tokens=tokens, chunk_tokens=chunk, flops=12)
    assert found.prompt_s.values == (float(len(starts)),) * 2
    runs: list[Iterator[PrefillUnit]] = [iter(device.units)] * len(starts)
    units = [list(run) for run in zip(*runs, strict=True)]
    assert len(units) == 2 + WARM_UP_RUNS
    for run in units:
        assert [unit.start for unit in run] == starts
        assert [len(unit.tokens) for unit in run] == lengths
        assert [unit.sample is not None for unit in run] == [False] * (len(starts) - 1) + [True]
