"""Making, seeing and changing tasks. Every way to a task leads through here. Contract: tasks 1, 2."""

from collections.abc import Sequence
from datetime import timedelta
from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import AntiphonError, Conflict, Denied, Invalid, NotFound
from antiphon.domain.idempotency import parse_idempotency_key
from antiphon.domain.ids import MessageId, SessionRow, TaskId
from antiphon.domain.keys import cron_key
from antiphon.domain.person import person_of
from antiphon.domain.schedule import Schedule, in_words, next_slot
from antiphon.domain.send_to import SendTo
from antiphon.domain.session import DeliveryContext, Session, SessionStatus, SessionType
from antiphon.domain.stored_task import (
    MOST_TASKS,
    NewTask,
    StoredTask,
    TaskEdit,
    TaskSlot,
    check_bounds,
    check_prompt,
    parse_name,
)
from antiphon.domain.targets import NamedTarget
from antiphon.domain.task import Around, TaskLimits, TaskState, Why, find_obstacle, on_resumed
from antiphon.engine.access.caller import Caller, context_of
from antiphon.engine.access.ceilings import find_place_clearance, refuse_above
from antiphon.engine.access.mains import new_main
from antiphon.engine.access.reach import Actor, Rights, find_reach, find_session, refuse_act
from antiphon.engine.deliveries import outbox
from antiphon.engine.ledger.queue import new_run_id
from antiphon.engine.rules import Rules
from antiphon.engine.schedules.destinations import Chooser, ChosenPlace, choose_place, find_place
from antiphon.engine.schedules.firing import TaskRun, begin_run, is_running, may_fire, may_leave, with_use
from antiphon.engine.sessions.sessions import (
    OpenSession,
    SessionOpening,
    carry_out,
    judge_opening,
    opening_of_main,
    refuse_agent,
)
from antiphon.policy.acts import Act
from antiphon.policy.decision import Deny
from antiphon.policy.flow import classify_message, may_tell
from antiphon.policy.reach import Reach
from antiphon.policy.rights import decide_act, reaches_all
from antiphon.policy.standing import Standing
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import people, standing_approvals
from antiphon.store import runs as ledger
from antiphon.store import sessions as sessions_rows
from antiphon.store import tasks as rows
from antiphon.store.codec import milliseconds
from antiphon.store.database import Database, Query, SqlValue, Transaction
from antiphon.store.people import find_standing, list_merged

_REACHED = {
    Why.HOURLY_RUNS: "its limit of runs an hour",
    Why.DAILY_TOKENS: "its limit of tokens a day",
    Why.DAILY_COST: "its limit of cost a day",
}


class CreateTasks(Struct, frozen=True, kw_only=True):
    rights: Rights
    target: NamedTarget | None
    """The session in which they are made; a calling session makes them in itself."""
    opening: OpenSession | None = None
    """How a chat opens that session; None if it exists."""
    new: tuple[NewTask, ...]
    place: DeliveryContext | None = None
    """The place of the chat in which they are made, for their results; None outside channels."""
    route: Classification = PUBLIC
    """The classification of the route on which the words came."""


class TaskCall(Struct, frozen=True, kw_only=True):
    """One task, as an actor names it."""

    rights: Rights
    id: TaskId
    target: NamedTarget | None = None
    """The session whose tasks are looked at; None for all that the actor reaches. Owners reach all in any case."""


class ListTasks(Struct, frozen=True, kw_only=True):
    rights: Rights
    target: NamedTarget | None
    after: TaskId | None
    limit: int


class EditTask(Struct, frozen=True, kw_only=True):
    call: TaskCall
    edit: TaskEdit
    version: int | None
    """The version that was edited; None for any."""
    route: Classification = PUBLIC
    place: DeliveryContext | None = None
    """That of the chat in which it is edited, if results are to go to this chat."""


