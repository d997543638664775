"""Recurrent-state slots: the device places of the lanes' live states. One owner each, no sharing.

Invariant: every slot is either free or held by exactly one owner, and an owner holds at most one.
"""

from ninfer.engine.cache.ledger import LedgerError


class SlotLedger:
    """The books of all slots."""

    def __init__(self, total_slots: int) -> None:
        self._total = total_slots
        self._free = list(range(total_slots - 1, -1, -1))
        self._held: dict[int, int] = {}  # owner -> slot

    @property
    def total_slots(self) -> int:
        """All slots."""
        return self._total

    @property
    def free_slots(self) -> int:
        """Slots that nobody holds."""
        return len(self._free)

    @property
    def owners(self) -> frozenset[int]:
        """Everyone who holds a slot."""
        return frozenset(self._held)

    def take(self, owner: int) -> int:
        """Give a free slot to `owner`."""
        if owner in self._held:
            raise LedgerError(f"{owner} holds slot {self._held[owner]} already")
        if not self._free:
            raise LedgerError("no slot is free")
        self._held[owner] = self._free.pop()
        return self._held[owner]

    def release(self, owner: int) -> None:
        """Take the slot from `owner`. An owner without one is fine."""
        slot = self._held.pop(owner, None)
        if slot is not None:
            self._free.append(slot)

    def check(self) -> None:
        """Compare the books with each other.

        Raises:
            LedgerError: they differ.
        """
        if sorted([*self._free, *self._held.values()]) != list(range(self._total)):
            raise LedgerError("a slot is lost, or held twice")
