"""Who holds which memory: pages of the KV pool and recurrent-state slots. Bookkeeping only, no arrays."""

from ninfer.engine.cache.ledger import LedgerError, PageLedger, pages_for
from ninfer.engine.cache.slots import SlotLedger

__all__ = ["LedgerError", "PageLedger", "SlotLedger", "pages_for"]
