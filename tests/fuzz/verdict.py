"""What a well-mannered answer looks like, whatever the request was. It knows OpenAI's envelopes, and no request."""

import json
from collections.abc import Mapping
from typing import Any

MANNERED = {200, 400, 404, 413, 415}
"""Statuses that a spoiled body may get: never a 500, and nothing that says that the server is at its limits."""

MESSAGE_CHARACTERS = 600
"""A value of the caller's stands in a message, but never whole when it is long."""


def check_answer(status: int, headers: Mapping[str, str], body: bytes) -> None:
    """Assert that an answer is whole, in the right envelope, and no fault of ours.

    `headers` have lower-case names.
    """
    assert status in MANNERED, f"{status}: {body[:300]!r}"
    assert headers["x-request-id"]
    if headers["content-type"].startswith("text/event-stream"):
        assert status == 200
        check_stream(body)
        return
    assert headers["content-type"] == "application/json"
    answer = json.loads(body)
    if status == 200:
        assert answer["object"] == "chat.completion"
        assert answer["choices"][0]["finish_reason"] in ("stop", "length", "tool_calls")
    else:
        check_error(answer)


def check_error(answer: Any) -> None:
    """Assert that this is an error in OpenAI's envelope, and the caller's fault."""
    error = answer["error"]
    assert set(answer) == {"error"}
    assert set(error) == {"message", "type", "param", "code"}
    assert error["type"] != "server_error", error
    assert error["code"] != "internal_error", error
    check_message(error["message"], error["param"])


def check_message(message: str, param: str | None) -> None:
    """Assert that a refusal's message says where, and is fit for a terminal whatever the caller sent."""
    assert message
    assert message.isascii(), message
    assert message.isprintable(), message
    assert len(message) <= MESSAGE_CHARACTERS, len(message)
    assert param is None or param in message, (param, message)


def check_stream(body: bytes) -> None:
    """Assert that a stream ends in exactly one way, and that every event in it is JSON."""
    blocks = body.decode().split("\n\n")
    assert blocks.pop() == ""
    datas = [block.removeprefix("data: ") for block in blocks if not block.startswith(":")]
    assert datas
    assert all("\n" not in data for data in datas)
    if datas[-1] == "[DONE]":
        chunks = [json.loads(data) for data in datas[:-1]]
        reasons = [choice["finish_reason"] for chunk in chunks for choice in chunk["choices"]]
        assert [reason for reason in reasons if reason] in (["stop"], ["length"], ["tool_calls"])
    else:
        check_error(json.loads(datas[-1]))
