"""How the step kernel is run. Warps and columns decide the order of sums, so they are the same for all numbers of rows;
how many programs share a head changes no bit."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GdnStepOptions:
    """Options of the Triton kernel."""

    num_warps: int = 4
    columns: int = 32
    """Columns of the state in one tile."""
    shared_below: int = 1
    """Up to so many rows, tiles of a head are dealt out to several programs: few rows alone do not fill a GPU."""
    prefetched: bool = False
    """Ask for the whole state of a head at once, into the L2 cache."""
    ask_late: bool = False
    """Ask for what is read next only once the first tile of the state is there."""
    release: bool = False
    """Let the next kernel launch early."""

    def parts(self, rows: int) -> int:
        """Programs a head, at most."""
        return 4 if rows <= self.shared_below else 1


DEFAULT = GdnStepOptions()
