"""The web application: routes of the protocols, of health and of the models, and errors in the right envelope.

    app = create_app(host, protocols)                      # an ASGI application for hypercorn or for a test
    app = create_app(host, protocols, settings=ServerSettings(max_request_bytes=1 << 20), running=RunningCalls())

It knows HTTP and the plugin interface; it does not know tokens, the engine, or what any protocol's bodies mean.
Invariant: every answer carries a request id, and no answer is HTML.
"""

import functools
import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence

from quart import Response, request
from quart.globals import request_ctx
from quart.wrappers import BaseRequestWebsocket
from quart_trio import QuartTrio
from werkzeug.exceptions import HTTPException
from werkzeug.routing import MapAdapter

from ninfer.conversation import InternalError, InvalidRequest, NotFound
from ninfer.protocols.mounting import routes_of
from ninfer.protocols.plugin import Protocol, Route
from ninfer.protocols.registry import check_routes
from ninfer.server import access, guards, models, openapi, starting
from ninfer.server.answers import empty_response, response_of
from ninfer.server.body_reader import BodyReader, BodyRequest, too_large
from ninfer.server.body_room import BodyRoom
from ninfer.server.connection import Connection, request_id, request_nursery, unread
from ninfer.server.envelopes import REQUEST_ID_HEADER, Envelopes
from ninfer.server.exchange import CallFacts, Exchange
from ninfer.server.frames import FrameBody
from ninfer.server.headers import HeaderMap
from ninfer.server.hints import asked, hint
from ninfer.server.hosts import LOOPBACK_NAMES
from ninfer.server.running import RunningCalls
from ninfer.server.settings import ServerSettings
from ninfer.server.unread import UnreadRoom
from ninfer.service.accounts import current_account
from ninfer.service.host import ServiceHost

log = logging.getLogger(__name__)

_STREAM_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


class Application(QuartTrio):
    """The framework's application, where it would read or answer something that is none of its business."""

    request_class = BodyRequest

    def create_url_adapter(self, request: BaseRequestWebsocket | None) -> MapAdapter | None:
        """Route by method and path: some names in a Host header ended the framework's own way in an error."""
        if request is None:
            return None
        return self.url_map.bind(
            "localhost",
            path_info=request.path,
            default_method=request.method,
            query_args=request.query_string.decode("ascii", "replace"),
        )

    async def make_default_options_response(self) -> Response:
        """The methods of a path: no body and no type (the framework says text/html)."""
        methods = sorted(_methods())
        return empty_response(headers={"allow": ", ".join(methods)})


def create_app(
    host: ServiceHost,
    protocols: Sequence[Protocol],
    *,
    settings: ServerSettings | None = None,
    running: RunningCalls | None = None,
) -> QuartTrio:
    """Build the application that serves `protocols`, which were constructed with `host`.

    `running` lets the caller end all requests at once (`running.stop()`); without it nobody can.

    Raises:
        BrokenProtocol: a route of one cannot be mounted.
        RouteConflict: two protocols, or a protocol and the server itself, claim one method and path.
    """
    settings = ServerSettings() if settings is None else settings
    running = RunningCalls() if running is None else running
    reserved = (*models.RESERVED, ("GET", openapi.PATH))
    check_routes(protocols, reserved=reserved)
    mounted = [(one, route) for one in protocols for route in routes_of(one)]
    app = Application("ninfer", static_folder=None)
    unread_room = UnreadRoom(all_bytes=settings.unread_bytes, stream_bytes=settings.unread_stream_bytes)
    app.asgi_http_class = Connection.within(BodyRoom(settings.body_room_bytes), unread_room, running.stopping)
    app.url_map.merge_slashes = False  # a model id may hold two in a row; a redirect would lose a POST's body
    app.config["MAX_CONTENT_LENGTH"] = settings.max_request_bytes
    app.config["BODY_TIMEOUT"] = None  # a large body over a slow line is legitimate; dead peers are TCP's business
    app.config["RESPONSE_TIMEOUT"] = None  # the default ends streams after a minute, silently
    owned: list[tuple[str, Protocol | None]] = [(path, None) for _, path in reserved]
    owned += [(route.path, one) for one, route in mounted]
    envelopes = Envelopes([(path, owner) for listed, owner in owned for path in served_paths(listed)])
    _add_errors(app, envelopes)
    guards.add_host_check(app, settings.allowed_hosts, envelopes)
    if settings.api_key is None and not settings.cors:
        guards.add_origin_check(app, envelopes, names=LOOPBACK_NAMES | (settings.allowed_hosts or frozenset()))
    access.add_key_check(app, settings.api_key, envelopes)
    if settings.cors:
        access.add_cors(app)
    starting.add_start_check(app, host, envelopes, access.OPEN_PATHS)
    models.add_routes(app, host)
    openapi.add_route(app, protocols, needs_key=settings.api_key is not None)
    bodies = BodyReader()
    for protocol, route in mounted:
        view = functools.partial(_answer_call, protocol, route, bodies, settings, running)
        _add_route(app, protocol, route, view)
    return app


