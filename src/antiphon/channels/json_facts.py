"""What platforms send as JSON: any of it may be missing, or of another form. Pure."""

from typing import Any, cast

Json = dict[str, Any]


def find(facts: object, *path: str) -> object:
    """What stands there; None if nothing does."""
    for name in path:
        facts = cast("Json", facts).get(name) if isinstance(facts, dict) else None
    return facts


def find_object(facts: object, *path: str) -> Json:
    """The object that stands there; empty if there is none."""
    found = find(facts, *path)
    return cast("Json", found) if isinstance(found, dict) else {}


def words(facts: object, *path: str) -> str:
    """The text that stands there, in whole characters; empty if there is none."""
    found = find(facts, *path)
    return whole(found) if isinstance(found, str) else ""


def whole(text: str) -> str:
    """The text, in which halves of pairs of surrogates, which no text of ours may have, are replaced."""
    return text if text.isascii() else text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def all_whole(data: object) -> object:
    """The data with all their texts in whole characters."""
    if isinstance(data, str):
        return whole(data)
    if isinstance(data, dict):
        return {name: all_whole(each) for name, each in cast("dict[str, object]", data).items()}
    return [all_whole(each) for each in cast("list[object]", data)] if isinstance(data, list) else data
