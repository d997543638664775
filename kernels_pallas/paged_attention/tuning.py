"""How the decode kernels are cut, by what is stored. Bits of a row depend on it, so nothing here may follow M."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class DecodeTuning:
    """One setting of the two kernels."""

    splits: int = 64
    """Most splits of a row's keys"""
    least_pages: int = 1
    """Fewest pages of a split (a shorter row has one split)"""
    block_tokens: int = 64
    """Keys a step, within one page"""
    warps: int = 4
    stages: int = 3
    prefetch: int = 1
    """Whether a program asks for its first page before it makes its queries"""
    release: int = 0
    """Whether the next kernel may be launched before this one ends"""
    combine_columns: int = 64
    """Head dimensions a program of the summing kernel"""
    combine_warps: int = 4


TUNING = {
    "bf16": DecodeTuning(warps=4, stages=3),
    "int8": DecodeTuning(warps=4, stages=3),
    "fp8": DecodeTuning(warps=4, stages=3),
}
"""By KV format, for head width 256."""
