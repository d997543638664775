"""How the prefill kernels are run: one set of options for every number of tokens, as some decide the order of sums."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GdnChunkOptions:
    """Options of the Triton kernels."""

    convolve_rows: int = 32
    """Tokens of one program of the convolution: a divisor of 64."""
    convolve_warps: int = 4
    prepare_warps: int = 4
    columns: int = 64
    """Columns of a state in one program of the scan."""
    scan_warps: int = 4
    scan_stages: int = 2
    """Chunks under way: the next one's operands are copied to shared memory while this one is computed."""
    finish_warps: int = 4
    halves: int = 2
    """float16 numbers that stand for a float32 one in products: 2 or 1."""


DEFAULT = GdnChunkOptions()
