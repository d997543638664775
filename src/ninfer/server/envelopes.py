"""Errors as they go out: each in the envelope of the protocol whose path it is, else in OpenAI's.

Also the errors that no handler raised: unknown paths below a protocol's own, wrong methods, foreign hosts, missing
keys, faults of the framework. It knows paths and the plugin interface, not what any envelope looks like. Invariant:
there is an envelope, also where a protocol cannot write its own.
"""

import logging
import re
from collections.abc import Mapping, Sequence

import attrs

from ninfer.conversation import RequestError
from ninfer.protocols.mounting import BrokenProtocol, error_of, stream_error_of
from ninfer.protocols.openai_errors import openai_error, openai_stream_error
from ninfer.protocols.plugin import EVENT_STREAM, Protocol, StreamFailed, StreamForm
from ninfer.server.answers import Answer

log = logging.getLogger(__name__)

REQUEST_ID_HEADER = "x-request-id"


def error_answer(
    protocol: Protocol | None,
    error: RequestError,
    request_id: str,
    *,
    status: int | None = None,
    headers: Mapping[str, str] | None = None,
) -> Answer:
    """`error` as a whole answer of `protocol`, in OpenAI's words if it has none; `status` overrides the error's own."""
    wire = openai_error(error)
    if protocol is not None:
        try:
            wire = error_of(protocol, error, request_id)
        except BrokenProtocol as fault:
            log.error("request %s: %s", request_id, fault)
    name = REQUEST_ID_HEADER if protocol is None else protocol.request_id_header
    return Answer.of(
        wire.body,
        status=wire.status if status is None else status,
        headers={**wire.headers, **(headers or {}), name: request_id},
    )


def error_frame(
    protocol: Protocol, error: RequestError, request_id: str, *, form: StreamForm, failed: StreamFailed | None
) -> bytes:
    """The last bytes of a stream that fails. Only of event streams it is known how another protocol's error looks."""
    try:
        return stream_error_of(protocol, error, request_id, failed=failed)
    except BrokenProtocol as fault:
        log.error("request %s: %s", request_id, fault)
        return openai_stream_error(error) if form == EVENT_STREAM else b""


@attrs.frozen
class _Owned:
    """A path that is served, and what it belongs to; None is the server itself."""

    segments: tuple[re.Pattern[str], ...]
    owner: Protocol | None

    def shared(self, asked: Sequence[str]) -> int:
        """How many of its segments a path that is asked for begins with."""
        for at, pattern in enumerate(self.segments):
            if at >= len(asked) or not pattern.fullmatch(asked[at]):
                return at
        return len(self.segments)


class Envelopes:
    """The envelopes of the protocols that are mounted."""

    def __init__(self, served: Sequence[tuple[str, Protocol | None]]) -> None:
        """`served`: every path (`/v1/responses/{id}`), and the protocol that it belongs to, or None for the server."""
        self._served = [_owned(path, owner) for path, owner in served]

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
        return error_answer(self._owner(path), error, request_id, status=status, headers=headers)

    def _owner(self, path: str) -> Protocol | None:
        """The owner of the longest served path that `path` lies at or below, else of all that share most with it."""
        asked = path.split("/")[1:]
        shared = [(one.shared(asked), one) for one in self._served]
        whole = [(count, one) for count, one in shared if count == len(one.segments)]
        if whole:
            return max(whole, key=lambda found: found[0])[1].owner
        most = max((count for count, _ in shared), default=0)
        owners = {id(one.owner): one.owner for count, one in shared if count == most}
        return owners.popitem()[1] if most and len(owners) == 1 else None


def _owned(path: str, owner: Protocol | None) -> _Owned:
    parts = [re.split(r"\{\w+(?::\w+)?\}", part) for part in path.split("/")[1:]]
    return _Owned(tuple(re.compile("[^/]+".join(map(re.escape, pieces))) for pieces in parts), owner)
