"""Errors in Anthropic's envelope: `{"type": "error", "error": {type, message, details}, "request_id"}`.

Our stable code stands in `error.details.error_code` (D34) and the path of the offending value, where there is one,
beside it. It knows the error tree and HTTP statuses, nothing of any body.
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
from ninfer.protocols.sse import event_frame

_ANSWERS: tuple[tuple[type[RequestError], int, str], ...] = (
    (InvalidRequest, 400, "invalid_request_error"),
    # The published list of types has none of its own for 413; clients go by the status.
    (RequestTooLarge, 413, "invalid_request_error"),
    (Unauthenticated, 401, "authentication_error"),
    (Forbidden, 403, "permission_error"),
    (NotFound, 404, "not_found_error"),
    (Overloaded, 529, "overloaded_error"),
    (QueueTimeout, 504, "timeout_error"),
    (EngineUnavailable, 503, "api_error"),
    (InternalError, 500, "api_error"),
)


def anthropic_error(error: RequestError, request_id: str) -> WireError:
    """`error` as a whole answer."""
    status, kind = next(
        ((status, kind) for known, status, kind in _ANSWERS if isinstance(error, known)), (500, "api_error")
    )
    details = {"error_code": error.code} if error.param is None else {"error_code": error.code, "param": error.param}
    return WireError(
        status=status,
        body={
            "type": "error",
            "error": {"type": kind, "message": error.message, "details": details},
            "request_id": request_id,
        },
    )


def anthropic_stream_error(error: RequestError, request_id: str) -> bytes:
    """`error` as the last event of a stream that has begun."""
    return event_frame("error", anthropic_error(error, request_id).body)
