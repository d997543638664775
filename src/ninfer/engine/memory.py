"""How much memory each part of the engine takes, and how large the KV pool may be. Arithmetic over bytes alone.

A budget is made before the weights are loaded and refuses what can never fit, with need and have. When the programs are
compiled, what they really need is known, and the budget settles the pool once and for all. Knows no device and no
arrays: what is free comes from a function.

Invariant: a settled plan's parts, headroom included, are within what the device had, or `TooLittleMemory` was raised.
"""

import math
from collections.abc import Callable

import attrs
from attrs import validators

from ninfer.engine.types import PAGE_TOKENS

MIB = 1 << 20

DEFAULT_HEADROOM_MIB = 1024
"""Left free by an automatic capacity unless the user says otherwise (KV-004)."""

_GRAPH_BASE_BYTES, _GRAPH_EACH_BYTES = 64 * MIB, 4 * MIB

_CODE_EACH_BYTES = 24 * MIB
_MEASURED_PROGRAMS, _MEASURED_LAYERS = 7, 64
"""What the code of programs was measured with: 165 to 203 MiB on an H200, graphs included. How much of it each program
takes is not known, so fewer programs are counted as seven, and more as if all of it were theirs."""

_positive = validators.ge(0)


class TooLittleMemory(Exception):
    """The engine does not fit. The message is one line with need and have."""


@attrs.frozen(kw_only=True)
class MemoryNeeds:
    """What must be there whatever the pool's size is, and what one page takes. All in bytes."""

    weights_bytes: int = attrs.field(validator=_positive)
    slots_bytes: int = attrs.field(validator=_positive)
    """Recurrent state of all lanes."""
    counts_bytes: int = attrs.field(validator=_positive)
    """What sampling remembers of all lanes: how often each token came, and the last one."""
    workspace_bytes: int = attrs.field(validator=_positive)
    """What the most demanding program allocates while it runs. An estimate until the programs are compiled."""
    graphs_bytes: int = attrs.field(validator=_positive)
    """Allowance for the graphs and the code of compiled programs on the device (KV-005)."""
    page_bytes: int = attrs.field(validator=validators.ge(1))
    impossible_pages: range = range(0)
    """Numbers of pages that a pool cannot have, whatever is free: kernels could not index it."""

    @property
    def fixed_bytes(self) -> int:
        """Everything but the pool."""
        return self.weights_bytes + self.slots_bytes + self.counts_bytes + self.workspace_bytes + self.graphs_bytes


@attrs.frozen(kw_only=True)
class PoolRequest:
    """Which pool is wanted: as many pages as fit between two bounds, with `headroom_bytes` left free."""

    least_pages: int = attrs.field(validator=validators.ge(1))
    most_pages: int = attrs.field(validator=validators.ge(1))
    headroom_bytes: int = attrs.field(default=0, validator=_positive)

    def __attrs_post_init__(self) -> None:
        if self.most_pages < self.least_pages:
            raise ValueError(f"most_pages={self.most_pages} is below least_pages={self.least_pages}")


@attrs.frozen(kw_only=True)
class MemoryPlan:
    """What everything takes, the pool included."""

    needs: MemoryNeeds
    pages: int
    headroom_bytes: int
    have_bytes: int | None
    """Free before anything of ours was there; None where the device does not say."""
    graphs_used_bytes: int = 0
    """What compiled programs really took beside the weights, once that is known; 0 where there is no allowance."""

    @property
    def pool_bytes(self) -> int:
        """The KV pool."""
        return self.pages * self.needs.page_bytes

    @property
    def total_bytes(self) -> int:
        """All parts, without the headroom."""
        return self.needs.fixed_bytes + self.pool_bytes

    def parts(self) -> tuple[tuple[str, int], ...]:
        """Name and bytes of each part, the headroom last."""
        needs = self.needs
        return (
            ("weights", needs.weights_bytes),
            ("recurrent slots", needs.slots_bytes),
            ("KV pool", self.pool_bytes),
            ("sampling counts", needs.counts_bytes),
            ("program workspace", needs.workspace_bytes),
            ("graph allowance", needs.graphs_bytes),
            ("headroom", self.headroom_bytes),
        )

    def table(self) -> tuple[str, ...]:
        """The startup table: one line a part, then the sum against what the device has."""
        lines = [f"{name:<18}{_size(size):>12}" for name, size in self.parts()]
        lines[2] += f"  ({self.pages:,} pages, {self.pages * PAGE_TOKENS:,} tokens)"
        if self.needs.graphs_bytes:
            lines[5] += f"  ({_size(self.graphs_used_bytes)} used)"
        have = "unknown" if self.have_bytes is None else _size(self.have_bytes)
        return (*lines, f"{'all':<18}{_size(self.total_bytes + self.headroom_bytes):>12}  of {have} free at start")


