"""Typing of tool arguments, one rule at a time."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ninfer.conversation import JSONValue
from ninfer.reply.tool_arguments import MAX_DEPTH, type_arguments

S, N, INT, B, Z, OBJ, ARR = "string", "number", "integer", "boolean", "null", "object", "array"


OMITTED = object()


@pytest.mark.contract("TOOL-003", "TOOL-004", "TOOL-005", "TOOL-006", "TOOL-007")
@pytest.mark.parametrize(
    ("types", "text", "value", "mismatched"),
    [
        # String is admitted: the text, whatever it looks like (TOOL-07).
        ([S], "", "", 0),
        ([S], " 5 ", " 5 ", 0),
        ([S, INT], "00501", "00501", 0),
        ([S, INT], "501", "501", 0),
        ([S, Z], "null", "null", 0),
        # An empty text is no argument where string is not admitted.
        ([INT], "", OMITTED, 0),
        ([OBJ, Z], " \n", OMITTED, 0),
        # JSON values keep their type (TOOL-06).
        ([N], "130", 130, 0),
        ([N], " 1.5e3\n", 1500.0, 0),
        ([INT], "-7", -7, 0),
        ([INT], "5.0", 5.0, 0),
        ([INT, Z], "null", None, 0),
        ([OBJ], '{"b": 1, "a": [2]}', {"b": 1, "a": [2]}, 0),
        ([ARR], "[1, null]", [1, None], 0),
        # Booleans in any case (TOOL-12).
        ([B], "True", True, 0),
        ([B], " FALSE ", False, 0),
        ([B, Z], "null", None, 0),
        # What does not fit is kept for the tool to refuse (TOOL-04).
        ([INT], "2026-03-09", "2026-03-09", 1),
        ([INT], "2.5", 2.5, 1),
        ([INT], "true", True, 1),
        ([B], "1", 1, 1),
        ([B], "yes", "yes", 1),
        ([N], '"130"', "130", 1),
        ([OBJ], "[1]", [1], 1),
        ([ARR], "a, b", "a, b", 1),
        ([Z], "None", "None", 1),
        ([N], "NaN", "NaN", 1),
        ([ARR], "[" * MAX_DEPTH + "]" * MAX_DEPTH, json.loads("[" * MAX_DEPTH + "]" * MAX_DEPTH), 0),
        ([ARR], "[" * 101 + "]" * 101, "[" * 101 + "]" * 101, 1),
        ([OBJ], '{"a":' * 300 + "1" + "}" * 300, '{"a":' * 300 + "1" + "}" * 300, 1),
        ([N], "1e999", "1e999", 1),
        ([N], "9" * 5000, "9" * 5000, 1),
        ([OBJ], '{"a": "\\ud800"}', {"a": "\ufffd"}, 0),  # as in a history
        ([ARR], "[" * 100_000, "[" * 100_000, 1),
        # Without a type JSON is read.
        (None, "123", 123, 0),
        (None, "true", True, 0),
        (None, "True", "True", 0),
        (None, "null", None, 0),
        (None, '"null"', "null", 0),
        (None, "00501", "00501", 0),
        (None, '{"k":1}', {"k": 1}, 0),
        (None, " [1]\n", [1], 0),
        (None, "hello", "hello", 0),
        (None, "", "", 0),
    ],
)
def test_values(types: list[str] | None, text: str, value: object, mismatched: int) -> None:
    schema = {"properties": {"x": {} if types is None else {"type": types}}, "required": ["x", "y"]}
    typed = type_arguments([("x", text)], schema)
    expected = {} if value is OMITTED else {"x": value}
    assert typed.values == expected
    assert [type(found) for found in typed.values.values()] == [type(wanted) for wanted in expected.values()]
    assert (typed.empty_omitted, typed.mismatched, typed.duplicates) == (int(value is OMITTED), mismatched, 0)


@pytest.mark.contract("TOOL-007")
def test_a_schema_fills_in_nothing_and_looks_into_nothing() -> None:
    inner = {"lat": {"type": "number", "default": 0}, "unit": {"type": "string", "default": "m"}}
    place = {"type": "object", "properties": inner, "required": ["lat"], "additionalProperties": False}
    schema = {
        "type": "object",
        "properties": {"days": {"type": "integer", "default": 3}, "unit": {"default": "C"}, "at": place},
        "required": ["days", "unit"],
        "additionalProperties": False,
    }
    typed = type_arguments([("at", '{"lat": "48", "x": 1}'), ("days", ""), ("y", "2")], schema)
    assert typed.values == {"at": {"lat": "48", "x": 1}, "y": 2}
    assert (typed.empty_omitted, typed.mismatched) == (1, 0)


@pytest.mark.contract("TOOL-016")
def test_order_and_repeats() -> None:
    schema = {"properties": {"a": {"type": "integer"}}}
    typed = type_arguments([("b", "1"), ("a", "x"), ("b", "2"), ("a", "3"), ("b", "4")], schema)
    assert list(typed.values.items()) == [("b", 4), ("a", 3)]
    assert (typed.duplicates, typed.mismatched) == (3, 0)


@pytest.mark.parametrize("schema", [{}, {"properties": None}, {"properties": []}, {"properties": {"x": True}}])
def test_schemas_that_say_nothing(schema: dict[str, object]) -> None:
    assert type_arguments([("x", "[1]"), ("y", "1")], schema).values == {"x": [1], "y": 1}


@pytest.mark.contract("TOOL-006")
@pytest.mark.parametrize(
    ("schema", "text", "value", "mismatched"),
    [
        # An enum decides by its members: the string that the text is, or else the value that it spells.
        ({"enum": ["1", "2"]}, "1", "1", 0),
        ({"enum": ["1", "2"]}, "5", "5", 1),
        ({"enum": ["1", "2"]}, "true", "true", 1),
        ({"enum": ["a", "b"]}, '"a"', "a", 0),
        ({"enum": [1, 2]}, "1", 1, 0),
        ({"enum": [1, 2]}, "5", 5, 1),
        ({"enum": ["1", 1]}, "1", "1", 0),
        ({"enum": ["a", 1]}, "1", 1, 0),
        ({"enum": ["a", None]}, "null", None, 0),
        ({"enum": ["null", None]}, "null", "null", 0),
        ({"enum": [True, "yes"]}, "True", True, 0),
        ({"enum": [True]}, "1", 1, 1),
        ({"enum": [{"k": [1]}, "x"]}, '{"k": [1]}', {"k": [1]}, 0),
        ({"enum": [1, 2]}, "", OMITTED, 0),
        ({"const": 7}, "7", 7, 0),
        ({"const": "7"}, "7", "7", 0),
        ({"type": "string", "enum": ["1", "2"]}, "1", "1", 0),
        ({"type": ["string", "null"], "enum": ["a", None]}, "null", None, 0),
        ({"anyOf": [{"type": "string", "enum": ["a"]}, {"type": "null"}]}, "null", None, 0),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "null", "null", 0),
    ],
)
def test_values_that_are_counted_up(schema: object, text: str, value: object, mismatched: int) -> None:
    typed = type_arguments([("x", text)], {"properties": {"x": schema}})
    assert typed.values == ({} if value is OMITTED else {"x": value})
    assert [type(found) for found in typed.values.values()] == [type(value)] * len(typed.values)
    assert typed.mismatched == mismatched


values: st.SearchStrategy[JSONValue] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(values, st.sets(st.sampled_from([N, INT, B, Z, OBJ, ARR]), min_size=1))
def test_json_that_is_no_declared_string_is_read_back(value: JSONValue, types: set[str]) -> None:
    typed = type_arguments([("x", json.dumps(value))], {"properties": {"x": {"type": sorted(types)}}})
    assert typed.values == {"x": value}


@given(st.text(), st.one_of(st.none(), st.sets(st.sampled_from([S, N, INT, B, Z, OBJ, ARR]), min_size=1)))
def test_whatever_comes_out_can_be_sent(text: str, types: set[str] | None) -> None:
    schema = {"properties": {"x": {} if types is None else {"type": sorted(types)}}}
    typed = type_arguments([("x", text)], schema)
    json.dumps(dict(typed.values), allow_nan=False, ensure_ascii=False).encode()
    if types is not None and S in types:
        assert typed.values == {"x": text}