class Tasks:
    """Use cases of tasks.

    People reach the tasks of sessions that they take part in, owners all, a calling session its own. All others do not
    exist (`NotFound`). Guests are refused (`Denied`).
    """

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def create(
        self,
        actor: Actor,
        target: NamedTarget | None,
        new: Sequence[NewTask],
        *,
        place: DeliveryContext | None = None,
        route: Classification = PUBLIC,
    ) -> list[StoredTask]:
        """Makes all of them, or none. `place` is that of the chat in which they are made, if it is on a channel.

        Raises `Invalid` (`invalid_task`), `TooLarge` (`prompt_too_large`), `Conflict` (`task_name_taken`), and `Denied`
        for an agent that is not open to the person, beyond 50 tasks of a person (`task_cap`), for a task's own run
        (`task_in_task`), and for words that may not go to the place (`above_clearance`). Where results go is judged
        for the maker: `NotFound` alike for a chat or group that is unknown and one of others, `Conflict` (`no_place`)
        for somebody without a chat of their own, if results are to go there.
        """
        command = self.creation(actor, target, new, place=place, route=route)
        sessions = _sessions_of(actor, target)
        return await self._database.run(create_tasks, command, sessions=sessions)

    def creation(
        self,
        actor: Actor,
        target: NamedTarget | None,
        new: Sequence[NewTask],
        *,
        place: DeliveryContext | None = None,
        route: Classification = PUBLIC,
    ) -> CreateTasks:
        """The command of `create`, for a unit that does more. Raises `Invalid` and `TooLarge`."""
        return CreateTasks(
            rights=self._rights(actor),
            target=target,
            new=tuple(map(_checked, new)),
            place=place,
            route=route,
        )

    async def check(self, actor: Actor) -> None:
        """Raises `Denied` for somebody who may not have tasks."""
        await self._database.read(refuse_tasks, self._rights(actor))

    async def list(
        self, actor: Actor, target: NamedTarget | None = None, *, after: TaskId | None = None, limit: int
    ) -> list[StoredTask]:
        """Tasks in the order of their ids; those of the target if one is given."""
        command = ListTasks(rights=self._rights(actor), target=target, after=after, limit=limit)
        return await self._database.read(list_tasks, command)

    async def get(self, actor: Actor, id: TaskId, target: NamedTarget | None = None) -> StoredTask:
        return await self._database.read(find_task, self._call(actor, id, target))

    async def runs(
        self, actor: Actor, id: TaskId, target: NamedTarget | None = None, *, limit: int
    ) -> Sequence[TaskSlot]:
        """The newest slots of the task and what became of them, newest first."""
        return await self._database.read(list_slots, self._call(actor, id, target), limit)

    async def edit(
        self,
        actor: Actor,
        id: TaskId,
        edit: TaskEdit,
        *,
        version: int | None = None,
        target: NamedTarget | None = None,
        route: Classification = PUBLIC,
    ) -> StoredTask:
        """Changes the task, for its maker and owners. Another schedule counts from now on.

        Raises `Denied` (`not_maker`), `Conflict` if it has another version by now (`task_changed`) or has ended
        (`task_ended`), and for the new values what `create` raises.
        """
        command = EditTask(
            call=self._call(actor, id, target),
            edit=_checked_edit(edit),
            version=version,
            route=route,
        )
        return await self._database.run(edit_task, command)

    async def run(
        self, actor: Actor, id: TaskId, target: NamedTarget | None = None, *, idempotency_key: str | None = None
    ) -> TaskSlot:
        """Begins a run of the task besides its slots, which stay as they are.

        Repeating the `idempotency_key` begins no second run and returns the first one's slot. Raises `Invalid` for
        what is no key (`invalid_idempotency_key`).

        Raises `Conflict` while another one works (`task_running`), if a limit of the hour or the day is reached
        (`task_limit`) and for a task that has ended (`task_ended`), and `Denied` if its maker may no longer do what it
        does (`task_maker`), or if its results may not go to its place any more (`above_clearance`); `Conflict`
        (`no_place`) if that place is gone.
        """
        call = self._call(actor, id, target)
        key = None if idempotency_key is None else parse_idempotency_key(idempotency_key)
        sessions = (NamedTarget(cron_key(id), None),)
        return await self._database.run(run_task, call, key, sessions=sessions)

    async def pause(self, actor: Actor, id: TaskId, target: NamedTarget | None = None) -> StoredTask:
        """The task does not fire until it is resumed. Raises `Conflict` if it has ended (`task_ended`)."""
        return await self._database.run(pause_task, self._call(actor, id, target))

    async def resume(self, actor: Actor, id: TaskId, target: NamedTarget | None = None) -> StoredTask:
        """The task goes on with the slots after now. Raises `Conflict` if it has ended (`task_ended`)."""
        return await self._database.run(resume_task, self._call(actor, id, target))

    async def cancel(self, actor: Actor, id: TaskId, target: NamedTarget | None = None) -> StoredTask:
        """Removes the task, and returns what it was. A run at work goes on."""
        sessions = (NamedTarget(cron_key(id), None),)
        return await self._database.run(cancel_task, self._call(actor, id, target), sessions=sessions)

    async def approve(self, actor: Actor, id: TaskId, target: NamedTarget | None = None) -> StoredTask:
        """Lets the task's runs reach sessions of other agents, as far as settings allow it to any. For owners alone."""
        return await self._database.run(approve_task, self._call(actor, id, target))

    def _call(self, actor: Actor, id: TaskId, target: NamedTarget | None) -> TaskCall:
        return TaskCall(rights=self._rights(actor), id=id, target=target)

    def _rights(self, actor: Actor) -> Rights:
        return Rights(actor, self._rules)


