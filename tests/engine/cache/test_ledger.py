"""The page ledger and the slot ledger: examples of each rule, then random histories against a plain model."""

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from ninfer.engine.cache import LedgerError, PageLedger, SlotLedger, pages_for

PAGES = 12
OWNERS = st.integers(0, 4)


@pytest.mark.parametrize(("tokens", "pages"), [(0, 0), (1, 1), (63, 1), (64, 1), (65, 2), (128, 2), (129, 3)])
def test_pages_for_tokens(tokens: int, pages: int) -> None:
    assert pages_for(tokens) == pages


def test_a_reservation_is_whole_or_nothing() -> None:
    ledger = PageLedger(4)
    assert ledger.reserve(1, 3)
    assert not ledger.reserve(2, 2)
    assert (ledger.free_pages, ledger.held(1), ledger.held(2)) == (1, 3, 0)
    assert ledger.reserve(1, 1)
    assert len(set(ledger.table(1))) == 4
    assert ledger.release(1) == 4
    assert (ledger.free_pages, ledger.table(1)) == (4, ())


def test_release_of_nothing_is_fine_and_twice_is_nothing() -> None:
    ledger = PageLedger(2)
    assert ledger.reserve(1, 2)
    assert (ledger.release(7), ledger.release(1), ledger.release(1)) == (0, 2, 0)
    ledger.check()


def test_a_shared_page_is_free_when_its_last_owner_lets_go() -> None:
    ledger = PageLedger(3)
    assert ledger.reserve(1, 2)
    ledger.commit(1, 1)
    ledger.adopt(2, ledger.table(1)[:1])
    assert ledger.release(1) == 1
    assert (ledger.free_pages, ledger.held(2), ledger.committed(2)) == (2, 1, 1)
    ledger.check()
    assert ledger.release(2) == 1
    assert ledger.free_pages == 3


def test_misuse_is_an_error_of_the_books() -> None:
    ledger = PageLedger(3)
    assert ledger.reserve(1, 2)
    with pytest.raises(LedgerError, match="commits 3 pages and holds 2"):
        ledger.commit(1, 3)
    with pytest.raises(LedgerError, match="not committed"):
        ledger.adopt(2, ledger.table(1)[:1])
    ledger.commit(1, 2)
    with pytest.raises(LedgerError, match="has a table already"):
        ledger.adopt(1, ())
    with pytest.raises(LedgerError, match="adopts a page twice"):
        ledger.adopt(2, ledger.table(1)[:1] * 2)
    with pytest.raises(LedgerError, match="-1 pages"):
        ledger.reserve(1, -1)
    ledger.check()


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda ledger: ledger._free.append(ledger._free[-1]), "free twice"),
        (lambda ledger: ledger._free.pop(), "lost"),
        (lambda ledger: ledger._tables[1].pop(), "differ from the tables"),
        (lambda ledger: ledger._dependable.__setitem__(ledger._free[0], 1), "still marked"),
        (lambda ledger: ledger._committed.__setitem__(1, 9), "committed more"),
        (lambda ledger: ledger._committed.__setitem__(1, 2), "counts a page as committed"),
        (lambda ledger: ledger._committed.__setitem__(5, 0), "without a table"),
    ],
)
def test_the_check_finds_damage(damage: object, message: str) -> None:
    ledger = PageLedger(4)
    assert ledger.reserve(1, 2)
    ledger.commit(1, 1)
    assert callable(damage)
    damage(ledger)
    with pytest.raises(LedgerError, match=message):
        ledger.check()


def test_slots_have_one_owner_each() -> None:
    slots = SlotLedger(2)
    first, second = slots.take(1), slots.take(2)
    assert {first, second} == {0, 1}
    with pytest.raises(LedgerError, match="no slot is free"):
        slots.take(3)
    slots.release(1)
    slots.release(1)
    assert slots.take(3) == first
    with pytest.raises(LedgerError, match="holds slot"):
        slots.take(3)
    slots.check()
    slots._free.append(0)
    with pytest.raises(LedgerError, match="held twice"):
        slots.check()


class LedgerHistory(RuleBasedStateMachine):
    """Random calls; the model is a list of pages per owner and nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.ledger = PageLedger(PAGES)
        self.tables: dict[int, tuple[int, ...]] = {}
        self.committed: dict[int, int] = {}

    def used(self) -> set[int]:
        return {page for table in self.tables.values() for page in table}

    @rule(owner=OWNERS, pages=st.integers(0, 6))
    def reserve(self, owner: int, pages: int) -> None:
        fits = pages <= PAGES - len(self.used())
        assert self.ledger.reserve(owner, pages) == fits
        table = self.ledger.table(owner)
        if fits and pages:
            new = set(table[len(table) - pages :])
            assert len(new) == pages
            assert not new & self.used()
            self.tables[owner] = table
        assert table == self.tables.get(owner, ())

    @rule(owner=OWNERS, share=st.floats(0, 1))
    def commit(self, owner: int, share: float) -> None:
        pages = int(share * len(self.tables.get(owner, ())))
        self.ledger.commit(owner, pages)
        if pages > self.committed.get(owner, 0):
            self.committed[owner] = pages

    @rule(owner=OWNERS, other=OWNERS)
    def adopt(self, owner: int, other: int) -> None:
        if owner in self.tables or not self.committed.get(other):
            return
        shared = self.tables[other][: self.committed[other]]
        self.ledger.adopt(owner, shared)
        self.tables[owner], self.committed[owner] = shared, len(shared)

    @rule(owner=OWNERS)
    def release(self, owner: int) -> None:
        before = self.used()
        self.tables.pop(owner, None)
        self.committed.pop(owner, None)
        assert self.ledger.release(owner) == len(before) - len(self.used())

    @invariant()
    def books_agree(self) -> None:
        self.ledger.check()
        assert self.ledger.free_pages == PAGES - len(self.used())
        assert {owner: self.ledger.table(owner) for owner in self.ledger.owners} == self.tables
        assert all(self.ledger.committed(owner) == pages for owner, pages in self.committed.items())


TestLedgerHistory = LedgerHistory.TestCase
