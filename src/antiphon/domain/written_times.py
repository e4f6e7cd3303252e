"""When a task is to fire, as a person writes it: `every weekday at 8`, `in 10 minutes`. Contract: tasks 1, channels 3.

Everything is read without knowing the time or the zone; `schedule_of` adds both. A phrase is a row of parts in any
order: days, times of day, a part of the day, a zone.
"""

import re
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.durations import duration_at, duration_text, is_days, parse_duration
from antiphon.domain.errors import Invalid
from antiphon.domain.schedule import At, Schedule, parse_at, parse_cron, parse_every, parse_zone
from antiphon.domain.written_clocks import DAY_HOUR, PARTS, DayTime, clocks_at, fitted, part_at
from antiphon.domain.written_days import Days, InDays, WrittenDay, date_of, day_at
from antiphon.domain.written_repeats import DAILY, Repeat, repeat_at
from antiphon.domain.written_words import Sentence
from antiphon.domain.written_zones import zone_at


class WrittenKind(StrEnum):
    EVERY = "every"
    AT = "at"
    IN = "in"
    """Once, after a duration."""
    CRON = "cron"


class WrittenTime(Struct, frozen=True, kw_only=True):
    """A trigger before it is known where and when it was written."""

    kind: WrittenKind
    text: str
    day: WrittenDay | None = None
    """Of `at`: the day of the time in `text`; None if the text says it, or for the next such time."""
    zone: str | None = None
    """None for that of the settings."""


class TimeParts(Struct, frozen=True, kw_only=True):
    """What a phrase says, before it is known whether that makes a time."""

    stated: WrittenTime | None = None
    """A whole date and time, as programs write them."""
    interval: timedelta | None = None
    delay: timedelta | None = None
    repeat: Repeat | None = None
    day: Days | None = None
    part: str | None = None
    clocks: tuple[DayTime, ...] = ()
    zone: str | None = None
    has_zone: bool = False

    @property
    def has_day(self) -> bool:
        return any(each is not None for each in (self.stated, self.interval, self.delay, self.repeat, self.day))

    @property
    def part_of_day(self) -> str | None:
        days = self.repeat or self.day
        return self.part or (None if days is None else days.part)

    @property
    def takes_clock(self) -> bool:
        """Whether a time of day could still be added: a day has none yet."""
        if self.clocks or self.stated is not None:
            return False
        length = self.delay if self.interval is None else self.interval
        return length is None or is_days(length)

    @property
    def is_once(self) -> bool:
        return self.interval is None and self.repeat is None


class Phrase(Struct, frozen=True):
    """A time within a sentence, from the word `start` to before the word `end`."""

    start: int
    end: int
    parts: TimeParts


_STATED = re.compile(
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{1,2}:[0-9]{2}(?::[0-9]{2})?(?:Z|[+-][0-9]{2}:?[0-9]{2})?"
    r"(?!:[0-9])(?![^\s,;:)])",
    re.IGNORECASE,
)
_OTHER = {"other": 2, "second": 2, "third": 3, "fourth": 4, "fifth": 5}
_ALTERNATE = {"day": timedelta(days=1), "week": timedelta(weeks=1), "hour": timedelta(hours=1)}
_EACH = frozenset(("every", "each"))
_ADVERBS = {"hourly": timedelta(hours=1), "weekly": timedelta(weeks=1), "fortnightly": timedelta(weeks=2)}
_DAY = timedelta(days=1)


def schedule_of(written: WrittenTime, zone: str, now: datetime) -> Schedule:
    """The schedule, in the zone unless it names one itself. Raises `Invalid`, with the code of what is wrong."""
    zone = parse_zone(written.zone or zone)
    match written.kind:
        case WrittenKind.EVERY:
            return Schedule(parse_every(written.text, now), zone)
        case WrittenKind.IN:
            return Schedule(At(now.replace(microsecond=0) + parse_duration(written.text)), zone)
        case WrittenKind.CRON:
            return Schedule(parse_cron(written.text, zone, now), zone)
        case WrittenKind.AT:
            text = written.text
            if written.day is not None:
                text = f"{date_of(written.day, text, now.astimezone(ZoneInfo(zone)))} {text}"
            return Schedule(parse_at(text, zone, now), zone)


