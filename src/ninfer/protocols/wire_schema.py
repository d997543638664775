"""JSON Schema of wire types: the rules of `structure`, said in the words of an OpenAPI document.

    schemas = WireSchemas()
    schemas.reference(ChatBody)      # {"$ref": "#/components/schemas/openai_chat.ChatBody"}
    schemas.components               # all types that were met on the way

It knows attrs classes and rules, no route. What it says holds, but it does not say all: refusals by name, and objects
that are read by their `type`, are decided beyond the wire types.
"""

import types
from collections.abc import Mapping
from typing import Annotated, Union, get_args, get_origin

import attrs

from ninfer.protocols.structure import Array, Boolean, Integer, Number, Object, String

Schema = dict[str, object]


class WireSchemas:
    """Schemas by name, made once each."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def reference(self, wire_type: type[object]) -> Schema:
        """A reference to the schema of an attrs class, which is made if it is new."""
        name = f"{wire_type.__module__.split('.')[-2]}.{wire_type.__name__}"
        if name not in self.components:
            self.components[name] = {}  # a type may hold itself
            self.components[name] = self._object(wire_type)
        return {"$ref": f"#/components/schemas/{name}"}

    def _object(self, wire_type: type[object]) -> Schema:
        properties: Schema = {}
        required: list[str] = []
        for field in attrs.fields(wire_type):  # type: ignore[arg-type]
            schema = self._value(field.type)
            if field.default is attrs.NOTHING:
                required.append(field.name)
                properties[field.name] = schema
            else:  # null counts as not given
                properties[field.name] = {"anyOf": [schema, {"type": "null"}]}
        described = (wire_type.__doc__ or "").split("\n", 1)[0]
        schema = {"type": "object", "description": described, "properties": properties}
        return {**schema, "required": required} if required else schema

    def _value(self, annotation: object) -> Schema:
        if get_origin(annotation) is Annotated:
            inner, rule, *_ = get_args(annotation)
            return self._ruled(rule, inner)
        if get_origin(annotation) in (Union, types.UnionType):
            members = [member for member in get_args(annotation) if member is not type(None)]
            found = [self._value(member) for member in members]
            return found[0] if len(found) == 1 else {"anyOf": found}
        if isinstance(annotation, type) and attrs.has(annotation):
            return self.reference(annotation)
        return {}

    def _ruled(self, rule: object, inner: object) -> Schema:
        match rule:
            case Number(low, high):
                return {"type": "number", "minimum": low, "maximum": high}
            case Integer(low, high):
                bounds = {"minimum": low, "maximum": high}
                return {"type": "integer", **{name: bound for name, bound in bounds.items() if bound is not None}}
            case String(one_of, non_empty):
                limits: Mapping[str, object] = (
                    {"enum": list(one_of)} if one_of else {"minLength": 1} if non_empty else {}
                )
                return {"type": "string", **limits}
            case Boolean():
                return {"type": "boolean"}
            case Object():
                return {"type": "object"}
            case Array(least, most, or_string):
                array = self._array(inner, least, most)
                return {"anyOf": [{"type": "string"}, array]} if or_string else array
        return {}

    def _array(self, inner: object, least: int, most: int | None) -> Schema:
        members = [inner, *get_args(inner)]
        tuples = [member for member in members if get_origin(member) is tuple]
        items = self._value(get_args(tuples[0])[0]) if tuples else {}
        limits = {"minItems": least or None, "maxItems": most}
        return {"type": "array", "items": items, **{name: limit for name, limit in limits.items() if limit is not None}}
