"""Times of day as people write them: `8`, `8:30pm`, `quarter to nine`, `in the evening`. Contract: tasks 1."""

from msgspec import Struct

from antiphon.domain.durations import NUMBERS, UNITS
from antiphon.domain.errors import Invalid
from antiphon.domain.written_words import Sentence, digits

PARTS = {"morning": 8, "afternoon": 15, "evening": 19, "night": 22}
"""The hours of parts of the day that are named without an hour."""
DAY_HOUR = 9
"""The hour of a day that is named without any time of day."""
_NAMED = {"noon": 12, "midday": 12, "midnight": 0}
_FITTING = {"morning": range(12), "afternoon": range(12, 19), "evening": range(16, 24)}
"""Which hours a part of the day can have. A night has those of its evening, and those after midnight."""
_MINUTES = {**NUMBERS, "quarter": 15, "half": 30}
_BEFORE = frozenset(("five", "ten", "quarter", "twenty"))
"""What may stand before `to` and an hour without a unit."""
_HALVES = frozenset(("am", "pm"))
COUNTED = (UNITS - {"second", "minute", "hour", "day", "week", "month", "year"}) | frozenset(
    (
        *("euro", "euros", "eur", "dollar", "dollars", "usd", "pounds", "cents", "percent", "degrees", "people"),
        *("times", "points", "items", "pages", "places", "km", "kg", "x", "%", "€", "$", "£", "°"),
    )
)
"""A number before these is no time of day."""


class DayTime(Struct, frozen=True):
    hour: int
    minute: int
    is_shaped: bool = True
    """Whether it can be nothing else: `8:00` and `8am`, not `8`."""
    has_half: bool = False
    """Whether it says am or pm."""

    def __str__(self) -> str:
        return f"{self.hour:02}:{self.minute:02}"


Clocks = tuple[tuple[DayTime, ...], int]
"""Times of a day, and the place of the word after them."""


def clocks_at(sentence: Sentence, at: int, *, is_free: bool) -> Clocks | None:
    """The times that begin there: `at 8`, `8:30`, `at 8, 12 and 18`; a bare number only after `at`.

    `is_free` tells whether nothing stands before it that could make `8.30` a time. Raises `Invalid` (`invalid_time`)
    for a time that can be read in two ways.
    """
    has_at = sentence.at(at) in ("at", "@")
    start = at + has_at
    start += has_at and sentence.at(start) in ("exactly", "precisely")
    found = clock_at(sentence, start)
    if found is None or not (found[0].is_shaped or has_at):
        return None
    if is_free and not has_at and sentence.joined(start + 1) == ".":
        return None
    listed, end = _listed(sentence, found[1])
    end += sentence.at(end) in ("sharp", "exactly", "precisely")
    return (found[0], *listed), end


def clock_at(sentence: Sentence, at: int) -> tuple[DayTime, int] | None:
    """One time of day, without `at`."""
    word = sentence.at(at)
    if word in _NAMED:
        return (DayTime(_NAMED[word], 0), at + 1) if sentence.is_over(at + 1) else None
    if (related := _related(sentence, at)) is not None:
        return related
    hour = _hour(sentence, at)
    if hour is None:
        return None
    is_word = not word.isdigit()
    minute, end, is_shaped = _minute(sentence, at + 1, is_word=is_word)
    half, end = _half(sentence, end)
    if sentence.at(end) == "o'clock":
        is_shaped, end = True, end + 1
        half, end = _half(sentence, end) if half is None else (half, end)
    elif sentence.has(end, "o", "clock"):
        is_shaped, end = True, end + 2
    if half is not None and not 1 <= hour <= 12:
        return None
    hour = hour if half is None else hour % 12 + 12 * (half == "pm")
    is_shaped = is_shaped or half is not None
    if hour > 23 or minute > 59 or not sentence.is_over(end) or (not is_shaped and sentence.at(end) in COUNTED):
        return None
    return DayTime(hour, minute, is_shaped, half is not None), end


def part_at(sentence: Sentence, at: int, *, is_bare: bool) -> tuple[str, int] | None:
    """`in the morning`, `at night`; with `is_bare` also `morning`."""
    if sentence.has(at, "at", "night"):
        return "night", at + 2
    start = at + 2 if sentence.has(at, "in", "the") else at if is_bare else len(sentence.words)
    word = sentence.at(start)
    return (word, start + 1) if word in PARTS and sentence.is_over(start + 1) else None


