"""When a task fires: its trigger, and the slots that follow from it. Contract: tasks 1.

All times are UTC; a zone decides only how a person writes and reads them.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from itertools import islice
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError
from msgspec import Struct

from antiphon.domain.durations import duration_text, parse_duration
from antiphon.domain.errors import Invalid

FARTHEST = timedelta(days=5 * 366)
"""How far ahead a task may be set."""
SHOWN_SLOTS = 3
MOST_COUNTED = 1_000
"""Missed slots are counted up to this."""
NAMED = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_SECOND, _DAY = timedelta(seconds=1), timedelta(days=1)
_LOCAL_TIME = re.compile(r"(?:([0-9]{4}-[0-9]{2}-[0-9]{2})[ T])?([0-9]{1,2}):([0-9]{2})(?::([0-9]{2}))?")

_AGAIN = (
    (re.compile(r" on (?=[A-Z][a-z]+day\b(?!.* through ))"), " every "),
    (re.compile(r" on (?=[A-Z][a-z]+ [0-9])"), " every "),
    (re.compile(r" day of month$"), " day of every month"),
    (re.compile(r" of the month$"), " of every month"),
)
"""Words of the library that sound as if the time came once, with others for them."""


class Every(Struct, frozen=True, tag="every", tag_field="kind"):
    """A fixed interval, counted from when it was made, so it does not drift."""

    seconds: int
    anchor: datetime

    @property
    def interval(self) -> timedelta:
        return timedelta(seconds=self.seconds)


class At(Struct, frozen=True, tag="at", tag_field="kind"):
    """Once."""

    time: datetime


class Cron(Struct, frozen=True, tag="cron", tag_field="kind"):
    """Five fields, in local time. A skipped time fires at the shift; a time that comes twice fires once."""

    expression: str


Trigger = Every | At | Cron


class Schedule(Struct, frozen=True):
    """A trigger, and the zone in which it is written and read."""

    trigger: Trigger
    zone: str
    """As in the IANA database, such as `Europe/Berlin`."""


def is_known(zone: str) -> bool:
    """Whether this machine knows the zone."""
    try:
        zone_of(zone)
    except Invalid:
        return False
    return True


def zone_of(name: str) -> tzinfo:
    """The zone. Raises `Invalid` (`invalid_zone`) if this machine does not know it, or not any more."""
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        raise Invalid(
            f"Time zone is not known: {name[:60]!r}. Write it as 'Europe/Berlin' or 'UTC'.", code="invalid_zone"
        ) from None


def parse_zone(name: str) -> str:
    """The name, if this machine knows the zone. Raises `Invalid` (`invalid_zone`)."""
    zone_of(name)
    return name


def parse_every(text: str, now: datetime) -> Every:
    """Raises `Invalid` (`invalid_duration`)."""
    return Every(parse_duration(text) // timedelta(seconds=1), now.replace(microsecond=0))


def parse_at(text: str, zone: str, now: datetime) -> At:
    """An ISO time, or a local one: `2027-01-31 08:00`, or `08:00` for the next one.

    Of a local time that comes twice, the first counts. A time that the zone skips becomes the next one that exists.
    Raises `Invalid` (`invalid_time`).
    """
    written = text.strip()
    local = _LOCAL_TIME.fullmatch(written)
    try:
        if local is None:
            time = datetime.fromisoformat(written)
            time = _existing(time.replace(tzinfo=zone_of(zone))) if time.tzinfo is None else time.astimezone(UTC)
        else:
            time = _next_local(local, zone_of(zone), now)
        shown = shown_time(time, zone)
    except (ValueError, OverflowError):
        raise Invalid(
            f"Time is not valid: {text[:60]!r}. Write it as '2027-01-31 08:00' or '08:00'.", code="invalid_time"
        ) from None
    if time <= now:
        raise Invalid(f"Time is in the past: {shown}.", code="invalid_time")
    if time - now > FARTHEST:
        raise Invalid(f"Time is more than {FARTHEST.days // 366} years ahead: {text[:60]!r}.", code="invalid_time")
    return At(time)


def parse_cron(text: str, zone: str, now: datetime) -> Cron:
    """Five fields, or a name such as `@daily`. Raises `Invalid` (`invalid_cron`)."""
    expression = " ".join(NAMED.get(text.strip().lower(), text).split())
    fields = expression.count(" ") + 1 if expression else 0
    if len(expression) > 200:
        raise Invalid("Cron expression is longer than 200 characters.", code="invalid_cron")
    if expression.startswith("@"):
        raise Invalid(f"Name is not known: {text[:40]!r}. Known are {', '.join(NAMED)}.", code="invalid_cron")
    if fields == 6:
        raise Invalid(
            "Cron expression has 6 fields. Leave out the seconds: minute, hour, day of month, month, day of week.",
            code="invalid_cron",
        )
    if fields != 5:
        raise Invalid(
            f"Cron expression has {fields} fields, not 5: minute, hour, day of month, month, day of week.",
            code="invalid_cron",
        )
    cron = Cron(expression)
    try:
        first = next_slot(Schedule(cron, zone), now)
    except CronSimError as error:
        raise Invalid(f"Cron expression is not valid: {_problem(error)}.", code="invalid_cron") from None
    if first is None:
        raise Invalid(f"Cron expression never fires: {expression!r}.", code="invalid_cron")
    return cron


def next_slot(schedule: Schedule, after: datetime) -> datetime | None:
    """The first slot after that time; None if there is none."""
    trigger = schedule.trigger
    if isinstance(trigger, At):
        return trigger.time if trigger.time > after else None
    if isinstance(trigger, Every):
        passed = max((after - trigger.anchor) // trigger.interval, 0)
        return trigger.anchor + (passed + 1) * trigger.interval
    return next(_cron_slots(trigger.expression, schedule.zone, after), None)


def slots(schedule: Schedule, after: datetime) -> Iterator[datetime]:
    """All slots after that time, ascending."""
    if isinstance(schedule.trigger, Cron):
        yield from _cron_slots(schedule.trigger.expression, schedule.zone, after)
        return
    slot = next_slot(schedule, after)
    while slot is not None:
        yield slot
        slot = next_slot(schedule, slot)


def upcoming(schedule: Schedule, first: datetime | None) -> list[datetime]:
    """That slot and those after it, as many as people are shown; nothing without one."""
    if first is None:
        return []
    if not is_known(schedule.zone):
        return [first]
    return [first, *islice(slots(schedule, first), SHOWN_SLOTS - 1)]


def count_slots(schedule: Schedule, after: datetime, until: datetime) -> int:
    """How many slots there are after `after`, up to and with `until`; at most `MOST_COUNTED`."""
    trigger = schedule.trigger
    if isinstance(trigger, Every):
        passed = [max((time - trigger.anchor) // trigger.interval, 0) for time in (after, until)]
        return min(passed[1] - passed[0], MOST_COUNTED)
    count = 0
    for slot in islice(slots(schedule, after), MOST_COUNTED):
        if slot > until:
            break
        count += 1
    return count


def in_words(schedule: Schedule) -> str:
    """The schedule as a person reads it, without its next times."""
    trigger = schedule.trigger
    if isinstance(trigger, At):
        return f"once, {shown_time(trigger.time, schedule.zone)}"
    if isinstance(trigger, Every):
        return f"every {duration_text(trigger.interval)}"
    words = CronSim(trigger.expression, datetime(2000, 1, 1)).explain()
    for pattern, written in _AGAIN:
        words = pattern.sub(written, words)
    return f"{words[:1].lower()}{words[1:]} ({schedule.zone})"


def shown_time(time: datetime, zone: str) -> str:
    """`Mon 2027-02-01 08:00 CET`; in UTC if this machine does not know the zone any more."""
    return f"{time.astimezone(zone_of(zone) if is_known(zone) else UTC):%a %Y-%m-%d %H:%M %Z}"


def _cron_slots(expression: str, zone: str, after: datetime) -> Iterator[datetime]:
    minute, hour, *_ = expression.split()
    if minute.startswith("*") or hour.startswith("*"):
        yield from _by_elapsed_time(expression, zone_of(zone), after)
        return
    last = after
    for time in _simulated(expression, after.astimezone(zone_of(zone))):
        slot = time.astimezone(UTC)
        # Within an hour that comes twice, the library may name a time of the first pass again.
        if slot > last:
            last = slot
            yield slot


def _by_elapsed_time(expression: str, zone: tzinfo, after: datetime) -> Iterator[datetime]:
    """The slots of an expression with a star or step: each time between two shifts is simulated with its own offset.

    The library alone leaves out a slot where clocks are put back or forward by half an hour.
    """
    while True:
        time = next(_simulated(expression, after.astimezone(timezone(_offset(zone, after)))), None)
        if time is None:
            return
        slot = time.astimezone(UTC)
        shift = _first_shift(zone, after, slot)
        if shift is None:
            yield slot
        after = slot if shift is None else shift - _SECOND


def _simulated(expression: str, local: datetime) -> Iterator[datetime]:
    try:
        yield from CronSim(expression, local)
    except (RuntimeError, OverflowError):  # nothing in fifty years, or after the year 9999
        return


def _offset(zone: tzinfo, before: datetime) -> timedelta:
    """The zone's offset right after that time."""
    offset = (before + _SECOND).astimezone(zone).utcoffset()
    assert offset is not None
    return offset


