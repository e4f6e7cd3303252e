"""Slots of tasks, against an oracle that knows nothing of the library. Contract: tasks 1; P11."""

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from functools import cache
from itertools import takewhile
from zoneinfo import ZoneInfo

import pytest

from antiphon.domain.durations import parse_duration
from antiphon.domain.errors import Invalid
from antiphon.domain.schedule import (
    MOST_COUNTED,
    At,
    Cron,
    Every,
    Schedule,
    count_slots,
    in_words,
    next_slot,
    parse_at,
    parse_cron,
    parse_every,
    parse_zone,
    slots,
)

ZONES = (
    *("UTC", "Europe/Berlin", "Europe/London", "Europe/Dublin", "Europe/Lisbon", "Europe/Moscow", "Europe/Chisinau"),
    *("America/New_York", "America/Los_Angeles", "America/St_Johns", "America/Sao_Paulo", "America/Havana"),
    *("America/Asuncion", "America/Santiago", "America/Nuuk", "America/Caracas", "America/Phoenix", "Africa/Cairo"),
    *("Africa/Casablanca", "Africa/Juba", "Asia/Kolkata", "Asia/Kathmandu", "Asia/Tehran", "Asia/Gaza", "Asia/Beirut"),
    *("Asia/Pyongyang", "Australia/Lord_Howe", "Australia/Adelaide", "Antarctica/Troll", "Pacific/Apia"),
    *("Pacific/Chatham", "Pacific/Norfolk"),
)
START, END = datetime(2015, 1, 1, tzinfo=UTC), datetime(2025, 1, 1, tzinfo=UTC)
MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
NOW = datetime(2026, 11, 24, 10, 0, tzinfo=UTC)


STARS: dict[str, Callable[[datetime], bool]] = {
    "*/20 * * * *": lambda local: local.minute % 20 == 0,
    "10 * * * *": lambda local: local.minute == 10,
    "*/30 1-3 * * *": lambda local: local.minute % 30 == 0 and 1 <= local.hour <= 3,
}


@cache
def transitions(zone: ZoneInfo) -> list[datetime]:
    """The moments at which the zone's offset changes, to the minute."""
    found: list[datetime] = []
    time = START - 3 * DAY
    while time < END:
        following = time + DAY
        if time.astimezone(zone).utcoffset() != following.astimezone(zone).utcoffset():
            low, high = time, following
            while high - low > MINUTE:
                middle = low + (high - low) // (2 * MINUTE) * MINUTE
                is_before = middle.astimezone(zone).utcoffset() == time.astimezone(zone).utcoffset()
                low, high = (middle, high) if is_before else (low, middle)
            found.append(high)
        time = following
    return found


def at_fixed_times(
    zone: ZoneInfo, times: list[tuple[int, int]], days: set[int], start: datetime = START, end: datetime = END
) -> list[datetime]:
    """One firing for each local day and time: the first of two, and the shift for one that does not exist."""
    shifts = transitions(zone)
    offsets = {time.astimezone(zone).utcoffset() for shift in [START, *shifts] for time in (shift - MINUTE, shift)}
    found: set[datetime] = set()
    day = (start - 2 * DAY).date()
    while day <= (end + 2 * DAY).date():
        if day.isoweekday() in days:
            for hour, minute in times:
                found.add(moment(zone, datetime(day.year, day.month, day.day, hour, minute), offsets, shifts))
        day += DAY
    return sorted(time for time in found if start < time < end)


def moment(zone: ZoneInfo, wanted: datetime, offsets: set[timedelta | None], shifts: list[datetime]) -> datetime:
    times = [(wanted - offset).replace(tzinfo=UTC) for offset in offsets if offset is not None]
    matching = [time for time in times if time.astimezone(zone).replace(tzinfo=None) == wanted]
    if matching:
        return min(matching)
    return next(shift for shift in shifts if wanted <= shift.astimezone(zone).replace(tzinfo=None))


def between(schedule: Schedule, start: datetime, end: datetime) -> list[datetime]:
    return list(takewhile(lambda slot: slot < end, slots(schedule, start)))


