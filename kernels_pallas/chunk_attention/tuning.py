"""How the chunk kernel is cut, by what is stored. A row's bits do not depend on T whatever stands here."""

from __future__ import annotations

import attrs


@attrs.frozen(kw_only=True)
class ChunkTuning:
    """One setting."""

    rows: int = 128
    """Tokens of one query head that a program holds: a multiple of 64"""
    block_tokens: int = 64
    """Keys a step, within one page"""
    segment_tokens: int = 8192
    """Keys after which a new softmax begins, at positions that are multiples of it: what can run side by side"""
    warps: int = 8
    stages: int = 2


TUNING = {"bf16": ChunkTuning(), "int8": ChunkTuning(), "fp8": ChunkTuning()}
"""By KV format, for head width 256."""

STREAMING_MULTIPROCESSORS = 132
"""Of an H200: fewer tiles than these leave some of them idle."""
