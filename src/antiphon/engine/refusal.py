"""A unit's "no": returned, not raised, so that what the unit recorded commits."""

from typing import TypeVar

from msgspec import Struct

from antiphon.domain.errors import AntiphonError

T = TypeVar("T")


class Refusal(Struct, frozen=True):
    error: AntiphonError


def accepted(result: T | Refusal) -> T:
    """The unit's result; raises the error if it is a refusal."""
    if isinstance(result, Refusal):
        raise result.error
    return result
