"""One day, as people write it: `tomorrow`, `next friday`, `on 24 december`. Contract: tasks 1.

Days are read without knowing which day it is; `date_of` adds that.
"""

import calendar
from datetime import date, datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.errors import Invalid
from antiphon.domain.written_clocks import PARTS
from antiphon.domain.written_dates import OnDate, date_at
from antiphon.domain.written_words import Sentence

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
SHORT = {"mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5, "sun": 6}
DAY_NUMBERS = {name: number for number, name in enumerate(WEEKDAYS)} | SHORT
_TOMORROW = frozenset(("tomorrow", "tmrw", "tmr"))


class Which(StrEnum):
    COMING = "coming"
    """The first one that is not over, today's included."""
    THIS = "this"
    """The nearest one, today's included even if it is over."""
    NEXT = "next"
    """The first one after today."""
    NEXT_WEEK = "next week"
    """The one of the week that begins on Monday."""


class InDays(Struct, frozen=True, tag=True):
    days: int


class OnWeekday(Struct, frozen=True, tag=True):
    number: int
    """Monday is 0."""
    which: Which = Which.COMING


class NextStart(Struct, frozen=True, tag=True):
    """The first day of the next week, month or year."""

    unit: str


WrittenDay = InDays | OnWeekday | OnDate | NextStart


class Days(Struct, frozen=True):
    """A day, perhaps with a part of it."""

    day: WrittenDay
    part: str | None = None


def date_of(day: WrittenDay, clock: str, now: datetime) -> date:
    """The date, seen from that local time; `clock` decides whether today's is over. Raises `Invalid`."""
    today, is_over = now.date(), f"{now:%H:%M}" >= clock
    match day:
        case InDays():
            return _shifted(today, day.days)
        case OnWeekday(which=Which.NEXT_WEEK):
            return _shifted(today, 7 - today.weekday() + day.number)
        case OnWeekday():
            ahead = (day.number - today.weekday()) % 7
            rolls = day.which is Which.NEXT or (day.which is Which.COMING and is_over)
            return _shifted(today, ahead or 7 * rolls)
        case NextStart(unit="week"):
            return _shifted(today, 7 - today.weekday())
        case NextStart(unit="month"):
            return _shifted(today.replace(day=1), 32).replace(day=1)
        case NextStart():
            return date(min(today.year + 1, date.max.year), 1, 1)
        case OnDate():
            found = _next_date(day, _shifted(today, is_over))
            if day.weekday not in (None, found.weekday()):
                raise Invalid(
                    f"Date is not a {WEEKDAYS[day.weekday].title()}: {found:%a %Y-%m-%d}. Leave out one of them.",
                    code="invalid_time",
                )
            return found


def _shifted(day: date, days: int) -> date:
    try:
        return day + timedelta(days=days)
    except OverflowError:
        raise Invalid("Time is too far ahead.", code="invalid_time") from None


def _next_date(day: OnDate, first: date) -> date:
    """The first such date from `first` on; a date with a year is itself, past or not."""
    if day.year is not None and day.month is not None:
        return date(day.year, day.month, day.day)
    months = range(first.month - 1, first.month - 1 + 12 * 9)  # a leap year may be eight years away
    for number in months:
        year, month = first.year + number // 12, number % 12 + 1
        if year > date.max.year or (day.month or month) != month or day.day > calendar.monthrange(year, month)[1]:
            continue
        if (found := date(year, month, day.day)) >= first:
            return found
    raise Invalid("Date does not come again.", code="invalid_time")


def day_at(sentence: Sentence, at: int, *, is_first: bool) -> tuple[Days, int] | None:
    """One day: `tomorrow`, `on friday`, `the day after tomorrow`, `next week`, `24 december`.

    `is_first` tells whether no time stands before it. Raises `Invalid` (`invalid_time`) for a date that does not
    exist or that can be read in two ways.
    """
    start = at + (sentence.at(at) == "on" or (sentence.at(at) == "at" and len(sentence.at(at + 1)) == 4))
    start += sentence.at(start) == "the"
    if (found := _near(sentence, start)) is not None:
        return found
    if (weekday := _weekday(sentence, at, start, is_first=is_first)) is not None:
        return weekday
    dated = date_at(sentence, start, has_on=start > at)
    return None if dated is None or not sentence.is_over(dated[1]) else (Days(dated[0]), dated[1])


def _near(sentence: Sentence, at: int) -> tuple[Days, int] | None:
    word, following = sentence.at(at), sentence.at(at + 1)
    if not sentence.is_over(at + 1):
        return None
    if word in _TOMORROW:
        return Days(InDays(1)), at + 1
    if word in ("today", "tonight"):
        return Days(InDays(0), "evening" if word == "tonight" else None), at + 1
    if sentence.has(at, "day", "after") and sentence.at(at + 2) in _TOMORROW and sentence.is_over(at + 3):
        return Days(InDays(2)), at + 3
    if word == "this" and following in PARTS and sentence.is_over(at + 2):
        return Days(InDays(0), following), at + 2
    if word == "next" and following in ("week", "month", "year") and sentence.is_over(at + 2):
        number, end = _weekday_number(sentence, at + 2 + (sentence.at(at + 2) == "on"))
        if following == "week" and number is not None:
            return Days(OnWeekday(number, Which.NEXT_WEEK)), end
        return Days(NextStart(following)), at + 2
    return None


def _weekday(sentence: Sentence, at: int, start: int, *, is_first: bool) -> tuple[Days, int] | None:
    which, place = Which.COMING, start
    if sentence.at(place) in ("this", "next", "coming"):
        which = Which.NEXT if sentence.at(place) == "next" else Which.THIS
        place += 1 + sentence.has(place, "this", "coming")
    number, end = _weekday_number(sentence, place)
    if number is None or (not is_first and place == at and sentence.at(place) in SHORT):
        return None  # "at 8 sun protection"
    if sentence.has(end, "next", "week") and sentence.is_over(end + 2):
        return Days(OnWeekday(number, Which.NEXT_WEEK)), end + 2
    place = end + (sentence.at(end) == ",")
    place += sentence.at(place) == "the"
    dated = date_at(sentence, place, has_on=sentence.at(place - 1) == "the") if which is Which.COMING else None
    if dated is not None and sentence.is_over(dated[1]):
        return Days(replace(dated[0], weekday=number)), dated[1]
    return Days(OnWeekday(number, which)), end


def _weekday_number(sentence: Sentence, at: int) -> tuple[int | None, int]:
    number = DAY_NUMBERS.get(sentence.at(at))
    end = at + 1 + (sentence.at(at) in SHORT and sentence.joined(at + 1) == ".")
    return (number, end) if number is not None and sentence.is_over(end) else (None, at)
