"""What can be done with a stored Response: read it, delete it, list its input; and what cannot.

It knows the store and Responses' wire names, nothing of generation.
"""

from collections.abc import Mapping, Sequence

import attrs

from ninfer.conversation import InvalidRequest, NotFound, Unsupported
from ninfer.protocols.openai_responses.store import ResponseStore, StoredResponse
from ninfer.protocols.plugin import Call, Route
from ninfer.protocols.values import shown

DEFAULT_LIMIT, MOST_LIMIT = 20, 100
_STREAM_PARAMETERS = ("stream", "starting_after", "include_obfuscation")


@attrs.frozen
class Resources:
    """The routes beside creation and counting."""

    store: ResponseStore

    def routes(self) -> Sequence[Route]:
        """Retrieval, deletion, input Items, and two refusals."""
        return (
            Route("POST", "/v1/responses/compact", self.compact),
            Route("GET", "/v1/responses/{id}", self.retrieve),
            Route("DELETE", "/v1/responses/{id}", self.delete),
            Route("GET", "/v1/responses/{id}/input_items", self.input_items),
            Route("POST", "/v1/responses/{id}/cancel", self.cancel),
        )

    async def retrieve(self, call: Call) -> None:
        """The terminal object (RSTORE-012)."""
        for name in _STREAM_PARAMETERS:
            if call.query.get(name, "false").lower() != "false":
                raise Unsupported(f"{name}: streams cannot be taken up again", param=name)
        _refuse_include(call.query)
        await call.reply(self._found(call).body)

    async def delete(self, call: Call) -> None:
        """Forget one Response; those that go on from it keep its Items (RSTORE-013)."""
        found = self._found(call)
        self.store.delete(found.id)
        await call.reply({"id": found.id, "object": "response.deleted", "deleted": True})

    async def input_items(self, call: Call) -> None:
        """A page of the Items that came with the request (RSTORE-014)."""
        found = self._found(call)
        _refuse_include(call.query)
        order = call.query.get("order", "desc")
        if order not in ("asc", "desc"):
            raise InvalidRequest(f'order: expected "asc" or "desc", got {shown(order)}', param="order")
        limit = _limit(call.query.get("limit"))
        items = [dict(item.shown) for item in found.input]
        if order == "desc":
            items.reverse()
        after = call.query.get("after")
        if after:
            places = [at for at, item in enumerate(items) if item["id"] == after]
            if not places:
                raise InvalidRequest(f"after: the request has no Item {shown(after)}", param="after")
            items = items[places[0] + 1 :]
        page = items[:limit]
        await call.reply(
            {
                "object": "list",
                "data": page,
                "first_id": page[0]["id"] if page else None,
                "last_id": page[-1]["id"] if page else None,
                "has_more": len(items) > limit,
            }
        )

    async def cancel(self, call: Call) -> None:
        """Only what runs in the background can be cancelled, and nothing does (RSTORE-015)."""
        raise Unsupported(
            "background: Responses are not generated in the background here; closing the connection cancels one",
            code="background_not_supported",
            param="background",
        )

    async def compact(self, call: Call) -> None:
        """Not offered (D35)."""
        raise NotFound("Responses are not compacted here", code="compaction_not_supported")

    def _found(self, call: Call) -> StoredResponse:
        response_id = call.path_args["id"]
        found = self.store.get(response_id)
        if found is None:
            raise NotFound(
                f"there is no stored Response {shown(response_id)}", code="response_not_found", param="response_id"
            )
        return found


def _limit(given: str | None) -> int:
    if given is None:
        return DEFAULT_LIMIT
    if not (given.isascii() and given.isdecimal() and len(given) <= 3 and 1 <= int(given) <= MOST_LIMIT):
        raise InvalidRequest(f"limit: expected an integer from 1 to {MOST_LIMIT}, got {shown(given)}", param="limit")
    return int(given)


def _refuse_include(query: Mapping[str, str]) -> None:
    for name in ("include", "include[]"):
        if query.get(name):
            raise Unsupported(
                f"include: {shown(query[name])} is not supported: objects are stored whole", param="include"
            )
