"""Drives sessions: claims their runs in order, has them executed, and ends them. Contract: runs 1, 5, 8."""

import asyncio
import logging
import os
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

import anyio
from anyio import to_thread
from anyio.abc import TaskGroup
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.actor import Asker
from antiphon.domain.attachments import Attachment, in_order
from antiphon.domain.checkpoint import CheckpointRules
from antiphon.domain.errors import Conflict, Unavailable
from antiphon.domain.ids import AgentId, ProcessId, SessionRow
from antiphon.domain.message import AssistantMessage, text_content
from antiphon.domain.run import Outcome, Run, RunStatus
from antiphon.domain.session import Session
from antiphon.engine.deliveries.outbox import ExitCheck
from antiphon.engine.ledger.fence import Claimant, Fence, Fenced, sessions_of
from antiphon.engine.ledger.run_log import UsedModel
from antiphon.engine.rules import Rules
from antiphon.engine.runs import lifecycle
from antiphon.engine.runs.context import RunContext, Runtime
from antiphon.engine.runs.ends import Ended, FinishRun, NewInput
from antiphon.engine.runs.runner import AgentRunner, AwaitsApproval, RunEnding
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.engine.work.line import Line
from antiphon.engine.work.slots import Slots
from antiphon.engine.work.transcripts import Transcripts
from antiphon.metrics import RUN_SECONDS, RUNS_ENDED
from antiphon.request_ids import executing_run
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import spawns
from antiphon.store.database import Query
from antiphon.trouble import Setbacks, Trouble

logger = logging.getLogger(__name__)

UNWIND_SECONDS = 30.0
"""How long cancelled work may take to stop before its run is fenced off."""
RETRY_SECONDS = 1.0
"""Between attempts to write to a store that is full or busy."""


class StopCause(StrEnum):
    CANCEL = "cancel"
    TIMEOUT = "timeout"
    DRAIN = "drain"
    FENCED = "fenced"
    """Another process took the run over: this one may write nothing more for it."""


class _Drive:
    """A session being worked on, and its run that is executing."""

    def __init__(self, session: SessionRow, slots: Slots, holder: Asker | None) -> None:
        self.session = session
        self.has_news = False
        self.context: RunContext | None = None
        """Of the run that is executing."""
        self.scope: anyio.CancelScope | None = None
        self.cause: StopCause | None = None
        self.unwound = anyio.Event()
        self.is_abandoned = False
        self.is_done = False
        self.is_exhausted = False
        """Whether the end of the run found no other run waiting."""
        self.is_unchecked = False
        """Whether a check was requested since the run began; it may concern a later run, already claimed."""
        self.following: Run | None = None
        """The session's next run, already claimed."""
        self._slots = slots
        self.has_slot = True
        self._holder = holder
        """The asker whose share the slot counts in; None until the first run is claimed, if unknown."""
        self._has_claimed = False

    @property
    def run(self) -> Run | None:
        return None if self.context is None else self.context.run

    def give_back(self) -> None:
        if self.has_slot:
            self.has_slot = False
            self._slots.give_back(self._holder)

    async def take_again(self) -> None:
        if not self.has_slot:
            assert self._holder is not None
            await self._slots.take_again(self._holder)
            self.has_slot = True

    def claimed(self, asker: Asker) -> None:
        """Reassigns the slot to that principal; but the first run keeps the slot given for work behind it."""
        if self._holder != asker and (self._has_claimed or self._holder is None):
            self._slots.reassign(self._holder, asker)
            self._holder = asker
        self._has_claimed = True

    def settle(self, ended: Ended | NewInput | None) -> None:
        """Notes what the end of a run says about the session's next run."""
        if isinstance(ended, Ended):
            self.following, self.is_exhausted = ended.following, ended.is_last

    def stop(self, cause: StopCause) -> None:
        if self.scope is not None and self.cause is None:
            self.cause = cause
            self.scope.cancel()


