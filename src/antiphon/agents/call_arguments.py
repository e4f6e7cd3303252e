"""The arguments of a call in one form, so that what people read, what is stored and what runs are the same."""

import json
import re
from collections import Counter
from math import isfinite
from typing import cast

from msgspec import Struct

from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject, JsonValue

LONGEST_NAME = 80
"""Characters of a name that an error shows."""
_TOKENS = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^" \t\n\r]+')


class CallArguments(Struct, frozen=True):
    """Canonical: no name stands twice in an object, and no blanks stand outside strings."""

    text: str
    """JSON; strings and numbers as they were written."""
    values: JsonObject


def read_call_arguments(written: str) -> CallArguments:
    """Raises `Invalid` for what is no JSON object, and for a name that stands twice, at any depth.

    Readers take the first or the last of two values, so people could read one and the tool another. So could they with
    a number that is too large, and JSON has none that is not finite.
    """
    try:
        values: object = json.loads(
            written or "{}", object_pairs_hook=_named_once, parse_constant=_finite, parse_float=_finite
        )
    except (ValueError, RecursionError):
        values = None
    if not isinstance(values, dict):
        raise Invalid("The arguments are not a JSON object. Call again with an object.", code="invalid_arguments")
    text = "".join(_TOKENS.findall(written)) if written else "{}"
    return CallArguments(text, cast("JsonObject", values))


def _finite(written: str) -> float:
    number = float(written)
    if not isfinite(number):
        raise ValueError(f"{written!r} is not finite")
    return number


def _named_once(pairs: list[tuple[str, JsonValue]]) -> JsonObject:
    found = dict(pairs)
    if len(found) < len(pairs):
        twice = next(name for name, times in Counter(name for name, _ in pairs).items() if times > 1)
        raise Invalid(
            f"The arguments give a name twice: {twice[:LONGEST_NAME]!a}. Call again, with each name once.",
            code="invalid_arguments",
        )
    return found
