"""Days, dates and days that come again, as people write them: `next friday`, `24 Dec`, `weekdays`. Contract: tasks 1.

They are read without knowing which day it is; `date_of` adds that.
"""

import calendar
from datetime import date, datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.errors import Invalid
from antiphon.domain.written_clocks import PARTS
from antiphon.domain.written_words import Sentence, digits

WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_SHORT = {"mon": 0, "tue": 1, "tues": 1, "wed": 2, "thu": 3, "thur": 3, "thurs": 3, "fri": 4, "sat": 5, "sun": 6}
_DAY = {name: number for number, name in enumerate(WEEKDAYS)} | _SHORT
_GROUPS = {
    **dict.fromkeys(("weekday", "workday"), frozenset(range(5))),
    "weekend": frozenset((5, 6)),
    "day": frozenset(range(7)),
}
_WORKING = frozenset(("business", "working", "work", "week"))
MONTHS = tuple(name.lower() for name in calendar.month_name[1:])
_MONTH = (
    {name: number for number, name in enumerate(MONTHS, 1)}
    | {name[:3]: number for number, name in enumerate(MONTHS, 1)}
    | {"sept": 9}
)
_VERBS = frozenset(("may", "mar", "march"))
"""Names of months that begin ordinary sentences too."""
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5}
_ENDINGS = frozenset(("st", "nd", "rd", "th"))
_TO = frozenset(("to", "through", "thru", "-", "–"))
_EACH = frozenset(("every", "each"))
_YEARLY = frozenset(("yearly", "annually"))
_ADVERBS = {"daily": "day", "everyday": "day", "weekly": "week", "monthly": "month", **dict.fromkeys(_YEARLY, "year")}
_TOMORROW = frozenset(("tomorrow", "tmrw", "tmr"))
_LEAP = 2000
"""A year in which every date exists."""


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


class OnDate(Struct, frozen=True, tag=True):
    day: int
    month: int | None = None
    """None for the next month that has the day."""
    year: int | None = None
    """None for the next one that has the date."""
    weekday: int | None = None
    """The day of the week that is named besides."""


class NextStart(Struct, frozen=True, tag=True):
    """The first day of the next week, month or year."""

    unit: str


WrittenDay = InDays | OnWeekday | OnDate | NextStart


class Days(Struct, frozen=True):
    """A day, perhaps with a part of it."""

    day: WrittenDay
    part: str | None = None


class Repeat(Struct, frozen=True, kw_only=True):
    """Days that come again, as three fields of a cron expression."""

    days: str = "*"
    months: str = "*"
    weekdays: str = "*"
    part: str | None = None

    @property
    def is_daily(self) -> bool:
        return (self.days, self.months, self.weekdays) == ("*", "*", "*")


DAILY = Repeat()


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
    if number is None or (not is_first and place == at and sentence.at(place) in _SHORT):
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
    number = _DAY.get(sentence.at(at))
    end = at + 1 + (sentence.at(at) in _SHORT and sentence.joined(at + 1) == ".")
    return (number, end) if number is not None and sentence.is_over(end) else (None, at)


def date_at(sentence: Sentence, at: int, *, has_on: bool) -> tuple[OnDate, int] | None:
    """A date, or `15th` after `on`. Raises `Invalid` (`invalid_time`)."""
    first, second, third = (sentence.at(at), sentence.joined(at + 1), sentence.joined(at + 2))
    if first in _MONTH:
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
    has_ending = second in _ENDINGS
    place = at + 1 + has_ending
    place += sentence.joined(place) == "." and sentence.at(place + 1) in _MONTH  # "24. December"
    month = place + (sentence.at(place) == "of")
    if sentence.at(month) in _MONTH:
        end = month + 1
        end += sentence.joined(end) == "." and sentence.at(month) not in MONTHS
        year, end = _year(sentence, end)
        return _checked(sentence, at, end, (number, _MONTH[sentence.at(month)], year))
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
    has_ending = sentence.joined(place + 1) in _ENDINGS
    year, end = _year(sentence, place + 1 + has_ending)
    is_plain = not (has_on or has_ending or year) and sentence.at(end) not in ("", ",", "at", "@")
    if not sentence.is_over(end) or (is_plain and sentence.at(at) in _VERBS):
        return None
    return _checked(sentence, at, end, (day, _MONTH[sentence.at(at)], year))


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


def repeat_at(sentence: Sentence, at: int) -> tuple[Repeat, int] | None:
    """Days that come again: `daily`, `every monday and thursday`, `weekdays`, `on the 1st of every month`.

    Raises `Invalid` (`invalid_time`) for days that no schedule expresses.
    """
    if sentence.at(at) == "nightly" and sentence.is_over(at + 1):
        return Repeat(part="night"), at + 1
    unit, end = _unit(sentence, at)
    match unit:
        case "day":
            return DAILY, end
        case "week":
            weekdays = _weekdays(sentence, end + (sentence.at(end) == "on"))
            return None if weekdays is None else (Repeat(weekdays=weekdays[0]), weekdays[2])
        case "month":
            return _monthly(sentence, end)
        case "year":
            return _yearly(sentence, end)
        case _:
            pass
    if sentence.at(at) in _EACH:
        return _each(sentence, at + 1)
    return _in_month(sentence, at, is_each=False) or _plural(sentence, at) or _date_each_year(sentence, at)


