"""What a request must satisfy before any route sees it: the host it names (D43). It knows headers only."""

from quart import Response, request
from quart_trio import QuartTrio

from ninfer.conversation import Forbidden
from ninfer.protocols.values import shown
from ninfer.server.answers import response_of
from ninfer.server.connection import request_id
from ninfer.server.envelopes import Envelopes

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})


def host_name(header: str) -> str:
    """The name in a Host header, lower case, without port and brackets."""
    header = header.strip().lower()
    if header.startswith("["):
        return header[1:].partition("]")[0]
    name, colon, port = header.rpartition(":")
    return name if colon and port.isdigit() and ":" not in name else header


def add_host_check(app: QuartTrio, allowed: frozenset[str] | None, envelopes: Envelopes) -> None:
    """Refuse requests for foreign hosts: a web page that rebinds its name must not reach a server without a key."""
    if allowed is None:
        return

    @app.before_request
    async def check_host() -> Response | None:
        named = request.headers.get("host", "")
        if not named or host_name(named) in allowed:  # HTTP/1.0 may leave it out, and no browser speaks that
            return None
        error = Forbidden(f"this server does not answer for the host {shown(named)}; --allowed-hosts adds names")
        answer = envelopes.answer(request.path, error, request_id(request))
        return response_of(answer)
