"""Operations on tasks. Contract: tasks 1, 2, channels 3."""

from datetime import timedelta
from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, Struct

from antiphon.domain.ids import TaskId
from antiphon.domain.send_to import MAX_SEND_TO
from antiphon.domain.stored_task import MAX_PROMPT_BYTES, StoredTask
from antiphon.domain.task import MissedPolicy, TaskLimits
from antiphon.domain.tokens import TokenScope
from antiphon.domain.written_task import TaskForm, edit_of, new_task, preview_of
from antiphon.gateway.operations.operation import Header, Http, OperationRequest, Params, TargetKind, operation
from antiphon.gateway.operations.sessions import Limit
from antiphon.wire import tasks as wire

MAX_LIMIT = 200
MICROUSD = 1_000_000

Time: TypeAlias = Annotated[str, Meta(min_length=1, max_length=300)]
NewMessage: TypeAlias = Annotated[str, Meta(min_length=1, max_length=2 * MAX_PROMPT_BYTES)]
Count: TypeAlias = Annotated[int, Meta(ge=1, lt=2**53)]


class TaskLimitsParams(Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Limits of a task; none for what is left out."""

    runs_an_hour: Count | None = None
    tokens_a_day: Count | None = None
    usd_a_day: Annotated[float, Meta(gt=0, le=1_000_000)] | None = None
    total_runs: Count | None = None
    stop_text: Annotated[str, Meta(max_length=1000)] | None = None
    """The task ends once a reply contains it."""

    def parsed(self) -> TaskLimits:
        return TaskLimits(
            runs_an_hour=self.runs_an_hour,
            tokens_a_day=self.tokens_a_day,
            microusd_a_day=None if self.usd_a_day is None else max(1, round(self.usd_a_day * MICROUSD)),
            total_runs=self.total_runs,
            stop_text=self.stop_text,
        )


class TaskParams(Params, frozen=True, kw_only=True):
    """What a task is made of."""

    prompt: NewMessage | None = None
    """What the agent is to do each time."""
    name: Annotated[str, Meta(max_length=400)] | None = None
    """The first words of the prompt unless set."""
    every: Time | None = None
    """An interval such as `1h30m`, or days with a time such as `weekday at 8:00`."""
    at: Time | None = None
    """Once: `2027-01-31 08:00`, an ISO time, `friday at 10`, or `08:00` for the next one."""
    cron: Time | None = None
    """Five fields, or a name such as `@daily`."""
    zone: Annotated[str, Meta(max_length=100)] | None = None
    """The time zone, such as `Europe/Berlin`; that of the settings unless set."""
    missed: MissedPolicy | None = None
    """For times at which nothing ran: `run` (one run for all of them) or `skip` (none after `graceMinutes`)."""
    grace_minutes: Annotated[float, Meta(ge=0, le=10**6)] | None = None
    context: Literal["fresh", "keep"] | None = None
    """`fresh`: each run begins a new conversation. `keep`: all runs share one."""
    limits: TaskLimitsParams | None = None
    send_to: Annotated[str, Meta(max_length=MAX_SEND_TO)] | None = None
    """Where results go: `chat` (the session in which it is made, unless set), `chat:<sessionKey>`, `me` (its maker's
    own chat on a channel), `log`, or a group as `<channel>/<group id>`."""

    def form(self, text: str | None = None) -> TaskForm:
        return TaskForm(
            text=text,
            prompt=self.prompt,
            name=self.name,
            every=self.every,
            at=self.at,
            cron=self.cron,
            zone=self.zone,
            missed=self.missed,
            grace=None if self.grace_minutes is None else timedelta(minutes=self.grace_minutes),
            limits=None if self.limits is None else self.limits.parsed(),
            keeps_context=None if self.context is None else self.context == "keep",
            send_to=self.send_to,
        )


class CreateTask(TaskParams, frozen=True, kw_only=True):
    text: NewMessage | None = None
    """Time, name and prompt in one sentence, such as `every weekday at 8 fetch https://example.org/news and tell me
    what is new`."""
    session_key: str = "main"
    """The session in which the task is made: its agent does the work."""


class ListTasksParams(Params, frozen=True, kw_only=True):
    session: str | None = None
    limit: Limit = 50
    after: str | None = None


class NamedTask(Params, frozen=True, kw_only=True):
    task_id: str


class EditTaskParams(TaskParams, frozen=True, kw_only=True):
    task_id: str
    version: Annotated[int, Meta(ge=1, lt=10**15)] | None = None
    """The version that was read: the task is changed only if it is still that one."""


class ListTaskRuns(NamedTask, frozen=True, kw_only=True):
    limit: Limit = 20


@operation("tasks.list", "GET /tasks", scope=TokenScope.READ)
async def list_tasks(request: OperationRequest, params: ListTasksParams) -> wire.TaskList:
    """Lists tasks, of one session if it is named; `after` is the last `taskId` of a page."""
    target = None if params.session is None else request.target(params.session)
    after = None if params.after is None else TaskId(params.after)
    limit = min(max(params.limit, 1), MAX_LIMIT)
    found = await request.services.tasks.list(request.principal, target, after=after, limit=limit)
    names = await request.services.names.read(wire.named_in(found))
    return wire.TaskList(count=len(found), tasks=[wire.task(each, names) for each in found])


@operation(
    "tasks.create", Http("POST /tasks", statuses={201: "Created."}), scope=TokenScope.WRITE, target=TargetKind.SESSION
)
async def create_task(request: OperationRequest, params: CreateTask) -> wire.TaskShape:
    """Makes a task. Give `text`, or `prompt` with one of `every`, `at` and `cron`.

    Its runs act with the present rights of its maker. Results go where `sendTo` says. Names are unique within a
    session, so the same request again is a conflict and makes no second task.
    """
    services = request.services
    new = new_task(params.form(params.text), services.rules.task_zone, services.clock.now())
    (created,) = await services.tasks.create(request.principal, request.target(params.session_key), (new,))
    return await _shown(request, created)


@operation("tasks.preview", Http("POST /tasks", when="preview"), scope=TokenScope.READ)
async def preview_task(request: OperationRequest, params: CreateTask) -> wire.TaskPreview:
    """With `?preview`, returns what the task would be, with its next three times, and saves nothing.

    It takes what `tasks.create` takes.
    """
    services = request.services
    await services.tasks.check(request.principal)
    return wire.preview(preview_of(params.form(params.text), services.rules.task_zone, services.clock.now()))


@operation("tasks.get", "GET /tasks/{task_id}", scope=TokenScope.READ, target=TargetKind.TASK)
async def get_task(request: OperationRequest, params: NamedTask) -> wire.TaskShape:
    """Returns the task."""
    return await _shown(request, await request.services.tasks.get(request.principal, TaskId(params.task_id)))


@operation("tasks.edit", "PATCH /tasks/{task_id}", scope=TokenScope.WRITE, target=TargetKind.TASK)
async def edit_task(request: OperationRequest, params: EditTaskParams) -> wire.TaskShape:
    """Changes the named fields. `limits` replaces all limits. A new time counts from now."""
    services = request.services
    stored = await services.tasks.get(request.principal, TaskId(params.task_id))
    edit = edit_of(params.form(), stored.schedule.zone, services.clock.now())
    return await _shown(request, await services.tasks.edit(request.principal, stored.id, edit, version=params.version))


class RunTask(NamedTask, frozen=True, kw_only=True):
    idempotency_key: str | None = None
    """A repeated request with the same key begins no second run."""


@operation(
    "tasks.run",
    Http("POST /tasks/{task_id}/run", headers={"idempotency_key": Header("Idempotency-Key")}),
    scope=TokenScope.WRITE,
    target=TargetKind.TASK,
)
async def run_task(request: OperationRequest, params: RunTask) -> wire.TaskSlotShape:
    """Runs the task now, besides its times. `GET /runs/{runId}?wait=` waits for the result.

    With an `Idempotency-Key`, a repeated request is the same run.
    """
    tasks = request.services.tasks
    key = params.idempotency_key
    return wire.slot(await tasks.run(request.principal, TaskId(params.task_id), idempotency_key=key))


@operation("tasks.runs", "GET /tasks/{task_id}/runs", scope=TokenScope.READ, target=TargetKind.TASK)
async def list_task_runs(request: OperationRequest, params: ListTaskRuns) -> wire.TaskSlotList:
    """Lists the times at which the task was due or run by hand, newest first, and what became of each."""
    limit = min(max(params.limit, 1), MAX_LIMIT)
    found = await request.services.tasks.runs(request.principal, TaskId(params.task_id), limit=limit)
    return wire.TaskSlotList(count=len(found), runs=[wire.slot(each) for each in found])


@operation("tasks.pause", "POST /tasks/{task_id}/pause", scope=TokenScope.WRITE, target=TargetKind.TASK)
async def pause_task(request: OperationRequest, params: NamedTask) -> wire.TaskShape:
    """Stops the task from firing until it is resumed."""
    return await _shown(request, await request.services.tasks.pause(request.principal, TaskId(params.task_id)))


@operation("tasks.resume", "POST /tasks/{task_id}/resume", scope=TokenScope.WRITE, target=TargetKind.TASK)
async def resume_task(request: OperationRequest, params: NamedTask) -> wire.TaskShape:
    """Lets a paused task fire again, from its next time on."""
    return await _shown(request, await request.services.tasks.resume(request.principal, TaskId(params.task_id)))


@operation("tasks.approve", "POST /tasks/{task_id}/approve", scope=TokenScope.APPROVALS, target=TargetKind.TASK)
async def approve_task(request: OperationRequest, params: NamedTask) -> wire.TaskShape:
    """Lets the task's runs reach sessions of other agents, as far as the settings let any session. For owners."""
    return await _shown(request, await request.services.tasks.approve(request.principal, TaskId(params.task_id)))


@operation("tasks.cancel", "DELETE /tasks/{task_id}", scope=TokenScope.WRITE, target=TargetKind.TASK)
async def cancel_task(request: OperationRequest, params: NamedTask) -> wire.TaskShape:
    """Removes the task, and returns it as it was. A run in progress goes on."""
    return await _shown(request, await request.services.tasks.cancel(request.principal, TaskId(params.task_id)))


async def _shown(request: OperationRequest, stored: StoredTask) -> wire.TaskShape:
    return wire.task(stored, await request.services.names.read(wire.named_in((stored,))))
