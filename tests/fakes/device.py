"""`FakeDevice`: a device without arrays that checks what it is asked, records it, and answers from a function.

It stands in for a model wherever the order of calls matters and the numbers do not. Its "recurrent state" is a hash
of all tokens that went through a slot and its "KV memory" holds the tokens themselves, so a replay that feeds a wrong
token, a page that two lanes share, or a chunk that is run twice shows in the tokens that come out. It asserts the
rules of `ninfer.engine.device` on every call. Usable from any thread, by one at a time.
"""

import threading
from collections.abc import Callable
from typing import Literal, TypeAlias

import attrs

from ninfer.engine.device import DecodeRow, PrefillUnit, SampleRow, UnitResult
from ninfer.engine.types import PAGE_TOKENS

Choose: TypeAlias = Callable[[int, SampleRow], int]
"""Chooses a token from a slot's state (a hash of its tokens) and the row's sampling."""

Kind: TypeAlias = Literal["prefill", "decode"]

MODULUS = (1 << 61) - 1


class FakeRuleBroken(Exception):
    """The worker has broken a rule of the port."""


def advance(state: int, token: int) -> int:
    """The state after one more token."""
    return (state * 1_000_003 + token + 1) % MODULUS


def state_after(tokens: tuple[int, ...]) -> int:
    """The state of a slot that `tokens` went through."""
    state = 0
    for token in tokens:
        state = advance(state, token)
    return state


def choose_by_hash(state: int, row: SampleRow) -> int:
    """A token below 1,000 that depends on all tokens before it, and on the seed."""
    return (state * 2_654_435_761 + row.sampling.seed + row.position) % MODULUS % 1000


@attrs.frozen(kw_only=True)
class DeviceCall:
    """One entry of the record. `unit` counts dispatches from 0; a read names the dispatch that it reads."""

    action: Literal["dispatch", "read"]
    kind: Kind
    unit: int
    slots: tuple[int, ...]


@attrs.frozen(kw_only=True)
class InjectedFault:
    """What goes wrong with a unit: an exception on dispatch or on read, or rows whose logits are not finite."""

    loses_memory: bool = False
    """The exception takes all of the device's memory with it."""

    on_dispatch: Exception | None = None
    on_read: Exception | None = None
    faulty_rows: frozenset[int] = frozenset()


NO_FAULT = InjectedFault()


@attrs.define(eq=False)
class FakePending:
    """A dispatched unit of a `FakeDevice`."""

    device: "FakeDevice"
    call: DeviceCall
    result: UnitResult
    fault: InjectedFault
    epoch: int = 0
    """How often the memory had been lost when it was dispatched."""
    was_read: bool = False

    def read(self) -> UnitResult:
        """The unit's result, once the gate lets it through."""
        if self.was_read:
            raise FakeRuleBroken(f"unit {self.call.unit} is read twice")
        self.was_read = True
        if self.device.gate is not None:
            self.device.gate.acquire()
        self.device.calls.append(attrs.evolve(self.call, action="read"))
        self.device.check_memory(self.epoch)
        if self.fault.on_read is not None:
            self.device.lost |= self.fault.loses_memory
            raise self.fault.on_read
        return self.result