class Worker:
    """Runs agents. `run` must be running in a task; all of its work belongs to that task."""

    def __init__(
        self,
        runtime: Runtime,
        *,
        runner: AgentRunner,
        rules: Rules,
        process: ProcessId,
        workspaces: Workspaces,
        lacking: Collection[AgentId] = (),
        unwind_seconds: float = UNWIND_SECONDS,
    ) -> None:
        """`lacking` are the agents whose runners this process lacks: their runs stay queued for another one."""
        self._runtime = runtime
        self._database = runtime.database
        self._clock = runtime.clock
        self._ids = runtime.ids
        self._runner = runner
        self._rules = rules
        self._workspaces = workspaces
        self._unwind_seconds = unwind_seconds
        self._claimant = Claimant(
            process=process,
            time_limits={agent.id: agent.limits.time for agent in rules.agents.values() if agent.id not in lacking},
            lacking=frozenset(lacking),
            default_time=rules.run_time,
            is_default_named=rules.is_run_time_named,
        )
        self.slots = self._slots = Slots(rules.max_concurrent, self._on_free_slot)
        self._transcripts = Transcripts()
        self._pending: dict[SessionRow, bool] = {}
        """Sessions with work for an unknown principal; True until the principal is looked up."""
        self._line = Line()
        self._driving: dict[SessionRow, _Drive] = {}
        self._storing = Trouble(logger, "Storing runs", action="store_retry", means="Runs wait until this is over.")
        self._setbacks = Setbacks(
            logger, "Drive", action="drive_failed", means="The session's run is taken over like that of a dead process."
        )
        self._checking = Trouble(
            logger, "Checking a run", action="run_check_failed", means="It may be cancelled or time out late."
        )
        self._leaving: dict[SessionRow, list[asyncio.Future[bool]]] = {}
        self._tasks: TaskGroup | None = None
        self._has_work = asyncio.Event()
        self._overdue: list[tuple[_Drive, RunContext]] = []
        """Whose time limit has passed."""
        self._to_check: dict[SessionRow, None] = {}
        self._is_draining = self._has_drained = False
        self._room = anyio.Event()
        self._idle = anyio.Event()

    async def run(self) -> None:
        """Works on everything that is delivered, until cancelled."""
        async with anyio.create_task_group() as self._tasks:
            while True:
                try:
                    await self._pump()
                except Exception as error:  # a bug of ours: what waits is looked at again
                    self._storing.failed(error)
                    await anyio.sleep(RETRY_SECONDS)
                    continue
                await self._has_work.wait()
                self._has_work.clear()

    def take(self, session: SessionRow) -> None:
        drive = self._driving.get(session)
        if drive is None:
            self._line.leave(session)
            self._pending[session] = True
        else:
            drive.has_news = True
        self._has_work.set()

    def check(self, session: SessionRow) -> None:
        """Looks whether the session's run is to stop, if it executes here."""
        if session in self._driving:
            self._to_check[session] = None
            self._has_work.set()

    async def check_all(self) -> None:
        """Looks at every run that executes here, in one query."""
        drives = {drive.run.id: drive for drive in self._driving.values() if drive.run is not None}
        if not drives:
            return
        claims = [(run_id, drive.run.fence) for run_id, drive in drives.items() if drive.run is not None]
        for run_id in await self._database.read(ledger.find_called_off, claims):
            self.check(drives[run_id].session)

    async def wait_room(self) -> bool:
        """Returns when there is room for one more session, or never will be; False if only for the owner's."""
        while not self._is_draining:
            if self._has_room_for_guests:
                return True
            if self._slots.free > self._able:
                return False
            await self._wait_for_change_of_room()
        return True

    async def wait_guest_room(self) -> None:
        while not (self._is_draining or self._has_room_for_guests):
            await self._wait_for_change_of_room()

    @property
    def waiting(self) -> int:
        """The number of sessions that wait for a slot."""
        return len(self._pending) + len(self._line)

    @property
    def _has_room_for_guests(self) -> bool:
        return self._slots.free_for_guests > self._able

    @property
    def _able(self) -> int:
        """The number of waiting sessions that may take a place as soon as their principal is looked up."""
        return len(self._pending) + self._line.count(self._slots.may_take_if_others_are_not_theirs)

    async def _wait_for_change_of_room(self) -> None:
        if self._room.is_set():
            self._room = anyio.Event()
        await self._room.wait()

    def _on_free_slot(self) -> None:
        self._has_work.set()
        self._room.set()

    async def wait_left(self, session: SessionRow) -> bool:
        """Returns once nobody works on the session here any more; True if all of its work is done."""
        if session not in self._pending and session not in self._line and session not in self._driving:
            return True
        if self._has_drained:
            return False
        left: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._leaving.setdefault(session, []).append(left)
        return await left

    async def drain(self, seconds: float) -> None:
        """Begins no more runs, gives active ones time to end, then hands them back unfinished."""
        self._is_draining = True
        self._room.set()
        with anyio.move_on_after(seconds):
            await self._wait_idle()
        for drive in tuple(self._driving.values()):
            drive.stop(StopCause.DRAIN)
        with anyio.move_on_after(self._unwind_seconds):
            await self._wait_idle()
        self._has_drained = True
        for session in tuple(self._leaving):
            self._tell_left(session, is_done=False)

    def _tell_left(self, session: SessionRow, *, is_done: bool) -> None:
        for left in self._leaving.pop(session, ()):
            if not left.done():
                left.set_result(is_done)

    async def _wait_idle(self) -> None:
        while self._driving:
            self._idle = anyio.Event()
            await self._idle.wait()

    async def _pump(self) -> None:
        """Starts driving sessions while there are slots for them, and checks those being driven."""
        assert self._tasks is not None
        while self._overdue:
            self._tasks.start_soon(self._end_overdue, *self._overdue.pop())
        to_check, self._to_check = self._to_check, {}
        for session in to_check:
            drive = self._driving.get(session)
            if drive is None:
                continue
            drive.is_unchecked = True
            if drive.context is not None and drive.cause is None:
                self._tasks.start_soon(self._try_to_check, drive, drive.context)
        while not self._line and self._pending and not self._is_draining and self._slots.try_take(None):
            session = next(iter(self._pending))
            del self._pending[session]
            self._begin(session, None)
        if self._pending and not self._is_draining:
            await self._line_up()
        while not self._is_draining and (found := self._line.next(self._slots.may_take)) is not None:
            session, asker = found
            self._slots.try_take(asker)
            self._begin(session, asker)

    def _begin(self, session: SessionRow, holder: Asker | None) -> None:
        assert self._tasks is not None
        drive = self._driving[session] = _Drive(session, self._slots, holder)
        self._tasks.start_soon(self._drive, drive)

    async def _line_up(self) -> None:
        """Looks up the askers of the sessions, whose shares limit the places."""
        sessions = tuple(self._pending)
        self._pending = dict.fromkeys(sessions, False)
        try:
            found = await self._database.read(ledger.find_askers, sessions)
        except Unavailable as error:
            self._storing.failed(error)
            await anyio.sleep(RETRY_SECONDS)
            self._has_work.set()
            return
        for session in sessions:
            if self._pending.get(session) is False:
                del self._pending[session]
                if (asker := found.get(session)) is None:
                    self._tell_left(session, is_done=True)
                else:
                    self._line.join(session, asker)
        if self._pending:
            self._has_work.set()
        self._room.set()

    @property
    def _is_anybody_waiting(self) -> bool:
        return bool(self._pending or self._line)

    async def _drive(self, drive: _Drive) -> None:
        """Executes the session's runs, until there are none or other sessions wait for the slot."""
        try:
            while not self._is_draining and not drive.is_abandoned:
                drive.has_news = False
                await drive.take_again()
                if not await self._drive_once(drive) or (self._is_anybody_waiting and drive.following is None):
                    break
            if drive.following is not None:
                await self._hand_back(drive.following)
        except Unavailable as error:
            self._storing.failed(error)
            drive.is_done = True
        except Exception as error:  # a bug of ours must not end the drives of others
            self._setbacks.failed(drive.session, error, session=drive.session)
            await anyio.sleep(RETRY_SECONDS)
        finally:
            if self._driving.get(drive.session) is drive:
                del self._driving[drive.session]
                if drive.is_done:
                    self._tell_left(drive.session, is_done=True)
                else:
                    self._pending[drive.session] = True
            drive.give_back()
            self._idle.set()
            self._has_work.set()

    async def _drive_once(self, drive: _Drive) -> bool:
        """Claims one run and has it executed; False if the session has no more work."""
        run = None
        try:
            run = drive.following or await self._claim(drive.session)
            drive.following, drive.is_exhausted = None, False
            if run is not None and self._is_draining:
                await self._hand_back(run)
                return False
            if run is not None:
                drive.claimed(run.asker)
                with executing_run(run.id):
                    await self._execute(drive, run)
        except Unavailable as error:
            if not _is_passing(error):
                raise
            self._storing.failed(error)
            await anyio.sleep(RETRY_SECONDS)
            return True
        except Exception as error:  # a bug of ours: the run is taken over like one whose process died
            run_id = None if run is None else run.id
            self._setbacks.failed(drive.session, error, session=drive.session, run_id=run_id)
            drive.give_back()
            await anyio.sleep(RETRY_SECONDS)
            return False
        self._storing.worked()
        self._setbacks.worked(drive.session, session=drive.session)
        drive.is_done = not drive.has_news and (run is None or drive.is_exhausted)
        return not drive.is_done

    async def _claim(self, session: SessionRow) -> Run | None:
        run = await self._database.run(lifecycle.claim, session, self._claimant, sessions=(session,))
        if run is not None and run.attempt > 1:
            logger.info("Run resumed", extra={"action": "run_resumed", "run_id": run.id, "attempt": run.attempt})
        return run

    async def _hand_back(self, run: Run) -> None:
        await self._database.run(lifecycle.hand_back, Fence(run.id, run.fence), sessions=(SessionRow(run.session),))

    async def _finish_run(self, run: Run, end: FinishRun) -> Ended | NewInput | None:
        check = end.check or ExitCheck(rules=self._rules)
        command = replace(end, check=check, checkpoints=self._checkpoints_of(run, end.model))
        fence, live = Fence(run.id, run.fence), self._runtime.live
        if live is not None:
            await live.leave(run.id)
        ended = await self._database.run(lifecycle.finish_run, fence, command, sessions=sessions_of(run))
        if isinstance(ended, Ended):
            _measure(ended.run, self._clock)
        if live is not None and isinstance(ended, NewInput):
            live.begin(run)
        return ended

    def _checkpoints_of(self, run: Run, model: UsedModel) -> CheckpointRules | None:
        """The rules by which the run's session looks back; None if its model is not one that does."""
        agent = self._rules.agents.get(run.agent_id)
        own = model.name or (None if agent is None else agent.model)
        rules = self._rules.checkpoints
        return None if own is None or rules.model_for(own) is None else rules

    async def _execute(self, drive: _Drive, run: Run) -> None:
        agent = self._rules.agents.get(run.agent_id)
        if agent is None:
            outcome = Outcome(
                status=RunStatus.ERROR,
                error=f"Agent is no longer configured: {run.agent_id!r}",
                code="unknown_agent",
            )
            await self._finish_run(run, FinishRun(outcome=outcome))
            return
        transcript = self._transcripts.take(run.session_id)
        context = RunContext(self._runtime, run=run, agent=agent, slot=drive, transcript=transcript, rules=self._rules)
        drive.context, drive.cause, drive.unwound = context, None, anyio.Event()
        deadline = None if run.deadline is None else self._at_deadline(run.deadline, drive, context)
        try:
            with anyio.CancelScope() as drive.scope:
                is_unchecked, drive.is_unchecked = drive.is_unchecked, False
                if run.is_cancel_requested:
                    drive.stop(StopCause.CANCEL)
                elif is_unchecked:
                    assert self._tasks is not None
                    self._tasks.start_soon(self._try_to_check, drive, context)
                if self._runtime.live is not None:
                    self._runtime.live.begin(run)
                drive.settle(await self._run_to_end(context))
                if context.transcript is not None:
                    self._transcripts.put_back(run.session_id, context.transcript)
        finally:
            if deadline is not None:
                deadline.cancel()
            if self._runtime.live is not None:
                self._runtime.live.forget(run.id)
            drive.scope = drive.context = None
            drive.unwound.set()
        await self._settle(drive, context)

    async def _settle(self, drive: _Drive, context: RunContext) -> None:
        """Records in the ledger the outcome of work that was stopped."""
        if drive.cause is StopCause.FENCED:
            logger.warning("Run was taken over", extra={"action": "run_lost", "run_id": context.run.id})
        elif drive.cause is StopCause.DRAIN:
            await self._hand_back(context.run)
        elif drive.cause is not None and not drive.is_abandoned:
            drive.settle(await self._end_cut(context, drive.cause, self._successors))

    async def _run_to_end(self, context: RunContext) -> Ended | None:
        """Returns when the run has ended in the ledger; None if it is no longer ours, or waits for an approval."""
        ending: RunEnding | AwaitsApproval | None
        is_prepared = False
        while True:
            try:
                ending = None if is_prepared else await self._prepare(context.run)
                is_prepared = ending is None
                ending = ending or await self._runner.run(context)
            except Fenced:
                return None
            except Unavailable as error:
                if not _is_passing(error):
                    raise
                self._storing.failed(error)
                await anyio.sleep(RETRY_SECONDS)
                continue
            except Exception as error:
                logger.exception("Runner failed", extra={"action": "runner_failed", "run_id": context.run.id})
                ending = RunEnding(outcome=_internal_error(error))
            if isinstance(ending, AwaitsApproval):
                return None
            result = await self._finish(context, ending, self._successors)
            if not isinstance(result, NewInput):
                return result

    async def _prepare(self, run: Run) -> RunEnding | None:
        """Writes the run's files into its workspace, once; returns an ending if that fails. Contract: spawn 5.

        Changes that the child made to them later are kept. Another worker, whose home may have another workspace,
        writes them again if it has none.
        """
        if not run.has_attachments and (run.fence == 1 or run.report is None):
            return None
        files = await self._database.read(_find_files, run)
        if files is None:
            return None
        workspace = self._workspaces.of_session(files.session)
        if not run.has_attachments:
            if await to_thread.run_sync(os.path.lexists, workspace.path):
                return None
            await self._set_attachments_due(run, is_due=True)
        try:
            await to_thread.run_sync(workspace.write_attachments, files.rel_dir, files.attachments)
        except (Conflict, Unavailable) as error:
            return RunEnding(outcome=Outcome(status=RunStatus.ERROR, error=error.message, code=error.code))
        await self._set_attachments_due(run, is_due=False)
        return None

    async def _set_attachments_due(self, run: Run, *, is_due: bool) -> None:
        if not await self._database.run(lifecycle.set_attachments_due, Fence(run.id, run.fence), is_due):
            raise Fenced

    @property
    def _successors(self) -> Claimant | None:
        """The process that claims a session's next run with the end of the one before; None if it is not to."""
        return None if self._is_anybody_waiting or self._is_draining else self._claimant

    async def _finish(
        self, context: RunContext, ending: RunEnding, successors: Claimant | None
    ) -> Ended | NewInput | None:
        """Ends the run; returns `NewInput` if a message joined it, so that it continues, and None if it is not ours."""
        while True:
            try:
                end = FinishRun(
                    outcome=ending.outcome,
                    message=ending.message,
                    model=context.model,
                    saw=context.last_seq,
                    made_of=context.made_of,
                    beside_log=context.beside_log.integrity,
                    check=ExitCheck(rules=self._rules, read=context.steering()),
                    successors=successors,
                )
                result = await self._finish_run(context.run, end)
            except Unavailable as error:
                if not _is_passing(error):
                    raise
                await anyio.sleep(RETRY_SECONDS)
                continue
            context.streamed.clear()
            return result

    async def _end_cut(
        self, context: RunContext, cause: StopCause, successors: Claimant | None
    ) -> Ended | NewInput | None:
        """Ends a run that was cancelled or ran out of time, with the text it had."""
        partial = "".join(context.streamed)
        message = None
        if partial:
            message = AssistantMessage(
                message_id=self._ids.new("msg"),
                content=text_content(partial),
                saw=context.last_seq,
                partial=True,
                is_undecided=True,
            )
        return await self._finish(context, RunEnding(outcome=_cut(cause, partial), message=message), successors)

    async def _try_to_check(self, drive: _Drive, context: RunContext) -> None:
        try:
            await self._check(drive, context)
        except Exception as error:  # a bug of ours: the run is looked at again
            self._checking.failed(error, run_id=context.run.id, session=drive.session)
            await anyio.sleep(RETRY_SECONDS)
            self.check(drive.session)
        else:
            self._checking.worked()

    async def _check(self, drive: _Drive, context: RunContext) -> None:
        run = context.run
        try:
            current = await self._database.read(ledger.find, run.id)
        except Unavailable:
            self._to_check[drive.session] = None  # the next dispatch looks at it again
            return
        if drive.context is not context or drive.cause is not None:
            return
        if current is None or current.fence != run.fence:
            await self._stop(drive, context, StopCause.FENCED)
        elif current.is_cancel_requested:
            await self._stop(drive, context, StopCause.CANCEL)

    def _at_deadline(self, deadline: datetime, drive: _Drive, context: RunContext) -> asyncio.TimerHandle:
        """Stops the run then, unless the timer is cancelled before; a task that waits would cost a run 0.1 ms."""
        seconds = (deadline - self._clock.now()).total_seconds()
        return asyncio.get_running_loop().call_later(max(seconds, 0), self._time_out, drive, context)

    def _time_out(self, drive: _Drive, context: RunContext) -> None:
        """Cancels the work at once. No task can be begun here, so `_pump` begins the one that waits for its end."""
        drive.stop(StopCause.TIMEOUT)
        self._overdue.append((drive, context))
        self._has_work.set()

    async def _end_overdue(self, drive: _Drive, context: RunContext) -> None:
        if drive.context is context:  # it has not ended meanwhile
            await self._stop(drive, context, StopCause.TIMEOUT)

    async def _stop(self, drive: _Drive, context: RunContext, cause: StopCause) -> None:
        """Cancels the work; if it does not stop in time, ends its run without it."""
        unwound = drive.unwound
        drive.stop(cause)
        with anyio.move_on_after(self._unwind_seconds):
            await unwound.wait()
        if unwound.is_set() or drive.is_abandoned:
            return
        drive.is_abandoned = True
        logger.error("Run fenced off", extra={"action": "run_fenced_off", "run_id": context.run.id})
        try:
            await self._end_cut(context, cause, None)
        except Exception as error:  # the run is taken over like one whose process died; its slot is free all the same
            self._checking.failed(error, run_id=context.run.id, session=drive.session)
        if self._driving.get(drive.session) is drive:
            del self._driving[drive.session]
        drive.give_back()
        self.take(drive.session)


