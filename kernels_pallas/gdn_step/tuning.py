"""How the step kernel is run: one set of options for all numbers of rows, as warps decide the order of sums."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GdnStepOptions:
    """Options of the Triton kernel."""

    num_warps: int = 8
    """They share the rows of the state: 8 leave 64 registers of a thread to it at 128 x 128."""
    hold: bool = True
    """Issue the read of the state before anything else is computed."""
    evict_first: bool = False
    """Tell the L2 cache that the state is not read again soon."""


DEFAULT = GdnStepOptions()