def phrase_at(sentence: Sentence, start: int, *, is_first: bool = True) -> Phrase | None:
    """The longest time that begins at that word; None if none does.

    `is_first` is false within a sentence, where words that could be anything are not taken for a time. Raises
    `Invalid` for what is a time, and none that a task can have.
    """
    end = start + (is_first and sentence.at(start) == "once" and sentence.at(start + 1) not in ("a", "an", *_EACH))
    end += end > start and sentence.at(end) == ","
    parts, is_after_day = TimeParts(), False
    while True:
        place = end + (end > start and sentence.at(end) == "," and not sentence.joined(end + 1).isdigit())
        found = _part(sentence, place, parts, is_after_day=is_after_day and place == end)
        if found is None:
            break
        is_after_day = found[0].has_day and not parts.has_day
        parts, end = found
    if parts == TimeParts() or (parts.has_zone and not parts.has_day and not parts.clocks):
        return None
    end += 3 * sentence.has(end, "from", "now", "on")
    if not sentence.is_over(end):
        return None
    return Phrase(start, end, parts)


def _part(sentence: Sentence, at: int, parts: TimeParts, *, is_after_day: bool) -> tuple[TimeParts, int] | None:
    """The parts with the one that stands there; None if none does, or if it does not go with them."""
    is_first = parts == TimeParts()
    if is_first and (stated := _stated(sentence, at)) is not None:
        return stated
    if parts.takes_clock and (clocks := clocks_at(sentence, at, is_free=is_first)) is not None:
        return replace(parts, clocks=clocks[0]), clocks[1]
    if not is_first and not parts.has_zone and (zone := zone_at(sentence, at)) is not None:
        return replace(parts, zone=zone[0], has_zone=True), zone[1]
    takes_part = parts.part_of_day is None and (parts.takes_clock or bool(parts.clocks)) and parts.interval is None
    if takes_part and (part := part_at(sentence, at, is_bare=is_after_day)) is not None:
        return replace(parts, part=part[0]), part[1]
    if parts.has_day:
        return None
    return _days(sentence, at, parts)


def _days(sentence: Sentence, at: int, parts: TimeParts) -> tuple[TimeParts, int] | None:
    """The parts with the days that stand there."""
    is_first = parts == TimeParts()
    if is_first and (length := _length(sentence, at)) is not None:
        return length
    if (repeat := repeat_at(sentence, at)) is not None and not (repeat[0].part and parts.part):
        return replace(parts, repeat=repeat[0]), repeat[1]
    if (day := day_at(sentence, at, is_first=is_first)) is not None and not (day[0].part and parts.part):
        return replace(parts, day=day[0]), day[1]
    if not is_first and (length := _length(sentence, at)) is not None and is_days(length[0].delay or timedelta(1) / 2):
        return replace(parts, delay=length[0].delay), length[1]
    return None


def _stated(sentence: Sentence, at: int) -> tuple[TimeParts, int] | None:
    start = at + (sentence.at(at) in ("at", "on"))
    if start >= len(sentence.words) or not sentence.at(start).isdigit():
        return None
    match = _STATED.match(sentence.text, sentence.words[start].start)
    if match is None:
        return None
    end = next((i for i in range(start, len(sentence.words)) if sentence.words[i].start >= match.end()), None)
    stated = WrittenTime(kind=WrittenKind.AT, text=match[0].upper())
    return TimeParts(stated=stated), len(sentence.words) if end is None else end


def _length(sentence: Sentence, at: int) -> tuple[TimeParts, int] | None:
    """An interval, or a time from now."""
    word = sentence.at(at)
    if word in _ADVERBS and sentence.is_over(at + 1):
        return (TimeParts(interval=_ADVERBS[word]), at + 1) if repeat_at(sentence, at) is None else None
    is_once = word == "once" and sentence.at(at + 1) in ("a", "an", *_EACH) and repeat_at(sentence, at) is None
    if is_once and sentence.at(at + 2) in ("hour", "week"):
        return TimeParts(interval=_ALTERNATE[sentence.at(at + 2)]), at + 3
    if word in _EACH:
        return _interval(sentence, at)
    if word == "in":
        found = duration_at(sentence, at + 1)
        if found is None or found[1] == at + 2:
            return None  # "in days", "in hours" say no time
        end = found[1] + (sentence.joined(found[1]) == "'")
        return _over(sentence, TimeParts(delay=found[0]), end + (sentence.at(end) == "time"))
    found = duration_at(sentence, at)
    if (
        found is None
        or found[1] == at + 1
        or sentence.at(found[1]) != "from"
        or sentence.has(found[1] + 1, "now", "on")
    ):
        return None
    is_from_now = sentence.at(found[1] + 1) in ("now", "today")
    return _over(sentence, TimeParts(delay=found[0]), found[1] + 2) if is_from_now else None


