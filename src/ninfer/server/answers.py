"""Whole answers: the bytes of one, and the response of the framework that it becomes.

It knows HTTP and no protocol. Invariant: what an `Answer` holds can be sent.
"""

from collections.abc import Mapping

import attrs
from quart import Response

from ninfer.protocols.mounting import check_answer
from ninfer.protocols.plugin import ReplyBody

JSON_TYPE = "application/json"
TEXT_TYPE = "text/plain; charset=utf-8"


@attrs.frozen(kw_only=True)
class Answer:
    """A whole answer."""

    status: int
    content: bytes
    content_type: str
    headers: Mapping[str, str] = attrs.field(factory=dict)

    @classmethod
    def of(
        cls,
        body: ReplyBody,
        *,
        status: int = 200,
        headers: Mapping[str, str] | None = None,
        content_type: str | None = None,
    ) -> "Answer":
        """An object as JSON, or a text.

        Raises:
            TypeError, ValueError: it cannot be sent.
        """
        content = check_answer(body, status, headers or {}, content_type)
        usual = TEXT_TYPE if isinstance(body, str) else JSON_TYPE
        return cls(status=status, content=content, content_type=content_type or usual, headers=headers or {})


def response_of(answer: Answer) -> Response:
    """The answer as a response."""
    response = Response(answer.content, status=answer.status, content_type=answer.content_type)
    response.headers.update(answer.headers)
    return response


def empty_response(status: int = 200, *, headers: Mapping[str, str]) -> Response:
    """An answer without a body, which so has no type either."""
    response = Response("", status=status, headers=dict(headers))
    del response.headers["content-type"]
    return response
