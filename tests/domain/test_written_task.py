"""Tasks as people write them: times, names and prompts, in the explicit forms and in ordinary sentences."""

from datetime import UTC, datetime
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from antiphon.domain.errors import Invalid
from antiphon.domain.schedule import At, Cron, Every, Trigger, in_words, shown_time, slots
from antiphon.domain.written_task import MAX_INFERRED_WORDS, MAX_NAME_LENGTH, infer_name, read_task
from antiphon.domain.written_times import schedule_of
from tests.claims import requirement

BERLIN = "Europe/Berlin"
NOW = datetime(2026, 3, 27, 10, 0, tzinfo=UTC)
"""Two days before clocks go forward in Berlin."""


def utc(month: int, day: int, hour: int, minute: int = 0) -> datetime:
    return datetime(2026, month, day, hour, minute, tzinfo=UTC)


def refused(text: str, zone: str = BERLIN) -> Invalid:
    with pytest.raises(Invalid) as raised:
        schedule_of(read_task(text).time, zone, NOW)
    return raised.value


@requirement("channels:3", "tasks:1")
@pytest.mark.parametrize(
    ("text", "trigger", "name", "prompt"),
    [
        ("every 1h Standup: summarise mail", Every(3600, NOW), "Standup", "summarise mail"),
        ("every 1h -- Standup: summarise mail", Every(3600, NOW), "Standup", "summarise mail"),
        ("EVERY 1h30m walk", Every(5400, NOW), "walk", "walk"),
        ("every 10 minutes check the oven", Every(600, NOW), "check the oven", "check the oven"),
        ("every hour look", Every(3600, NOW), "look", "look"),
        ("cron 0 9 * * 1 -- Weekly: plan", Cron("0 9 * * 1"), "Weekly", "plan"),
        ("cron @daily -- plan", Cron("0 0 * * *"), "plan", "plan"),
        ("cron 0 9 * * mon/2 -- plan", Cron("0 9 * * mon/2"), "plan", "plan"),
        ("at 08:00 Dentist: call", At(utc(3, 28, 7)), "Dentist", "call"),
        ("at 2026-04-01 08:00 call", At(utc(4, 1, 6)), "call", "call"),
        ("at 2026-04-01T08:00:00Z call", At(utc(4, 1, 8)), "call", "call"),
        ("at 08:00 Asia/Kolkata -- call", At(utc(3, 28, 2, 30)), "call", "call"),
        ("every 1h Two lines: one\ntwo", Every(3600, NOW), "Two lines", "one\ntwo"),
        ("every 1h read https://example.org: all", Every(3600, NOW), "read https://example.org: all", None),
    ],
)
def test_the_explicit_forms_name_a_time_a_name_and_a_prompt(
    text: str, trigger: Trigger, name: str, prompt: str | None
) -> None:
    task = read_task(text)
    assert schedule_of(task.time, BERLIN, NOW).trigger == trigger
    assert (task.name, task.prompt) == (name, prompt or task.prompt)


@requirement("channels:3")
@pytest.mark.parametrize(
    ("text", "trigger", "name", "prompt"),
    [
        ("remind me every hour to drink water", Every(3600, NOW), "drink water", "remind me to drink water"),
        ("please remind me every 2 hours to stand up", Every(7200, NOW), "stand up", "please remind me to stand up"),
        ("every weekday at 8 tell me what changed", Cron("0 8 * * 1-5"), "what changed", "tell me what changed"),
        ("tell me every day at 7:30pm who called", Cron("30 19 * * *"), "who called", "tell me who called"),
        ("every mon, wed and fridays at noon gym", Cron("0 12 * * 1,3,5"), "gym", "gym"),
        ("remind me tomorrow at 8 to call", At(utc(3, 28, 7)), "call", "remind me to call"),
        ("remind me at 8:00 tomorrow to call", At(utc(3, 28, 7)), "call", "remind me to call"),
        ("remind me in 10 minutes to call", At(utc(3, 27, 10, 10)), "call", "remind me to call"),
        ("call Mum at noon.", At(utc(3, 27, 11)), "call Mum", "call Mum."),
        ("Standup: every hour summarise mail", Every(3600, NOW), "Standup", "summarise mail"),
    ],
)
def test_a_time_is_found_in_an_ordinary_sentence(text: str, trigger: Trigger, name: str, prompt: str) -> None:
    task = read_task(text)
    assert schedule_of(task.time, BERLIN, NOW).trigger == trigger
    assert (task.name, task.prompt) == (name, prompt)


