"""Spawning a child: all checks, its session, its task and its run in one unit. Contract: spawn 1 to 6."""

import hashlib
import json
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Final, NamedTuple

from msgspec import Struct, to_builtins
from msgspec.structs import replace

from antiphon.domain.agent import AgentRuntime
from antiphon.domain.attachments import Attachment, GivenAttachment, check_attachments, receipt
from antiphon.domain.classification import EVERYTHING, Classification
from antiphon.domain.errors import REFUSALS, AntiphonError, Conflict, Denied, Invalid, NotFound, TooLarge
from antiphon.domain.ids import AgentId, MessageId, RunId, SessionId, SessionRow
from antiphon.domain.invisible import is_blank
from antiphon.domain.keys import SessionKey, parse_agent_id, subagent_key
from antiphon.domain.message import (
    JsonObject,
    Provenance,
    ProvenanceKind,
    ReportStage,
    ReportStep,
    UserMessage,
    text_content,
)
from antiphon.domain.quarantine import MAX_SCHEMA_BYTES, parse_returns
from antiphon.domain.report import Report, ReportState
from antiphon.domain.run import Purpose, Run
from antiphon.domain.session import DeliveryContext, Session, SessionType, Source
from antiphon.domain.spawn import Cleanup, Context, Mode, Spawn
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.allowances import refuse_bytes
from antiphon.engine.access.caller import Caller, find_origin, hold_outside, refuse_called_off
from antiphon.engine.access.ceilings import decide_above, find_ceiling
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.access.places import is_group
from antiphon.engine.children.threads import bind_thread, place_of_thread, say_not_begun, want_thread
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.threads import THREAD_FAILED, ThreadOpener, ThreadTaken, WantedThread
from antiphon.engine.ledger.append import Arrival, NewMessage, made_by, raise_workspace, words_from
from antiphon.engine.ledger.queue import new_run_id, queue_run
from antiphon.engine.reports.messages import SOURCE_TOOL
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.forks import copy_conversation, size_of_copy
from antiphon.engine.sessions.sessions import OpenSession, SessionAttributes, create_session
from antiphon.policy.decision import Decision, Deny
from antiphon.policy.flow import is_public
from antiphon.policy.models import decide_child_model
from antiphon.policy.spawn import SpawnFacts, decide_spawn
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import spawns, thread_bindings
from antiphon.store.database import Database, Query, SqlValue, Transaction
from antiphon.store.people import find_standing
from antiphon.store.runs import NewRun

MAX_TASK_BYTES = 1024 * 1024
"""What a thread is called whose child has no label that its place may have."""
ATTACHMENTS_DIRECTORY = ".antiphon/attachments"
_MAY_REFER: Final = frozenset({"task", "attachments"})
"""What values of another child in quarantine may stand in: no result shows it."""
_ANY_UUID: Final = "00000000-0000-0000-0000-000000000000"
"""In the key of a child that does not exist: only the kind of its key matters."""


