"""Whose envelope an error goes out in that no handler raised: the protocol's that owns the path, else OpenAI's.

Unknown paths below a protocol's own, wrong methods, foreign hosts, missing keys, faults of the framework. It knows
paths and the plugin interface, not what any envelope looks like.
"""

import re
from collections.abc import Mapping, Sequence

from ninfer.conversation import RequestError
from ninfer.protocols.openai_errors import openai_error
from ninfer.protocols.plugin import Protocol
from ninfer.server.exchange import Answer

REQUEST_ID_HEADER = "x-request-id"


class Envelopes:
    """The envelopes of the protocols that are mounted."""

    def __init__(self, owned: Sequence[tuple[str, Protocol]]) -> None:
        """`owned`: every path that is served (`/v1/responses/{id}`), and the protocol that it belongs to."""
        # A path belongs to the protocol with the longest of its own that it lies at or below.
        longest_first = sorted(owned, key=lambda one: len(one[0]), reverse=True)
        self._owned = [(_at_or_below(path), protocol) for path, protocol in longest_first]

    def answer(
        self,
        path: str,
        error: RequestError,
        request_id: str,
        *,
        status: int | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """`error` as an answer to a request for `path`; `status` overrides the error's own."""
        owner = next((protocol for pattern, protocol in self._owned if pattern.match(path)), None)
        wire = openai_error(error) if owner is None else owner.error(error, request_id)
        name = REQUEST_ID_HEADER if owner is None else owner.request_id_header
        return Answer(
            status=wire.status if status is None else status,
            body=wire.body,
            headers={**wire.headers, **(headers or {}), name: request_id},
        )


def _at_or_below(path: str) -> re.Pattern[str]:
    pieces = re.split(r"\{\w+(:\w+)?\}", path)[::2]
    return re.compile("[^/]+".join(map(re.escape, pieces)) + "(/|$)")
