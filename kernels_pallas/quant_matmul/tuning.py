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
    prefetch: bool = False
    """Ask for the program's whole rows into L2 at its start."""
    ahead_bytes: int = 0
    """How much of the next matrix to ask into L2 at the end."""
    release: bool = False
    """Let the next kernel launch early."""


DEFAULT = Config()
TABLE: Mapping[tuple[str, int, int], Config] = MappingProxyType({})
"""(format, N, K) to its measured best."""


def config_for(format: str, n: int, k: int) -> Config:
    """The choice for a matrix [n, k]."""
    return TABLE.get((format, n, k), DEFAULT)