async def refuse_tasks(query: Query, rights: Rights) -> None:
    refuse_act(await find_standing(query, rights.principal), Act.TASKS)


class _Scope(Struct, frozen=True, kw_only=True):
    """The tasks that an actor reaches."""

    standing: Standing
    reach: Reach
    session: Session | None
    """The session that was named, or that calls."""
    own: TaskId | None = None
    """The task in whose own session the call is made. Other sessions that its run asked do not see it."""

    @property
    def is_callers(self) -> bool:
        return self.reach.viewer is not None


async def _find_scope(query: Query, rights: Rights, target: NamedTarget | None) -> _Scope:
    actor, standing = rights.actor, await find_standing(query, rights.principal)
    refuse_act(standing, Act.TASKS)
    reach = await find_reach(query, rights, Act.TASKS)
    if isinstance(actor, Caller):
        assert reach.viewer is not None
        session = reach.viewer.session
        own = actor.task if actor.task is not None and session.key == cron_key(actor.task) else None
        return _Scope(standing=standing, reach=reach, session=session, own=own)
    if target is None:
        return _Scope(standing=standing, reach=reach, session=None)
    found = await find_session(query, rights, Act.TASKS, target)
    return _Scope(standing=standing, reach=reach, session=found.session)


async def _find(query: Query, scope: _Scope, id: TaskId) -> StoredTask:
    """The task, if the actor reaches it; a hidden one and a missing one get the same refusal."""
    task = await rows.find_within(query, scope.reach, id, own=scope.own)
    is_bound = scope.session is not None and not scope.is_callers and not reaches_all(scope.standing)
    if task is None or (is_bound and scope.session is not None and task.session != scope.session.row):
        raise NotFound(f"Task not found: {id[:80]!r}. List the tasks to see those that you may see.")
    return task


