"""Stored Responses: in this process only, the least recently used go first, bounded by records and by bytes.

A stored Response holds its `Context`, the chain of Items behind it. Descendants hold their parent's context, so a
Response that is deleted or evicted is gone from retrieval while they go on (RSTORE-013). What every context and every
object takes is counted once, as memory and not as JSON: many small Items take several times their text. It knows no
HTTP and no engine.

Invariant: `used_bytes` is the size of all objects stored and of every context that one of them reaches.
"""

import sys
import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping

import attrs

from ninfer.conversation import InvalidRequest
from ninfer.protocols.openai_responses.items import AnyItem, CallItem

OVERFLOW_CODE = "response_store_capacity_exceeded"

ITEM_BYTES = 300
"""What an Item takes beside its wire form, its place in the index included."""


@attrs.define(kw_only=True, eq=False)
class Context:
    """The Items that one request and its Response have added, behind those of the Response before."""

    parent: "Context | None"
    items: tuple[AnyItem, ...]
    size_bytes: int = 0
    holders: int = 0
    """Stored Responses and later contexts that reach it."""

    def __attrs_post_init__(self) -> None:
        self.size_bytes = sum(map(_item_bytes, self.items))

    def history(self) -> tuple[AnyItem, ...]:
        """All Items from the root on."""
        return tuple(item for context in reversed(list(self.chain())) for item in context.items)

    def chain(self) -> Iterator["Context"]:
        """This context, its parent, and so on."""
        context: Context | None = self
        while context is not None:
            yield context
            context = context.parent


@attrs.frozen(kw_only=True, eq=False)
class StoredResponse:
    """A Response as it is kept."""

    id: str
    body: Mapping[str, object]
    """The terminal object."""
    input: tuple[AnyItem, ...]
    """The Items of its own request, as `input_items` lists them."""
    context: Context
    preserve_thinking: bool | None
    """What its request said, or its parent's (RSTORE-006)."""
    body_bytes: int = attrs.field(init=False)

    @body_bytes.default
    def _measure(self) -> int:
        return kept_bytes(self.body)


def kept_bytes(value: object) -> int:
    """What a JSON value takes in memory: a string takes 1, 2 or 4 bytes a character, by the widest that it holds."""
    kept = 0
    waiting = [value]
    while waiting:
        one = waiting.pop()
        kept += sys.getsizeof(one)
        if isinstance(one, Mapping):
            kept += sum(map(sys.getsizeof, one))
            waiting.extend(one.values())
        elif isinstance(one, list | tuple):
            waiting.extend(one)
    return kept


def _item_bytes(item: AnyItem) -> int:
    arguments = kept_bytes(item.arguments) if isinstance(item, CallItem) else 0
    return ITEM_BYTES + kept_bytes(item.shown) + arguments


class ResponseStore:
    """The store. A call is whole before the next one begins, from whatever thread: large bodies are decoded on some."""

    def __init__(self, *, max_records: int, max_bytes: int) -> None:
        self._max_records = max_records
        self._max_bytes = max_bytes
        self._records: OrderedDict[str, StoredResponse] = OrderedDict()  # id -> record, the latest used last
        self._items: dict[str, dict[str, AnyItem]] = {}  # item id -> Responses that hold it -> Item, the latest last
        self._lock = threading.RLock()
        self.used_bytes = 0

    def __len__(self) -> int:
        return len(self._records)

    def get(self, response_id: str) -> StoredResponse | None:
        """The Response of that id, which counts as used now."""
        with self._lock:
            record = self._records.get(response_id)
            if record is not None:
                self._records.move_to_end(response_id)
            return record

    def item(self, item_id: str) -> AnyItem | None:
        """An Item of a stored Response, input or output (D29)."""
        with self._lock:
            holders = self._items.get(item_id)
            if holders is None:
                return None
            response_id, item = next(reversed(holders.items()))
            self._records.move_to_end(response_id)
            return item

    def put(self, record: StoredResponse) -> None:
        """Keep `record`; others go until there is room.

        Raises:
            InvalidRequest: it is larger than the whole store.
        """
        alone = record.body_bytes + sum(context.size_bytes for context in record.context.chain())
        if alone > self._max_bytes:
            raise InvalidRequest(
                f"store: the Response and the Items behind it take {alone} bytes, and the store holds "
                f"{self._max_bytes}; repeat the request with store false, or raise --response-store-max-mib",
                code=OVERFLOW_CODE,
                param="store",
            )
        with self._lock:
            self._hold(record.context)
            self._records[record.id] = record
            self.used_bytes += record.body_bytes
            for item in record.context.items:
                self._items.setdefault(item.id, {})[record.id] = item
            while len(self._records) > self._max_records or self.used_bytes > self._max_bytes:
                self.delete(next(iter(self._records)))

    def delete(self, response_id: str) -> bool:
        """Forget the Response of that id; false if there is none."""
        with self._lock:
            record = self._records.pop(response_id, None)
            if record is None:
                return False
            self.used_bytes -= record.body_bytes
            for item in record.context.items:
                holders = self._items[item.id]
                del holders[response_id]
                if not holders:
                    del self._items[item.id]
            self._release(record.context)
            return True

    def _hold(self, context: Context) -> None:
        for one in context.chain():
            one.holders += 1
            if one.holders > 1:
                return
            self.used_bytes += one.size_bytes

    def _release(self, context: Context) -> None:
        for one in context.chain():
            one.holders -= 1
            if one.holders:
                return
            self.used_bytes -= one.size_bytes
