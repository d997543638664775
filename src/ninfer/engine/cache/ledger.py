"""Pages of the KV pool: which owner holds which page, by counts.

An owner's table lists its pages in the order of positions. A page enters a table by `reserve` (taken from the free
ones, content not written yet) or by `adopt` (shared with the owners that have it already), its content becomes
dependable by `commit`, and it is free again when its last owner lets go. Knows no tokens, no requests, no arrays.

Invariant: a page is free if and only if no table holds it; its count is the number of tables that hold it.
"""

from collections.abc import Sequence

from ninfer.engine.types import PAGE_TOKENS


class LedgerError(RuntimeError):
    """The books are wrong, or were about to become so. Never a failed check of one unit: nothing can be trusted."""


def pages_for(tokens: int) -> int:
    """Pages that hold `tokens` tokens from position 0."""
    return -(-tokens // PAGE_TOKENS)


class PageLedger:
    """The books of one pool."""

    def __init__(self, total_pages: int) -> None:
        self._total = total_pages
        self._free = list(range(total_pages - 1, -1, -1))  # a stack: the page let go last is taken first
        self._holders = [0] * total_pages  # page -> number of tables that hold it
        self._dependable = bytearray(total_pages)  # page -> 1 once its content has been committed
        self._tables: dict[int, list[int]] = {}  # owner -> pages in the order of positions
        self._committed: dict[int, int] = {}  # owner -> how many pages of its table are committed

    @property
    def total_pages(self) -> int:
        """Pages of the pool."""
        return self._total

    @property
    def free_pages(self) -> int:
        """Pages that nobody holds."""
        return len(self._free)

    @property
    def owners(self) -> frozenset[int]:
        """Everyone who holds at least one page."""
        return frozenset(self._tables)

    def held(self, owner: int) -> int:
        """Pages in the table of `owner`."""
        return len(self._tables.get(owner, ()))

    def committed(self, owner: int) -> int:
        """Pages at the head of the owner's table whose content is dependable."""
        return self._committed.get(owner, 0)

    def table(self, owner: int) -> tuple[int, ...]:
        """The owner's pages in the order of positions."""
        return tuple(self._tables.get(owner, ()))

    def reserve(self, owner: int, pages: int) -> bool:
        """Append `pages` free pages to the owner's table; False, and nothing changes, where there are too few."""
        if pages < 0:
            raise LedgerError(f"{owner} reserves {pages} pages")
        if pages > len(self._free):
            return False
        if pages:
            taken = [self._free.pop() for _ in range(pages)]
            for page in taken:
                self._holders[page] = 1
            self._tables.setdefault(owner, []).extend(taken)
        return True

    def commit(self, owner: int, pages: int) -> None:
        """The first `pages` pages of the owner's table hold what they should from now on. Never moves backwards."""
        before = self.committed(owner)
        if pages <= before:
            return
        table = self._tables.get(owner, [])
        if pages > len(table):
            raise LedgerError(f"{owner} commits {pages} pages and holds {len(table)}")
        for page in table[before:pages]:
            self._dependable[page] = 1
        self._committed[owner] = pages

    def adopt(self, owner: int, pages: Sequence[int]) -> None:
        """Start the table of an owner that has none with committed pages that others hold."""
        if owner in self._tables:
            raise LedgerError(f"{owner} has a table already")
        for page in pages:
            if not self._dependable[page]:
                raise LedgerError(f"{owner} adopts page {page}, which is not committed")
        if len(set(pages)) != len(pages):
            raise LedgerError(f"{owner} adopts a page twice: {tuple(pages)}")
        if pages:
            for page in pages:
                self._holders[page] += 1
            self._tables[owner] = list(pages)
            self._committed[owner] = len(pages)

    def release(self, owner: int) -> int:
        """Take the whole table from `owner`; the number of pages that became free. An owner without one is fine."""
        freed = 0
        for page in reversed(self._tables.pop(owner, [])):
            if self._holders[page] < 1:
                raise LedgerError(f"{owner} releases page {page}, which nobody holds")
            self._holders[page] -= 1
            if not self._holders[page]:
                self._dependable[page] = 0
                self._free.append(page)
                freed += 1
        self._committed.pop(owner, None)
        return freed

    def check(self) -> None:
        """Compare all books with each other: a few milliseconds for 30,000 pages, so a thing for idle moments.

        Raises:
            LedgerError: they differ.
        """
        holders = [0] * self._total
        for table in self._tables.values():
            for page in table:
                holders[page] += 1
        if holders != self._holders:
            raise LedgerError("the counts of pages differ from the tables")
        if len(set(self._free)) != len(self._free):
            raise LedgerError("a page is free twice")
        if any(map(holders.__getitem__, self._free)) or len(self._free) != holders.count(0):
            raise LedgerError("a page is lost, or both free and held")
        if any(map(self._dependable.__getitem__, self._free)):
            raise LedgerError("a free page is still marked as committed")
        for owner, table in self._tables.items():
            if not table or len(set(table)) != len(table):
                raise LedgerError(f"the table of {owner} is empty or holds a page twice")
            if self.committed(owner) > len(table):
                raise LedgerError(f"{owner} has committed more pages than it holds")
            if not all(self._dependable[page] for page in table[: self.committed(owner)]):
                raise LedgerError(f"{owner} counts a page as committed that is not")
        if not self._committed.keys() <= self._tables.keys():
            raise LedgerError("someone without a table has committed pages")
