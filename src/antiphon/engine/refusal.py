"""A unit's "no": returned, not raised, so that what the unit recorded commits."""

from dataclasses import dataclass
from typing import TypeVar

from antiphon.domain.errors import AntiphonError

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Refusal:
    error: AntiphonError


def accepted(result: T | Refusal) -> T:
    """The unit's result; raises the error if it is a refusal."""
    if isinstance(result, Refusal):
        raise result.error
    return result
