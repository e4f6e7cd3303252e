"""When a task is to fire, as a person writes it: `every weekday at 8`, `in 10 minutes`. Contract: tasks 1, channels 3.

Everything is read without knowing the time or the zone; `schedule_of` adds both.
"""

import re
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import StrEnum
from zoneinfo import ZoneInfo

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.errors import Invalid
from antiphon.domain.schedule import At, Schedule, parse_at, parse_cron, parse_duration, parse_every, parse_zone


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
    zone: str | None = None
    """None for that of the settings."""


class Phrase(Struct, frozen=True):
    """A time within a text, from `start` to `end`."""

    start: int
    end: int
    time: WrittenTime


_DAYS = {
    "day": "*",
    "weekday": "1-5",
    "weekend": "0,6",
    **{
        name: str(number)
        for number, names in enumerate(
            (
                ("sunday", "sun"),
                ("monday", "mon"),
                ("tuesday", "tue", "tues"),
                ("wednesday", "wed"),
                ("thursday", "thu", "thur", "thurs"),
                ("friday", "fri"),
                ("saturday", "sat"),
            )
        )
        for name in names
    },
}
_DAY = "|".join(sorted(_DAYS, key=len, reverse=True))
_CLOCK = (
    r"(?:(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?(?:\s*(?P<half>am|pm)|\s*o'clock)?|(?P<noon>noon|midnight))(?![\w:])"
)
_EVERY_DAYS = re.compile(rf"every\s+(?P<days>(?:{_DAY})s?(?:(?:\s*,\s*|\s+and\s+)(?:{_DAY})s?)*)\s+at\s+{_CLOCK}", re.I)
_DAYS_ALONE = re.compile(rf"(?:{_DAY})s?(?:(?:\s*,\s*|\s+and\s+)(?:{_DAY})s?)*\b", re.I)
_AT_CLOCK = re.compile(rf"(?:(?P<day>today|tomorrow)\s+)?at\s+{_CLOCK}", re.I)
_CLOCK_TOMORROW = re.compile(rf"at\s+{_CLOCK}\s+(?P<day>today|tomorrow)\b", re.I)
_CLOCK_FOLLOWS = re.compile(r"\s+at\s+\d")
_DATED = re.compile(r"at\s+(\d{4}-\d{2}-\d{2}(?:[ T]\d{1,2}:\d{2}(?::\d{2})?(?:Z|[+-]\d{2}:?\d{2})?)?)(?!\S)", re.I)
_BEGINNING = re.compile(r"\b(?:every|at|in|today|tomorrow)\b", re.I)
_LONGEST_DURATION = 6
"""Words."""
_SEARCHED = 1_000
"""Characters."""
_RELATIVE = re.compile(r"(today|tomorrow) (\d{2}:\d{2})")


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
            return Schedule(parse_at(_dated(written.text, zone, now), zone, now), zone)


def time_of(
    *, every: str | None = None, at: str | None = None, cron: str | None = None, zone: str | None = None
) -> WrittenTime:
    """The one time that is given, as a program or a form gives it. Raises `Invalid` (`invalid_task`)."""
    given = {WrittenKind.EVERY: every, WrittenKind.AT: at, WrittenKind.CRON: cron}
    match [(kind, text) for kind, text in given.items() if text is not None]:
        case [(kind, text)]:
            pass
        case _:
            raise Invalid("Task needs exactly one of 'every', 'at' and 'cron'.", code="invalid_task")
    spoken = f"{kind} {text.strip()}"
    found = None if kind is WrittenKind.CRON else time_at(spoken, 0)
    if found is None or found.end != len(spoken):
        return WrittenTime(kind=kind, text=text, zone=zone)
    return replace(found.time, zone=zone)


def first_time(text: str) -> Phrase | None:
    """The first time near the beginning of the text; None without one."""
    for beginning in _BEGINNING.finditer(text, 0, _SEARCHED):
        found = time_at(text, beginning.start())
        if found is not None:
            return found
    return None


def time_at(text: str, start: int) -> Phrase | None:
    """The longest time that begins at that place; None if none does."""
    return next((found for read in _READERS if (found := read(text, start)) is not None), None)