async def create_tasks(tx: Transaction, command: CreateTasks) -> list[StoredTask]:
    """All of the tasks, or none; then no session is opened for them either."""
    rights, rules = command.rights, command.rights.rules
    scope = await _find_scope(tx, rights, None)
    home = scope.session or await _home(tx, command, scope)
    caller = rights.actor if isinstance(rights.actor, Caller) else None
    if caller is not None and caller.task is not None:
        raise Denied("A task's run makes no tasks. Ask the person to make one.", code="task_in_task")
    refuse_agent(scope.standing, home.agent_id, rules)
    place = _place_of(caller, home) if caller is not None and isinstance(home, Session) else command.place
    if place is not None and not place.is_outside:
        place = None
    made_of = _made_of(scope.standing, home, caller, command.route)
    base = rules.agent(home.agent_id).classification
    by = Chooser(
        rights=rights,
        standing=scope.standing,
        agent_id=home.agent_id,
        made_in=SessionRow(home.row) if isinstance(home, Session) else None,
        here=place,
    )
    chosen = [await choose_place(tx, new.send_to, by) for new in command.new]
    for each in dict.fromkeys(map(_sent_to, chosen)):
        refuse_above(made_of.join(base), await find_place_clearance(tx, rules.sinks, each))
    await _refuse_more(tx, scope.standing, len(command.new))
    clearance = scope.reach.clearance
    for number, new in enumerate(command.new):
        if next_slot(new.schedule, tx.now) is None:
            raise _never_fires(new.schedule)
        earlier = {each.name for each in command.new[:number]}
        if new.name in earlier or await rows.has_name(tx, home.row, new.name, clearance):
            raise _name_taken(new.name)
    await rows.delete_ended(tx, scope.standing.principal, kept=MOST_TASKS)
    session = home if isinstance(home, Session) else (await carry_out(tx, home)).session
    created: list[StoredTask] = []
    for new, to in zip(command.new, chosen, strict=True):
        task = StoredTask(
            id=TaskId(f"task-{tx.random_hex(10)}"),
            agent_id=session.agent_id,
            maker=scope.standing.principal,
            session=session.row,
            session_key=str(session.key),
            name=new.name,
            prompt=new.prompt,
            made_of=made_of,
            place=to.place,
            send_to=to.kind,
            chat=to.row,
            chat_key=None if to.chat is None else str(to.chat.key),
            schedule=new.schedule,
            next_at=next_slot(new.schedule, tx.now),
            missed=new.missed,
            grace=new.grace,
            limits=new.limits,
            keeps_context=new.keeps_context,
            is_sandboxed=caller is not None and (caller.is_sandboxed or rules.are_sandboxed(session)),
            created_at=tx.now,
            updated_at=tx.now,
        )
        await rows.insert(tx, task)
        created.append(task)
    return created


def _sent_to(chosen: ChosenPlace) -> DeliveryContext | None:
    """Where texts would be sent now."""
    return chosen.place or (None if chosen.chat is None else chosen.chat.delivery)


async def _home(query: Query, command: CreateTasks, scope: _Scope) -> Session | SessionOpening:
    """The session in which the tasks are made, or how it is opened: a chat's, or an owner's main session."""
    target, standing, rules = command.target, scope.standing, command.rights.rules
    if command.opening is not None:
        return await judge_opening(query, command.opening, rules)
    if target is None:
        raise Invalid("Session is missing. Name the session in which the task is made.", code="invalid_task")
    try:
        return (await find_session(query, command.rights, Act.TASKS, target)).session
    except NotFound as error:
        missing = error
    new = new_main(target, standing, rules)
    if new is None:
        raise missing
    opening = opening_of_main(new)
    return SessionOpening(command=opening, standing=standing, existing=None, clearance=scope.reach.clearance)


async def _refuse_more(tx: Transaction, standing: Standing, more: int) -> None:
    """Raises beyond the cap of a person, who is held until this unit commits."""
    maker = standing.principal
    if (id := person_of(maker)) is not None:
        await people.hold(tx, id)
    if await rows.count_of(tx, maker) + more > MOST_TASKS:
        raise Denied(
            f"Person has {MOST_TASKS} tasks, which is the limit. Cancel one that is not needed.", code="task_cap"
        )