@attrs.define(eq=False)
class FakeDevice:
    """See the module. All fields may be changed while it runs, between two calls."""

    total_pages: int = 64
    total_slots: int = 1
    choose: Choose = choose_by_hash
    most_tokens: int = 512
    """The longest chunk it takes."""
    fault: Callable[[int, Kind], InjectedFault] = lambda unit, kind: NO_FAULT
    """What goes wrong with a unit, by its number and kind."""
    gate: threading.Semaphore | None = None
    """Given one, every read waits for a permit: tests hold the device still with it."""
    prepare_error: Exception | None = None
    compilations: int = 0
    calls: list[DeviceCall] = attrs.field(factory=list)
    prepared_by: threading.Thread | None = None
    recover_error: Exception | None = None
    lost: bool = False
    """The memory is gone; `recover` brings an empty one."""
    losses: int = 0

    _states: dict[int, int] = attrs.field(factory=dict)  # slot -> hash of its tokens
    _lengths: dict[int, int] = attrs.field(factory=dict)  # slot -> tokens that went through it
    _chosen: dict[int, int] = attrs.field(factory=dict)  # slot -> the token chosen last
    _memory: dict[int, list[int]] = attrs.field(factory=dict)  # page -> tokens written to it
    _units: int = 0

    def prepare(self) -> None:
        """Pretend to compile two programs."""
        if self.prepare_error is not None:
            raise self.prepare_error
        self.prepared_by = threading.current_thread()
        self.compilations = 2

    def prefill(self, unit: PrefillUnit) -> FakePending:
        """Run one chunk at once; its result waits to be read."""
        if unit.start % PAGE_TOKENS or not 1 <= len(unit.tokens) <= self.most_tokens:
            raise FakeRuleBroken(f"a chunk of {len(unit.tokens)} tokens from {unit.start}")
        call, fault = self._begin("prefill", (unit.slot,))
        if unit.start == 0:
            self._states[unit.slot] = self._lengths[unit.slot] = 0
            self._chosen.pop(unit.slot, None)
        for offset, token in enumerate(unit.tokens):
            self._feed(unit.slot, unit.pages, unit.start + offset, token)
        tokens = () if unit.sample is None else (self._sample(unit.slot, unit.sample),)
        return FakePending(self, call, UnitResult(tokens, fault.faulty_rows), fault, self.losses)

    def decode(self, rows: tuple[DecodeRow, ...]) -> FakePending:
        """Run one round at once; its result waits to be read."""
        slots = tuple(row.slot for row in rows)
        if not 1 <= len(rows) <= self.total_slots or len(set(slots)) != len(slots):
            raise FakeRuleBroken(f"a round over the slots {slots}")
        call, fault = self._begin("decode", slots)
        tokens = []
        for row in rows:
            token = row.token if row.token is not None else self._chosen.get(row.slot)
            if token is None:
                raise FakeRuleBroken(f"slot {row.slot} has chosen no token to feed")
            self._feed(row.slot, row.pages, row.position, token)
            tokens.append(self._sample(row.slot, row.sample))
        return FakePending(self, call, UnitResult(tuple(tokens), fault.faulty_rows), fault, self.losses)

    def recover(self) -> bool:
        """Empty memory for lost memory."""
        if not self.lost:
            return False
        if self.recover_error is not None:
            raise self.recover_error
        for memory in (self._states, self._lengths, self._chosen, self._memory):
            memory.clear()
        self.lost, self.losses = False, self.losses + 1
        return True

    def check_memory(self, epoch: int) -> None:
        """Raise if the memory of a unit of `epoch` is gone."""
        if self.lost or epoch != self.losses:
            raise FakeRuleBroken("a unit whose memory is lost")

    def _begin(self, kind: Kind, slots: tuple[int, ...]) -> tuple[DeviceCall, InjectedFault]:
        unit, self._units = self._units, self._units + 1
        fault = self.fault(unit, kind)
        self.check_memory(self.losses)
        if fault.on_dispatch is not None:
            self.lost |= fault.loses_memory
            raise fault.on_dispatch
        if not all(0 <= slot < self.total_slots for slot in slots):
            raise FakeRuleBroken(f"slots {slots} of {self.total_slots}")
        call = DeviceCall(action="dispatch", kind=kind, unit=unit, slots=slots)
        self.calls.append(call)
        return call, fault

    def _feed(self, slot: int, pages: tuple[int, ...], position: int, token: int) -> None:
        if position != self._lengths.get(slot):
            raise FakeRuleBroken(f"position {position} in slot {slot}, which is at {self._lengths.get(slot)}")
        if not position < len(pages) * PAGE_TOKENS or not all(0 <= page < self.total_pages for page in pages):
            raise FakeRuleBroken(f"position {position} with the pages {pages}")
        page, offset = pages[position // PAGE_TOKENS], position % PAGE_TOKENS
        content = self._memory.setdefault(page, [])
        del content[offset:]
        if len(content) != offset:
            raise FakeRuleBroken(f"page {page} has lost tokens of slot {slot}")
        content.append(token)
        self._states[slot] = advance(self._states[slot], token)
        self._lengths[slot] = position + 1
        if offset == PAGE_TOKENS - 1:
            self._compare(slot, pages)

    def _compare(self, slot: int, pages: tuple[int, ...]) -> None:
        # Attention reads every page before the current one: all of them must still be this lane's.
        whole = [token for page in pages[: -(-self._lengths[slot] // PAGE_TOKENS)] for token in self._memory[page]]
        if state_after(tuple(whole)) != self._states[slot]:
            raise FakeRuleBroken(f"the pages of slot {slot} do not hold what went through it")

    def _sample(self, slot: int, row: SampleRow) -> int:
        if row.position != self._lengths[slot]:
            raise FakeRuleBroken(f"token {row.position} is chosen after {self._lengths[slot]} tokens")
        self._chosen[slot] = self.choose(self._states[slot], row)
        return self._chosen[slot]
