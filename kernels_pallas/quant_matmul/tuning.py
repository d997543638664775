"""How each shape is cut into programs. One frozen choice for all M of a shape, so that bits do not depend on M.

Values come from the device (docs/performance/gpu_notes.md); another shape takes the default.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import attrs


@attrs.frozen(kw_only=True)
class Config:
    """How a product is cut."""

    warps: int = 4
    """Warps of a program: they share its rows and divide K."""
    tiles: int = 1
    """16-row tiles of a program (a gated product counts pairs)."""
    unroll: int = 1
    """Blocks of K that a warp loads together."""
    pipeline: bool = True
    """Load the next blocks before computing the present ones."""
    pin: bool = True
    """Hold loads before the computation by a barrier: the assembler would sink them to their first use."""
    ring: int = 0
    """Stages of a ring in shared memory through which blocks stream (ring.py); 0: loads into registers."""
    programs: int = 0
    """Programs of the grid with a ring, each walks several tiles; 0: one per tile."""
    prefetch: bool = False
    """Ask for the program's whole rows into L2 at its start."""
    ahead_bytes: int = 0
    """How much of the next matrix to ask into L2 at the end."""
    release: bool = False
    """Let the next kernel launch early."""


WIDE = Config(pipeline=False, ahead_bytes=8 << 20, release=True)
"""Many rows: a program per tile fills the device."""
NARROW = Config(warps=8, pipeline=False, ahead_bytes=8 << 20, release=True)
"""Few rows (5120 are 320 tiles on 132 multiprocessors): more warps a tile."""
TABLE: Mapping[tuple[str, int, int], Config] = MappingProxyType(
    {
        ("q4_g64", 16384, 5120): attrs.evolve(WIDE, pin=False),
        ("q4_g64", 14336, 5120): attrs.evolve(WIDE, pin=False),
        ("bf16", 5120, 6144): attrs.evolve(NARROW, unroll=2),
        ("bf16", 5120, 17408): attrs.evolve(NARROW, unroll=2),
    }
)
"""(format, N, K) to its measured best where that is not the rule's."""


def config_for(format: str, n: int, k: int) -> Config:
    """The choice for a matrix [n, k]."""
    return TABLE.get((format, n, k), NARROW if n <= 8192 else WIDE)
