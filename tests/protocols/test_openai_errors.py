"""OpenAI's error envelope, one row for each kind of error."""

import json

import pytest

from ninfer.conversation import errors
from ninfer.protocols.openai_errors import openai_error, openai_stream_error
from ninfer.testing import sse_data


@pytest.mark.contract("ERR-001")
@pytest.mark.parametrize(
    ("error", "status", "kind", "code"),
    [
        (errors.InvalidRequest("x"), 400, "invalid_request_error", "invalid_value"),
        (errors.ContextExceeded("x"), 400, "invalid_request_error", "context_length_exceeded"),
        (errors.Unsupported("x"), 400, "invalid_request_error", "unsupported_parameter"),
        (errors.RequestTooLarge("x"), 413, "invalid_request_error", "request_too_large"),
        (errors.Unauthenticated("x"), 401, "authentication_error", "invalid_api_key"),
        (errors.Forbidden("x"), 403, "permission_error", "forbidden_host"),
        (errors.NotFound("x"), 404, "invalid_request_error", "not_found"),
        (errors.Overloaded("x"), 429, "rate_limit_error", "server_overloaded"),
        (errors.QueueTimeout("x"), 503, "server_error", "request_queue_timeout"),
        (errors.EngineUnavailable("x"), 503, "server_error", "service_unavailable"),
        (errors.InternalError("x"), 500, "server_error", "internal_error"),
        (errors.RequestError("x"), 500, "server_error", "internal_error"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else None,
)
def test_envelope(error: errors.RequestError, status: int, kind: str, code: str) -> None:
    error.param = "messages[0]"
    wire = openai_error(error)
    assert wire.status == status
    assert wire.body == {"error": {"message": "x", "type": kind, "param": "messages[0]", "code": code}}
    assert [json.loads(data) for data in sse_data(openai_stream_error(error))] == [wire.body]
