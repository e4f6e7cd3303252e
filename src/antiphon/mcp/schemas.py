"""The schema of a tool's arguments in the form that every provider takes: one object, without alternatives at its root.

Providers refuse `anyOf`, `oneOf`, `allOf` and `$ref` there. Alternatives are joined: all their properties, of which
only those are required that each of them requires. The server checks the arguments itself.
"""

from collections.abc import Sequence

from antiphon.domain.message import JsonObject, JsonValue

_ALTERNATIVES = ("anyOf", "oneOf")
_LEFT_OUT = frozenset({*_ALTERNATIVES, "allOf", "$ref", "type", "properties", "required", "not", "enum", "const"})
_NOT_OBJECTS = "one of the alternatives of its arguments is not an object"
MAX_PARTS = 100
"""Alternatives and references at the root that are followed."""
MAX_NAMES = 100_000
"""Names that all parts have together; a part counts as often as it is referred to."""


class UnreadableSchema(ValueError):
    """The schema is not one of an object; the message says why, after the words "left out because"."""


def object_schema(schema: JsonValue) -> JsonObject:
    """The schema, mended. Raises `UnreadableSchema`."""
    if schema is None:
        return {"type": "object", "properties": {}}
    if not isinstance(schema, dict) or not _is_object(schema):
        raise UnreadableSchema("its arguments are not an object")
    properties, required = _Joining(schema).join(schema)
    mended: JsonObject = {name: value for name, value in schema.items() if name not in _LEFT_OUT}
    mended |= {"type": "object", "properties": properties}
    if required:
        mended["required"] = list[JsonValue](required)
    return mended


def _is_object(schema: JsonObject) -> bool:
    kind = schema.get("type", "object")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


class _Joining:
    """Joins the alternatives at the root of one schema."""

    def __init__(self, root: JsonObject) -> None:
        self._root = root
        self._parts_left = MAX_PARTS
        self._names_left = MAX_NAMES

    def join(self, schema: JsonObject) -> tuple[JsonObject, dict[str, None]]:
        """Properties, and the names of those that are required in every alternative, in their order."""
        if not _is_object(schema):
            raise UnreadableSchema(_NOT_OBJECTS)
        properties, required = _properties(schema), dict.fromkeys(_names(schema.get("required")))
        self._parts_left -= 1
        self._names_left -= len(properties) + len(required)
        if self._parts_left < 0 or self._names_left < 0:
            raise UnreadableSchema("its arguments have too many alternatives")
        for part in [*_parts(schema, "allOf"), *self._referred(schema)]:
            more, more_required = self.join(part)
            properties = more | properties
            required |= more_required
        for kind in _ALTERNATIVES:
            alternatives = [self.join(part) for part in _parts(schema, kind)]
            for more, _ in alternatives:
                for name, value in more.items():
                    properties[name] = value if name not in properties else _either(properties[name], value)
            if alternatives:
                common = set(alternatives[0][1]).intersection(*(names for _, names in alternatives))
                required |= dict.fromkeys(name for name in alternatives[0][1] if name in common)
        return properties, required

    def _referred(self, schema: JsonObject) -> Sequence[JsonObject]:
        """What `$ref` names within the same schema."""
        reference = schema.get("$ref")
        if reference is None:
            return ()
        place: JsonValue = self._root
        for name in str(reference).removeprefix("#").split("/")[1:]:
            place = place.get(name) if isinstance(place, dict) else None
        if not isinstance(place, dict):
            raise UnreadableSchema("its arguments refer to a schema that it does not hold")
        return (place,)


def _properties(schema: JsonObject) -> JsonObject:
    found = schema.get("properties")
    if not isinstance(found, dict):
        return {}
    return {name: value if isinstance(value, dict | bool) else {} for name, value in found.items()}


def _names(value: JsonValue) -> list[str]:
    found = value if isinstance(value, list) else []
    return [name for name in found if isinstance(name, str)]


def _either(one: JsonValue, other: JsonValue) -> JsonValue:
    if one == other:
        return one
    known = one["anyOf"] if isinstance(one, dict) and set(one) == {"anyOf"} else [one]
    alternatives = known if isinstance(known, list) else [one]
    return one if other in alternatives else {"anyOf": [*alternatives, other]}


def _parts(schema: JsonObject, name: str) -> Sequence[JsonObject]:
    found = schema.get(name)
    parts = found if isinstance(found, list) else []
    objects = [part for part in parts if isinstance(part, dict)]
    if len(objects) < len(parts):
        raise UnreadableSchema(_NOT_OBJECTS)
    return objects
