"""Arguments that a model gives as `null`, which is how many say that they leave them out."""

from antiphon.domain.message import JsonObject, JsonValue


def without_nulls(arguments: JsonObject, parameters: JsonObject) -> JsonObject:
    """The arguments without each `null` for an optional one that takes no `null`."""
    if all(value is not None for value in arguments.values()):
        return arguments
    properties, required = parameters.get("properties"), parameters.get("required")
    known = properties if isinstance(properties, dict) else {}
    needed = required if isinstance(required, list) else []
    return {
        name: value
        for name, value in arguments.items()
        if value is not None or name not in known or name in needed or _takes_null(known[name])
    }


def _takes_null(schema: JsonValue) -> bool:
    """Whether the schema names `null`, or names no type at all."""
    if not isinstance(schema, dict):
        return True
    kinds = schema.get("type")
    choices = [each for name in ("anyOf", "oneOf") if isinstance(found := schema.get(name), list) for each in found]
    if choices:
        return any(_takes_null(each) for each in choices)
    values = schema.get("enum")
    if isinstance(values, list):
        return None in values
    return "null" in kinds if isinstance(kinds, list) else kinds in (None, "null") and "$ref" not in schema
