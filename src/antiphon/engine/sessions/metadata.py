"""How much metadata a session may have: every reader of the session gets it. Contract: sessions 3."""

from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject, JsonValue
from antiphon.store.codec import json_text

MAX_BYTES = 64 * 1024
"""As JSON, in UTF-8."""
MAX_NAMES = 100
"""Of all objects in it together."""
MAX_DEPTH = 5
"""Of objects and lists in each other, itself included."""


def size_of(metadata: JsonObject) -> int:
    """0 for none."""
    return len(json_text(metadata).encode()) if metadata else 0


def refuse_metadata(before: JsonObject, given: JsonObject) -> None:
    """Refuses metadata that a session would have then; what it has already may stay."""
    merged = {**before, **given}
    if merged == before:
        return
    names, depth = _counted(merged)
    size = size_of(merged) if depth <= MAX_DEPTH else 0
    if names <= MAX_NAMES and depth <= MAX_DEPTH and size <= MAX_BYTES:
        return
    raise Invalid(
        f"Metadata is too large: a session may have {MAX_NAMES} names, nested {MAX_DEPTH} deep at most, and "
        f"{MAX_BYTES} bytes of JSON. Keep the rest elsewhere, and a reference to it here.",
        code="invalid_request",
    )


def _counted(metadata: JsonObject) -> tuple[int, int]:
    """How many names it holds, and how deep it is nested; looks no deeper than one level too many."""
    names, depth = 0, 0
    level: list[JsonObject | list[JsonValue]] = [metadata]
    while level and depth <= MAX_DEPTH:
        within: list[JsonValue] = []
        for each in level:
            if isinstance(each, dict):
                names += len(each)
                within.extend(each.values())
            else:
                within.extend(each)
        depth, level = depth + 1, [each for each in within if isinstance(each, dict | list)]
    return names, depth
