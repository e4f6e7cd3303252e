"""Fields of JSON from a harness, read without trust: a field of another type counts as absent."""

from collections.abc import Mapping, Sequence
from typing import cast

from antiphon.domain.message import JsonObject, JsonValue


def text_in(found: Mapping[str, JsonValue], name: str) -> str | None:
    value = found.get(name)
    return value if isinstance(value, str) else None


def object_in(found: Mapping[str, JsonValue], name: str) -> JsonObject:
    value = found.get(name)
    return cast(JsonObject, value) if isinstance(value, dict) else {}


def objects_in(found: Mapping[str, JsonValue], name: str) -> Sequence[JsonObject]:
    value = found.get(name)
    items = cast(list[object], value) if isinstance(value, list) else []
    return [cast(JsonObject, item) for item in items if isinstance(item, dict)]


def count_in(found: Mapping[str, JsonValue], *names: str) -> int | None:
    """The first of the names that holds a whole number that is not negative."""
    for name in names:
        value = found.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return value
    return None