@pytest.mark.parametrize("name", ZONES)
@pytest.mark.parametrize(
    ("expression", "times", "days"),
    [("30 2 * * *", [(2, 30)], set(range(1, 8))), ("0 0 * * 0,3", [(0, 0)], {3, 7})],
)
def test_fixed_times_fire_once_a_local_day_for_ten_years(
    name: str, expression: str, times: list[tuple[int, int]], days: set[int]
) -> None:
    found = between(Schedule(Cron(expression), name), START, END)
    assert found == at_fixed_times(ZoneInfo(name), times, days)
    assert len(set(found)) == len(found)


@pytest.mark.parametrize("name", ZONES)
def test_several_fixed_times_of_a_day_fire_once_around_each_change_of_a_clock(name: str, *, is_soak: bool) -> None:
    zone = ZoneInfo(name)
    times = [(hour, minute) for hour in (1, 2, 3) for minute in (15, 45)]
    spans = [(START, END)] if is_soak else [(shift - 3 * DAY, shift + 3 * DAY) for shift in transitions(zone)]
    for start, end in spans:
        found = between(Schedule(Cron("15,45 1-3 * * *"), name), start, end)
        assert found == at_fixed_times(zone, times, set(range(1, 8)), start, end)


@pytest.mark.parametrize("name", ZONES)
def test_stars_and_steps_follow_the_time_that_passes(name: str) -> None:
    zone = ZoneInfo(name)
    for shift in [*transitions(zone), datetime(2020, 5, 5, tzinfo=UTC)]:
        start, end = shift - 6 * HOUR, shift + 6 * HOUR
        minutes = [start + count * MINUTE for count in range(1, 12 * 60)]
        for expression, is_due in STARS.items():
            expected = [minute for minute in minutes if is_due(minute.astimezone(zone))]
            assert between(Schedule(Cron(expression), name), start, end) == expected, (expression, shift)


@pytest.mark.parametrize("name", ZONES)
def test_the_next_slot_is_the_same_from_wherever_one_asks(name: str, *, is_soak: bool) -> None:
    """A scheduler that starts anew at any minute goes on with the slots that it would have had."""
    zone = ZoneInfo(name)
    for shift in transitions(zone):
        for expression in ("30 2 * * *", "*/20 * * * *", "0,30 0-3 * * *"):
            schedule = Schedule(Cron(expression), name)
            known = between(schedule, shift - 2 * DAY, shift + 2 * DAY)
            for minutes in range(-240, 240, 17 if is_soak else 53):
                asked = shift + minutes * MINUTE
                assert next_slot(schedule, asked) == next(slot for slot in known if slot > asked), (shift, asked)


def test_an_interval_keeps_its_anchor_and_does_not_drift() -> None:
    anchor = datetime(2015, 1, 1, 8, 3, 20, tzinfo=UTC)
    schedule = Schedule(Every(90 * 60, anchor), "Europe/Berlin")
    found = between(schedule, START, END)
    assert found[0] == anchor + 90 * MINUTE
    assert {(slot - anchor) % (90 * MINUTE) for slot in found} == {timedelta(0)}
    assert len(found) == len(set(found)) == (END - anchor) // (90 * MINUTE)
    assert next_slot(schedule, anchor - 5 * DAY) == anchor + 90 * MINUTE


def test_a_single_time_comes_once() -> None:
    schedule = Schedule(At(NOW + HOUR), "UTC")
    assert (next_slot(schedule, NOW), next_slot(schedule, NOW + HOUR)) == (NOW + HOUR, None)
    assert list(slots(schedule, NOW)) == [NOW + HOUR]


def test_missed_slots_are_counted_up_to_a_bound() -> None:
    hourly = Schedule(Every(3600, NOW), "UTC")
    assert count_slots(hourly, NOW, NOW + 5 * HOUR) == 5
    assert count_slots(Schedule(Cron("0 * * * *"), "UTC"), NOW, NOW + 5 * HOUR) == 5
    assert count_slots(Schedule(Cron("* * * * *"), "UTC"), NOW, NOW + 30 * DAY) == MOST_COUNTED
    assert count_slots(Schedule(Every(60, NOW), "UTC"), NOW, NOW + 30 * DAY) == MOST_COUNTED