def _unit(sentence: Sentence, at: int) -> tuple[str | None, int]:
    """What `monthly`, `every month` and `once a month` are made of, and the place after it."""
    if (unit := _ADVERBS.get(sentence.at(at))) is not None and sentence.is_over(at + 1):
        return unit, at + 1
    start = at + (sentence.at(at) == "once")
    start += sentence.at(start) in _EACH or (start > at and sentence.at(start) == "a")
    start += sentence.at(start) == "single"
    is_unit = start > at + (sentence.at(at) == "once") and sentence.at(start) in _ADVERBS.values()
    if not is_unit or not sentence.is_over(start + 1) or sentence.at(start + 1) in ("day", "days"):
        return None, at
    return sentence.at(start), start + 1


def _each(sentence: Sentence, at: int) -> tuple[Repeat, int] | None:
    """What follows `every`."""
    word = sentence.at(at)
    if word in PARTS and sentence.is_over(at + 1):
        return Repeat(part=word), at + 1
    if (found := _in_month(sentence, at, is_each=True)) is not None:
        return found
    if (dated := date_at(sentence, at, has_on=True)) is not None and dated[0].month is not None:
        return _of_date(sentence, at, dated)
    weekdays = _weekdays(sentence, at)
    return None if weekdays is None else (Repeat(weekdays=weekdays[0]), weekdays[2])


def _plural(sentence: Sentence, at: int) -> tuple[Repeat, int] | None:
    """`mondays`, `on weekdays`, `monday to friday`: they come again without `every`."""
    is_weekends = sentence.has(at, "at", "weekends")
    start = at + (is_weekends or sentence.at(at) in ("on", "from"))
    weekdays = None if sentence.at(start) == "days" else _weekdays(sentence, start)
    return None if weekdays is None or not weekdays[1] else (Repeat(weekdays=weekdays[0]), weekdays[2])


def _weekdays(sentence: Sentence, at: int) -> tuple[str, bool, int] | None:
    """The field of a cron expression, whether the first name is plural or a span, and the place after them."""
    found: set[int] = set()
    is_plural, end, place = False, at, at
    while (item := _span(sentence, place)) is not None:
        numbers, is_many, end = item
        found |= numbers
        is_plural |= is_many and place == at
        place = end + (sentence.at(end) == ",")
        place += sentence.at(place) in ("and", "&", "/")
        if place == end or len(found) == 7:
            break
        place += sentence.at(place) in ("on", *_EACH)
    return (_field(found), is_plural, end) if found else None


def _span(sentence: Sentence, at: int) -> tuple[frozenset[int], bool, int] | None:
    """One name, or `monday to friday`."""
    item = _name(sentence, at)
    if item is None:
        return None
    numbers, _, end = item
    last = _name(sentence, end + 1) if sentence.at(end) in _TO and len(numbers) == 1 else None
    if last is not None and len(last[0]) == 1 and (sentence.joined(end) or sentence.at(end) not in ("-", "–")):
        begin, stop = min(numbers), min(last[0])
        return frozenset((begin + day) % 7 for day in range((stop - begin) % 7 + 1)), True, last[2]
    return item if sentence.is_over(end) or sentence.joined(end) == "/" else None


def _name(sentence: Sentence, at: int) -> tuple[frozenset[int], bool, int] | None:
    word = sentence.at(at)
    place = at + 1 + (sentence.joined(at + 1) == "-")
    if word in _WORKING and sentence.at(place) in ("day", "days"):
        return _GROUPS["weekday"], sentence.at(place) == "days", place + 1
    single = word.removesuffix("s")
    if word in _GROUPS or single in _GROUPS:
        return _GROUPS.get(word) or _GROUPS[single], word not in _GROUPS, at + 1
    if word in _DAY:
        return frozenset((_DAY[word],)), False, at + 1 + (word in _SHORT and sentence.joined(at + 1) == ".")
    return (frozenset((_DAY[single],)), True, at + 1) if single in WEEKDAYS else None


def _field(numbers: set[int]) -> str:
    """Days of the week as cron numbers them, with Sunday as 0."""
    days = sorted((number + 1) % 7 for number in numbers)
    if len(days) == 7:
        return "*"
    if len(days) > 2 and days[-1] - days[0] == len(days) - 1:
        return f"{days[0]}-{days[-1]}"
    return ",".join(map(str, days))


