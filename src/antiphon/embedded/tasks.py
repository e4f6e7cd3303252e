"""What agents of an embedded system do by themselves at set times."""

from collections.abc import Sequence
from datetime import timedelta
from typing import Literal, TypedDict, Unpack

from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import TaskId
from antiphon.domain.stored_task import StoredTask, TaskSlot
from antiphon.domain.task import MissedPolicy, TaskLimits
from antiphon.domain.written_task import PreviewedTask, TaskForm, edit_of, preview_of
from antiphon.embedded.arguments import checked, rows
from antiphon.embedded.lease import Lease

LISTED = 50
MOST_GRACE_MINUTES = 7 * 24 * 60


class TaskFields(TypedDict, total=False):
    """What a task is made of; `text` says time and prompt in one sentence, for a new one."""

    text: str
    prompt: str
    name: str
    every: str
    at: str
    cron: str
    zone: str
    missed: Literal["run", "skip"]
    grace_minutes: float
    context: Literal["fresh", "keep"]
    limits: TaskLimits
    send_to: str
    """`chat` (the session in which it is made), `chat:<session key>`, `me`, `log`, or `<channel>/<group id>`."""


class TaskHandles:
    """`app.tasks`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @checked
    async def create(self, *, session: str = "main", **fields: Unpack[TaskFields]) -> StoredTask:
        """Makes a task in the session, whose agent does the work; its results go there unless `send_to` says otherwise.

        Raises `Invalid`, `TooLarge`, and `Conflict` (`task_name_taken`) if the session has a task of that name, so
        that the same call again makes no second task.
        """
        services = self._lease.services
        new = self._preview(fields).task
        (created,) = await services.tasks.create(OWNER, services.sessions.target(session), (new,))
        return created

    @checked
    async def preview(self, **fields: Unpack[TaskFields]) -> PreviewedTask:
        """What `create` would make, with its next times. Raises `Invalid`."""
        return self._preview(fields)

    @checked
    async def list(
        self, *, session: str | None = None, limit: int = LISTED, after: str | None = None
    ) -> list[StoredTask]:
        """Tasks, of one session if it is named; `after` is the id of the last one of the previous page."""
        services = self._lease.services
        target = None if session is None else services.sessions.target(session)
        last = None if after is None else TaskId(after)
        return await services.tasks.list(OWNER, target, after=last, limit=rows(limit))

    @checked
    async def get(self, task_id: str) -> StoredTask:
        """Raises `NotFound`."""
        return await self._lease.services.tasks.get(OWNER, TaskId(task_id))

    @checked
    async def edit(self, task_id: str, *, version: int | None = None, **fields: Unpack[TaskFields]) -> StoredTask:
        """Changes the named fields; `limits` replaces all limits. With a `version`, only if it is still that one.

        Raises what `create` raises, `NotFound`, and `Conflict` (`task_changed`, `task_ended`).
        """
        services = self._lease.services
        stored = await services.tasks.get(OWNER, TaskId(task_id))
        edit = edit_of(_form(fields), stored.schedule.zone, services.clock.now())
        return await services.tasks.edit(OWNER, stored.id, edit, version=version)

    @checked
    async def run(self, task_id: str, *, idempotency_key: str | None = None) -> TaskSlot:
        """Runs it now, besides its times; `app.run(slot.run)` waits for the result.

        Repeating the `idempotency_key` begins no second run.

        Raises `NotFound`, and `Conflict` (`task_running`, `task_limit`, `task_ended`).
        """
        return await self._lease.services.tasks.run(OWNER, TaskId(task_id), idempotency_key=idempotency_key)

    @checked
    async def runs(self, task_id: str, *, limit: int = LISTED) -> Sequence[TaskSlot]:
        """The times at which it was due or run by hand, newest first. Raises `NotFound`."""
        return await self._lease.services.tasks.runs(OWNER, TaskId(task_id), limit=rows(limit))

    @checked
    async def pause(self, task_id: str) -> StoredTask:
        """It does not fire until it is resumed. Raises `NotFound`, and `Conflict` (`task_ended`)."""
        return await self._lease.services.tasks.pause(OWNER, TaskId(task_id))

    @checked
    async def resume(self, task_id: str) -> StoredTask:
        """It fires again, from its next time on. Raises `NotFound`, and `Conflict` (`task_ended`)."""
        return await self._lease.services.tasks.resume(OWNER, TaskId(task_id))

    @checked
    async def approve(self, task_id: str) -> StoredTask:
        """Its runs may reach sessions of other agents, as far as the settings let any session. Raises `NotFound`."""
        return await self._lease.services.tasks.approve(OWNER, TaskId(task_id))

    @checked
    async def cancel(self, task_id: str) -> StoredTask:
        """Removes it, and returns what it was; a run in progress goes on. Raises `NotFound`."""
        return await self._lease.services.tasks.cancel(OWNER, TaskId(task_id))

    def _preview(self, fields: TaskFields) -> PreviewedTask:
        services = self._lease.services
        return preview_of(_form(fields), services.rules.task_zone, services.clock.now())


def _form(fields: TaskFields) -> TaskForm:
    grace = fields.get("grace_minutes")
    if grace is not None and not 0 <= grace <= MOST_GRACE_MINUTES:
        raise Invalid("Task grace is not between 0 and 7 days.", code="invalid_task")
    missed, context = fields.get("missed"), fields.get("context")
    return TaskForm(
        text=fields.get("text"),
        prompt=fields.get("prompt"),
        name=fields.get("name"),
        every=fields.get("every"),
        at=fields.get("at"),
        cron=fields.get("cron"),
        zone=fields.get("zone"),
        missed=None if missed is None else MissedPolicy(missed),
        grace=None if grace is None else timedelta(minutes=grace),
        limits=fields.get("limits"),
        keeps_context=None if context is None else context == "keep",
        send_to=fields.get("send_to"),
    )
