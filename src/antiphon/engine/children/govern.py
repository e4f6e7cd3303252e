"""How a session controls its own children: listing, cancelling and steering. Contract: spawn 8."""

import unicodedata
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import REFUSALS, Conflict, Denied, Invalid, NotFound, TooLarge
from antiphon.domain.ids import MessageId, RunId, SessionRow
from antiphon.domain.invisible import is_blank
from antiphon.domain.label import ALL
from antiphon.domain.message import (
    Provenance,
    ProvenanceKind,
    ReportStage,
    ReportStep,
    UserMessage,
    text_content,
    text_of,
)
from antiphon.domain.run import Purpose, Run
from antiphon.domain.session import Session
from antiphon.domain.spawn import Mode
from antiphon.engine.access.caller import Caller, context_of, find_origin, refuse_called_off
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.children.spawn import ChildWork, queue_work
from antiphon.engine.ledger.append import Arrival, append_words, derived_id, words_from
from antiphon.engine.ledger.queue import join_run, new_run_id
from antiphon.engine.rules import Rules
from antiphon.engine.runs.cancel import cancel_work
from antiphon.engine.runs.ends import CANCELLED_EARLY, end_queued_run
from antiphon.policy.decision import Decision, Deny
from antiphon.policy.flow import decide_write, is_held
from antiphon.policy.rights import may_join
from antiphon.policy.spawn import decide_work
from antiphon.policy.standing import Standing
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import incarnations, spawns
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing

MAX_MESSAGE_BYTES = 1024 * 1024
TOOL = "subagents"
MAX_LISTED = 200


class ChildView(Struct, frozen=True, kw_only=True):
    """A child as its requester sees it."""

    session: Session
    run_id: RunId
    """Of the newest result that the child owes, else of its newest result."""
    run: Run | None
    task: str
    mode: Mode
    is_at_work: bool
    """Whether it has any work, for any requester."""
    is_withheld: bool
    """Whether the requester may not learn how and when its run ended. Contract: flow 4."""
    is_quarantined: bool
    """Whether the requester may learn only from its result how it ended. Contract: flow 10."""
    is_hidden: bool
    """Whether it may not learn the task and label that it gave, because it held more then. Contract: flow 3."""
    created_at: datetime


class ListedChild(NamedTuple):
    children: list[ChildView]
    """In the order in which they were spawned."""
    has_more: bool


class Steered(NamedTuple):
    child: Session
    run_id: RunId


class SteerChild(Struct, frozen=True, kw_only=True):
    caller: Caller
    name: str
    text: str


class Subagents:
    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def cancel(self, caller: Caller, name: str) -> list[ChildView]:
        """Cancels the work of the child, or of `all` children, with all descendants; returns those that had any.

        Raises `NotFound` if the name is no child of the caller.
        """
        return await self._database.run(cancel_children, caller, name, sessions=(caller.session,))

    async def steer(self, caller: Caller, name: str, text: str) -> Steered:
        """Sends a text to a busy child, which reads it before its next step. A child that stays begins a run.

        A child that waits for its own children reads it when it continues. Returns the run whose result will come.
        Repeating the same call sends nothing more and returns the first answer. Raises `NotFound`, `Invalid`
        (`empty_message`), `Conflict` (`child_ended`, `idempotency_key_reused`), `Denied` (`write_down`,
        `others_work`, `spawn_children`).
        """
        command = _steering(caller, name, text)
        return await self._database.run(steer_child, command, self._rules, sessions=(caller.session,))

    async def foresee_steer(self, caller: Caller, name: str, text: str) -> ForeseenCall:
        """The child that would get the text, and whether it may have it. Raises as `steer` does if there is none."""
        return await self._database.read(foresee_steer, _steering(caller, name, text))

    async def list(self, caller: Caller, name: str | None = None) -> ListedChild:
        """The session's children, or those with that name; `all` names every child. Raises `NotFound`.

        Above `MAX_LISTED`, hidden children are left out first, then others that are not at work, oldest first.
        """
        found = await self._database.read(_list, caller, MAX_LISTED + 1, None if name == ALL else name)
        if not found and name not in (None, ALL):
            raise _not_found(name)
        return ListedChild(_by_age(found[:MAX_LISTED]), has_more=len(found) > MAX_LISTED)


def _steering(caller: Caller, name: str, text: str) -> SteerChild:
    if name == ALL:
        raise Invalid("Action 'steer' needs one target. Action 'list' shows them.", code="invalid_arguments")
    if is_blank(text):
        raise Invalid("Message is empty. Say what the child should do.", code="empty_message")
    if (size := len(text.encode())) > MAX_MESSAGE_BYTES:
        raise TooLarge(
            f"Message is too large: {size} bytes, the most is {MAX_MESSAGE_BYTES}. Say where to find it.",
            code="message_too_large",
        )
    return SteerChild(caller=caller, name=name, text=text)