def _interval(sentence: Sentence, at: int) -> tuple[TimeParts, int] | None:
    """What `every` begins, if it is not a day."""
    word, unit = sentence.at(at + 1), sentence.at(at + 2)
    number = _OTHER.get(word)
    if number is None and word in ("2", "3", "4", "5") and sentence.joined(at + 2) in ("nd", "rd", "th"):
        number, unit = int(word), sentence.at(at + 3)
    if number is not None and unit in _ALTERNATE:
        end = at + 3 + word.isdigit()
        return _over(sentence, TimeParts(interval=number * _ALTERNATE[unit]), end)
    if word == "day" or (word == "week" and repeat_at(sentence, at) is not None):
        return None
    found = duration_at(sentence, at + 1)
    return None if found is None else _over(sentence, TimeParts(interval=found[0]), found[1])


def _over(sentence: Sentence, parts: TimeParts, end: int) -> tuple[TimeParts, int] | None:
    return (parts, end) if sentence.is_over(end) else None


def time_from(parts: TimeParts) -> WrittenTime:
    """The time that the parts make. Raises `Invalid` if they make none."""
    if parts.stated is not None:
        return replace(parts.stated, zone=parts.zone)
    if parts.interval is not None or (parts.repeat == DAILY and not parts.clocks and parts.part is None):
        return _every(parts)
    part = parts.part_of_day
    if parts.repeat is not None:
        clocks = _clocks(parts, part, is_once=False)
        minutes = {clock.minute for clock in clocks}
        if len(minutes) > 1:
            raise Invalid(
                f"Times of one task must be at the same minute: {_listed(clocks)}. Make a task for each.",
                code="invalid_time",
            )
        hours = ",".join(map(str, sorted({clock.hour for clock in clocks})))
        repeat = parts.repeat
        text = f"{min(minutes)} {hours} {repeat.days} {repeat.months} {repeat.weekdays}"
        return WrittenTime(kind=WrittenKind.CRON, text=text, zone=parts.zone)
    if parts.delay is not None and not parts.clocks and part is None:
        return WrittenTime(kind=WrittenKind.IN, text=_duration(parts.delay), zone=parts.zone)
    return _once(parts, part)


def _every(parts: TimeParts) -> WrittenTime:
    if parts.clocks or parts.part:
        raise Invalid(
            "Time of day does not go with an interval. Write days: 'every monday at 8:00', or 'every 2 days'.",
            code="invalid_time",
        )
    interval = _DAY if parts.interval is None else parts.interval
    return WrittenTime(kind=WrittenKind.EVERY, text=_duration(interval), zone=parts.zone)


def _once(parts: TimeParts, part: str | None) -> WrittenTime:
    day = None if parts.day is None else parts.day.day
    if parts.delay is not None:
        day = InDays(parts.delay // _DAY)
    if day == InDays(0) and not parts.clocks and part is None:
        raise Invalid("Time of day is missing: 'today'. Write 'today at 18:00'.", code="invalid_time")
    clocks = _clocks(parts, part, is_once=True)
    clock, *more = clocks
    if more:
        raise Invalid(
            f"One task cannot be at {_listed(clocks)} once. Write 'every day at 8 and 20', or make a task for each.",
            code="invalid_time",
        )
    return WrittenTime(kind=WrittenKind.AT, text=str(clock), day=day, zone=parts.zone)


def _clocks(parts: TimeParts, part: str | None, *, is_once: bool) -> tuple[DayTime, ...]:
    """The times of day; the hour of the part of the day, or of any day, if none is named."""
    if not parts.clocks:
        return (DayTime(DAY_HOUR if part is None else PARTS[part], 0),)
    is_open = any(not clock.has_half and 0 < clock.hour < 12 for clock in parts.clocks)
    if is_open and any(clock.has_half for clock in parts.clocks):
        raise Invalid(
            f"Times of day can be read in two ways: {_listed(parts.clocks)}. Write am or pm with each, or with none.",
            code="invalid_time",
        )
    return tuple(fitted(clock, part, is_once=is_once) for clock in parts.clocks)


def _listed(clocks: tuple[DayTime, ...]) -> str:
    return " and ".join(map(str, clocks[:4]))


def _duration(length: timedelta) -> str:
    """The duration as `schedule_of` reads it. Raises `Invalid` (`invalid_duration`)."""
    text = duration_text(length) or "0m"
    parse_duration(text)
    return text