@pytest.mark.parametrize(
    ("text", "minutes"),
    [
        ("1h30m", 90),
        ("10 minutes", 10),
        ("hour", 60),
        ("2 days", 2880),
        ("1w", 10080),
        ("1 h 5 min", 65),
        ("365d", 525_600),
    ],
)
def test_durations_are_read_as_people_write_them(text: str, minutes: int) -> None:
    assert parse_duration(text) == minutes * MINUTE


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("0m", "Duration must be greater than 0."),
        ("banana", 'Invalid duration "banana".'),
        ("", "Invalid duration"),
        ("90", "Invalid duration"),
        ("h5", "Invalid duration"),
        ("1h banana", "Invalid duration"),
        ("-5m", "Invalid duration"),
        ("30s", "once a minute"),
        ("366d", "longer than 365 days"),
        ("9" * 100 + "m", "Invalid duration"),
    ],
)
def test_durations_that_are_none_are_refused(text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        parse_duration(text)


def test_local_times_are_read_in_their_zone() -> None:
    def at(text: str) -> datetime:
        return parse_at(text, "Europe/Berlin", NOW).time

    assert at("08:00") == datetime(2026, 11, 25, 7, 0, tzinfo=UTC)
    assert at("12:30") == datetime(2026, 11, 24, 11, 30, tzinfo=UTC)
    assert at("2027-10-31 02:30") == datetime(2027, 10, 31, 0, 30, tzinfo=UTC), "the first of two"
    assert at("2027-03-28 02:30") == datetime(2027, 3, 28, 1, 0, tzinfo=UTC), "the next that exists"
    assert at("2027-01-01T08:00:00+02:00") == datetime(2027, 1, 1, 6, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    "text",
    [
        *("2026-01-01 08:00", "9999-01-01 00:00", "25:00", "2027-02-30 08:00", "soon", "", "0001-01-01"),
        *("0001-01-01T00:00:00Z", "9999-12-31T23:59:59-23:59"),
    ],
)
def test_times_that_cannot_be_are_refused(text: str) -> None:
    for zone in ("Europe/Berlin", "America/New_York"):
        with pytest.raises(Invalid):
            parse_at(text, zone, NOW)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("* * * * * *", "6 fields"),
        ("0 9 * *", "4 fields"),
        ("", "0 fields"),
        ("0 0 30 2 *", "day-of-month"),
        ("0 0 31 2,4 *", "day-of-month"),
        ("*/0 * * * *", "minute"),
        ("0 25 * * *", "hour"),
        ("@never", "not known"),
        ("0" * 300 + " * * * *", "longer"),
        ("é * * * *", "minute"),
    ],
)
def test_cron_expressions_that_never_fire_are_refused(text: str, words: str) -> None:
    with pytest.raises(Invalid, match=words):
        parse_cron(text, "Europe/Berlin", NOW)


def test_schedules_are_shown_in_words() -> None:
    assert in_words(Schedule(parse_every("1h30m", NOW), "UTC")) == "every 1 hour 30 minutes"
    assert in_words(Schedule(parse_every("hour", NOW), "UTC")) == "every hour"
    assert (
        in_words(Schedule(parse_at("12:30", "Europe/Berlin", NOW), "Europe/Berlin")) == "once, Tue 2026-11-24 12:30 CET"
    )
    weekdays = Schedule(parse_cron("0 8 * * 1-5", "Europe/Berlin", NOW), "Europe/Berlin")
    assert in_words(weekdays) == "at 08:00 on Monday through Friday (Europe/Berlin)"


@pytest.mark.parametrize("name", ["Mars/Olympus", "../etc/passwd", "", "Europe", "\0"])
def test_zones_that_the_machine_lacks_are_refused(name: str) -> None:
    with pytest.raises(Invalid, match="not known"):
        parse_zone(name)
