"""What a request must satisfy before its body is read: the host that it names (D43), and where a browser sent it from.

Without a key nothing else keeps out web pages that are opened on this machine: a page may rebind its own name to our
address, or post a form or a text to it without asking. Browsers tell in `Origin` and `Sec-Fetch-Site` which page sent a
request, and no page can change that. It knows headers only. Invariant: a request with neither header is not refused for
its origin, because other programs send neither.
"""

import re

from quart import Response, request
from quart.wrappers import Request
from quart_trio import QuartTrio

from ninfer.conversation import Forbidden, InvalidRequest, RequestError
from ninfer.protocols.values import shown
from ninfer.server.answers import response_of
from ninfer.server.connection import request_id
from ninfer.server.envelopes import Envelopes
from ninfer.server.hosts import LOOPBACK_NAMES, Host, read_host, read_origin

_JSON = re.compile(r"\s*application/([\w.-]+\+)?json\s*(;.*)?", re.ASCII | re.IGNORECASE | re.DOTALL)
_OWN_SITES = frozenset({"same-origin", "none"})
"""Values that a browser sends for a page of this server, and for an address that its user has typed."""


def add_host_check(app: QuartTrio, allowed: frozenset[str] | None, envelopes: Envelopes) -> None:
    """Refuse requests that name no host by any rule and, unless `allowed` is None, those for foreign hosts."""

    @app.before_request
    async def check_host() -> Response | None:
        named = request.headers.getlist("host")
        if not named or (request.http_version == "1.0" and named == [""]):
            return None  # HTTP/1.0 may leave it out, and no browser speaks that; in HTTP/1.1 h11 asks for it
        host = read_host(named[0]) if len(named) == 1 else None
        if host is None:
            header = shown(", ".join(named))
            error: RequestError = InvalidRequest(f"the Host header {header} names no host", code="invalid_host")
        elif allowed is None or host.name in allowed:
            return None
        else:
            error = Forbidden(f"this server does not answer for the host {shown(named[0])}; --allowed-hosts adds names")
        return response_of(envelopes.answer(request.path, error, request_id(request)))


def add_origin_check(app: QuartTrio, envelopes: Envelopes, *, names: frozenset[str] = LOOPBACK_NAMES) -> None:
    """Refuse what a browser sends for another site; `names` all mean this server."""

    @app.before_request
    async def check_origin() -> Response | None:
        named = read_host(request.headers.get("host", "")) or Host("")
        if not _is_own(request, named, names):
            origin = request.headers.get("origin")
            whence = "another site" if origin is None else f"the origin {shown(origin)}"
            error: RequestError = Forbidden(
                f"this server has no key and answers no web page of {whence}; --cors lets pages of every site in",
                code="forbidden_origin",
            )
            return response_of(envelopes.answer(request.path, error, request_id(request)))
        if (
            _from_browser(request)
            and _has_body(request)
            and not _JSON.fullmatch(request.headers.get("content-type", ""))
        ):
            error = InvalidRequest(
                "content-type: a browser has to send application/json; forms of web pages are not accepted",
                code="unsupported_media_type",
            )
            return response_of(envelopes.answer(request.path, error, request_id(request), status=415))
        return None


def _is_own(asked: Request, named: Host, names: frozenset[str]) -> bool:
    sites = asked.headers.getlist("sec-fetch-site")
    if sites and all(site in _OWN_SITES for site in sites):
        return True
    origins = [read_origin(text) for text in asked.headers.getlist("origin")]
    if origins:
        return all(one.is_app or one.is_at(named, names) for one in origins)
    return not sites or _is_followed_link(asked)


def _is_followed_link(asked: Request) -> bool:
    """Whether a user goes here from a page, which cannot read what is shown."""
    said = tuple(asked.headers.get(f"sec-fetch-{name}") for name in ("mode", "dest"))
    return asked.method in ("GET", "HEAD") and said == ("navigate", "document")


def _from_browser(asked: Request) -> bool:
    return any(name.lower() == "origin" or name.lower().startswith("sec-fetch-") for name, _ in asked.headers)


def _has_body(asked: Request) -> bool:
    return asked.headers.get("content-length", "0") != "0" or "transfer-encoding" in asked.headers