class MemoryBudget:
    """Sizes the pool: provisionally when it is made, finally by `settle`."""

    def __init__(self, needs: MemoryNeeds, pool: PoolRequest, free_bytes: Callable[[], int | None]) -> None:
        """`free_bytes` is asked now and again by `settle`; None means that nobody knows.

        Raises:
            TooLittleMemory: not even the smallest pool fits.
        """
        self._pool = pool
        self._free_bytes = free_bytes
        self.plan = plan_memory(needs, pool, free_bytes())

    def settle(self, workspace_bytes: int) -> int:
        """Pages of the pool, once weights are loaded and programs compiled; never more than were planned.

        Raises:
            TooLittleMemory: with the programs' real workspace not even the smallest pool fits.
        """
        needs = attrs.evolve(self.plan.needs, workspace_bytes=workspace_bytes)
        free = self._free_bytes()
        have, used = None, 0
        if free is not None:
            have = free + needs.weights_bytes  # what is loaded already is missing from what is free now
            if needs.graphs_bytes and self.plan.have_bytes is not None:
                used = max(0, self.plan.have_bytes - have)
                have += min(used, needs.graphs_bytes)
        plan = plan_memory(needs, attrs.evolve(self._pool, most_pages=self.plan.pages), have)
        self.plan = attrs.evolve(plan, graphs_used_bytes=used)
        return self.plan.pages


def plan_memory(needs: MemoryNeeds, pool: PoolRequest, have_bytes: int | None) -> MemoryPlan:
    """The largest pool that was asked for and fits.

    Raises:
        TooLittleMemory: not even the smallest one does.
    """
    least_bytes = needs.fixed_bytes + pool.least_pages * needs.page_bytes + pool.headroom_bytes
    if have_bytes is None:
        pages = pool.most_pages
    elif have_bytes < least_bytes:
        smallest = MemoryPlan(needs=needs, pages=pool.least_pages, headroom_bytes=pool.headroom_bytes, have_bytes=None)
        parts = ", ".join(f"{name} {_size(size)}" for name, size in smallest.parts() if size)
        raise TooLittleMemory(f"too little memory: {_size(least_bytes)} needed ({parts}), {_size(have_bytes)} free")
    else:
        room = pool.least_pages + (have_bytes - least_bytes) // needs.page_bytes
        pages = pool.most_pages if room >= pool.most_pages else max(pool.least_pages, _round(room))
        if pages in needs.impossible_pages:
            below = needs.impossible_pages.start - 1
            if room >= needs.impossible_pages.stop:
                pages = needs.impossible_pages.stop  # a few more than were asked for
            elif below >= pool.least_pages:
                pages = below
            else:
                need_bytes = least_bytes + (needs.impossible_pages.stop - pool.least_pages) * needs.page_bytes
                message = f"a pool of {pool.least_pages} pages needs {_size(need_bytes)} with everything else"
                raise TooLittleMemory(f"too little memory: {message}, {_size(have_bytes)} free")
    return MemoryPlan(needs=needs, pages=pages, headroom_bytes=pool.headroom_bytes, have_bytes=have_bytes)


def graph_allowance_bytes(executables: int) -> int:
    """Device memory to set aside for compiled decode programs: 64 MiB plus 4 MiB for each (KV-005)."""
    return _GRAPH_BASE_BYTES + _GRAPH_EACH_BYTES * executables


def program_allowance_bytes(*, decode: int, prefill: int, layers: int) -> int:
    """The same with the code of all programs: 24 MiB for each, of seven at least, and more where they are longer.

    decode, prefill: numbers of programs; layers: of the model, which programs spell out one by one.
    """
    longer = max(1.0, layers / _MEASURED_LAYERS)
    code_bytes = _CODE_EACH_BYTES * max(_MEASURED_PROGRAMS, decode + prefill)
    return graph_allowance_bytes(decode) + math.ceil(code_bytes * longer)


def _round(pages: int) -> int:
    """Down to a multiple of about 1/32: programs are compiled for a size, and what is free differs at every start."""
    step = 1 << max(0, pages.bit_length() - 6)
    return pages // step * step


def _size(size_bytes: int) -> str:
    for unit, scale in (("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if size_bytes >= scale:
            return f"{size_bytes / scale:,.1f} {unit}"
    return f"{size_bytes} B"
