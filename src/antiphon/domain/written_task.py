"""A task as a person writes it: `every 1h Standup: summarise mail`. Contract: channels 3, tasks 1."""

import re
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.errors import Invalid
from antiphon.domain.schedule import next_slot, upcoming
from antiphon.domain.send_to import parse_send_to
from antiphon.domain.stored_task import NewTask, TaskEdit
from antiphon.domain.task import MissedPolicy, TaskLimits
from antiphon.domain.text import one_line
from antiphon.domain.written_sentences import FoundTime, find_time, in_zone, time_of, whole_time
from antiphon.domain.written_times import WrittenKind, WrittenTime, schedule_of

FORMS = "every <duration> | at <time> | cron <five fields> -- [<name>:] <prompt>"
MAX_INFERRED_WORDS = 5
MAX_NAME_LENGTH = 60
_SEPARATOR = re.compile(r"\s(?:--|[\u2013\u2014])(?:\s|$)")
"""Telephones make a long dash of two hyphens."""
_NAME = re.compile(rf"([^\s:][^:\n]{{0,{MAX_NAME_LENGTH - 1}}}):\s+")
_ZONE = re.compile(r"\s(UTC|[A-Za-z]\w*(?:/[\w+-]+)+)$")
_MARK = re.compile(r"[.!?]\s+")
"""Ends a time that is a sentence of its own."""
_COURTESY = re.compile(r"(?:(?:please|(?:can|could|will|would) you|remind me|let me know|tell me|to)\b[\s,]*)+", re.I)


class WrittenTask(Struct, frozen=True, kw_only=True):
    time: WrittenTime
    name: str
    """As written, else made of the first words of the prompt."""
    prompt: str


def read_task(text: str) -> WrittenTask:
    """The task. Raises `Invalid`: `invalid_task` if no time or no prompt is found, else the code of the time."""
    text = text.strip()
    separator = _SEPARATOR.search(text)
    before = None if separator is None else _time_before(text[: separator.start()])
    if separator is not None and before is not None:
        return _named(before, text[separator.end() :])
    if text[:5].lower().split() == [WrittenKind.CRON]:
        raise Invalid(
            "Put -- between the cron expression and the prompt: cron 0 9 * * 1 -- Plan the week", code="invalid_task"
        )
    found = find_time(text)
    return _named(found.time, _without(text, found))


class TaskForm(Struct, frozen=True, kw_only=True):
    """What programs and forms say about a task; None for what they leave out."""

    text: str | None = None
    """Time, name and prompt in one sentence, as `read_task` reads it."""
    prompt: str | None = None
    name: str | None = None
    every: str | None = None
    at: str | None = None
    cron: str | None = None
    zone: str | None = None
    missed: MissedPolicy | None = None
    grace: timedelta | None = None
    limits: TaskLimits | None = None
    keeps_context: bool | None = None
    send_to: str | None = None
    """Where results go, as `parse_send_to` reads it."""


def new_task(form: TaskForm, zone: str, now: datetime) -> NewTask:
    """The task, in that zone unless the form names one. Raises `Invalid` with the code of what is wrong."""
    written = _written(form)
    plain = NewTask(name=written.name, prompt=written.prompt, schedule=schedule_of(written.time, zone, now))
    given = {name: getattr(form, name) for name in ("missed", "grace", "limits", "keeps_context")}
    given["send_to"] = None if form.send_to is None else parse_send_to(form.send_to)
    return replace(plain, **{name: value for name, value in given.items() if value is not None})


class PreviewedTask(Struct, frozen=True):
    """A new task before it is stored."""

    task: NewTask
    upcoming: Sequence[datetime]
    """Its next times, as many as people are shown."""


def preview_of(form: TaskForm, zone: str, now: datetime) -> PreviewedTask:
    """Raises `Invalid` with the code of what is wrong."""
    new = new_task(form, zone, now)
    return PreviewedTask(new, upcoming(new.schedule, next_slot(new.schedule, now)))


