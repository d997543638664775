"""Who gets an answer: the API key, and what browsers are told about other sites' pages (AUTH-001 to AUTH-006).

It knows headers only. Invariant: with a key, whatever the path, nothing but /health and a browser's preflight is
answered without it; what the check costs does not depend on the key.
"""

import hashlib
import hmac
from collections.abc import Iterable

from quart import Response, request
from quart.wrappers import Request
from quart_trio import QuartTrio

from ninfer.conversation import Unauthenticated
from ninfer.server.answers import empty_response, response_of
from ninfer.server.connection import request_id
from ninfer.server.envelopes import Envelopes

OPEN_PATHS = frozenset({"/health"})
"""What is answered without a key."""

_ALLOWED = {"access-control-allow-origin": "*", "access-control-expose-headers": "*"}
_PREFLIGHT_S = 86_400


def add_key_check(app: QuartTrio, api_key: str | None, envelopes: Envelopes) -> None:
    """Refuse requests that do not carry `api_key`; None asks for none."""
    if api_key is None:
        return
    expected = _digest(api_key.encode())

    @app.before_request
    async def check_key() -> Response | None:
        if request.path in OPEN_PATHS or _is_preflight(request):
            return None
        # Every key that is offered is compared in full, so time tells nothing about any of them.
        right = [hmac.compare_digest(_digest(key), expected) for key in _offered(request)]
        if any(right):
            return None
        error = Unauthenticated(
            "this server needs its API key, as `Authorization: Bearer KEY` or as `x-api-key: KEY`; none or another came"
        )
        answer = envelopes.answer(request.path, error, request_id(request), headers={"www-authenticate": "Bearer"})
        return response_of(answer)


def add_cors(app: QuartTrio) -> None:
    """Let the pages of every site read the answers; never with a browser's own credentials (SEC-10)."""

    @app.before_request
    async def answer_preflight() -> Response | None:
        if not _is_preflight(request):
            return None
        # A wildcard would leave out Authorization, so the names that are asked for are given back.
        headers = {
            "access-control-allow-methods": "GET, POST, DELETE, OPTIONS",
            "access-control-allow-headers": request.headers.get("access-control-request-headers", "*"),
            "access-control-max-age": str(_PREFLIGHT_S),
            "vary": "access-control-request-headers",
        }
        return empty_response(204, headers=headers)

    @app.after_request
    async def add_headers(response: Response) -> Response:
        response.headers.update(_ALLOWED)
        return response


def _is_preflight(asked: Request) -> bool:
    return asked.method == "OPTIONS" and "access-control-request-method" in asked.headers


def _offered(asked: Request) -> Iterable[bytes]:
    """All keys that a request carries, as they came over the wire."""
    for value in asked.headers.getlist("authorization"):
        scheme, _, key = value.partition(" ")
        if scheme.lower() == "bearer":
            yield key.strip().encode("latin-1")
    for value in asked.headers.getlist("x-api-key"):
        yield value.strip().encode("latin-1")


def _digest(key: bytes) -> bytes:
    """Of one length whatever the key's is."""
    return hashlib.sha256(key).digest()
