"""Whether a name is one slip of the keyboard away from another."""

from collections.abc import Iterable

MOST_LOOKED_AT = 500
"""How many known names a name is compared with; more are not known anywhere."""


def nearest(name: str, known: Iterable[str]) -> str | None:
    """The first of the known names that is one edit away, or differs in case alone; None if none is."""
    return next((each for _, each in zip(range(MOST_LOOKED_AT), known, strict=False) if is_near(name, each)), None)


def is_near(one: str, other: str) -> bool:
    """Whether at most one letter is missing, added, changed, or exchanged with its neighbour; case aside.

    Takes time in proportion to the length of the names.
    """
    one, other = one.casefold(), other.casefold()
    if len(one) > len(other):
        one, other = other, one
    start = next((at for at, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), len(one))
    left, right = one[start:], other[start:]
    if len(one) < len(other):
        return left == right[1:]
    is_swapped = left[:2] == right[1::-1] and left[2:] == right[2:]
    return left[1:] == right[1:] or is_swapped
