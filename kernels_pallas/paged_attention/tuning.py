"""How the decode kernels are cut, by what is stored. Bits of a row depend on it, so nothing here may follow M."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class DecodeTuning:
    """One setting of the two kernels."""

    splits: int = 99
    """Most splits of a row's keys. 4 kv heads times 99 are three programs for each of 132 multiprocessors, which is
    what fits beside each other with two stages."""
    block_tokens: int = 64
    """Keys a step, within one page"""
    warps: int = 4
    stages: int = 2
    prefetch: int = 1
    """Whether a program asks for its first page before it makes its queries"""
    combine_columns: int = 64
    """Head dimensions a program of the summing kernel"""
    combine_warps: int = 4


TUNING = {"bf16": DecodeTuning(splits=64), "int8": DecodeTuning(), "fp8": DecodeTuning()}
"""By KV format, for head width 256."""
