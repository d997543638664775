"""Wire bodies by structure: attrs classes whose annotations say what is taken, errors with the exact path.

    @attrs.frozen(kw_only=True)
    class Body:
        prompt: str
        temperature: Annotated[float, Number(0, 2)] | None = None

    structure(value, Body)     # InvalidRequest(param="temperature", ...) unless it fits

Shared by the protocols. A member that is null counts as not given; members that the class does not know are passed
over: who refuses those is the protocol's business. It knows JSON values and no protocol.
Invariants: nothing is coerced, whatever an annotation is; `param` of an error is a path from the body's root, and the
message begins with the same path; the first item of an array that does not fit ends the reading.
"""

import functools
from collections.abc import Callable, Mapping
from typing import Annotated, Any, TypeVar, cast

import attrs
import cattrs
from cattrs.gen import make_dict_structure_fn, override

from ninfer.conversation import InvalidRequest
from ninfer.protocols.annotations import Inside, Unreadable, reader
from ninfer.protocols.plugin import JSONValue
from ninfer.protocols.rules import Array as Array
from ninfer.protocols.rules import Boolean as Boolean
from ninfer.protocols.rules import Fault as Fault
from ninfer.protocols.rules import Integer as Integer
from ninfer.protocols.rules import Number as Number
from ninfer.protocols.rules import Object as Object
from ninfer.protocols.rules import Rule as Rule
from ninfer.protocols.rules import String as String

Structured = TypeVar("Structured")


def structure(value: object, wire_type: type[Structured], *, at: str = "") -> Structured:
    """`value`, a JSON object, as an instance of `wire_type`; `at` is its own path in the body.

    Raises:
        InvalidRequest: `param` is the path of the first member that does not fit.
        Unreadable: an annotation of `wire_type` has no meaning in JSON.
    """
    try:
        return cast(Structured, _read(wire_type, value))
    except Exception as error:
        path, cause = _first_fault(error, at)
        if isinstance(cause, KeyError):
            raise missing(path) from None
        if isinstance(cause, Fault):
            raise InvalidRequest(f"{path or 'body'}: {cause}", code=cause.code, param=path or None) from None
        raise cause from None


def missing(path: str) -> InvalidRequest:
    """The refusal of a body in which the member at `path`, which has to be there, is not."""
    return InvalidRequest(f"{path}: is required", code="missing_required_parameter", param=path)


def fields_of(wire_type: type) -> tuple["attrs.Attribute[object]", ...]:
    """The fields of a class of attrs, with annotations that are no strings any more.

    Raises:
        Unreadable: it is no such class, or an annotation names something that is not there.
    """
    if not attrs.has(wire_type):
        raise Unreadable(f"{wire_type!r} is no class of attrs")
    if any(isinstance(field.type, str) for field in attrs.fields(wire_type)):
        try:
            attrs.resolve_types(wire_type)
        except Exception as error:
            raise Unreadable(f"the annotations of {wire_type.__qualname__} cannot be read: {error}") from error
    return tuple(attrs.fields(wire_type))


def _first_fault(error: BaseException, path: str) -> tuple[str, BaseException]:
    """Walk down the groups that cattrs builds, always by the first member, and collect the path on the way."""
    while True:
        if isinstance(error, Inside) and error.__cause__ is not None:
            path += error.step if path else error.step.removeprefix(".")
            error = error.__cause__
        elif isinstance(error, cattrs.BaseValidationError):
            error = error.exceptions[0]
            for note in getattr(error, "__notes__", ()):
                if isinstance(note, cattrs.AttributeValidationNote):
                    path += f".{note.name}" if path else note.name
        else:
            return path, error


def _read(wire_type: type, value: object) -> object:
    return reader_of(wire_type)(value)


@functools.cache
def reader_of(wire_type: type) -> Callable[[object], object]:
    """What reads values of `wire_type`. Every annotation is read by us: cattrs would take "7" for an int.

    Raises:
        Unreadable: an annotation has no meaning in JSON.
    """
    overrides: dict[str, Any] = {}
    for field in fields_of(wire_type):
        try:
            read = reader(field.type, _read)
        except Unreadable as error:
            raise Unreadable(f"{wire_type.__qualname__}.{field.name}: {error}") from error
        overrides[field.name] = override(struct_hook=functools.partial(_ignoring_type, read))
    members: Callable[..., object] = make_dict_structure_fn(wire_type, _CONVERTER, **overrides)

    def hook(value: object) -> object:
        given = cast(Mapping[str, object], Object().apply(value, lambda one: one))
        return members({name: member for name, member in given.items() if member is not None}, wire_type)

    return hook


def _ignoring_type(read: Callable[[object], object], value: object, _: object) -> object:
    try:
        return read(value)
    except KeyError as error:  # a member that is missing is told by a KeyError of cattrs alone
        raise RuntimeError(f"a rule failed: {error!r}") from error


_CONVERTER = cattrs.Converter()

Text = Annotated[str, String()]
Flag = Annotated[bool, Boolean()]
AnyObject = Annotated[Mapping[str, JSONValue], Object()]
