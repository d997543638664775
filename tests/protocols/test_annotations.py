"""Plain annotations of wire types: each takes the JSON values that it names and coerces none; others are refused."""

import enum
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NewType, TypedDict

import attrs
import pytest

from ninfer.conversation import InvalidRequest, JSONValue
from ninfer.protocols.annotations import Unreadable
from ninfer.protocols.structure import AnyObject, Array, Integer, Number, Rule, String, structure

Id = NewType("Id", int)
HUGE = 10**400


class Named(TypedDict):
    """No class of attrs."""

    name: str


class Colour(str, enum.Enum):  # noqa: UP042
    """A string that is more than one."""

    RED = "red"


@attrs.frozen(kw_only=True)
class Inner:
    """An object inside."""

    n: int


@attrs.frozen(kw_only=True)
class Other:
    """Another one."""

    m: int


def holding(annotation: Any) -> Any:
    """A wire type with one member `x` of that annotation."""
    return attrs.make_class("Holding", {"x": attrs.field(type=annotation)}, frozen=True)


@pytest.mark.parametrize(
    ("annotation", "value", "fault"),
    [
        # what a converter would have made something of
        (int, "7", 'x: expected an integer, got "7"'),
        (int, 7.0, "x: expected an integer, got 7.0"),
        (int, True, "x: expected an integer, got true"),
        (bool, "no", 'x: expected a boolean, got "no"'),
        (bool, 0, "x: expected a boolean, got 0"),
        (float, "1.5", 'x: expected a number, got "1.5"'),
        (float, True, "x: expected a number, got true"),
        (float, HUGE, "x: expected a number within the range of a double, got 1"),
        (str, 5, "x: expected a string, got 5"),
        (str, ["a"], "x: expected a string, got an array of 1 item"),
        (tuple[str, ...], "ab", 'x: expected an array, got "ab"'),
        (tuple[str, ...], ["a", None], "x[1]: expected a string, got null"),
        (tuple[str, ...], {"a": 1}, "x: expected an array, got an object of 1 member"),
        (tuple[int, str], [1], "x: expected an array of at least 2 items, got an array of 1 item"),
        (tuple[int, str], [1, 2], "x[1]: expected a string, got 2"),
        (list[int], [1, "2"], 'x[1]: expected an integer, got "2"'),
        (Sequence[bool], ["true"], 'x[0]: expected a boolean, got "true"'),
        (dict[str, int], {"a": "1"}, 'x.a: expected an integer, got "1"'),
        (Mapping[str, tuple[int, ...]], {"a": [1, None]}, "x.a[1]: expected an integer, got null"),
        (dict, [], "x: expected an object, got an array of 0 items"),
        (list, {}, "x: expected an array, got an object of 0 members"),
        (Literal["a", 1], True, 'x: expected one of "a", 1, got true'),
        (Literal["a"], "b", 'x: expected one of "a", got "b"'),
        (int | None, "7", 'x: expected an integer, got "7"'),
        (int | str, 1.5, "x: expected an integer or a string, got 1.5"),
        (tuple[int | None, ...], [None, "1"], 'x[1]: expected an integer, got "1"'),
        (tuple[int | str | None, ...], [None, 1.5], "x[1]: expected an integer, a string or null, got 1.5"),
        (Id, "1", 'x: expected an integer, got "1"'),
        (Annotated[int, "a note"], "1", 'x: expected an integer, got "1"'),
        (Annotated[list[int], Array(most=1)], ["1"], 'x[0]: expected an integer, got "1"'),
        (Annotated[int, Integer(high=3)], 4, "x: expected an integer of at most 3, got 4"),
        (Annotated[float, Number(low=0)], -1, "x: expected a number of at least 0, got -1"),
        (Annotated[float, Number(high=0)], 1, "x: expected a number of at most 0, got 1"),
        (Inner, [], "x: expected an object, got an array of 0 items"),
        (tuple[Inner, ...], [{"n": 1}, {"n": "1"}], 'x[1].n: expected an integer, got "1"'),
        (Inner | int, {"n": "1"}, 'x.n: expected an integer, got "1"'),
    ],
)
def test_nothing_is_coerced(annotation: Any, value: object, fault: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        structure({"x": value}, holding(annotation))
    assert caught.value.message.startswith(fault)
    assert caught.value.param == fault.partition(":")[0]


@pytest.mark.parametrize(
    ("annotation", "value", "read"),
    [
        (int, 7, 7),
        (float, 7, 7.0),
        (bool, False, False),
        (tuple[str, ...], ["a"], ("a",)),
        (tuple[int, str], [1, "a"], (1, "a")),
        (tuple, [1, "a"], (1, "a")),
        (list[float], [1], [1.0]),
        (Sequence[int], [], ()),
        (dict[str, int | None], {"a": None}, {"a": None}),
        (object, [None, {}], [None, {}]),
        (Any, 1, 1),
        (JSONValue, {"a": [1]}, {"a": [1]}),
        (tuple[JSONValue, ...], [None, "a"], (None, "a")),
        (None, "no annotation", "no annotation"),
        (Literal["a", 1], 1, 1),
        (int | float, 1, 1),
        (int | float, 1.5, 1.5),
        (str | tuple[str, ...], "a", "a"),
        (str | tuple[str, ...], ["a"], ("a",)),
        (Annotated[str | tuple[str, ...], Array(or_string=True)], ["a"], ("a",)),
        (Annotated[str, String(one_of=("a",))] | int, 1, 1),
        (Inner | str, {"n": 1}, Inner(n=1)),
        (AnyObject, {"a": None}, {"a": None}),
    ],
)
def test_what_fits(annotation: Any, value: object, read: object) -> None:
    found = structure({"x": value}, holding(annotation)).x
    assert found == read
    assert type(found) is type(read)


@pytest.mark.parametrize(
    ("annotation", "fault"),
    [
        (datetime, "Holding.x: datetime is no annotation of a wire type; there are bool, int, "),
        (bytes, "Holding.x: bytes is no annotation of a wire type"),
        (set[str], r"Holding.x: set\[str\] is no annotation of a wire type"),
        (Named, "Holding.x: Named is no annotation of a wire type"),
        (Colour, "Holding.x: Colour is no annotation of a wire type"),
        (tuple[datetime, ...], "Holding.x: datetime is no annotation of a wire type"),
        (dict[int, str], r"Holding.x: dict\[int, str\]: the names of an object's members are of the type str"),
        (Inner | Other, r"Holding.x: Inner \| Other: two members are read from an object, and nothing tells them"),
        (str | Literal["a"], "two members are read from a string"),
        ("Elsewhere", "the annotations of Holding cannot be read: name 'Elsewhere' is not defined"),
    ],
)
def test_an_annotation_without_a_meaning_is_refused(annotation: Any, fault: str) -> None:
    with pytest.raises(Unreadable, match=fault):
        structure({"x": "a"}, holding(annotation))


def test_a_class_of_another_kind_is_refused() -> None:
    with pytest.raises(Unreadable, match="is no class of attrs"):
        structure({"name": "a"}, Named)


@attrs.frozen
class Moment:
    """A rule that reads what no plain annotation does, and has a fault of its own."""

    def apply(self, value: object, inner: object) -> object:
        """A date, or a fault of ours."""
        if value == "fault":
            return {}["no such key"]
        return datetime.fromisoformat(str(value))


def test_a_rule_may_stand_at_an_annotation_that_only_it_reads() -> None:
    rule: Rule = Moment()
    assert structure({"x": "2026-01-02"}, holding(Annotated[datetime, rule])).x == datetime(2026, 1, 2)


def test_a_fault_of_a_rule_is_not_a_members_absence() -> None:
    with pytest.raises(RuntimeError, match="a rule failed: KeyError"):
        structure({"x": "fault"}, holding(Annotated[datetime, Moment()]))


def test_types_that_hold_themselves() -> None:
    tree = structure({"leaf": 1, "below": [{"leaf": 2}]}, Tree)
    assert tree == Tree(leaf=1, below=(Tree(leaf=2),))
    with pytest.raises(InvalidRequest, match=r"below\[0\].below\[0\].leaf: is required"):
        structure({"leaf": 1, "below": [{"leaf": 2, "below": [{}]}]}, Tree)


@attrs.frozen(kw_only=True)
class Tree:
    """A type that is named by a string, as all are under `from __future__ import annotations`."""

    leaf: "int"
    below: "tuple[Tree, ...]" = ()