def test_a_telephone_may_make_a_dash_of_the_two_hyphens() -> None:
    assert read_task("cron 0 9 * * 1 — Weekly: plan") == read_task("cron 0 9 * * 1 -- Weekly: plan")
    assert read_task("every 1h water – the green ones").prompt == "water – the green ones"


@requirement("tasks:1")
@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("", "invalid_task", "says no time"),
        ("hello", "invalid_task", "says no time"),
        ("every 1h", "invalid_task", "no prompt"),
        ("every 1h Standup:", "invalid_task", "no prompt"),
        ("cron 0 9 * * 1 Weekly: plan", "invalid_task", "Put --"),
        ("cron 0 0 9 * * 1 -- plan", "invalid_cron", "6 fields"),
        ("cron 0 9 * * -- plan", "invalid_cron", "4 fields"),
        ("cron */0 * * * * -- plan", "invalid_cron", "minute"),
        ("cron 0 0 30 2 * -- plan", "invalid_cron", "day"),
        ("cron @never -- plan", "invalid_cron", "'@never'"),
        ("cron 0 9 * * 1 Mars/Phobos -- plan", "invalid_zone", "'Mars/Phobos'"),
        ("at 08:00 Mars/Phobos -- plan", "invalid_zone", "'Mars/Phobos'"),
        ("every 0 plan", "invalid_duration", "0"),
        ("every 0m plan", "invalid_duration", "greater than 0"),
        ("every 30s plan", "invalid_duration", "too short"),
        ("every 400 days plan", "invalid_duration", "365 days"),
        ("every banana plan", "invalid_duration", '"banana"'),
        ("today tell me", "invalid_time", "today at 18:00"),
        ("every day at 25 tell me", "invalid_time", "Time of day"),
        ("at 25:00 plan", "invalid_time", "25:00"),
        ("at soon plan", "invalid_time", "soon"),
        ("at 2020-01-01 08:00 plan", "invalid_time", "past"),
        ("at 9999-01-01 08:00 plan", "invalid_time", "ahead"),
        ("today at 9 plan", "invalid_time", "past"),
    ],
)
def test_what_is_no_task_gets_one_error_that_says_why(text: str, code: str, said: str) -> None:
    error = refused(text)
    assert error.code == code
    assert said in error.message
    assert len(error.message) < 250


def test_the_preview_of_a_task_shows_where_clocks_change() -> None:
    schedule = schedule_of(read_task("every day at 2:30 look").time, BERLIN, NOW)
    shown = [shown_time(slot, schedule.zone) for slot in islice(slots(schedule, NOW), 3)]
    assert in_words(schedule) == "at 02:30 every day (Europe/Berlin)"
    assert shown == ["Sat 2026-03-28 02:30 CET", "Sun 2026-03-29 03:00 CEST", "Mon 2026-03-30 02:30 CEST"]


@given(st.text(max_size=300))
def test_a_name_is_short_and_on_one_line(prompt: str) -> None:
    name = infer_name(prompt)
    assert name
    assert len(name) <= MAX_NAME_LENGTH
    assert len(name.split()) <= MAX_INFERRED_WORDS


@given(st.one_of(st.text(max_size=200), st.text(alphabet="every at in 0123456789:hm-—/cron*,and ", max_size=200)))
def test_any_text_is_a_task_or_refused(text: str) -> None:
    try:
        task = read_task(text)
        schedule_of(task.time, BERLIN, NOW)
    except Invalid:
        return
    assert task.prompt
    assert task.name