class SpawnRequest(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The arguments of a call."""

    task: str
    label: str | None = None
    agent_id: str | None = None
    """The caller's own by default."""
    model: str | None = None
    thinking: str | None = None
    time_limit_seconds: float | None = None
    """0 for none; the configured one by default."""
    is_thread: bool = False
    mode: Mode | None = None
    cleanup: Cleanup = Cleanup.KEEP
    requires_sandbox: bool = False
    runtime: str = "subagent"
    attachments: tuple[GivenAttachment, ...] = ()
    attach_as: JsonObject | None = None
    context: Context = Context.NONE
    returns: JsonObject | None = None
    """The JSON Schema of its result, which puts it in quarantine. Contract: flow 10."""


class SpawnChild(Struct, frozen=True, kw_only=True):
    caller: Caller
    request: SpawnRequest
    digest: str
    """Of the request: the same for the same arguments."""
    agent_id: AgentId
    mode: Mode
    attachments: tuple[Attachment, ...]
    late_refusals: tuple[AntiphonError, ...]
    """From checks that need no database but come after those that do."""
    thread: DeliveryContext | None = None
    """The thread that was begun for it."""


class ChildWork(Struct, frozen=True, kw_only=True):
    """Work that a session gives to its child."""

    run_id: RunId
    """Of the child's run, which also names the result that the child owes."""
    caller: Caller
    origin: Run | None
    """The caller's run; None for a call from outside."""
    parent: Session
    child: Session
    spawn: Spawn
    is_sandboxed: bool
    """Whether one of the sessions, or a session that caused the call, is sandboxed."""


class Spawned(Struct, frozen=True, kw_only=True):
    run_id: RunId
    child: SessionKey
    mode: Mode
    receipt: JsonObject | None
    thread: DeliveryContext | None = None
    """Where its answers come, if it has a thread of its own."""


class Spawns:
    """Spawns children of sessions."""

    def __init__(
        self, database: Database, rules: Rules, check_model: Callable[[str], Awaitable[None]], threads: ThreadOpener
    ) -> None:
        self._database = database
        self._rules = rules
        self._threads = threads
        self._check_model = check_model
        """Raises `Invalid` for an unusable model. Called only for models that policy lets the caller name."""

    async def spawn(self, caller: Caller, request: SpawnRequest) -> Spawned:
        """Creates the child and queues its run; never waits. Repeating the same call returns the first answer.

        The first failing check refuses: `Invalid` (`invalid_agent_id`, `unsupported`, `unknown_agent`, an empty or
        too large task, a model, an attachment), `Denied` (`spawn_depth`, `spawn_children`, `spawn_agent`,
        `spawn_unsandboxed`, `spawn_model`). A refused call leaves nothing behind.
        """
        command = await self._command(caller, request)
        if request.is_thread:
            return await self._spawn_in_thread(command)
        return await self._database.run(spawn_child, command, self._rules, sessions=(caller.session,))

    async def _spawn_in_thread(self, command: SpawnChild) -> Spawned:
        """Begins the thread first, so that a failure leaves no child. Contract: spawn 4."""
        wanted = await self._database.read(plan_thread, command, self._rules)
        sessions = (command.caller.session,)
        if wanted is None:
            return await self._database.run(spawn_child, command, self._rules, sessions=sessions)
        try:
            return await self._spawn_there(command, await self._threads.open(wanted))
        except ThreadTaken:  # two children under one message: the second gets a thread under a message of its own
            opened = await self._threads.open(replace(wanted, message_id=None))
        try:
            return await self._spawn_there(command, opened)
        except ThreadTaken:
            said = "Thread was not begun: the platform gives one that another sub-agent has. Spawn without thread."
            raise Conflict(said, code=THREAD_FAILED) from None

    async def _spawn_there(self, command: SpawnChild, thread: DeliveryContext) -> Spawned:
        """A child that is refused now, after its thread was begun, leaves a sentence in the thread."""
        sessions = (command.caller.session,)
        try:
            return await self._database.run(
                spawn_child, replace(command, thread=thread), self._rules, sessions=sessions
            )
        except REFUSALS:
            await self._database.run(say_not_begun, command.caller, thread)
            raise

    async def foresee(self, caller: Caller, request: SpawnRequest) -> ForeseenCall:
        """Whether there may be such a child. Raises as `spawn` does for a request that is wrong in itself."""
        return await self._database.read(foresee_spawn, await self._command(caller, request), self._rules)

    async def _command(self, caller: Caller, request: SpawnRequest) -> SpawnChild:
        agent_id, mode = _check_request(caller, request)
        attachments, refused = await self._check_late(caller, request)
        return SpawnChild(
            caller=caller,
            request=request,
            digest=_digest(request),
            agent_id=agent_id,
            mode=mode,
            attachments=attachments,
            late_refusals=refused,
        )

    async def _check_late(
        self, caller: Caller, request: SpawnRequest
    ) -> tuple[tuple[Attachment, ...], tuple[AntiphonError, ...]]:
        """The attachments, and the refusals of model and attachments in the contract's order."""
        refused: list[AntiphonError] = []
        if request.model is not None and (refusal := await self._refuse_model(caller, request.model)):
            refused.append(refusal)
        try:
            return check_attachments(request.attachments), tuple(refused)
        except AntiphonError as error:
            return (), (*refused, error)

    async def _refuse_model(self, caller: Caller, name: str) -> AntiphonError | None:
        """The refusal of the model by its name alone, before anything of that name is opened."""
        own = self._rules.agents.get(caller.agent_id)
        if own is None:
            return None  # the unit refuses that first
        decision = decide_child_model(name, own, self._rules.agents)
        if isinstance(decision, Deny):
            return Denied(decision.reason, code=decision.rule)
        try:
            await self._check_model(name)
        except Invalid as error:
            return error
        return None


def _uuid(tx: Transaction) -> str:
    digits = tx.random_hex(32)
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def _digest(request: SpawnRequest) -> str:
    return hashlib.sha256(json.dumps(to_builtins(request), sort_keys=True).encode()).hexdigest()


def _check_request(caller: Caller, request: SpawnRequest) -> tuple[AgentId, Mode]:
    """The checks that need nothing but the request. Contract: spawn 2, 4, 6."""
    if request.returns is not None and (chosen := sorted(caller.referring - _MAY_REFER)):
        raise Invalid(
            f"Argument may not refer to a value with returns: {chosen[0]!r}. It would come back as trusted words. "
            "Refer in the task.",
            code="reference_not_allowed",
        )
    agent_id = caller.agent_id if request.agent_id is None else parse_agent_id(request.agent_id)
    mode = request.mode or (Mode.SESSION if request.is_thread else Mode.RUN)
    if request.is_thread and mode is not Mode.SESSION:
        raise Invalid("Parameter thread implies mode 'session'. Leave out one of the two.", code="invalid_arguments")
    if mode is Mode.SESSION and request.cleanup is Cleanup.DELETE:
        raise Invalid(
            "Cleanup 'delete' needs mode 'run', because a child of mode 'session' stays.", code="invalid_arguments"
        )
    if is_blank(request.task):
        raise Invalid("Task is empty. Say what the child should do.", code="empty_task")
    if request.returns is not None:
        _check_quarantine(caller, mode, request.returns)
    size = len(request.task.encode())
    if size > MAX_TASK_BYTES:
        raise TooLarge(
            f"Task is too large: {size} bytes, the most is {MAX_TASK_BYTES}. Attach long material instead.",
            code="task_too_large",
        )
    return agent_id, mode


def _check_quarantine(caller: Caller, mode: Mode, returns: JsonObject) -> None:
    try:
        size = len(json.dumps(returns).encode())
    except RecursionError:
        raise Invalid("Schema does not fit: returns is nested too deep.", code="invalid_schema") from None
    if size > MAX_SCHEMA_BYTES:
        raise TooLarge(
            f"Schema in returns is too large: {size} bytes, the most is {MAX_SCHEMA_BYTES}.", code="schema_too_large"
        )
    parse_returns(returns)
    if caller.run is None:
        raise Invalid(
            "Call comes from outside a run, and values of a child in quarantine are for one run. Leave out returns.",
            code="no_run",
        )
    if mode is Mode.SESSION:
        raise Invalid(
            "A child that returns values has one result. Leave out mode 'session', or returns.",
            code="invalid_arguments",
        )


async def plan_thread(query: Query, command: SpawnChild, rules: Rules) -> WantedThread | None:
    """The thread for the child, after every check; None if the call was carried out before. Contract: spawn 2, 4."""
    caller = command.caller
    origin = await find_origin(query, caller)
    if await spawns.find_by_origin(query, caller.call_id) is not None:
        return None
    parent = await _find_parent(query, command)
    refuse_called_off(origin)
    key = subagent_key(command.agent_id, _ANY_UUID)
    judged = await _judge(query, command, parent, origin, key=key, rules=rules)
    if isinstance(denied := judged.decision, Deny):
        raise Denied(denied.reason, code=denied.rule)
    return await want_thread(query, caller, origin, parent, label=command.request.label, rules=rules)


async def spawn_child(tx: Transaction, command: SpawnChild, rules: Rules) -> Spawned:
    """The child with everything that belongs to it, after every check. Contract: spawn 1, 2, 5, flow 5."""
    caller, request = await hold_outside(tx, command.caller), command.request
    command = replace(command, caller=caller)
    origin = await find_origin(tx, caller)
    if made := await spawns.find_by_origin(tx, caller.call_id):
        return await _spawned_before(tx, made, command)
    parent = await _find_parent(tx, command)
    refuse_called_off(origin)
    key = subagent_key(command.agent_id, _uuid(tx))
    judged = await _judge(tx, command, parent, origin, key=key, rules=rules)
    if isinstance(denied := judged.decision, Deny):
        raise Denied(denied.reason, code=denied.rule)
    clearance = judged.clearance
    own, run_id = rules.agents[parent.agent_id], new_run_id(tx)
    rel_dir = f"{ATTACHMENTS_DIRECTORY}/{_uuid(tx)}" if command.attachments else None
    standing, copied = await find_standing(tx, caller.principal), 0
    if request.context is Context.FORK:
        copied = await size_of_copy(tx, parent, origin)
        await refuse_bytes(tx, standing, copied, rules.shares)
    child = await _create(tx, command, parent, rules, key=key, clearance=clearance)
    if request.context is Context.FORK:
        child = await copy_conversation(tx, parent, child, origin=origin)
        await rows.add_stored_bytes(tx, child.row, str(standing.principal), copied)
    limit = own.subagents.time_limit
    if request.time_limit_seconds is not None:
        limit = timedelta(seconds=request.time_limit_seconds)
    spawn = Spawn(
        child=child.row,
        origin=caller.call_id,
        run=run_id,
        request=command.digest,
        task=request.task,
        mode=command.mode,
        cleanup=request.cleanup,
        time_limit=limit,
        archive_after=own.subagents.archive_after,
        attach_as=request.attach_as,
        returns=request.returns,
        receipt=None if rel_dir is None else receipt(command.attachments, rel_dir),
    )
    await spawns.insert(tx, spawn, tx.now_ms)
    await spawns.add_attachments(tx, child.row, command.attachments)
    if command.attachments and not is_public(child.taint):
        await raise_workspace(tx, child.row, SessionId(child.id), child.taint)
    work = ChildWork(
        run_id=run_id,
        caller=caller,
        origin=origin,
        parent=parent,
        child=child,
        spawn=spawn,
        is_sandboxed=caller.is_sandboxed or rules.are_sandboxed(parent, child),
    )
    if command.thread is not None:
        await bind_thread(tx, command.thread, child, caller=caller, rules=rules)
    await queue_work(tx, work, _task_words(tx, command, work, rel_dir=rel_dir))
    return Spawned(run_id=run_id, child=child.key, mode=command.mode, receipt=spawn.receipt, thread=command.thread)


async def _spawned_before(tx: Transaction, made: Spawn, command: SpawnChild) -> Spawned:
    if made.request != command.digest:
        raise Conflict("Idempotency-Key was used for another spawn. Use a new one.", code="idempotency_key_reused")
    key, binding = await rows.find_key(tx, made.child), await thread_bindings.find_of_child(tx, made.child)
    assert key is not None
    thread = None if binding is None else binding.place
    return Spawned(run_id=made.run, child=key, mode=made.mode, receipt=made.receipt, thread=thread)


class _WantedChild(NamedTuple):
    """A child that is wanted, and whether it may be."""

    clearance: Classification
    """What it may have at most."""
    decision: Decision


async def foresee_spawn(query: Query, command: SpawnChild, rules: Rules) -> ForeseenCall:
    origin, parent = await find_origin(query, command.caller), await _find_parent(query, command)
    key = subagent_key(command.agent_id, _ANY_UUID)
    judged = await _judge(query, command, parent, origin, key=key, rules=rules)
    return ForeseenCall(None, judged.decision)


async def _find_parent(query: Query, command: SpawnChild) -> Session:
    parent = await rows.find_by_row(query, command.caller.session)
    if parent is None:
        raise NotFound("Session not found: the caller's own session was deleted.")
    return parent


async def _judge(
    query: Query, command: SpawnChild, parent: Session, origin: Run | None, *, key: SessionKey, rules: Rules
) -> _WantedChild:
    """Decides by the parent as it is now. Raises `Invalid` for an agent that is not configured, and late refusals."""
    if command.request.is_thread:
        place_of_thread(origin, parent, rules)
    place = None if origin is None else origin.place
    clearance = await find_ceiling(query, parent, rules.sinks, place=place)
    decision = await _decide(query, command, parent, rules, key=key, clearance=clearance)
    if not isinstance(decision, Deny) and command.late_refusals:
        raise command.late_refusals[0]
    return _WantedChild(clearance, decision)


async def _decide(
    query: Query,
    command: SpawnChild,
    parent: Session,
    rules: Rules,
    *,
    key: SessionKey,
    clearance: Classification,
) -> Decision:
    """The first reason to refuse the child, in the contract's order."""
    agent, own = rules.agents.get(command.agent_id), rules.agents.get(parent.agent_id)
    if own is None:
        raise Invalid(f"Agent is no longer configured: {parent.agent_id!r}.", code="unknown_agent")
    facts = SpawnFacts(
        agent_id=parent.agent_id,
        child_agent_id=command.agent_id,
        depth=parent.depth,
        max_depth=own.subagents.max_depth,
        active_children=await spawns.count_active_children(query, parent.row),
        max_children=own.subagents.max_children,
        allowed_agents=own.subagents.allowed,
        is_sandboxed=own.is_sandboxed(parent.key),
        will_be_sandboxed=agent is not None and agent.is_sandboxed(key),
        requires_sandbox=command.request.requires_sandbox,
        wants_harness=command.request.runtime == AgentRuntime.ACP,
        is_harness=agent is not None and agent.runtime is AgentRuntime.ACP,
        of_subagents=_of_subagents(command.request),
    )
    decision = decide_spawn(facts)
    if isinstance(decision, Deny):
        return decision
    if agent is None:
        raise Invalid(
            f"Agent is not configured: {command.agent_id!r}. agents_list shows all agents.", code="unknown_agent"
        )
    if command.request.context is Context.FORK and command.agent_id != parent.agent_id:
        return Deny(
            "fork_agent",
            "Conversation can be copied only to a child of the same agent. Spawn with context 'none', and say in the "
            "task what the child needs to know.",
        )
    return decide_above(agent.classification.join(parent.taint).join(command.caller.carried), clearance)


def _of_subagents(request: SpawnRequest) -> list[str]:
    """The parameters given that a harness does not take. Contract: spawn 5, 6."""
    given = {"attachments": request.attachments, "model": request.model, "returns": request.returns}
    return [name for name, value in given.items() if value]


async def _create(
    tx: Transaction,
    command: SpawnChild,
    parent: Session,
    rules: Rules,
    *,
    key: SessionKey,
    clearance: Classification,
) -> Session:
    """The child's session: at its parent's taint, within its ceiling, with no place of its own but a thread."""
    request, by = command.request, command.caller.run
    limit = None if clearance == EVERYTHING else clearance
    child = await create_session(
        tx,
        OpenSession(
            principal=command.caller.principal,
            target=NamedTarget(key, None),
            agent_id=command.agent_id,
            base=rules.agents[command.agent_id].classification,
            source=Source(
                kind="spawn",
                interactive=False,
                trigger_id=None if by is None else by.run.id,
                type=await _type_at(tx, command.thread, rules),
            ),
            attributes=SessionAttributes(
                label=request.label, taint=parent.taint.join(command.caller.carried), clearance=limit
            ),
            place=command.thread,
            parent=parent.row,
        ),
        await find_standing(tx, command.caller.principal),
    )
    columns: dict[str, SqlValue] = {}
    if request.model is not None:
        columns["model"] = request.model
    if request.thinking is not None:
        columns["thinking_level"] = request.thinking
    if columns:
        await rows.update(tx, child.row, columns)
    return child


async def _type_at(query: Query, thread: DeliveryContext | None, rules: Rules) -> SessionType:
    """In a group's thread several people write to the child: prompts say who does, and only owners may reset it."""
    is_of_several = thread is not None and await is_group(query, rules, thread)
    return SessionType.GROUP if is_of_several else SessionType.DIRECT


def _task_words(tx: Transaction, command: SpawnChild, work: ChildWork, *, rel_dir: str | None) -> NewMessage:
    """The task, as the child's first message."""
    parent = work.parent
    message = UserMessage(
        message_id=MessageId(tx.new_id("msg")),
        content=text_content(command.request.task),
        provenance=Provenance(
            kind=ProvenanceKind.INTER_SESSION,
            source_session_key=str(parent.key),
            source_channel=parent.delivery.channel or parent.key.channel,
            source_tool=SOURCE_TOOL,
        ),
        report=ReportStep(id=work.run_id, stage=ReportStage.TASK, attachments=rel_dir),
    )
    made_of = made_by(parent).join(command.caller.carried)
    return words_from(parent, message, Arrival.POSTED, classification=made_of)


async def queue_work(tx: Transaction, work: ChildWork, words: NewMessage) -> None:
    """Stores a text for the child, the run that answers it, and the result that it owes."""
    run_id, origin, parent, child = work.run_id, work.origin, work.parent, work.child
    chain = None if origin is None else origin.chain or origin.id
    run = NewRun(
        id=run_id,
        purpose=Purpose.CHILD,
        incarnation=SessionId(child.id),
        agent_id=child.agent_id,
        principal=work.caller.principal,
        partner=parent.row,
        chain=chain,
        hops=0 if origin is None else origin.hops,
        report=run_id,
        is_sandboxed=work.is_sandboxed,
        task=work.caller.task,
        has_attachments=work.spawn.receipt is not None and run_id == work.spawn.run,
        time_limit=work.spawn.time_limit,
        cause=None if origin is None else origin.id,
    )
    await queue_run(tx, child, words, run)
    report = Report(
        id=run_id,
        run=run_id,
        child=SessionRow(child.row),
        requester=SessionRow(parent.row),
        requester_incarnation=SessionId(parent.id),
        origin_run=None if origin is None else origin.id,
        is_from_outside=origin is None,
        place=outbox.answers_to(origin, parent.delivery),
        principal=work.caller.principal,
        is_sandboxed=work.is_sandboxed,
        task=work.caller.task,
        stage=ReportState.OPEN,
    )
    await spawns.insert_report(tx, report, tx.now_ms)
    if origin is not None:
        await ledger.change(tx, origin.id, {"has_spawned": 1, "chain": chain})
