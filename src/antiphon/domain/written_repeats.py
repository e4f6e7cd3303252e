"""Days that come again, as people write them: `daily`, `mondays`, `on the 1st of every month`. Contract: tasks 1."""

from msgspec import Struct

from antiphon.domain.errors import Invalid
from antiphon.domain.written_clocks import PARTS
from antiphon.domain.written_dates import ENDINGS, MONTH_NUMBERS, OnDate, date_at
from antiphon.domain.written_days import DAY_NUMBERS, SHORT, WEEKDAYS
from antiphon.domain.written_words import Sentence, digits

_GROUPS = {
    **dict.fromkeys(("weekday", "workday"), frozenset(range(5))),
    "weekend": frozenset((5, 6)),
    "day": frozenset(range(7)),
}
_WORKING = frozenset(("business", "working", "work", "week"))
_ORDINALS = {"first": 1, "second": 2, "third": 3, "fourth": 4, "fifth": 5}
_TO = frozenset(("to", "through", "thru", "-", "–"))
_EACH = frozenset(("every", "each"))
_YEARLY = frozenset(("yearly", "annually"))
_ADVERBS = {"daily": "day", "everyday": "day", "weekly": "week", "monthly": "month", **dict.fromkeys(_YEARLY, "year")}


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
    if word in DAY_NUMBERS:
        return frozenset((DAY_NUMBERS[word],)), False, at + 1 + (word in SHORT and sentence.joined(at + 1) == ".")
    return (frozenset((DAY_NUMBERS[single],)), True, at + 1) if single in WEEKDAYS else None


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
    weekday = None if ordinal is None else DAY_NUMBERS.get(sentence.at(place))
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
    if end is None and not (is_each and sentence.at(days[1] - 1) in ENDINGS):
        return None
    return Repeat(days=days[0]), end or days[1]


def _ordinal(sentence: Sentence, at: int) -> tuple[int | str | None, int]:
    """`first` to `fifth`, `1st` to `5th`, `last`; and the place after it."""
    word = sentence.at(at)
    if word == "last":
        return "L", at + 1
    number = digits(word, 1)
    if number is not None and 1 <= number <= 5 and sentence.joined(at + 1) in ENDINGS:
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
        has_ending = sentence.joined(place + 1) in ENDINGS
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
    if sentence.at(start) not in MONTH_NUMBERS and not sentence.at(start).isdigit():
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