def fitted(clock: DayTime, part: str | None, *, is_once: bool) -> DayTime:
    """The time in that part of the day: 8 in the evening is 20:00. Raises `Invalid` (`invalid_time`)."""
    if part is None:
        return clock
    is_open = not clock.has_half and 1 <= clock.hour <= 12
    if part == "night":
        hour = clock.hour % 12 + (12 if clock.hour % 12 >= 6 else 0) if is_open else clock.hour
        if is_once and hour < 6:
            raise Invalid(
                f"Time can be of two days: {clock.hour} at night. Write the day and '{DayTime(hour, clock.minute)}'.",
                code="invalid_time",
            )
        fits = hour >= 18 or hour < 6
    else:
        hour = clock.hour + 12 if is_open and part != "morning" and clock.hour < 12 else clock.hour
        fits = hour in _FITTING[part]
    if not fits:
        raise Invalid(f"Time of day does not fit: {str(clock)!r} is not in the {part}.", code="invalid_time")
    return DayTime(hour, clock.minute)


def _listed(sentence: Sentence, at: int) -> tuple[list[DayTime], int]:
    """More times of a list. A bare number counts only if it or one after it follows `and`."""
    listed: list[DayTime] = []
    waiting: list[DayTime] = []
    end = at
    while True:
        start = at + (sentence.at(at) == ",")
        has_and = sentence.at(start) in ("and", "&")
        if start == at and not has_and:
            return listed, end
        start += has_and
        found = clock_at(sentence, start + (sentence.at(start) in ("at", "@")))
        if found is None:
            return listed, end
        waiting.append(found[0])
        at = found[1]
        if found[0].is_shaped or has_and:
            listed, waiting, end = [*listed, *waiting], [], at


def _related(sentence: Sentence, at: int) -> tuple[DayTime, int] | None:
    """`half past 8`, `quarter to nine`, `10 minutes past 8`."""
    start = at + (sentence.has(at, "a", "quarter"))
    word = sentence.at(start)
    minutes = _MINUTES.get(word, digits(word, 2))
    has_unit = sentence.at(start + 1) in ("minutes", "minute", "min")
    side = start + 1 + has_unit
    if word == "half" and (hour := _hour(sentence, side)) is not None and sentence.at(start - 1) == "at":
        shown = sentence.written(start, side + 1)
        raise Invalid(f"Time can be read in two ways: {shown!r}. Write 'half past {hour}'.", code="invalid_time")
    is_to = sentence.at(side) == "to"
    if minutes is None or minutes > 59 or not (is_to or sentence.at(side) == "past"):
        return None
    if is_to and not has_unit and word not in _BEFORE:
        return None  # "8 to 10" is a span
    hour = _hour(sentence, side + 1)
    if hour is None or hour > 23:
        return None
    half, end = _half(sentence, side + 2)
    if half is not None and not 1 <= hour <= 12:
        return None
    hour = hour if half is None else hour % 12 + 12 * (half == "pm")
    total = (60 * hour + (-minutes if is_to else minutes)) % (24 * 60)
    return (DayTime(total // 60, total % 60, has_half=half is not None), end) if sentence.is_over(end) else None


def _hour(sentence: Sentence, at: int) -> int | None:
    word = sentence.at(at)
    number = NUMBERS.get(word, digits(word, 2))
    return None if number is None or (not word.isdigit() and number > 12) else number


def _minute(sentence: Sentence, at: int, *, is_word: bool) -> tuple[int, int, bool]:
    """Minutes, the place after them, and whether they make the number a time."""
    minute = sentence.joined(at + 1)
    if sentence.joined(at) in (":", ".") and len(minute) == 2 and (number := digits(minute, 2)) is not None:
        return number, at + 2, True
    if sentence.joined(at) == "h" and not is_word:
        number = digits(minute, 2)
        return (0, at + 1, True) if number is None or len(minute) != 2 else (number, at + 2, True)
    start = at + (sentence.joined(at) == "-")
    if is_word and (said := NUMBERS.get(sentence.at(start), 0)) >= 15 and sentence.at(start + 1) not in UNITS:
        return said, start + 1, True
    return 0, at, False


def _half(sentence: Sentence, at: int) -> tuple[str | None, int]:
    """`am` or `pm`, with or without dots."""
    if sentence.at(at) in _HALVES:
        return sentence.at(at), at + 1
    if sentence.at(at) in ("a", "p") and sentence.joined(at + 1) == "." and sentence.joined(at + 2) == "m":
        return f"{sentence.at(at)}m", at + 3 + (sentence.joined(at + 3) == ".")
    return None, at
