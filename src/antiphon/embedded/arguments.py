"""Arguments of the library's calls: values that no database can hold are refused by name, before anything is done."""

from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from functools import wraps
from inspect import signature
from itertools import chain
from typing import ParamSpec, TypeVar, cast

from msgspec import Struct

from antiphon.domain.errors import Invalid
from antiphon.incoming import MAX_NAME_LENGTH, MAX_VALUES, shortened

LEAST = -(2**63)
"""The least whole number that a call takes, and that JSON holds which can be stored and shown."""
GREATEST = 2**63 - 1
"""The greatest that a call takes."""
MOST = 2**53
"""Of rows: more than there are, with room for what is added to it."""
GREATEST_STORED = 2**64 - 1
"""The greatest inside such JSON."""

JUDGED_BY_TOOLS = "arguments"
"""The parameter that is not checked here: the tool's answer says what is wrong with it."""

P = ParamSpec("P")
R = TypeVar("R")


def checked(method: Callable[P, R]) -> Callable[P, R]:
    """The method, which raises `Invalid` with the name of an argument that cannot be stored or compared."""
    names = tuple(signature(method).parameters)

    @wraps(method)
    def call(*args: P.args, **kwargs: P.kwargs) -> R:
        for name, value in chain(zip(names, args, strict=False), kwargs.items()):
            if name != JUDGED_BY_TOOLS and (problem := _problem(name, value)):
                raise Invalid(f"Argument {problem}.", code="invalid_request")
        return method(*args, **kwargs)

    return call


def rows(limit: int, *, least: int = 1) -> int:
    """The limit as a number of rows that every database takes."""
    return min(max(limit, least), MOST)


def _problem(name: str, value: object) -> str | None:
    # Compared: `in range(…)` counts up to a member of an enumeration.
    if isinstance(value, int) and not LEAST <= value <= GREATEST:
        return f"{name!r} is beyond 64 bits: give a smaller number"
    if isinstance(value, datetime) and not _is_moment(value):
        return f"{name!r} is not a moment: give a datetime with a time zone, such as datetime.now(UTC)"
    pending: list[tuple[str, object]] = [(name, value)]
    seen = 0
    while pending:
        place, inner = pending.pop()
        seen += 1
        if seen > MAX_VALUES:
            return f"{name!r} holds more than {MAX_VALUES} values: give less"
        if isinstance(inner, str) and not _is_whole(inner):
            return f"{_shown(place)} holds half of a surrogate pair, which is no character: give valid Unicode"
        if isinstance(inner, int) and not LEAST <= inner <= GREATEST_STORED:
            return f"{_shown(place)} is beyond 64 bits: give a smaller number, or a text"
        pending += _inside(place, inner)
    return None


def _inside(place: str, value: object) -> Iterator[tuple[str, object]]:
    if isinstance(value, Mapping):
        for name, each in cast("Mapping[object, object]", value).items():
            yield place, name
            yield f"{place}.{name}", each
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            yield f"{place}.{name}", getattr(value, name)
    elif isinstance(value, list | tuple | set | frozenset):
        for at, each in enumerate(cast("list[object]", value)):
            yield f"{place}.{at}", each


def _is_whole(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_moment(value: datetime) -> bool:
    """Whether it is one moment, of a year that can be shown everywhere."""
    try:
        return value.tzinfo is not None and value.astimezone(UTC).year > 1
    except OverflowError:
        return False


def _shown(place: str) -> str:
    return ascii(shortened(place, MAX_NAME_LENGTH))
