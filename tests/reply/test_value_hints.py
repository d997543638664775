"""What schemas say of a value: types, references, unions, and knots that say nothing."""

from typing import Any

import pytest

from ninfer.reply.value_hints import TYPES, Hints, SchemaHints, is_same

S, N, INT, B, Z, OBJ, ARR = "string", "number", "integer", "boolean", "null", "object", "array"


def hints(schema: Any, **root: Any) -> Hints | None:
    return SchemaHints({"properties": {"x": schema}, **root}).of("x")


@pytest.mark.contract("TOOL-001", "TOOL-006")
@pytest.mark.parametrize(
    ("schema", "types"),
    [
        ({"type": "string"}, {S}),
        ({"type": ["integer", "null"]}, {INT, Z}),
        ({"anyOf": [{"type": "string"}, {"type": "integer"}]}, {S, INT}),
        ({"oneOf": [{"type": "boolean"}, {"type": ["null"]}]}, {B, Z}),
        ({"anyOf": [{"type": "array", "items": {}}, {"type": "null"}]}, {ARR, Z}),
        ({"anyOf": [{"type": "string"}, {"enum": [1]}]}, {S, INT}),
        ({"anyOf": [{"type": "integer"}, {"$ref": "#/x"}]}, None),
        (
            {"anyOf": [{"type": "string"}, {"$ref": "#/x"}]},
            TYPES - {INT},
        ),  # a string is admitted whatever the other says
        ({"anyOf": []}, None),
        ({"anyOf": "string"}, None),
        ({"enum": ["a", 1, 1.5, None]}, {S, INT, N, Z}),
        ({"const": [1]}, {ARR}),
        ({"enum": []}, None),
        ({"type": "text"}, None),
        ({"type": []}, None),
        ({"type": [1]}, None),
        ({"type": None, "anyOf": [{"type": "string"}]}, {S}),
        ({}, None),
        (True, None),
        (None, None),
        # All of them hold.
        ({"allOf": [{"type": "integer"}]}, {INT}),
        ({"allOf": [{"type": ["string", "integer"]}, {"type": ["integer", "null"]}]}, {INT}),
        ({"allOf": [{"type": "number"}, {"type": "integer"}]}, {INT}),
        ({"allOf": [{"description": "d"}, {"type": "boolean"}]}, {B}),
        ({"allOf": [{"type": "string"}, {"type": "integer"}]}, None),
        ({"type": "integer", "anyOf": [{"minimum": 1}, {"maximum": 0}]}, {INT}),
        ({"type": ["number", "string"], "anyOf": [{"type": "integer"}, {"type": "null"}]}, {INT}),
    ],
)
def test_types(schema: object, types: set[str] | None) -> None:
    found = hints(schema)
    assert (found and found.types) == types


DEFINITIONS = {
    "$defs": {
        "n": {"type": "integer"},
        "again": {"$ref": "#/$defs/n"},
        "level": {"enum": [1, 2]},
        "a/b~c": {"type": "boolean"},
        "self": {"$ref": "#/$defs/self"},
        "one": {"anyOf": [{"$ref": "#/$defs/other"}, {"type": "integer"}]},
        "other": {"allOf": [{"$ref": "#/$defs/one"}]},
        "list": [{"type": "null"}],
    },
    "definitions": {"n": {"type": "array"}},
}


@pytest.mark.parametrize(
    ("reference", "types"),
    [
        ("#/$defs/n", {INT}),
        ("#/$defs/again", {INT}),
        ("#/$defs/level", {INT}),
        ("#/definitions/n", {ARR}),
        ("#/$defs/a~1b~0c", {B}),
        ("#/%24defs/n", {INT}),
        ("#/$defs/list/0", {Z}),
        ("#/$defs/list/1", None),
        ("#/$defs/n/type", None),
        ("#/$defs/missing", None),
        ("#/$defs/n/type/x", None),
        ("#/$defs/self", None),
        ("#/$defs/other", None),
        ("#n", None),
        ("https://example.org/n.json", None),
        (5, None),
    ],
)
def test_references(reference: object, types: set[str] | None) -> None:
    for schema in ({"$ref": reference}, {"allOf": [{"$ref": reference}]}, {"description": "d", "$ref": reference}):
        found = hints(schema, **DEFINITIONS)
        assert (found and found.types) == types


@pytest.mark.parametrize(
    "root",
    [
        {"$ref": "#/$defs/args", "$defs": {"args": {"properties": {"x": {"type": "integer"}}}}},
        {"allOf": [{"properties": {"y": {}}}, {"properties": {"x": {"type": "integer"}}}]},
        {"anyOf": [{"properties": {"x": {"type": "integer"}}}, {"properties": {"y": {"type": "string"}}}]},
        {"additionalProperties": {"type": "integer"}},
        {"properties": {"x": {"type": ["integer", "string"]}}, "allOf": [{"properties": {"x": {"type": "integer"}}}]},
    ],
)
def test_parameters_that_stand_deeper(root: Any) -> None:
    assert SchemaHints(root).of("x") == Hints(frozenset({INT}))


def test_knotted_references_take_no_time() -> None:
    knots: dict[str, Any] = {
        f"d{at}": {"allOf": [{"$ref": f"#/$defs/d{at + 1}"}] * 50, "anyOf": [{"$ref": f"#/$defs/d{at + 2}"}] * 50}
        for at in range(200)
    }
    root = {"$ref": "#/$defs/d0", "properties": {"x": {"$ref": "#/$defs/d1"}}, "$defs": knots}
    assert SchemaHints(root).of("x") is None


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (1, 1.0, True),
        (1, True, False),
        (False, False, True),
        ([1, {"a": True}], [1.0, {"a": True}], True),
        ([1], [True], False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
        ("1", 1, False),
        (None, False, False),
    ],
)
def test_sameness(one: Any, other: Any, same: bool) -> None:
    assert is_same(one, other) is same
