"""How the step kernel is run; nothing here changes a bit."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class GdnStepOptions:
    """Options of the kernel."""

    early_below: int = 16
    """Up to so many rows there is a multiprocessor for each program, and the state is read first."""
    release: bool = False
    """Let the next kernel launch early."""


DEFAULT = GdnStepOptions()
