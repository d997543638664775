"""How the selection kernels are run. No option changes a bit of the result."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class BestOptions:
    """Options of the Triton kernels."""

    block: int = 2048
    """Tokens a program of the first launch looks at."""
    num_warps: int = 4
    merge_warps: int = 4


DEFAULT = BestOptions()
