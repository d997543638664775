"""How each shape is cut into programs. One frozen choice for all M of a shape, so that bits do not depend on M.

Values come from the device (docs/performance/gpu_notes.md); another shape takes the default.
"""

from __future__ import annotations

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
    pin: bool = True
    """Hold loads before the computation by a barrier: the assembler would sink them to their first use."""
    ring: int = 0
    """Stages of a ring in shared memory through which blocks stream (ring.py); 0: loads into registers."""
    ring_rows: int = 0
    """Up to so many rows x goes through the ring too: its latency is hidden then, but rows take room in it."""
    programs: int = 0
    """Programs of the grid with a ring, each walks several tiles; 0: one per tile."""
    release: bool = False
    """Let the next kernel launch early."""


_FOUR_BITS = ("q4_g64", "q5_g64", "q6_g64", "nvfp4")


def config_for(format: str, n: int, k: int, epilogue: str = "plain") -> Config:
    """The choice for a matrix [n, k] with this epilogue: measured for the shapes of specs.py, a near rule for others.

    A row's bits depend on `warps` alone of all fields, and here on nothing but the arguments.
    """
    four_bits = format in _FOUR_BITS
    if n > 65536:  # the head: so long that only the stream counts, and what follows is not ours
        return Config(ring=3)
    if epilogue == "residual":  # 5120 outputs are 320 tiles for 132 multiprocessors: more warps a tile
        if format == "bf16":
            return Config(warps=8, ring=2, ring_rows=16)
        if four_bits and k >= 8192:
            return Config(ring=3, ring_rows=4)
        # gate and up follow: more programs than the device holds, so being placed early crowds them nowhere
        if format == "nvfp4":
            return Config(ring=2, ring_rows=8, release=True)
        return Config(warps=8, ring=0 if four_bits else 2, release=four_bits)
    if epilogue == "gated":
        if format == "bf16":
            return Config(ring=2)
        return Config(ring=1 if format in ("nvfp4", "fp8_row") else 2, ring_rows=8)
    if not four_bits:
        return Config(ring=2)
    if format == "q6_g64":
        return Config(ring=1, tiles=2)
    return Config(warps=2, ring=2, tiles=2, ring_rows=8)  # all 512 programs are resident at once