def _by_age(children: Sequence[ChildView]) -> list[ChildView]:
    return sorted(children, key=lambda child: child.session.row)


async def _list(
    query: Query, caller: Caller, limit: int | None, name: str | None = None, *, at_work: bool = False
) -> list[ChildView]:
    name = None if name is None else unicodedata.normalize("NFC", name)
    found = await spawns.list_children(query, caller.session, limit=limit, name=name, at_work=at_work)
    listed = await rows.list_rows(query, [caller.session, *(each.spawn.child for each in found)])
    sessions = {session.row: session for session in listed}
    own = sessions.get(caller.session)
    clearance = PUBLIC if own is None else own.taint
    runs = await ledger.find_ends(query, [each.report for each in found if each.report is not None])
    hidden = set[SessionRow]() if own is None else await _find_hidden(query, own, found, sessions)
    views = [
        ChildView(
            session=session,
            run_id=each.report,
            run=runs.get(each.report),
            task=each.spawn.task,
            mode=each.spawn.mode,
            is_at_work=each.is_at_work,
            is_withheld=(run := runs.get(each.report)) is not None and not is_held(run.made_of, clearance),
            is_quarantined=each.spawn.returns is not None,
            is_hidden=each.spawn.child in hidden,
            created_at=session.created_at,
        )
        for each in found
        if each.report is not None and (session := sessions.get(each.spawn.child)) is not None
    ]
    return [view for view in views if not (view.is_hidden and name is not None and view.session.label == name)]


async def _find_hidden(
    query: Query, own: Session, found: Sequence[spawns.Governed], sessions: Mapping[SessionRow, Session]
) -> set[SessionRow]:
    """The children that were given more than the session may read now: before its reset, or by one that is gone.

    A child's base is at least what it was given, so nothing is read where that flows to the session.
    """
    hidden: set[SessionRow] = set()
    for each in found:
        child = sessions.get(each.spawn.child)
        if child is None or is_held(child.base, own.taint):
            continue
        report = await spawns.find_report(query, each.spawn.run)
        giver = None if child.parent != own.row or report is None else report.requester_incarnation
        if giver == own.id:
            continue
        ended = None if giver is None else await incarnations.find(query, giver)
        if ended is None or not is_held(ended.taint, own.taint):
            hidden.add(child.row)
    return hidden


async def _find_own(query: Query, caller: Caller, name: str) -> ChildView:
    """The one child with that key, id or result, else with that label. Missing and foreign ones get the same answer."""
    found = await _list(query, caller, 2, name)
    if len(found) > 1:
        raise Invalid(f"Label is not unique: {name[:200]!r}. Name the child by its sessionKey.", code="ambiguous_label")
    if not found:
        raise _not_found(name)
    return found[0]


def _not_found(name: str) -> NotFound:
    return NotFound(f"Child not found: {name[:200]!r}. subagents with action 'list' shows them.")


async def cancel_children(tx: Transaction, caller: Caller, name: str) -> list[ChildView]:
    await find_origin(tx, caller)
    if name == ALL:
        children = _by_age(await _list(tx, caller, None, at_work=True))
    else:
        found = await _find_own(tx, caller, name)
        children = [found] if found.is_at_work else []
    tx.hold(*(SessionRow(child.session.row) for child in children))
    for child in children:
        session = SessionRow(child.session.row)
        await spawns.take_open(tx, session)
        await cancel_work(tx, child.session)
        for run in await ledger.find_queued(tx, session):
            if run.purpose is not Purpose.ANNOUNCE:
                await end_queued_run(tx, run, CANCELLED_EARLY)
    return children


async def steer_child(tx: Transaction, command: SteerChild, rules: Rules) -> Steered:
    caller = command.caller
    origin, message_id = await find_origin(tx, caller), MessageId(derived_id("msg", 0, caller.call_id, TOOL))
    if told := await spawns.find_told(tx, caller.session, message_id):
        return await _steered_before(tx, command, message_id, told)
    found = await _find_own(tx, caller, command.name)
    refuse_called_off(origin)
    tx.hold(SessionRow(found.session.row))
    judged = await _judge(tx, command, found)
    if isinstance(denied := judged.decision, Deny):
        raise Denied(denied.reason, code=denied.rule)
    source, child, context = judged.source, judged.child, judged.context
    # A child that is not sandboxed hears a sandboxed session only in sandboxed runs.
    is_confined = (caller.is_sandboxed or rules.are_sandboxed(source)) and not rules.are_sandboxed(child)
    joined = await _find_joined(tx, child, await find_standing(tx, caller.principal), is_confined=is_confined)
    if joined is None:
        await _refuse_work(tx, command, found, source=source, child=child, rules=rules)
    report_id = new_run_id(tx) if joined is None or joined.report is None else RunId(joined.report)
    message = UserMessage(
        message_id=message_id,
        content=text_content(command.text),
        report=ReportStep(id=report_id, stage=ReportStage.STEER),
        provenance=Provenance(kind=ProvenanceKind.INTER_SESSION, source_session_key=str(source.key), source_tool=TOOL),
    )
    words = words_from(source, message, Arrival.POSTED, classification=context, is_addressed=True)
    if joined is None:
        spawn = await spawns.find(tx, child.row)
        assert spawn is not None
        work = ChildWork(
            run_id=report_id,
            caller=caller,
            origin=origin,
            parent=source,
            child=child,
            spawn=spawn,
            is_sandboxed=caller.is_sandboxed or rules.are_sandboxed(source, child),
        )
        await queue_work(tx, work, words)
    elif joined.is_parked:  # its continuation reads the text, or a run that begins before it
        await append_words(tx, child, words)
    else:
        await join_run(tx, child, words, joined.id)
    return Steered(child, report_id)


