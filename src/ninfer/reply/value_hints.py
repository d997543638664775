"""What a parameter's schema says of its value at the top: types that it may have, and values where they are counted up.

References within the document and `allOf` are followed; of an `anyOf` or `oneOf` every branch has to say something. A
schema that cannot be read says nothing, which is not an error here: this room does not check schemas. It looks into no
value and knows no text.

Invariant: reading takes time by the size of the schema, however its references are knotted.
"""

from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import unquote

import attrs

from ninfer.conversation import JSONValue

TYPES: Final = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})
UNIONS: Final = ("anyOf", "oneOf")
MAX_REFERENCES = 32
"""A longer chain of references, or one that leads back to itself, says nothing."""


@attrs.frozen
class Hints:
    """What a value may be; at least one of the two is there."""

    types: frozenset[str]
    """Names of JSON Schema's types."""
    members: tuple[JSONValue, ...] | None = None
    """All values that there are, where a schema counts them up."""

    def admits(self, value: JSONValue) -> bool:
        """Whether `value` is one of the members, or of one of the types where there are none."""
        if self.members is not None:
            return any(is_same(value, member) for member in self.members)
        return any(is_of_type(value, name) for name in self.types)


class SchemaHints:
    """The parameters of one tool, whose whole schema is `root`."""

    def __init__(self, root: Mapping[str, object]) -> None:
        self._root = root
        self._known: dict[tuple[int, str | None], Hints | None] = {}
        """id of a schema in the root, and the member that was asked for (None: the value itself) -> what it says."""

    def of(self, name: str) -> Hints | None:
        """The hints for the parameter `name`; None if the schema says nothing of it."""
        return self._member(self._root, name, 0)

    def _member(self, schema: object, name: str, depth: int) -> Hints | None:
        """What `schema` says of the member `name` of an object."""
        if not isinstance(schema, Mapping) or depth > MAX_REFERENCES:
            return None
        key = (id(schema), name)
        if key not in self._known:
            self._known[key] = None  # whoever leads back here learns nothing
            properties, rest = schema.get("properties"), schema.get("additionalProperties")
            declared = isinstance(properties, Mapping) and name in properties
            said = [self._value(properties[name] if declared else rest, depth)]  # type: ignore[index]
            said.append(self._member(self._target(schema.get("$ref")), name, depth + 1))
            said += [self._member(part, name, depth + 1) for part in _listed(schema.get("allOf"))]
            for union in UNIONS:
                branches = [self._member(branch, name, depth + 1) for branch in _listed(schema.get(union))]
                said.append(_any_of([one for one in branches if one is not None]))
            self._known[key] = _all_of(said)
        return self._known[key]

    def _value(self, schema: object, depth: int) -> Hints | None:
        """What `schema` says of a value."""
        if not isinstance(schema, Mapping) or depth > MAX_REFERENCES:
            return None
        key = (id(schema), None)
        if key not in self._known:
            self._known[key] = None
            self._known[key] = self._read(schema, depth + 1)
        return self._known[key]

    def _read(self, schema: Mapping[str, object], depth: int) -> Hints | None:
        said = [_named(schema.get("type"))]
        if "const" in schema:
            said.append(_counted([schema["const"]]))
        if isinstance(schema.get("enum"), list):
            said.append(_counted(_listed(schema["enum"])))
        said.append(self._value(self._target(schema.get("$ref")), depth))
        said += [self._value(part, depth) for part in _listed(schema.get("allOf"))]
        for union in UNIONS:
            if branches := _listed(schema.get(union)):
                said.append(_any_of([self._value(branch, depth) for branch in branches]))
        return _all_of(said)

    def _target(self, reference: object) -> object:
        """What `#/$defs/n` and its kind name; None for all that is no place in this document."""
        if not isinstance(reference, str) or not reference.startswith("#"):
            return None
        found: object = self._root
        for step in unquote(reference[1:]).split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            if isinstance(found, Mapping):
                found = found.get(key)
            elif isinstance(found, list) and key in (places := {str(at): one for at, one in enumerate(found)}):
                found = places[key]
            else:
                return None
        return found if reference == "#" or reference.startswith("#/") else None


def _all_of(said: Sequence[Hints | None]) -> Hints | None:
    """What holds where all of `said` hold; contradictions say nothing."""
    known = [one for one in said if one is not None]
    if not known:
        return None
    types = known[0].types
    for one in known[1:]:
        types = frozenset(
            narrow
            for narrow in TYPES
            if any(_is_within(narrow, name) for name in types) and any(_is_within(narrow, name) for name in one.types)
        )
    counted = [one.members for one in known if one.members is not None]
    if not counted:
        return Hints(_widest(types)) if types else None
    members = tuple(member for member in counted[0] if all(one.admits(member) for one in known))
    return _counted(members)


def _any_of(said: Sequence[Hints | None]) -> Hints | None:
    """What holds where one of `said` holds. One that says nothing spoils the rest, but that a string is admitted."""
    known = [one for one in said if one is not None]
    types = frozenset[str]().union(*(one.types for one in known))
    if not known:
        return None
    if len(known) < len(said):
        return Hints(TYPES) if "string" in types else None
    # A null beside counted values is one more of them: `Optional[Literal["a", "b"]]`.
    counted = [(None,) if one.types == {"null"} else one.members for one in known]
    if any(members is None for members in counted):
        return Hints(types)
    return Hints(types, tuple(member for members in counted for member in members or ()))


def _counted(members: Sequence[object]) -> Hints | None:
    return Hints(frozenset(map(type_of, members)), tuple(members)) if members else None  # type: ignore[arg-type]


def _named(value: object) -> Hints | None:
    names = [value] if isinstance(value, str) else value
    if isinstance(names, list) and names and all(isinstance(name, str) and name in TYPES for name in names):
        return Hints(frozenset(names))
    return None


def _widest(types: frozenset[str]) -> frozenset[str]:
    return types - {"integer"} if "number" in types else types


def _is_within(narrow: str, wide: str) -> bool:
    return narrow == wide or (narrow, wide) == ("integer", "number")


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def type_of(value: object) -> str:
    """JSON Schema's name for the type of a JSON value; a whole number is an integer."""
    return next(name for name in _IN_ORDER if is_of_type(value, name))


_IN_ORDER = ("string", "boolean", "null", "integer", "number", "object", "array")


def is_of_type(value: object, name: str) -> bool:
    """Whether `value`, which is JSON, is of the type `name`."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "null": value is None,
        "number": number,
        "integer": number and isinstance(value, int | float) and value == int(value),
        "object": isinstance(value, dict),
        "array": isinstance(value, list),
    }[name]


def is_same(one: object, other: object) -> bool:
    """Whether two JSON values are equal: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same(member, other[name]) for name, member in one.items())
    return one == other
