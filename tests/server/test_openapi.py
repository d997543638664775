"""The OpenAPI document: it names what is served, and its schemas take what is taken and refuse what is refused."""

import re
from typing import Annotated, Any, Literal

import attrs
import pytest

from ninfer.protocols.anthropic_messages import AnthropicMessages
from ninfer.protocols.openai_chat import OpenAIChat
from ninfer.protocols.openai_responses import OpenAIResponses
from ninfer.protocols.structure import AnyObject, Array, Flag, Integer, Number, String, Text
from ninfer.protocols.wire_schema import WireSchemas
from ninfer.server.app import create_app
from ninfer.server.openapi import document
from ninfer.server.settings import ServerSettings
from ninfer.testing import FakeHost, asgi_call

HOST = FakeHost()
PROTOCOLS = (OpenAIChat(HOST), OpenAIResponses(HOST), AnthropicMessages(HOST))


def references(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"]} if "$ref" in value else set()
        return own.union(*map(references, value.values()))
    return set().union(*map(references, value)) if isinstance(value, list) else set()


async def test_the_document_that_is_served() -> None:
    answer = await asgi_call(create_app(HOST, PROTOCOLS), "GET", "/openapi.json")
    assert answer.status == 200
    found = answer.json()
    assert found == document(PROTOCOLS)
    assert found["openapi"].startswith("3.1")
    routes = {(method, path) for path, methods in found["paths"].items() for method in methods}
    assert {
        ("post", "/v1/chat/completions"),
        ("post", "/v1/responses"),
        ("delete", "/v1/responses/{id}"),
        ("post", "/v1/messages/count_tokens"),
        ("get", "/v1/models/{model}"),
        ("get", "/health"),
    } <= routes
    assert references(found) <= {f"#/components/schemas/{name}" for name in found["components"]["schemas"]}
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+", name) for name in found["components"]["schemas"])


async def test_every_route_is_in_it() -> None:
    paths: Any = document(PROTOCOLS)["paths"]
    for protocol in PROTOCOLS:
        for route in protocol.routes():
            assert route.method.lower() in paths[re.sub(r":\w+\}", "}", route.path)]


def test_a_key_is_said() -> None:
    found: Any = document(PROTOCOLS, needs_key=True)
    assert found["security"] == [{"bearer": []}, {"key": []}]
    assert found["paths"]["/health"]["get"]["security"] == []
    assert "security" not in document(PROTOCOLS)
    assert ServerSettings().api_key is None


@attrs.frozen(kw_only=True)
class Inner:
    """Held by another."""

    word: Annotated[str, String(one_of=("a", "b"))]


@attrs.frozen(kw_only=True)
class Outer:
    """All rules at once.

    More is not shown.
    """

    name: Annotated[str, String(non_empty=True)]
    inner: Inner
    share: Annotated[float, Number(0, 1)] | None = None
    count: Annotated[int, Integer(low=0)] | None = None
    flag: Flag = False
    free: AnyObject = attrs.field(factory=dict)
    stop: Annotated[str | tuple[Text, ...], Array(most=4, or_string=True)] = ()
    inners: Annotated[tuple[Inner, ...], Array(least=1)] = ()


def nullable(schema: Any) -> Any:
    return {"anyOf": [schema, {"type": "null"}]}


@pytest.mark.parametrize(
    ("member", "schema"),
    [
        ("name", {"type": "string", "minLength": 1}),
        ("inner", {"$ref": "#/components/schemas/server.Inner"}),
        ("share", nullable({"type": "number", "minimum": 0, "maximum": 1})),
        ("count", nullable({"type": "integer", "minimum": 0})),
        ("flag", nullable({"type": "boolean"})),
        ("free", nullable({"type": "object"})),
        (
            "stop",
            nullable({"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": 4}]}),
        ),
        (
            "inners",
            nullable({"type": "array", "items": {"$ref": "#/components/schemas/server.Inner"}, "minItems": 1}),
        ),
    ],
)
def test_rules(member: str, schema: Any) -> None:
    schemas = WireSchemas()
    assert schemas.reference(Outer) == {"$ref": "#/components/schemas/server.Outer"}
    outer: Any = schemas.components["server.Outer"]
    assert outer["properties"][member] == schema
    assert outer["required"] == ["name", "inner"]
    assert outer["description"] == "All rules at once."
    inner: Any = schemas.components["server.Inner"]
    assert inner["properties"] == {"word": {"type": "string", "enum": ["a", "b"]}}


def wire_class(name: str, module: str, **annotations: Any) -> Any:
    """An attrs class as if it were defined in `module`."""
    made = attrs.make_class(name, {field: attrs.field(type=kind) for field, kind in annotations.items()}, frozen=True)
    made.__module__ = module
    return made


def test_a_plugin_of_a_single_file_has_schemas() -> None:
    schemas = WireSchemas()
    assert schemas.reference(wire_class("Body", "ninfer_echo", n=int)) == {
        "$ref": "#/components/schemas/ninfer_echo.Body"
    }
    assert schemas.components["ninfer_echo.Body"]["properties"] == {"n": {"type": "integer"}}


def test_classes_of_one_name_are_all_there() -> None:
    schemas = WireSchemas()
    modules = ("ninfer_echo.asked", "ninfer_echo.answered", "ninfer_echo.answered")
    classes = [wire_class("Message", module, n=int) for module in modules]
    named = [schemas.reference(one)["$ref"] for one in classes]
    assert named == [
        "#/components/schemas/ninfer_echo.Message",
        "#/components/schemas/ninfer_echo.answered.Message",
        "#/components/schemas/ninfer_echo.answered.Message-2",
    ]
    assert len(schemas.components) == 3
    assert [schemas.reference(one)["$ref"] for one in classes] == named


@pytest.mark.parametrize(
    ("annotation", "schema"),
    [
        (int, {"type": "integer"}),
        (float, {"type": "number"}),
        (bool, {"type": "boolean"}),
        (str | None, {"type": "string"}),
        (object, {}),
        (dict, {"type": "object"}),
        (dict[str, int], {"type": "object", "additionalProperties": {"type": "integer"}}),
        (list[str], {"type": "array", "items": {"type": "string"}}),
        (tuple[int, str], {
            "type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "minItems": 2, "maxItems": 2,
        }),
        (Literal["a", 1], {"enum": ["a", 1]}),
        (int | str, {"anyOf": [{"type": "integer"}, {"type": "string"}]}),
        (Annotated[float, Number(low=0)], {"type": "number", "minimum": 0}),
        (Annotated[list[int], Array(most=2)], {"type": "array", "items": {"type": "integer"}, "maxItems": 2}),
    ],
)  # fmt: skip
def test_plain_annotations(annotation: Any, schema: Any) -> None:
    schemas = WireSchemas()
    schemas.reference(wire_class("Body", "ninfer_echo", x=annotation))
    assert schemas.components["ninfer_echo.Body"]["properties"] == {"x": schema}
