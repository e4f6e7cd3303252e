"""`tasks`: what the agent does at set times, created and changed by the agent. Contract: tasks 1, 2."""

from typing import Any, Literal

from pydantic import Field

from antiphon.clock import Clock
from antiphon.domain.agent import Effect
from antiphon.domain.classification import join_all
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import TaskId
from antiphon.domain.send_to import MAX_SEND_TO
from antiphon.domain.stored_task import StoredTask
from antiphon.domain.text import one_line
from antiphon.domain.written_task import TaskForm, new_task
from antiphon.engine.access.caller import Caller
from antiphon.engine.rules import Rules
from antiphon.engine.schedules.tasks import Tasks
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool
from antiphon.wire.tasks import task as shown_task

DESCRIPTION = (
    "Manages tasks: prompts that this session's agent gets at set times. new: makes one. list: shows those of this "
    "session. pause: stops one until a person resumes it. cancel: removes one. Use it when somebody asks for something "
    "later or regularly. Tell them the times and the prompt that come back."
)

CODES = (
    *("not_found", "invalid_task", "invalid_duration", "invalid_time", "invalid_cron", "invalid_zone"),
    *("prompt_too_large", "task_name_taken", "task_cap", "task_in_task", "task_ended", "above_clearance"),
    *("forbidden", "agent_not_open", "not_maker", "write_down", "no_place"),
)
LISTED = 50
PROMPT_LENGTH = 300


class TasksArguments(Arguments):
    action: Literal["list", "new", "pause", "cancel"] = Field(description="The action.")
    task: str | None = Field(None, max_length=100, description="For pause and cancel: the taskId.")
    prompt: str | None = Field(None, description="For new: what to do each time.")
    name: str | None = Field(None, max_length=400, description="For new: a short name.")
    every: str | None = Field(
        None, max_length=300, description="For new: an interval, '1h30m', or days: 'weekday at 8 and 17'."
    )
    at: str | None = Field(None, max_length=300, description="For new: once: '2027-01-31 08:00', 'friday at 10'.")
    cron: str | None = Field(None, max_length=300, description="For new: five fields, or '@daily'.")
    zone: str | None = Field(None, max_length=100, description="For new: a time zone, such as 'Europe/Berlin'.")
    send_to: str | None = Field(
        None,
        max_length=MAX_SEND_TO,
        description="For new: where results go: 'chat' (this one, the default), 'me' (the person's own), 'log', or "
        "'<channel>/<group id>'.",
    )


def tasks(service: Tasks, rules: Rules, clock: Clock) -> SessionTool[TasksArguments]:
    async def carry_out(caller: Caller, arguments: TasksArguments) -> ClassifiedAnswer:
        action = arguments.action
        if action == "list":
            found = await service.list(caller, limit=LISTED + 1)
            shown = [_shown(each) for each in found[:LISTED]]
            answer = {"count": len(shown), "tasks": shown} | ({"hasMore": True} if len(found) > LISTED else {})
            return ClassifiedAnswer(answer, join_all(each.made_of for each in found[:LISTED]))
        if action == "new":
            new = new_task(_form(arguments), rules.task_zone, clock.now())
            (created,) = await service.create(caller, None, (new,))
            return _done(created)
        if arguments.task is None:
            raise Invalid(f"Action needs a task: {action!r}. 'list' shows the tasks.", code="invalid_arguments")
        id = TaskId(arguments.task)
        changed = await (service.pause if action == "pause" else service.cancel)(caller, id)
        return _done(changed)

    return SessionTool(
        "tasks",
        DESCRIPTION,
        TasksArguments,
        carry_out,
        codes=CODES,
        effects=frozenset({Effect.WRITES}),
        is_idempotent=False,
    )


def _done(task: StoredTask) -> ClassifiedAnswer:
    return ClassifiedAnswer({"status": "ok", "task": _shown(task)}, task.made_of)


def _form(arguments: TasksArguments) -> TaskForm:
    return TaskForm(
        prompt=arguments.prompt,
        name=arguments.name,
        every=arguments.every,
        at=arguments.at,
        cron=arguments.cron,
        zone=arguments.zone,
        send_to=arguments.send_to,
    )


def _shown(stored: StoredTask) -> dict[str, Any]:
    shape = shown_task(stored, {})
    return {
        "taskId": shape.task_id,
        "name": shape.name,
        "when": shape.trigger.words,
        "next": [time.shown for time in shape.upcoming],
        "state": shape.state,
        **({} if shape.reason is None else {"reason": shape.reason}),
        "prompt": one_line(stored.prompt, PROMPT_LENGTH),
        "sendTo": shape.send_to,
        "runs": stored.runs,
    }
