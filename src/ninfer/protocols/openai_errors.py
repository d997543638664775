"""Errors in OpenAI's envelope: `{"error": {message, type, param, code}}`.

Shared by the OpenAI-like protocols and by the server's own answers (unknown paths, wrong methods). It knows the
error tree and HTTP statuses, nothing of any endpoint.
"""

from ninfer.conversation import (
    EngineUnavailable,
    Forbidden,
    InternalError,
    InvalidRequest,
    NotFound,
    Overloaded,
    QueueTimeout,
    RequestError,
    RequestTooLarge,
    Unauthenticated,
)
from ninfer.protocols.plugin import WireError
from ninfer.protocols.sse import data_frame

_ANSWERS: tuple[tuple[type[RequestError], int, str], ...] = (
    (InvalidRequest, 400, "invalid_request_error"),
    (RequestTooLarge, 413, "invalid_request_error"),
    (Unauthenticated, 401, "authentication_error"),
    (Forbidden, 403, "permission_error"),
    (NotFound, 404, "invalid_request_error"),
    (Overloaded, 429, "rate_limit_error"),
    (QueueTimeout, 503, "server_error"),
    (EngineUnavailable, 503, "server_error"),
    (InternalError, 500, "server_error"),
)


def openai_error(error: RequestError) -> WireError:
    """`error` as a whole answer."""
    status, kind = next(
        ((status, kind) for known, status, kind in _ANSWERS if isinstance(error, known)), (500, "server_error")
    )
    return WireError(status=status, body=openai_body(error.message, kind, param=error.param, code=error.code))


def openai_stream_error(error: RequestError) -> bytes:
    """`error` as the last frame of a stream that has begun."""
    return data_frame(openai_error(error).body)


def openai_body(message: str, kind: str, *, param: str | None = None, code: str | None = None) -> dict[str, object]:
    """The envelope itself; `kind` is OpenAI's error type."""
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}