def _place_of(caller: Caller, session: Session) -> DeliveryContext | None:
    return outbox.answers_to(None if caller.run is None else caller.run.run, session.delivery)


def _made_of(
    standing: Standing, session: Session | SessionOpening, caller: Caller | None, route: Classification
) -> Classification:
    """What the words of a task were made of. Contract: flow 2."""
    words = classify_message(standing, route)
    if caller is not None and isinstance(session, Session):
        words = context_of(caller, session)
    return words.join(session.base)


async def list_tasks(query: Query, command: ListTasks) -> list[StoredTask]:
    scope = await _find_scope(query, command.rights, command.target)
    session: SessionRow | None = None if scope.session is None or scope.is_callers else scope.session.row
    return await rows.list_within(
        query, scope.reach, session=session, own=scope.own, after=command.after, limit=command.limit
    )


async def find_task(query: Query, call: TaskCall) -> StoredTask:
    scope = await _find_scope(query, call.rights, call.target)
    return await _find(query, scope, call.id)


async def list_slots(query: Query, call: TaskCall, limit: int) -> Sequence[TaskSlot]:
    task = await find_task(query, call)
    return await rows.list_slots(query, task.id, limit)


class _Held(Struct, frozen=True):
    """A task that this unit alone changes, and who changes it."""

    task: StoredTask
    scope: _Scope


async def _hold(tx: Transaction, call: TaskCall) -> _Held:
    await rows.lock(tx, call.id)
    scope = await _find_scope(tx, call.rights, call.target)
    task = await _find(tx, scope, call.id)
    _refuse_write(call.rights.actor, scope, task)
    await _refuse_members(tx, scope.standing, task)
    return _Held(task, scope)


def _refuse_write(actor: Actor, scope: _Scope, task: StoredTask) -> None:
    """Refuses a session that has read more than those who see the task, and the change. Contract: flow 4, 13."""
    if not isinstance(actor, Caller):
        return
    assert scope.session is not None
    if may_tell(context_of(actor, scope.session), task.made_of):
        return
    raise Denied(
        "Task is open to more readers than what this turn has read. Ask the person to change it themselves.",
        code="write_down",
    )


async def _refuse_members(query: Query, standing: Standing, task: StoredTask) -> None:
    """Refuses somebody in a group who neither made the task nor is an owner."""
    if reaches_all(standing) or standing.principal == task.maker:
        return
    session = await sessions_rows.find_by_row(query, task.session)
    if session is None or session.source.type is not SessionType.GROUP:
        return
    raise Denied("In groups only the maker of a task and owners change it.", code="not_maker")


async def edit_task(tx: Transaction, command: EditTask) -> StoredTask:
    held = await _hold(tx, command.call)
    task, scope, edit = held.task, held.scope, command.edit
    if not reaches_all(scope.standing) and scope.standing.principal != task.maker:
        raise Denied("Only the maker of a task and owners may edit it.", code="not_maker")
    if command.version is not None and command.version != task.version:
        raise Conflict("Task was edited meanwhile. Look at it again.", code="task_changed")
    if task.state is TaskState.ENDED:
        raise _has_ended(task)
    if edit.name is not None and await rows.has_name(
        tx, task.session, edit.name, scope.reach.clearance, besides=task.id
    ):
        raise _name_taken(edit.name)
    columns, made_of, place = rows.edit_columns(edit), task.made_of, task.place
    if edit.name is not None or edit.prompt is not None:
        made_of = await _edited(tx, command, held)
        columns |= rows.made_of_columns(made_of)
    if edit.send_to is not None:
        chosen = await _chosen_again(tx, command, held, edit.send_to)
        columns |= rows.place_columns(chosen.kind, chosen.place, chosen.row)
        made_of, place = made_of.join(_base_of(task, command)), _sent_to(chosen)
        if task.why is Why.NO_OWN_CHAT:
            columns["why"] = None
    if (edit.name, edit.prompt, edit.send_to) != (None, None, None):
        refuse_above(made_of, await find_place_clearance(tx, command.call.rights.rules.sinks, place))
    if edit.schedule is not None:
        if (slot := next_slot(edit.schedule, tx.now)) is None:
            raise _never_fires(edit.schedule)
        columns["next_at"] = milliseconds(slot)
    allows = not isinstance(decide_act(scope.standing, Act.APPROVE_ALWAYS), Deny)
    if edit.prompt not in (None, task.prompt) and not allows:
        columns["may_consult"] = 0  # what an owner approved were the words before
        await standing_approvals.delete_of_task(tx, task.id)
    return await _change(tx, task, columns | {"version": task.version + 1})


