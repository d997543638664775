"""GET /openapi.json: what is served here, as an OpenAPI 3.1 document, made from the routes and their wire types.

Requests are described as far as the wire types go; answers by their kind alone. It knows routes, not what they do.
"""

import re
from collections.abc import Sequence
from importlib.metadata import version

import attrs
from quart import Response
from quart_trio import QuartTrio

from ninfer.protocols.plugin import Protocol, Route
from ninfer.protocols.sse import dump_json
from ninfer.protocols.wire_schema import Schema, WireSchemas

PATH = "/openapi.json"

_OBJECT: Schema = {"type": "object"}
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
    paths: dict[str, Schema] = {
        path: {"get": {"summary": summary, "responses": _answers(stream=False), **_parameters(path)}}
        for path, summary in _OWN
    }
    for protocol in protocols:
        for route in protocol.routes():
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
    streams = body is not None and "stream" in attrs.fields_dict(body)  # type: ignore[arg-type]
    return {**operation, "responses": _answers(stream=streams)}


def _parameters(path: str) -> Schema:
    names = re.findall(r"\{(\w+)\}", path)
    if not names:
        return {}
    return {
        "parameters": [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]
    }


def _answers(*, stream: bool) -> Schema:
    content: Schema = {"application/json": {"schema": _OBJECT}}
    if stream:
        content["text/event-stream"] = {"schema": {"type": "string"}}
    error = {"type": "object", "required": ["error"], "properties": {"error": _OBJECT}}
    return {
        "200": {"description": "The answer.", "content": content},
        "default": {"description": "An error.", "content": {"application/json": {"schema": error}}},
    }
