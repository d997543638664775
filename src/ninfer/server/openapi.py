"""GET /openapi.json: what is served here, as an OpenAPI 3.1 document, made from the routes and their wire types.

Requests are described as far as the wire types go; answers by their kind alone. It knows routes, not what they do.
"""

import re
from collections.abc import Sequence
from importlib.metadata import version

import attrs
from quart import Response
from quart_trio import QuartTrio

from ninfer.conversation import InvalidRequest
from ninfer.protocols.mounting import error_of, routes_of
from ninfer.protocols.openai_errors import openai_error
from ninfer.protocols.plugin import EVENT_STREAM, Protocol, ReplyBody, Route, StreamForm
from ninfer.protocols.sse import dump_json
from ninfer.protocols.wire_schema import Schema, WireSchemas
from ninfer.server.answers import JSON_TYPE, TEXT_TYPE

PATH = "/openapi.json"

_OBJECT: Schema = {"type": "object"}
_TEXT: Schema = {"type": "string"}
_ABOUT = (
    "Paths under /v1 also answer under /v1/v1. A member that is null counts as not given. Some combinations of members "
    "are refused beyond what the schemas say; the error names the member."
)
_OWN = (
    ("/health", "Whether anything can be generated."),
    ("/v1/models", "The one model of this server."),
    ("/v1/models/{model}", "The one model of this server, by its id."),
    (PATH, "This document."),
)


def add_route(app: QuartTrio, protocols: Sequence[Protocol], *, needs_key: bool) -> None:
    """Mount the document of the protocols that are served."""
    text = dump_json(document(protocols, needs_key=needs_key))

    async def openapi() -> Response:
        return Response(text, content_type="application/json")

    app.add_url_rule(PATH, "openapi", openapi, methods=["GET"])


def document(protocols: Sequence[Protocol], *, needs_key: bool = False) -> Schema:
    """The whole document."""
    schemas = WireSchemas()
    own_error = openai_error(InvalidRequest("message")).body
    paths: dict[str, Schema] = {
        path: {"get": {"summary": summary, "responses": _answers(own_error), **_parameters(path)}}
        for path, summary in _OWN
    }
    for protocol in protocols:
        for route in routes_of(protocol):
            path = re.sub(r"\{(\w+):\w+\}", r"{\1}", route.path)
            paths.setdefault(path, {})[route.method.lower()] = _operation(protocol, route, path, schemas)
    components: Schema = {"schemas": schemas.components}
    found: Schema = {
        "openapi": "3.1.0",
        "info": {"title": "NInfer", "version": version("ninfer"), "description": _ABOUT},
        "paths": paths,
        "components": components,
    }
    if needs_key:
        bearer = {"type": "http", "scheme": "bearer"}
        components["securitySchemes"] = {
            "bearer": bearer,
            "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
        }
        found["security"] = [{"bearer": []}, {"key": []}]
        paths["/health"]["get"]["security"] = []  # type: ignore[index]
    return found


def _operation(protocol: Protocol, route: Route, path: str, schemas: WireSchemas) -> Schema:
    operation: Schema = {"tags": [protocol.name], **({"summary": route.summary} if route.summary else {})}
    operation.update(_parameters(path))
    body = route.body
    if body is not None:
        content = {"application/json": {"schema": schemas.reference(body)}}
        operation["requestBody"] = {"required": True, "content": content}
    # A body with a member `stream` asks for one; a form of one's own is said because it is sent.
    streams = route.streams != EVENT_STREAM or (
        body is not None and "stream" in attrs.fields_dict(body)  # type: ignore[arg-type]
    )
    sample = error_of(protocol, InvalidRequest("message"), "req_0").body
    return {**operation, "responses": _answers(sample, route.streams if streams else None)}


def _parameters(path: str) -> Schema:
    names = re.findall(r"\{(\w+)\}", path)
    if not names:
        return {}
    return {
        "parameters": [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    }


def _answers(error: ReplyBody, streams: StreamForm | None = None) -> Schema:
    """`error`: a sample of the envelope."""
    content: Schema = {JSON_TYPE: {"schema": _OBJECT}}
    if streams is not None:
        content[streams.content_type] = {"schema": _TEXT}
    envelope: Schema = {TEXT_TYPE: {"schema": _TEXT}}
    if not isinstance(error, str):
        members = {name: _TEXT if isinstance(value, str) else _OBJECT for name, value in error.items()}
        envelope = {JSON_TYPE: {"schema": {**_OBJECT, "required": list(members), "properties": members}}}
    return {
        "200": {"description": "The answer.", "content": content},
        "default": {"description": "An error.", "content": envelope},
    }