def edit_of(form: TaskForm, zone: str, now: datetime) -> TaskEdit:
    """The changes that the form says; `zone` is that of the task. Raises `Invalid` with the code of what is wrong."""
    has_time = (form.every, form.at, form.cron) != (None, None, None)
    if form.text is not None:
        raise Invalid("Task is edited by its fields: 'prompt', 'every', 'at', 'cron' and others.", code="invalid_task")
    if form.zone is not None and not has_time:
        raise Invalid("Zone goes with 'every', 'at' or 'cron'. Give the time, too.", code="invalid_task")
    time = time_of(every=form.every, at=form.at, cron=form.cron, zone=form.zone) if has_time else None
    return TaskEdit(
        name=form.name,
        prompt=form.prompt,
        schedule=None if time is None else schedule_of(time, zone, now),
        missed=form.missed,
        grace=form.grace,
        limits=form.limits,
        keeps_context=form.keeps_context,
        send_to=None if form.send_to is None else parse_send_to(form.send_to),
    )


def _written(form: TaskForm) -> WrittenTask:
    if form.text is not None:
        if (form.prompt, form.every, form.at, form.cron) != (None, None, None, None):
            raise Invalid("Task needs either 'text', or a prompt and a time.", code="invalid_task")
        written = read_task(form.text)
        time = in_zone(written.time, form.zone)
        return replace(written, time=time, name=written.name if form.name is None else form.name)
    if form.prompt is None:
        raise Invalid("Task needs 'prompt', or 'text' with time and prompt.", code="invalid_task")
    time = time_of(every=form.every, at=form.at, cron=form.cron, zone=form.zone)
    return WrittenTask(time=time, name=form.name or infer_name(form.prompt), prompt=form.prompt)


def infer_name(prompt: str) -> str:
    """The first words of the prompt, without courtesies."""
    line = one_line(prompt, 400)
    courtesy = _COURTESY.match(line)
    words = line[0 if courtesy is None else courtesy.end() :].split()
    return " ".join(words[:MAX_INFERRED_WORDS])[:MAX_NAME_LENGTH].rstrip(" .,;:!?") or "Task"


def _time_before(head: str) -> WrittenTime | None:
    """The time that is all of the text before `--`, with a zone at its end if it names one."""
    zone = _ZONE.search(head)
    kind, _, when = (head if zone is None else head[: zone.start()]).partition(" ")
    if kind.lower() == WrittenKind.CRON:
        if zone is not None and len(when.split()) == 4:  # a step such as MON/2 is no zone
            zone, when = None, f"{when} {zone[1]}"
        return WrittenTime(kind=WrittenKind.CRON, text=when.strip(), zone=None if zone is None else zone[1])
    found = whole_time(head)
    if found is not None or zone is None:
        return found
    found = whole_time(head[: zone.start()])
    return None if found is None else in_zone(found, zone[1])


def _named(time: WrittenTime, rest: str) -> WrittenTask:
    rest = rest.strip(" \t\r\n,;").lstrip(" :")
    rest = _MARK.sub("", rest, count=1) if rest[:1] in (".", "!", "?") else rest
    match = _NAME.match(rest)
    prompt = rest if match is None else rest[match.end() :].strip()
    if not prompt or (match is None and _is_name_alone(rest)):
        raise Invalid("Task has no prompt. Write after the time what the agent is to do.", code="invalid_task")
    return WrittenTask(time=time, name=infer_name(prompt) if match is None else match[1].strip(), prompt=prompt)


def _is_name_alone(rest: str) -> bool:
    return rest.endswith(":") and "\n" not in rest and len(rest) <= MAX_NAME_LENGTH + 1


def _without(text: str, found: FoundTime) -> str:
    before, after = text[: found.start].rstrip(), text[found.end :].lstrip()
    joint = "" if not before or after[:1] in (",", ".", ";", "?", "!") else " "
    return f"{before}{joint}{after}"