class _Files(NamedTuple):
    """Files to write before a run's first step."""

    session: Session
    rel_dir: str
    attachments: list[Attachment]


async def _find_files(query: Query, run: Run) -> _Files | None:
    """The files of the run's task; None for another run, or for a task without files."""
    session = await rows.find_by_row(query, SessionRow(run.session))
    spawn = await spawns.find(query, SessionRow(run.session))
    if session is None or spawn is None:
        raise Fenced
    if spawn.receipt is None or spawn.run != run.id:
        return None
    attachments = await spawns.list_attachments(query, session.row)
    return _Files(session, str(spawn.receipt["relDir"]), in_order(attachments, spawn.receipt))


def _measure(ended: Run, clock: Clock) -> None:
    RUNS_ENDED.add(ended.status)
    if ended.started_at is not None:
        RUN_SECONDS.observe(max((clock.now() - ended.started_at).total_seconds(), 0.0))


def _is_passing(error: Unavailable) -> bool:
    return error.code in ("disk_full", "store_busy", "store_unreachable", "outcome_unknown")


def _internal_error(error: Exception) -> Outcome:
    if isinstance(error, MemoryError):
        said = (
            "Antiphon ran out of memory. Begin a new conversation, send less at once, or give the process more memory."
        )
        return Outcome(status=RunStatus.ERROR, error=said, code="out_of_memory")
    return Outcome(status=RunStatus.ERROR, error="Antiphon had an internal error; see its log.", code="internal_error")


def _cut(cause: StopCause, partial: str) -> Outcome:
    if cause is StopCause.TIMEOUT:
        return Outcome(
            status=RunStatus.TIMEOUT,
            reply=partial,
            error="The run exceeded its time limit.",
            code="run_timeout",
        )
    return Outcome(status=RunStatus.CANCELLED, reply=partial, error="The run was cancelled.", code="cancelled")
