"""What an annotation of a wire type means in JSON: which values it takes and what each of them becomes.

    read = reader(int | None, read_object)
    read("7")            # Fault: expected an integer, got "7"

A plain annotation means a rule (`int` is `Integer()`), so both ways of writing one are equally strict. It knows
annotations, no wire type: `read_object` reads a class of attrs. Invariant: every annotation either has one meaning or
is refused with `Unreadable`; none is left to a converter's own idea of it.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, ForwardRef, Literal, NewType, TypeAlias, Union, cast, get_args, get_origin

import attrs

from ninfer.conversation import JSONValue
from ninfer.protocols.rules import Array, Boolean, Fault, Integer, Number, Object, Rule, String
from ninfer.protocols.values import shown, shown_name

Reader: TypeAlias = Callable[[object], object]
ReadObject: TypeAlias = Callable[[type, object], object]
"""Reads a value as an instance of a class of attrs."""

ANYTHING = (object, Any, None, attrs.NOTHING, JSONValue, "JSONValue")
"""What takes every JSON value as it is; None is what an attribute without an annotation has."""
SCALARS: Mapping[object, Rule] = {bool: Boolean(), int: Integer(), float: Number(), str: String()}
ARRAYS = (tuple, list, Sequence)
OBJECTS = (dict, Mapping)

_NOUNS = {
    # JSON kind -> how a message calls it
    "boolean": "a boolean",
    "integer": "an integer",
    "number": "a number",
    "string": "a string",
    "array": "an array",
    "object": "an object",
    "null": "null",
}
_KINDS: Mapping[type, str] = {
    bool: "boolean", int: "integer", float: "number", str: "string", list: "array", dict: "object", type(None): "null",
}  # fmt: skip
_RULED: Mapping[type, tuple[str, ...]] = {
    Number: ("number",), Integer: ("integer",), String: ("string",), Boolean: ("boolean",), Object: ("object",),
}  # fmt: skip


class Unreadable(TypeError):
    """An annotation that no JSON value can be read by."""


class Inside(Exception):
    """The value at `step` (`[3]` or `.name`) of another does not fit; the cause says why."""

    def __init__(self, step: str) -> None:
        super().__init__(step)
        self.step = step


def bare(annotation: object) -> object:
    """`annotation` without the names and the notes around it that mean nothing here."""
    while True:
        if isinstance(annotation, NewType):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":  # `type X = ...`, from Python 3.12 on
            annotation = annotation.__value__  # type: ignore[attr-defined]
        elif hasattr(annotation, "__metadata__") and rule_of(annotation) is None:
            annotation = get_args(annotation)[0]
        elif isinstance(annotation, ForwardRef):
            annotation = annotation.__forward_arg__
        else:
            return annotation


def rule_of(annotation: object) -> Rule | None:
    """The rule that an annotation carries."""
    found = (one for one in getattr(annotation, "__metadata__", ()) if hasattr(one, "apply"))
    return next(found, None)


def takes_anything(annotation: object) -> bool:
    """Whether every JSON value fits."""
    return any(annotation is one or (isinstance(one, str) and annotation == one) for one in ANYTHING)


def members_of(annotation: object) -> tuple[object, ...] | None:
    """The members of a union, None left out; None where `annotation` is no union."""
    if get_origin(annotation) not in (Union, types.UnionType):
        return None
    return tuple(bare(member) for member in get_args(annotation) if member is not type(None))


def item_types(annotation: object) -> tuple[object, ...]:
    """Of an array of a fixed length: what each item is; else the one type of all of them, and an ellipsis."""
    args = get_args(annotation)
    if (get_origin(annotation) or annotation) is tuple and args and args[-1] is not Ellipsis:
        return args
    return (args[0] if args else object, Ellipsis)


def reader(annotation: object, read_object: ReadObject) -> Reader:
    """What makes a JSON value the value of a field with this annotation.

    Raises:
        Unreadable: no JSON value can be read by it.
    """
    annotation = bare(annotation)
    rule = rule_of(annotation)
    if rule is not None:
        return partial(rule.apply, inner=_inner(get_args(annotation)[0], read_object))
    if takes_anything(annotation):
        return lambda value: value
    if annotation in SCALARS:
        return partial(SCALARS[annotation].apply, inner=lambda value: value)
    members = members_of(annotation)
    if members is not None:
        return _union(members, type(None) in get_args(annotation), read_object)
    origin = get_origin(annotation) or annotation
    if origin is Literal:
        return partial(_literal, get_args(annotation))
    if origin in ARRAYS:
        return _array(annotation, read_object)
    if origin in OBJECTS:
        return _object(annotation, read_object)
    if isinstance(annotation, type) and attrs.has(annotation):
        return partial(read_object, annotation)
    raise Unreadable(
        f"{named(annotation)} is no annotation of a wire type; there are bool, int, float, str, object, Literal, "
        "unions, tuple, list, Sequence, dict and Mapping of these, classes of attrs, and Annotated[..., rule]"
    )


def _inner(annotation: object, read_object: ReadObject) -> Reader:
    """What a rule may call. A rule that never does may stand at an annotation that only it understands."""
    try:
        return reader(annotation, read_object)
    except Unreadable as error:
        fault = error

        def refuse(value: object) -> object:
            raise fault

        return refuse


def _literal(values: tuple[object, ...], value: object) -> object:
    for one in values:
        if value == one and type(value) is type(one):  # 1 == True in Python, but not in JSON
            return value
    raise Fault(f"one of {', '.join(map(shown, values))}", value)


def _union(members: tuple[object, ...], or_null: bool, read_object: ReadObject) -> Reader:
    if len(members) == 1:
        only = reader(members[0], read_object)
        return lambda value: None if value is None and or_null else only(value)
    by_kind: dict[str, Reader] = {}
    for member in members:
        for kind in kinds_of(member):
            if kind in by_kind:
                union = " | ".join(map(named, members))
                raise Unreadable(f"{union}: two members are read from {_NOUNS[kind]}, and nothing tells them apart")
            by_kind[kind] = reader(member, read_object)
    if or_null:
        by_kind["null"] = lambda value: value
    *first, last = (noun for kind, noun in _NOUNS.items() if kind in by_kind)
    expected = f"{', '.join(first)} or {last}" if first else last

    def read(value: object) -> object:
        kind = _KINDS.get(type(value), "null")
        found = by_kind.get(kind) or (by_kind.get("number") if kind == "integer" else None)
        if found is None:
            raise Fault(expected, value, "invalid_type")
        return found(value)

    return read


def kinds_of(annotation: object) -> tuple[str, ...]:
    """The kinds of JSON values that `annotation` takes; integers are numbers without being named."""
    annotation = bare(annotation)
    rule = rule_of(annotation)
    if isinstance(rule, Array):
        return ("array", "string") if rule.or_string else ("array",)
    if type(rule) in _RULED:
        return _RULED[type(rule)]
    if rule is not None:
        return kinds_of(get_args(annotation)[0])
    origin = get_origin(annotation) or annotation
    if origin is Literal:
        return tuple({_KINDS[type(value)]: None for value in get_args(annotation)})
    if origin in SCALARS:
        return (_KINDS[cast(type, origin)],)
    if origin in ARRAYS:
        return ("array",)
    if takes_anything(annotation):
        return tuple(kind for kind in _NOUNS if kind != "null")
    members = members_of(annotation)
    if members is not None:
        return tuple(kind for member in members for kind in kinds_of(member))
    return ("object",)


def _array(annotation: object, read_object: ReadObject) -> Reader:
    *fixed, rest = item_types(annotation)
    made: type = list if (get_origin(annotation) or annotation) is list else tuple
    if rest is Ellipsis:
        read = reader(fixed[0], read_object)

        def all_items(value: object) -> object:
            items = cast(Sequence[object], Array().apply(value, lambda one: one))
            return made(_item(read, at, item) for at, item in enumerate(items))

        return all_items
    readers = [reader(one, read_object) for one in (*fixed, rest)]

    def each_item(value: object) -> object:
        items = cast(Sequence[object], Array(least=len(readers), most=len(readers)).apply(value, lambda one: one))
        return tuple(_item(read, at, item) for at, (read, item) in enumerate(zip(readers, items, strict=True)))

    return each_item


def _item(read: Reader, at: int, item: object) -> object:
    # The first one that does not fit ends the reading: an error for each would be gigabytes for a body all wrong.
    try:
        return read(item)
    except Exception as error:
        raise Inside(f"[{at}]") from error


def _object(annotation: object, read_object: ReadObject) -> Reader:
    key, member = get_args(annotation) or (str, object)
    if bare(key) is not str:
        raise Unreadable(f"{named(annotation)}: the names of an object's members are of the type str")
    read = reader(member, read_object)

    def members(value: object) -> object:
        found: dict[str, object] = {}
        for name, one in cast(Mapping[str, object], Object().apply(value, lambda one: one)).items():
            try:
                found[name] = read(one)
            except Exception as error:
                raise Inside(f".{shown_name(name)}") from error
        return found

    return members


def named(annotation: object) -> str:
    """`annotation` as a message names it."""
    return annotation.__qualname__ if isinstance(annotation, type) else str(annotation)