def _first_shift(zone: tzinfo, after: datetime, until: datetime) -> datetime | None:
    """When the offset that holds right after `after` changes first, up to `until`."""
    offset, low = _offset(zone, after), after + _SECOND
    while low < until:
        high = min(low + _DAY, until)
        if high.astimezone(zone).utcoffset() == offset:
            low = high
            continue
        while high - low > _SECOND:
            middle = low + (high - low) // (2 * _SECOND) * _SECOND
            if middle.astimezone(zone).utcoffset() == offset:
                low = middle
            else:
                high = middle
        return high
    return None


def _next_local(match: re.Match[str], zone: tzinfo, now: datetime) -> datetime:
    date, hour, minute, second = match.groups()
    today = now.astimezone(zone)
    day = today.date() if date is None else datetime.fromisoformat(date).date()
    wanted = datetime(day.year, day.month, day.day, int(hour), int(minute), int(second or 0), tzinfo=zone)
    time = _existing(wanted)
    if date is None and time <= now:
        time = _existing(wanted + timedelta(days=1))
    return time


def _existing(local: datetime) -> datetime:
    """The time in UTC: the first of two, or the end of the gap for a time that the zone skips."""
    zone = local.tzinfo
    assert zone is not None
    time = local.replace(fold=0).astimezone(UTC)
    if time.astimezone(zone).replace(tzinfo=None) == local.replace(tzinfo=None):
        return time
    # Inside a gap, fold 0 counts with the offset before it, and fold 1 with the one after it.
    shift = _first_shift(zone, local.replace(fold=1).astimezone(UTC), time)
    return time if shift is None else shift


def _problem(error: CronSimError) -> str:
    words = str(error)
    return f"{words[:1].lower()}{words[1:]}"