async def _chosen_again(query: Query, command: EditTask, held: _Held, written: SendTo) -> ChosenPlace:
    """Where results go from now on."""
    task, rights = held.task, command.call.rights
    by = Chooser(
        rights=rights,
        standing=await find_standing(query, task.maker),
        agent_id=task.agent_id,
        made_in=task.session,
        here=command.place if command.place is not None and command.place.is_outside else None,
    )
    return await choose_place(query, written, by)


def _base_of(task: StoredTask, command: EditTask) -> Classification:
    agent = command.call.rights.rules.agents.get(task.agent_id)
    return PUBLIC if agent is None else agent.classification


async def _edited(query: Query, command: EditTask, held: _Held) -> Classification:
    """What the words of the edited task were made of."""
    task, actor = held.task, command.call.rights.actor
    session = await sessions_rows.find_by_row(query, task.session)
    if session is None:
        return task.made_of
    return task.made_of.join(
        _made_of(held.scope.standing, session, actor if isinstance(actor, Caller) else None, command.route)
    )


async def run_task(tx: Transaction, call: TaskCall, key: str | None = None) -> TaskSlot:
    """Begins a run of the task now; with the `key` of a run that the person has begun, returns that one's slot."""
    held, rules = await _hold(tx, call), call.rights.rules
    task = held.task
    session = await sessions_rows.find_by_key(tx, task.key)
    principal = held.scope.standing.principal
    first = None if key is None or session is None else await _find_begun(tx, session, principal, key)
    if first is not None:
        return first
    if task.state is TaskState.ENDED:
        raise _has_ended(task)
    standing = await find_standing(tx, task.maker)
    if not may_fire(task, standing, rules):
        raise Denied("Task may not run: its maker lacks the rights, or its agent is gone.", code="task_maker")
    found = await find_place(tx, task, standing, rules)
    if found.is_gone:
        raise Conflict(
            "Task may not run: the place of its results was left or deleted, or is not its maker's any more. "
            "Give it another place.",
            code="no_place",
        )
    if not await may_leave(tx, task, found.place, rules):
        raise Denied("What the task is made of may no longer go to the place of its results.", code="above_clearance")
    around = Around(now=tx.now, is_running=await is_running(tx, task, session), may_run=True)
    why = find_obstacle(task.limits, await with_use(tx, task, around))
    if why is not None and why in _REACHED:
        raise Conflict(f"Task did not run: {task.name!r} has reached {_REACHED[why]}.", code="task_limit")
    begun = TaskRun(new_run_id(tx), MessageId(tx.new_id("msg")), found)
    if key is not None:
        begun = begun._replace(message_id=_message_named(principal, key), may_repeat=True)
    slot = TaskSlot(task=task.id, slot_at=tx.now, is_manual=True, run=begun.run_id, fired_at=tx.now)
    if why is not None or not await rows.insert_slot(tx, slot):
        raise Conflict(f"Task did not run: {task.name!r} is running already.", code="task_running")
    columns = await begin_run(tx, task, standing, session, begun=begun, rules=rules)
    await rows.change(tx, task.id, {"last_slot_at": tx.now_ms, "last_outcome": None, **columns})
    return slot