class _ToChild(NamedTuple):
    """A text for a child, and whether it may go there."""

    source: Session
    child: Session
    context: Classification
    """What the text was made of."""
    decision: Decision


async def foresee_steer(query: Query, command: SteerChild) -> ForeseenCall:
    judged = await _judge(query, command, await _find_own(query, command.caller, command.name))
    return ForeseenCall(judged.child, judged.decision)


async def _judge(query: Query, command: SteerChild, found: ChildView) -> _ToChild:
    """Decides by both sessions as they are now. Raises `NotFound`."""
    source = await rows.find_by_row(query, command.caller.session)
    child = await rows.find_by_row(query, SessionRow(found.session.row))
    if child is None:
        raise _not_found(command.name)
    assert source is not None
    context = context_of(command.caller, source)
    decision = decide_write(context, child.taint)
    if isinstance(decision, Deny):
        decision = Deny(decision.rule, f"Message may not be sent to {command.name[:200]!r}: {decision.reason}")
    return _ToChild(source, child, context, decision)


async def _find_joined(tx: Transaction, child: Session, standing: Standing, *, is_confined: bool) -> Run | None:
    """The child's run that can read the principal's text now; a parked run leaves it to its continuation.

    A confined text is only for sandboxed runs.
    """
    for run in await _list_joinable(tx, child):
        if may_join(run.principal, standing) and (run.is_sandboxed or not is_confined):
            return run
    return None


async def _list_joinable(tx: Transaction, child: Session) -> list[Run]:
    """Runs whose result has not come yet, for any requester; in the order in which texts join them."""
    active = await ledger.find_active(tx, child.row)
    queued = await ledger.find_queued(tx, child.row)
    parked = sorted(await ledger.find_parked(tx, child.row), key=lambda run: run.report or "", reverse=True)
    unfinished = [*((active,) if active else ()), *queued, *parked]
    return [
        run
        for run in unfinished
        if run.report is not None and not run.is_cancel_requested and run.session_id == child.id
    ]


async def _refuse_work(
    tx: Transaction, command: SteerChild, found: ChildView, *, source: Session, child: Session, rules: Rules
) -> None:
    """Raises if the child may not begin a run."""
    if found.mode is Mode.RUN:
        if await _list_joinable(tx, child):
            raise Denied(
                f"Child works for somebody else: {command.name[:200]!r}. Only they and the owner may steer it. "
                "Spawn one of your own.",
                code="others_work",
            )
        raise Conflict(
            f"Child has ended its task: {command.name[:200]!r}. Spawn another, or one of mode 'session', which stays.",
            code="child_ended",
        )
    own = rules.agents.get(source.agent_id)
    if own is None or await spawns.is_owing(tx, SessionRow(found.session.row)):
        return
    at_work = await spawns.count_active_children(tx, SessionRow(source.row))
    decision = decide_work(at_work, own.subagents.max_children)
    if isinstance(decision, Deny):
        raise Denied(decision.reason, code=decision.rule)


async def _steered_before(tx: Transaction, command: SteerChild, message_id: MessageId, told: SessionRow) -> Steered:
    """The answer to the same call before. Its target may have another name by now but must be the same child."""
    try:
        found = await _find_own(tx, command.caller, command.name)
    except REFUSALS:
        found = None
    child = await rows.find_by_row(tx, told)
    event = await log.find_message(tx, system_grant(told), message_id)
    if child is None:
        raise _not_found(command.name)
    assert event is not None and event.message is not None
    is_other = found is not None and found.session.row != told
    if is_other or text_of(event.message.content) != command.text:
        raise Conflict("Idempotency-Key was used for another message. Use a new one.", code="idempotency_key_reused")
    assert isinstance(event.message, UserMessage) and event.message.report is not None
    return Steered(child, RunId(event.message.report.id))