def refuse_time(text: str) -> Invalid:
    """Why `every …` or `at …` at the beginning of the text is not a time."""
    word, _, rest = text.partition(" ")
    rest = rest.strip()
    if word.lower() == WrittenKind.EVERY:
        days = _DAYS_ALONE.match(rest)
        named = "monday" if days is None else days[0]
        if days is not None or _CLOCK_FOLLOWS.search(rest[:60]):
            return Invalid(
                f"Time of day is missing or not valid. Write 'every {named} at 8:00', or an interval: 'every 1h'.",
                code="invalid_time",
            )
        parts = rest.split()[:2]
        try:
            parse_duration(" ".join(parts if parts and parts[0].isdigit() else parts[:1]))
        except Invalid as error:
            return error
    shown = " ".join(rest.split()[:2])[:60]
    return Invalid(f"Time is not valid: {shown!r}. Write it as '2027-01-31 08:00' or '08:00'.", code="invalid_time")


def _read_every_days(text: str, start: int) -> Phrase | None:
    match = _EVERY_DAYS.match(text, start)
    clock = None if match is None else _clock(match)
    if match is None or clock is None:
        return None
    names = (name.lower() for name in re.split(r"\s*,\s*|\s+and\s+", match["days"], flags=re.I))
    days = ",".join(dict.fromkeys(_DAYS.get(name) or _DAYS[name.removesuffix("s")] for name in names))
    hour, minute = clock
    expression = f"{minute} {hour} * * {'*' if '*' in days else days}"
    return Phrase(start, match.end(), WrittenTime(kind=WrittenKind.CRON, text=expression))


def _read_clock(text: str, start: int) -> Phrase | None:
    match = _CLOCK_TOMORROW.match(text, start) or _AT_CLOCK.match(text, start)
    clock = None if match is None else _clock(match)
    if match is None or clock is None:
        return None
    day = "" if match["day"] is None else f"{match['day'].lower()} "
    written = WrittenTime(kind=WrittenKind.AT, text=f"{day}{clock[0]:02}:{clock[1]:02}")
    return Phrase(start, match.end(), written)


def _read_dated(text: str, start: int) -> Phrase | None:
    match = _DATED.match(text, start)
    if match is None:
        return None
    return Phrase(start, match.end(), WrittenTime(kind=WrittenKind.AT, text=match[1]))


def _read_duration(text: str, start: int) -> Phrase | None:
    """`every` or `in`, and as many words as make a duration."""
    first, *words = re.finditer(r"\S+", text[start : start + 200])
    if first[0].lower() not in (WrittenKind.EVERY, WrittenKind.IN):
        return None
    for last in reversed(words[:_LONGEST_DURATION]):
        duration = text[start + first.end() : start + last.end()].strip().rstrip(",;")
        try:
            parse_duration(duration)
        except Invalid:
            continue
        kind = WrittenKind(first[0].lower())
        if kind is WrittenKind.IN and not duration[0].isdigit():
            return None  # "in days", "in hours" say no time
        end = start + last.end()
        if kind is WrittenKind.EVERY and _CLOCK_FOLLOWS.match(text, end):
            return None  # an interval has no time of day
        return Phrase(start, end, WrittenTime(kind=kind, text=duration))
    return None


_READERS: tuple[Callable[[str, int], Phrase | None], ...] = (
    _read_every_days,
    _read_duration,
    _read_dated,
    _read_clock,
)


def _clock(match: re.Match[str]) -> tuple[int, int] | None:
    """Hour and minute; None if no clock shows them."""
    if match["noon"] is not None:
        return (12 if match["noon"].lower() == "noon" else 0), 0
    hour, minute, half = int(match["hour"]), int(match["minute"] or 0), (match["half"] or "").lower()
    if half:
        if not 1 <= hour <= 12:
            return None
        hour = hour % 12 + (12 if half == "pm" else 0)
    return (hour, minute) if hour < 24 and minute < 60 else None


def _dated(text: str, zone: str, now: datetime) -> str:
    """`tomorrow 08:00` with its date in the zone."""
    match = _RELATIVE.fullmatch(text)
    if match is None:
        return text
    today = now.astimezone(ZoneInfo(zone)).date()
    return f"{today + timedelta(days=match[1] == 'tomorrow')} {match[2]}"