async def _find_begun(query: Query, session: Session, principal: Principal, key: str) -> TaskSlot | None:
    """The slot of the run that the person has begun with that key, or somebody who was merged into them since."""
    for one in (principal, *await list_merged(query, principal)):
        event = await log.find_message(query, system_grant(SessionRow(session.row)), _message_named(one, key))
        if event is not None and event.run_id is not None:
            return await rows.find_slot_of(query, event.run_id)
    return None


def _message_named(principal: Principal, key: str) -> MessageId:
    """The id of the message of a run that the person begins with that key."""
    return MessageId(f"msg_{sha256(f'{principal} {key}'.encode()).hexdigest()[:32]}")


async def pause_task(tx: Transaction, call: TaskCall) -> StoredTask:
    held = await _hold(tx, call)
    if held.task.state is TaskState.ENDED:
        raise _has_ended(held.task)
    return await _change(tx, held.task, {"state": TaskState.PAUSED.value, "why": None})


async def resume_task(tx: Transaction, call: TaskCall) -> StoredTask:
    held = await _hold(tx, call)
    if held.task.state is TaskState.ENDED:
        raise _has_ended(held.task)
    step = on_resumed(held.task, tx.now)
    return await _change(tx, held.task, {**rows.course_columns(step.task), "why": None})


async def cancel_task(tx: Transaction, call: TaskCall) -> StoredTask:
    held = await _hold(tx, call)
    task = held.task
    await rows.delete(tx, task.id)
    session = await sessions_rows.find_by_key(tx, task.key)
    if session is not None:
        tx.hold(session.row)
    if session is not None and session.status is SessionStatus.IDLE and not await ledger.is_busy(tx, session.row):
        await sessions_rows.update(tx, session.row, {"status": SessionStatus.INACTIVE.value})
        tx.wake(session.row)
    return task


async def approve_task(tx: Transaction, call: TaskCall) -> StoredTask:
    held = await _hold(tx, call)
    if held.scope.is_callers:
        raise Denied("Agents approve nothing. An owner can approve the task.", code="forbidden")
    refuse_act(held.scope.standing, Act.APPROVE_ALWAYS)
    by = str(held.scope.standing.principal)
    return await _change(tx, held.task, {"may_consult": 1, "consult_by": by})


async def _change(tx: Transaction, task: StoredTask, columns: dict[str, SqlValue]) -> StoredTask:
    await rows.change(tx, task.id, {**columns, "updated_at": milliseconds(tx.now)})
    changed = await rows.find(tx, task.id)
    assert changed is not None
    return changed


def _sessions_of(actor: Actor, target: NamedTarget | None) -> tuple[SessionRow | NamedTarget, ...]:
    if isinstance(actor, Caller):
        return (actor.session,)
    return () if target is None else (target,)


def _checked(new: NewTask) -> NewTask:
    check_prompt(new.prompt)
    check_bounds(new.grace, new.limits)
    return replace(new, name=parse_name(new.name))


def _checked_edit(edit: TaskEdit) -> TaskEdit:
    if edit.prompt is not None:
        check_prompt(edit.prompt)
    check_bounds(edit.grace or timedelta(0), edit.limits or TaskLimits())
    return edit if edit.name is None else replace(edit, name=parse_name(edit.name))


def _name_taken(name: str) -> AntiphonError:
    return Conflict(f"Task name is taken here: {name!r}. Use another name, or edit that task.", code="task_name_taken")


def _never_fires(schedule: Schedule) -> Invalid:
    return Invalid(f"Schedule never fires: {in_words(schedule)}.", code="invalid_task")


def _has_ended(task: StoredTask) -> Conflict:
    return Conflict(f"Task has ended: {task.name!r}. Make a new one.", code="task_ended")