def served_paths(path: str) -> tuple[str, ...]:
    """Where a listed path answers: itself, and under the doubled prefix that some base URLs lead to (HTTP-004)."""
    return (path, f"/v1{path}") if path.startswith("/v1/") else (path,)


def _add_route(app: QuartTrio, protocol: Protocol, route: Route, view: Callable[..., Awaitable[Response]]) -> None:
    rule = re.sub(r"\{(\w+)(?::(\w+))?\}", lambda m: f"<{m[2]}:{m[1]}>" if m[2] else f"<{m[1]}>", route.path)
    for path in served_paths(rule):
        app.add_url_rule(path, f"{protocol.name} {route.method} {path}", view, methods=[route.method])


async def _answer_call(
    protocol: Protocol,
    route: Route,
    bodies: BodyReader,
    settings: ServerSettings,
    running: RunningCalls,
    **path_args: str,
) -> Response:
    """The view of every protocol route: start the handler, wait for the head of its answer, hand on the rest."""
    facts = CallFacts(
        request_id=request_id(request),
        headers=HeaderMap(request.headers.items()),
        path_args=path_args,
        query={name: values[-1] for name, values in request.args.lists()},
    )
    current_account().protocol = protocol.name
    read_body = functools.partial(bodies.read, request_ctx.request)
    exchange = Exchange(facts, protocol, route.streams, read_body, unread(request))
    request_nursery(request).start_soon(_run_call, exchange, route, running)
    silent = await exchange.begin(settings.keep_alive_s)
    if exchange.answer is not None:
        response = response_of(exchange.answer)
    else:
        form = route.streams
        frames = FrameBody(
            exchange.frames, keep_alive=form.keep_alive, keep_alive_s=settings.keep_alive_s, silent=silent
        )
        response = Response(frames, content_type=form.content_type, headers=_STREAM_HEADERS)
        response.headers.update(exchange.stream_headers)
    response.headers[protocol.request_id_header] = facts.request_id
    return response


async def _run_call(exchange: Exchange, route: Route, running: RunningCalls) -> None:
    with running.entered(exchange):
        await exchange.run(route.handler)


def _methods(path: str | None = None) -> Iterable[str]:
    """What may be asked of `path`, or of the request's own; none of one that is not served."""
    routing = request_ctx.url_adapter
    return () if routing is None else routing.allowed_methods(path)


def _own_address() -> str:
    host, port = request.scope["server"] or ("localhost", None)
    return host if port is None else f"{host}:{port}"


def _add_errors(app: QuartTrio, envelopes: Envelopes) -> None:
    """No answer of the framework's own goes out as HTML, and each has its request id."""

    @app.errorhandler(HTTPException)
    async def framework_error(error: HTTPException) -> Response:
        status = error.code or 500
        if status == 413:
            return response_of(envelopes.answer(request.path, too_large(request_ctx.request), request_id(request)))
        code = re.sub(r"\W+", "_", error.name.lower())
        kind = NotFound if status == 404 else InvalidRequest if status < 500 else InternalError
        message = f"{asked(request)}: {error.name.lower()}"
        if status == 404:
            reached = request.headers.get("host") or _own_address()
            message += hint(request.path, reached, lambda path: bool(_methods(path)))
        allowed = {name: value for name, value in error.get_headers() if name.lower() == "allow"}
        refusal = kind(message, code=code)
        return response_of(envelopes.answer(request.path, refusal, request_id(request), status=status, headers=allowed))

    @app.errorhandler(Exception)
    async def fault(error: Exception) -> Response:
        log.error("request %s failed", request_id(request), exc_info=error)
        return response_of(envelopes.answer(request.path, InternalError("internal error"), request_id(request)))

    @app.after_request
    async def add_request_id(response: Response) -> Response:
        if request_id(request) not in response.headers.values():  # a protocol may have its own name for it
            response.headers[REQUEST_ID_HEADER] = request_id(request)
        return response
