"""Dates as people write them: `24 Dec`, `December 24th`, `24.12.2026`, `24/12`. Contract: tasks 1.

A date that can be read in two ways is refused with both.
"""

import calendar
from datetime import date

from msgspec import Struct

from antiphon.domain.errors import Invalid
from antiphon.domain.written_words import Sentence, digits

MONTHS = tuple(name.lower() for name in calendar.month_name[1:])
MONTH_NUMBERS = (
    {name: number for number, name in enumerate(MONTHS, 1)}
    | {name[:3]: number for number, name in enumerate(MONTHS, 1)}
    | {"sept": 9}
)
_VERBS = frozenset(("may", "mar", "march"))
"""Names of months that begin ordinary sentences too."""
ENDINGS = frozenset(("st", "nd", "rd", "th"))
_LEAP = 2000
"""A year in which every date exists."""


class OnDate(Struct, frozen=True, tag=True):
    day: int
    month: int | None = None
    """None for the next month that has the day."""
    year: int | None = None
    """None for the next one that has the date."""
    weekday: int | None = None
    """The day of the week that is named besides."""


def date_at(sentence: Sentence, at: int, *, has_on: bool) -> tuple[OnDate, int] | None:
    """A date, or `15th` after `on`. Raises `Invalid` (`invalid_time`)."""
    first, second, third = (sentence.at(at), sentence.joined(at + 1), sentence.joined(at + 2))
    if first in MONTH_NUMBERS:
        return _month_first(sentence, at, has_on=has_on)
    number = digits(first, 4)
    if number is None:
        return None
    if second in ("-", "/") and len(first) == 4 and sentence.joined(at + 3) == second:
        return _checked(sentence, at, at + 5, (digits(sentence.joined(at + 4), 2), digits(third, 2), number))
    if second in ("/", "-") and len(first) <= 2:
        return _slashed(sentence, at, has_on=has_on)
    if second == "." and len(first) <= 2 and digits(third, 2) is not None:
        return _dotted(sentence, at, has_on=has_on)
    if len(first) > 2:
        return None
    has_ending = second in ENDINGS
    place = at + 1 + has_ending
    place += sentence.joined(place) == "." and sentence.at(place + 1) in MONTH_NUMBERS  # "24. December"
    month = place + (sentence.at(place) == "of")
    if sentence.at(month) in MONTH_NUMBERS:
        end = month + 1
        end += sentence.joined(end) == "." and sentence.at(month) not in MONTHS
        year, end = _year(sentence, end)
        return _checked(sentence, at, end, (number, MONTH_NUMBERS[sentence.at(month)], year))
    if has_ending and has_on:
        return _checked(sentence, at, place, (number, None, None))
    return None


def _month_first(sentence: Sentence, at: int, *, has_on: bool) -> tuple[OnDate, int] | None:
    """`december 24`, `Dec. 24th, 2026`."""
    place = at + 1 + (sentence.joined(at + 1) == ".")
    place += sentence.at(place) == "the"
    day = digits(sentence.at(place), 2)
    if day is None:
        return None
    has_ending = sentence.joined(place + 1) in ENDINGS
    year, end = _year(sentence, place + 1 + has_ending)
    is_plain = not (has_on or has_ending or year) and sentence.at(end) not in ("", ",", "at", "@")
    if not sentence.is_over(end) or (is_plain and sentence.at(at) in _VERBS):
        return None
    return _checked(sentence, at, end, (day, MONTH_NUMBERS[sentence.at(at)], year))


def _year(sentence: Sentence, at: int) -> tuple[int | None, int]:
    place = at + (sentence.at(at) == ",")
    year = digits(sentence.at(place), 4)
    is_year = year is not None and len(sentence.at(place)) == 4 and sentence.is_over(place + 1)
    return (year, place + 1) if is_year else (None, at)


def _slashed(sentence: Sentence, at: int, *, has_on: bool) -> tuple[OnDate, int] | None:
    """`24/12`, `24/12/2026`: only if it can be read in one way."""
    sign = sentence.joined(at + 1)
    one, two = digits(sentence.at(at), 2), digits(sentence.joined(at + 2), 2)
    year, end = None, at + 3
    if sentence.joined(at + 3) == sign:
        year, end = _short_year(sentence, at + 4), at + 5
    if one is None or two is None or not sentence.is_over(end) or (year is None and (sign == "-" or end != at + 3)):
        return None
    if not has_on and year is None and sentence.at(end) not in ("at", "@", ""):
        return None  # "5/6 of all"
    if one != two and max(one, two) <= 12:
        shown = sentence.written(at, end)
        ways = [f"{min(day, 31)} {MONTHS[month - 1].title()}" for day, month in ((one, two), (two, one)) if month]
        raise Invalid(
            f"Date can be read in two ways: {shown!r} is {' or '.join(ways)}. Write '{ways[0]}'.", code="invalid_time"
        )
    day, month = (two, one) if two > 12 else (one, two)
    return _checked(sentence, at, end, (day, month, year))


def _dotted(sentence: Sentence, at: int, *, has_on: bool) -> tuple[OnDate, int] | None:
    """`24.12.`, `24.12.2026`: the day first. Without its last dot it may be a time or a number."""
    end, year = at + 3, None
    if sentence.joined(end) == ".":
        year = _short_year(sentence, end + 1) if sentence.joined(end + 1) else None
        end += 1 if year is None else 2
    elif not has_on:
        return None
    return _checked(sentence, at, end, (digits(sentence.at(at), 2), digits(sentence.at(at + 2), 2), year))


def _short_year(sentence: Sentence, at: int) -> int | None:
    year = digits(sentence.joined(at), 4)
    if year is None or len(sentence.at(at)) not in (2, 4):
        return None
    return year + 2000 if len(sentence.at(at)) == 2 else year


def _checked(
    sentence: Sentence, at: int, end: int, parts: tuple[int | None, int | None, int | None]
) -> tuple[OnDate, int]:
    """The date of day, month and year. Raises `Invalid` (`invalid_time`) if there is none."""
    day, month, year = parts
    try:
        date(_LEAP if year is None else year, 1 if month is None else month, day or 0)
    except ValueError:
        shown = sentence.written(at, min(end, len(sentence.words)))[:40]
        raise Invalid(
            f"Date does not exist: {shown!r}. Write it as '31 January' or '2027-01-31'.", code="invalid_time"
        ) from None
    return OnDate(day or 0, month, year), end
