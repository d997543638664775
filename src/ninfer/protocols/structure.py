"""Wire bodies by structure: attrs classes with rules in their annotations, errors with the exact path.

    @attrs.frozen(kw_only=True)
    class Body:
        temperature: Annotated[float, Number(0, 2)] | None = None

    structure(value, Body)     # InvalidRequest(param="temperature", ...) unless it fits

Shared by the protocols. A member that is null counts as not given; members that the class does not know are passed
over: who refuses those is the protocol's business. It knows JSON values and no protocol.
Invariants: `param` of an error is a path from the body's root, and the message begins with the same path; the first
item of an array that does not fit ends the reading, however many there are.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Protocol, TypeVar, get_args

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn

from ninfer.conversation import InvalidRequest
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.values import shown

Structured = TypeVar("Structured")


class Fault(ValueError):
    """A value that breaks its rule. Inside this module's hooks only; it leaves as `InvalidRequest`."""

    def __init__(self, expected: str, value: object, code: str = "invalid_value") -> None:
        super().__init__(f"expected {expected}, got {shown(value)}")
        self.code = code


class _InItem(Exception):
    """The item at `index` does not fit; the cause says why."""

    def __init__(self, index: int) -> None:
        super().__init__(index)
        self.index = index


class Rule(Protocol):
    """What stands in an annotation: turns a JSON value into the field's value, or raises `Fault`."""

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """The field's value; `inner` structures by the annotated type itself."""
        ...


@attrs.frozen
class Number:
    """A JSON number between two bounds, both included."""

    low: float
    high: float

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """A float within the bounds."""
        expected = f"a number from {self.low:g} to {self.high:g}"
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Fault(expected, value, "invalid_type")
        if not self.low <= value <= self.high:
            raise Fault(expected, value)
        return float(value)


@attrs.frozen
class Integer:
    """A JSON integer between two bounds, both included; None is no bound."""

    low: int | None = None
    high: int | None = None

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """An int within the bounds; true and 1.0 are no integers."""
        if isinstance(value, bool) or not isinstance(value, int):
            raise Fault(self._expected(), value, "invalid_type")
        if (self.low is not None and value < self.low) or (self.high is not None and value > self.high):
            raise Fault(self._expected(), value)
        return value

    def _expected(self) -> str:
        if self.high is not None:
            return f"an integer from {self.low} to {self.high}"
        return "an integer" if self.low is None else f"an integer of at least {self.low}"


@attrs.frozen
class String:
    """A JSON string, perhaps one of a few."""

    one_of: tuple[str, ...] = ()
    non_empty: bool = False

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """The string itself."""
        expected = "a non-empty string" if self.non_empty else "a string"
        if self.one_of:
            expected = f"one of {', '.join(map(shown, self.one_of))}"
        if not isinstance(value, str):
            raise Fault(expected, value, "invalid_type")
        if (self.one_of and value not in self.one_of) or (self.non_empty and not value):
            raise Fault(expected, value)
        return value


@attrs.frozen
class Boolean:
    """true or false."""

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """The boolean itself."""
        if not isinstance(value, bool):
            raise Fault("a boolean", value, "invalid_type")
        return value


@attrs.frozen
class Array:
    """A JSON array with a number of items between two bounds; `or_string` also lets a bare string through."""

    least: int = 0
    most: int | None = None
    or_string: bool = False

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """The items by the annotated type."""
        if self.or_string and isinstance(value, str):
            return value
        expected = "a string or an array" if self.or_string else "an array"
        if not isinstance(value, list):
            raise Fault(expected, value, "invalid_type")
        if len(value) < self.least:
            raise Fault(f"{expected} of at least {self.least} item{'' if self.least == 1 else 's'}", value)
        if self.most is not None and len(value) > self.most:
            raise Fault(f"{expected} of at most {self.most} items", value)
        return inner(value)


@attrs.frozen
class Object:
    """A JSON object that is taken over as it is, members in the order they were received in (TMPL-005)."""

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """The object itself."""
        if not isinstance(value, dict):
            raise Fault("an object", value, "invalid_type")
        return value


def structure(value: object, wire_type: type[Structured], *, at: str = "") -> Structured:
    """`value`, a JSON object, as an instance of `wire_type`; `at` is its own path in the body.

    Raises:
        InvalidRequest: `param` is the path of the first member that does not fit.
    """
    try:
        return _CONVERTER.structure(value, wire_type)
    except Exception as error:
        path, cause = _first_fault(error, at)
        if isinstance(cause, KeyError):
            raise missing(path) from None
        if isinstance(cause, Fault):
            raise InvalidRequest(f"{path or 'body'}: {cause}", code=cause.code, param=path or None) from None
        raise


def missing(path: str) -> InvalidRequest:
    """The refusal of a body in which the member at `path`, which has to be there, is not."""
    return InvalidRequest(f"{path}: is required", code="missing_required_parameter", param=path)


def _first_fault(error: BaseException, path: str) -> tuple[str, BaseException]:
    """Walk down the groups that cattrs builds, always by the first member, and collect the path on the way."""
    while True:
        if isinstance(error, _InItem) and error.__cause__ is not None:
            path += f"[{error.index}]"
            error = error.__cause__
        elif isinstance(error, cattrs.BaseValidationError):
            error = error.exceptions[0]
            for note in getattr(error, "__notes__", ()):
                if isinstance(note, cattrs.AttributeValidationNote):
                    path += f".{note.name}" if path else note.name
        else:
            return path, error


def _rule_of(annotation: object) -> Rule | None:
    if getattr(annotation, "__metadata__", None) is None:
        return None
    found = get_args(annotation)[1]
    return found if hasattr(found, "apply") else None


def _make_converter() -> cattrs.Converter:
    converter = cattrs.Converter()

    def rule_hook(annotation: object) -> Callable[[object, object], object]:
        rule = _rule_of(annotation)
        assert rule is not None
        inner = get_args(annotation)[0]
        # A union of a string and an array: the string is the rule's, what is left is the array.
        arrays = [member for member in (inner, *get_args(inner)) if getattr(member, "__origin__", None) is tuple]
        if not arrays:
            return lambda value, _: rule.apply(value, lambda one: converter.structure(one, inner))
        item_type = get_args(arrays[0])[0]
        # cattrs would go on and collect an error for each item: gigabytes for a body that is all wrong.
        return lambda value, _: rule.apply(value, lambda items: _items(converter, items, item_type))

    def object_hook(wire_type: type[object]) -> Callable[[object, object], object]:
        members = make_dict_structure_fn(wire_type, converter)

        def hook(value: object, _: object) -> object:
            if not isinstance(value, dict):
                raise Fault("an object", value, "invalid_type")
            return members({name: member for name, member in value.items() if member is not None}, wire_type)

        return hook

    converter.register_structure_hook_factory(attrs.has, object_hook)
    converter.register_structure_hook_factory(lambda annotation: _rule_of(annotation) is not None, rule_hook)
    return converter


def _items(converter: cattrs.Converter, items: object, item_type: type[object]) -> tuple[object, ...]:
    assert isinstance(items, Sequence)
    read = converter.get_structure_hook(item_type)
    found: list[object] = []
    for index, item in enumerate(items):
        try:
            found.append(read(item, item_type))
        except Exception as error:
            raise _InItem(index) from error
    return tuple(found)


_CONVERTER = _make_converter()

Text = Annotated[str, String()]
Flag = Annotated[bool, Boolean()]
AnyObject = Annotated[Mapping[str, JSONValue], Object()]