def _in_month(sentence: Sentence, at: int, *, is_each: bool) -> tuple[Repeat, int] | None:
    """`the 1st and 15th of every month`, `last day of the month`, `first monday of every month`."""
    start = at if is_each else at + (sentence.at(at) == "on")
    start += sentence.at(start) == "the"
    ordinal, place = _ordinal(sentence, start)
    weekday = None if ordinal is None else _DAY.get(sentence.at(place))
    if weekday is not None and sentence.is_over(place + 1):
        end = _of_month(sentence, place + 1)
        if end is None and is_each and ordinal not in (1, "L"):
            raise _two_ways(sentence, at, place + 1)
        if end is None and not is_each:
            return None
        number = (weekday + 1) % 7
        weekdays = f"{number}L" if ordinal == "L" else f"{number}#{ordinal}"
        return Repeat(weekdays=weekdays), end or place + 1
    days = _month_days(sentence, start, is_bare=False)
    if days is None:
        return None
    end = _of_month(sentence, days[1])
    if end is None and not (is_each and sentence.at(days[1] - 1) in _ENDINGS):
        return None
    return Repeat(days=days[0]), end or days[1]


def _ordinal(sentence: Sentence, at: int) -> tuple[int | str | None, int]:
    """`first` to `fifth`, `1st` to `5th`, `last`; and the place after it."""
    word = sentence.at(at)
    if word == "last":
        return "L", at + 1
    number = digits(word, 1)
    if number is not None and 1 <= number <= 5 and sentence.joined(at + 1) in _ENDINGS:
        return number, at + 2
    return _ORDINALS.get(word), at + 1


def _month_days(sentence: Sentence, at: int, *, is_bare: bool) -> tuple[str, int] | None:
    """The field of a cron expression: `1st`, `1st and 15th`, `last day`; with `is_bare` also `15`."""
    found: list[int] = []
    end = place = at
    while True:
        place += sentence.at(place) == "the"
        word, number = sentence.at(place), digits(sentence.at(place), 2)
        if word == "last" and sentence.at(place + 1) == "day":
            return ("L", place + 2) if not found else None
        has_ending = sentence.joined(place + 1) in _ENDINGS
        number = _ORDINALS.get(word) if number is None or not (has_ending or is_bare) else number
        if number is None or not sentence.is_over(place + 1 + has_ending) or not 1 <= number <= 31:
            break
        found.append(number)
        end = place + 1 + has_ending
        place = end + (sentence.at(end) == ",")
        place += sentence.at(place) in ("and", "&")
        if place == end:
            break
    end += bool(found) and sentence.at(end) == "day"
    return (",".join(map(str, sorted(set(found)))), end) if found else None


def _of_month(sentence: Sentence, at: int) -> int | None:
    """The place after `of the month`, `of every month`, `each month`; None if that does not stand there."""
    place = at + (sentence.at(at) in ("of", "in"))
    is_named = sentence.at(place) in _EACH or (place > at and sentence.at(place) in ("the", "a"))
    return place + 2 if is_named and sentence.at(place + 1) == "month" and sentence.is_over(place + 2) else None


def _monthly(sentence: Sentence, at: int) -> tuple[Repeat, int]:
    """What follows `monthly` or `every month`; the first day if nothing does."""
    place = at + (sentence.at(at) == "on")
    weekday = _in_month(sentence, place, is_each=True) if place > at else None
    if weekday is not None and weekday[0].weekdays != "*":
        return weekday
    days = _month_days(sentence, place, is_bare=place > at)
    return (Repeat(days="1"), at) if days is None else (Repeat(days=days[0]), days[1])


def _yearly(sentence: Sentence, at: int) -> tuple[Repeat, int] | None:
    start = at + (sentence.at(at) == "on")
    start += sentence.at(start) == "the"
    dated = date_at(sentence, start, has_on=True)
    return None if dated is None else _of_date(sentence, start, dated)


def _date_each_year(sentence: Sentence, at: int) -> tuple[Repeat, int] | None:
    """`24 december every year`."""
    start = at + (sentence.at(at) == "on")
    start += sentence.at(start) == "the"
    if sentence.at(start) not in _MONTH and not sentence.at(start).isdigit():
        return None
    dated = date_at(sentence, start, has_on=True)
    if dated is None or not sentence.is_over(dated[1]):
        return None
    place = dated[1]
    if sentence.at(place) in _YEARLY:
        return _of_date(sentence, start, (dated[0], place), end=place + 1)
    if sentence.at(place) in _EACH and sentence.at(place + 1) == "year":
        return _of_date(sentence, start, (dated[0], place), end=place + 2)
    return None


def _of_date(
    sentence: Sentence, at: int, dated: tuple[OnDate, int], end: int | None = None
) -> tuple[Repeat, int] | None:
    day, place = dated
    if day.month is None or not sentence.is_over(place):
        return None
    if day.year is not None:
        shown = sentence.written(at, place)
        raise Invalid(
            f"Date has a year, and comes once: {shown!r}. Leave out the year or 'every'.", code="invalid_time"
        )
    return Repeat(days=str(day.day), months=str(day.month)), place if end is None else end


def _two_ways(sentence: Sentence, at: int, end: int) -> Invalid:
    shown = sentence.written(at, end)
    return Invalid(
        f"Time can be read in two ways: 'every {shown}' is a week of the month, or a pause of weeks, which no task "
        f"can make. Write 'every {shown} of the month'.",
        code="invalid_time",
    )
