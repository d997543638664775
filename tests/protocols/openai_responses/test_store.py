"""The store: what goes first, what is counted, and that descendants outlive their parents."""

import json
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import RequestError
from ninfer.protocols.openai_responses.store import OVERFLOW_CODE, ResponseStore, StoredResponse
from tests.protocols.openai_responses.shelf import assistant, call, new_store, reasoning, stored, user

contract = pytest.mark.contract


def texts(record: StoredResponse) -> list[Any]:
    return [item.shown["content"][0]["text"] for item in record.context.history()]  # type: ignore[index]


def size(record: StoredResponse) -> int:
    """What a store takes for this one alone."""
    alone = new_store()
    alone.put(record)
    used = alone.used_bytes
    alone.delete(record.id)
    return used


@contract("RSTORE-002", "RSTORE-017")
def test_the_least_recently_used_goes_first() -> None:
    store = new_store(max_records=2)
    for name in ("a", "b"):
        store.put(stored(name, input=[user(name)]))
    assert store.get("a")  # used now
    store.put(stored("c", input=[user("c")]))
    assert (store.get("b"), len(store)) == (None, 2)
    assert store.get("a")
    assert store.get("c")


@contract("RSTORE-002", "RSTORE-017")
def test_bytes_are_bounded() -> None:
    one = size(stored("a", input=[user("x" * 100, id="item")]))
    store = new_store(max_bytes=2 * one)
    for name in "abc":
        store.put(stored(name, input=[user("x" * 100, id=f"ite{name}")]))
    assert [store.get(name) is not None for name in "abc"] == [False, True, True]
    assert store.used_bytes == 2 * one


@contract("RSTORE-018")
def test_one_that_is_larger_than_the_store() -> None:
    first = stored("a", input=[user("a")])
    store = new_store(max_bytes=2 * size(first))
    store.put(first)
    with pytest.raises(RequestError) as caught:
        store.put(stored("b", input=[user("x" * 10_000)]))
    assert (caught.value.code, caught.value.param) == (OVERFLOW_CODE, "store")
    assert store.get("a")  # nothing had to go for it


@contract("RSTORE-018")
def test_the_items_behind_it_count() -> None:
    first = stored("a", input=[user("x" * 700)])
    store = new_store(max_bytes=3 * size(first) // 2)
    store.put(first)
    with pytest.raises(RequestError):
        store.put(stored("b", input=[user("x" * 700)], after=first))


@contract("RSTORE-013")
def test_descendants_outlive_their_parents() -> None:
    store = new_store()
    first = stored("a", input=[user("1")], output=[assistant([{"type": "output_text", "text": "2"}], id="m2")])
    store.put(first)
    store.put(stored("b", input=[user("3")], after=first))
    assert store.delete("a")
    assert store.get("a") is None
    assert not store.delete("a")
    child = store.get("b")
    assert child
    assert texts(child) == ["1", "2", "3"]
    assert store.item("m2") is None  # of a Response that is gone
    store.delete("b")
    assert store.used_bytes == 0


def test_contexts_are_counted_once() -> None:
    store = new_store()
    first = stored("a", input=[user("x" * 10_000)])
    store.put(first)
    used = store.used_bytes
    for name in "bcd":
        store.put(stored(name, input=[user("y")], after=first))
    assert store.used_bytes - used < 10_000


@contract("RSTORE-002")
@pytest.mark.parametrize(
    "item",
    [
        user("x"),
        reasoning("x"),
        user("x" * 1000),
        user("x" * 1000 + "😀"),
        user("é" * 1000),
        user("ж" * 1000),
        user([{"type": "input_text", "text": f"{'x' * 100}😀"}] * 10),
        user([{"type": "input_text", "text": "x"}] * 30),
        call("c", arguments="{}"),
        call("c", arguments=json.dumps({"a": [[]] * 100, "b": [0.5, {"c": None}] * 30})),
    ],
    ids=[
        "short",
        "reasoning",
        "long",
        "one emoji",
        "Latin",
        "Cyrillic",
        "emoji in parts",
        "parts",
        "call",
        "arguments",
    ],
)
def test_what_is_counted_is_what_memory_it_takes(item: dict[str, Any]) -> None:
    # Counted as JSON, a quarter of a gigabyte of short Items took two.
    text = json.dumps([item] * 1000)
    store = new_store(max_bytes=1 << 30)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    store.put(stored("a", input=json.loads(text)))
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert after - before < 1.05 * store.used_bytes < 3 * (after - before)


@contract("D29")
def test_items_are_found_and_count_as_use() -> None:
    store = new_store(max_records=2)
    store.put(stored("a", input=[user("1", id="i")], output=[assistant("2", id="o")]))
    store.put(stored("b"))
    assert [item.id for item in map(store.item, "io") if item] == ["i", "o"]
    store.put(stored("c"))
    assert store.get("a")
    assert store.item("missing") is None


@contract("D29")
def test_an_item_that_two_hold_is_found_as_long_as_one_does() -> None:
    store = new_store()
    for name in ("a", "b"):
        store.put(stored(name, input=[user(name, id="i")]))
    assert store.item("i") == store.get("b").input[0]  # type: ignore[union-attr]
    store.delete("b")
    assert store.item("i") == store.get("a").input[0]  # type: ignore[union-attr]
    store.delete("a")
    assert store.item("i") is None


steps = st.lists(
    st.tuples(st.sampled_from(["put", "child", "delete", "get"]), st.integers(0, 7), st.integers(0, 300)), max_size=30
)


@given(steps)
@contract("RSTORE-002")
def test_what_is_counted_is_what_is_held(actions: list[tuple[str, int, int]]) -> None:
    store: ResponseStore = new_store(max_records=4, max_bytes=6000)
    held: dict[str, StoredResponse] = {}
    for at, (action, which, length) in enumerate(actions):
        name = sorted(held)[which % len(held)] if held else ""
        if action == "delete" and name:
            store.delete(name)
        elif action == "get" and name:
            store.get(name)
        elif action in ("put", "child"):
            parent = held[name] if action == "child" and name else None
            record = stored(f"r{at}", input=[user("x" * length, id=f"i{at}")], after=parent)
            try:
                store.put(record)
            except RequestError:
                pass
            else:
                held[record.id] = record
        held = {id_: record for id_, record in held.items() if store.get(id_)}
        contexts = {id(context): context.size_bytes for one in held.values() for context in one.context.chain()}
        assert store.used_bytes == sum(contexts.values()) + sum(one.body_bytes for one in held.values()) <= 6000
        assert len(store) == len(held) <= 4
    for name in list(held):
        store.delete(name)
    assert store.used_bytes == 0
