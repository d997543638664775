"""Rules for single JSON values, which stand in the annotations of wire types: `Annotated[int, Integer(low=0)]`.

A rule turns a JSON value into a field's value or raises `Fault`. It knows values, neither fields nor paths. Invariant:
nothing is coerced: "7" is no integer, "no" no boolean, and null no string.
"""

import math
from collections.abc import Callable
from typing import Protocol

import attrs

from ninfer.protocols.values import shown


class Fault(ValueError):
    """A value that breaks its rule. A rule raises it; it leaves `structure` as `InvalidRequest`."""

    def __init__(self, expected: str, value: object, code: str = "invalid_value") -> None:
        super().__init__(f"expected {expected}, got {shown(value)}")
        self.code = code


class Rule(Protocol):
    """What stands in an annotation: turns a JSON value into the field's value, or raises `Fault`."""

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """The field's value; `inner` structures by the annotated type itself."""
        ...


@attrs.frozen
class Number:
    """A JSON number between two bounds, both included; without them any that a double holds."""

    low: float = -math.inf
    high: float = math.inf

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """A float within the bounds."""
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise Fault(self._expected(), value, "invalid_type")
        if not self.low <= value <= self.high:
            raise Fault(self._expected(), value)
        try:
            return float(value)
        except OverflowError:
            raise Fault("a number within the range of a double", value) from None

    def _expected(self) -> str:
        if math.isinf(self.high):
            return "a number" if math.isinf(self.low) else f"a number of at least {self.low:g}"
        return (
            f"a number of at most {self.high:g}"
            if math.isinf(self.low)
            else f"a number from {self.low:g} to {self.high:g}"
        )


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
        if self.high is None:
            return "an integer" if self.low is None else f"an integer of at least {self.low}"
        return (
            f"an integer of at most {self.high}" if self.low is None else f"an integer from {self.low} to {self.high}"
        )


@attrs.frozen
class String:
    """A JSON string, perhaps one of a few, or of so many characters at most."""

    one_of: tuple[str, ...] = ()
    non_empty: bool = False
    most_chars: int | None = None

    def apply(self, value: object, inner: Callable[[object], object]) -> object:
        """The string itself."""
        expected = "a non-empty string" if self.non_empty else "a string"
        if self.one_of:
            expected = f"one of {', '.join(map(shown, self.one_of))}"
        if not isinstance(value, str):
            raise Fault(expected, value, "invalid_type")
        if (self.one_of and value not in self.one_of) or (self.non_empty and not value):
            raise Fault(expected, value)
        if self.most_chars is not None and len(value) > self.most_chars:
            raise Fault(f"{expected} of at most {self.most_chars} characters", value, "string_above_max_length")
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
