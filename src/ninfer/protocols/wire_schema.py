"""JSON Schema of wire types: the rules of `structure`, said in the words of an OpenAPI document.

    schemas = WireSchemas()
    schemas.reference(ChatBody)      # {"$ref": "#/components/schemas/openai_chat.ChatBody"}
    schemas.components               # all types that were met on the way

It knows attrs classes and rules, no route. What it says holds, but it does not say all: refusals by name, and objects
that are read by their `type`, are decided beyond the wire types.
"""

import math
import re
from typing import Literal, cast, get_args, get_origin

import attrs

from ninfer.protocols.annotations import (
    ARRAYS,
    OBJECTS,
    SCALARS,
    bare,
    item_types,
    members_of,
    rule_of,
    takes_anything,
)
from ninfer.protocols.structure import Array, Boolean, Integer, Number, Object, Rule, String, fields_of, reader_of

Schema = dict[str, object]


class WireSchemas:
    """Schemas by name, made once each."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}
        self._names: dict[type[object], str] = {}

    def reference(self, wire_type: type[object]) -> Schema:
        """A reference to the schema of an attrs class, which is made if it is new.

        Raises:
            Unreadable: an annotation in it has no meaning in JSON.
        """
        if wire_type not in self._names:
            name = self._names[wire_type] = self._free_name(wire_type)
            self.components[name] = {}  # a type may hold itself
            self.components[name] = self._object(wire_type)
        return {"$ref": f"#/components/schemas/{self._names[wire_type]}"}

    def _free_name(self, wire_type: type[object]) -> str:
        """The folder's name and the class's; where another class has taken that, the module's in full."""
        module = wire_type.__module__.split(".")
        names = [f"{module[-2:][0]}.{wire_type.__name__}", f"{wire_type.__module__}.{wire_type.__qualname__}"]
        names += [f"{names[1]}-{number}" for number in range(2, len(self._names) + 3)]
        legal = (re.sub(r"[^A-Za-z0-9._-]", "_", name) for name in names)
        return next(name for name in legal if name not in self.components)

    def _object(self, wire_type: type[object]) -> Schema:
        reader_of(cast(type, wire_type))  # refuses what the schema would only leave out
        properties: Schema = {}
        required: list[str] = []
        for field in fields_of(wire_type):
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
        annotation = bare(annotation)
        rule = rule_of(annotation)
        if rule is not None:
            return self._ruled(rule, get_args(annotation)[0])
        if takes_anything(annotation):
            return {}
        if annotation in SCALARS:
            return self._ruled(SCALARS[annotation], annotation)
        members = members_of(annotation)
        if members is not None:
            found = [self._value(member) for member in members]
            return found[0] if len(found) == 1 else {"anyOf": found}
        origin = get_origin(annotation) or annotation
        if origin is Literal:
            return {"enum": list(get_args(annotation))}
        if origin in ARRAYS:
            return self._array(annotation)
        if origin in OBJECTS:
            value = self._value((get_args(annotation) or (str, object))[1])
            return {"type": "object", **({"additionalProperties": value} if value else {})}
        return self.reference(cast(type[object], annotation))

    def _ruled(self, rule: Rule, inner: object) -> Schema:
        match rule:
            case Number(low, high):
                return {"type": "number", **_limits(minimum=_finite(low), maximum=_finite(high))}
            case Integer(low, high):
                return {"type": "integer", **_limits(minimum=low, maximum=high)}
            case String(one_of, non_empty, most_chars):
                if one_of:
                    return {"type": "string", "enum": list(one_of)}
                return {"type": "string", **_limits(minLength=1 if non_empty else None, maxLength=most_chars)}
            case Boolean():
                return {"type": "boolean"}
            case Object():
                return {"type": "object"}
            case Array(least, most, or_string):
                arrays = [one for one in (inner, *get_args(inner)) if (get_origin(one) or one) in ARRAYS]
                array = self._array(arrays[0]) if arrays else {"type": "array", "items": {}}
                array |= _limits(minItems=least or None, maxItems=most)
                return {"anyOf": [{"type": "string"}, array]} if or_string else array
        return {}

    def _array(self, annotation: object) -> Schema:
        *fixed, rest = item_types(annotation)
        if rest is Ellipsis:
            return {"type": "array", "items": self._value(fixed[0])}
        places = [self._value(one) for one in (*fixed, rest)]
        return {"type": "array", "prefixItems": places, "minItems": len(places), "maxItems": len(places)}


def _limits(**limits: object) -> Schema:
    return {name: limit for name, limit in limits.items() if limit is not None}


def _finite(bound: float) -> float | None:
    return None if math.isinf(bound) else bound
