"""Units of calls from outside a run that run once: begun with a key, or asked and taken after the yes.

Contract: tools 1, approvals 3, 5.
"""

from typing import TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.approval import Approval, ApprovalState, AskedCall, find_identical
from antiphon.domain.call import OutsideCall, Taking, on_taken
from antiphon.domain.errors import REFUSALS, Conflict, Limited, NotFound
from antiphon.domain.ids import ApprovalId, ProcessId
from antiphon.domain.message import ToolResult
from antiphon.domain.session import Session
from antiphon.domain.standing_approval import StandingApproval
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.callers import FoundCaller, find_caller
from antiphon.engine.access.reach import Rights
from antiphon.engine.approvals.standing import find_covering
from antiphon.engine.deliveries.asking import MAX_OPEN, store_request
from antiphon.engine.ledger.run_log import OUTCOME_UNKNOWN
from antiphon.engine.rules import Rules
from antiphon.policy.system import system_grant
from antiphon.store import approvals, calls, origins, processes, standing_approvals
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store.codec import json_text
from antiphon.store.database import Query, SqlValue, Transaction
from antiphon.store.people import hold_merges

MAX_AT_WORK = 64
"""Calls of one caller at a time: they go on without a connection, whose limit would otherwise bound them."""
UNKNOWN = json_text({"status": "error", "code": "outcome_unknown", "error": OUTCOME_UNKNOWN})
_RESET = json_text({"status": "error", "code": "reset", "error": "The session was reset before the call began."})

Told: TypeAlias = OutsideCall | Approval
"""What became of a call, or the request that it asked with or joined."""


class BeginKeyedCall(Struct, frozen=True, kw_only=True):
    id: str
    rights: Rights
    target: NamedTarget
    key: str
    sha256: str
    process: ProcessId
    is_one_too_many: bool = False
    """Whether its caller has as many calls at work as one may have. What has begun is told all the same."""


class BeginsNow(Struct, frozen=True):
    """The call is this process's to carry out."""

    call: OutsideCall
    found: FoundCaller


class AskFromOutside(Struct, frozen=True, kw_only=True):
    caller: Caller
    origin: str
    """Identifies the call; a repeated one finds its request."""
    call: AskedCall
    rules: Rules


class TakeCall(Struct, frozen=True, kw_only=True):
    id: str
    process: ProcessId
    rules: Rules
    may_repeat: bool = False
    """Whether a call that was cut may run again."""
    is_dropped: bool = False
    """Whether the process that began it has it no more: the store may keep a begin that it did not confirm."""


async def find_told(query: Query, origin: str) -> Told | None:
    """What became of the call with that origin; None if it did not come before."""
    call = await calls.find_by_origin(query, origin)
    return call if call is None or call.approval is None else await approvals.find(query, call.approval)


async def begin_keyed_call(tx: Transaction, command: BeginKeyedCall) -> BeginsNow | Told:
    """Notes that the call begins now, with the rights that its caller has in this moment."""
    await hold_merges(tx, command.rights.principal)
    found = await find_caller(tx, command.rights, command.target, command.key)
    origin = found.caller.call_id
    if told := await find_told(tx, origin):
        return told
    if command.is_one_too_many:
        raise Limited(f"{MAX_AT_WORK} of your calls with a key are at work. Wait for one.", code="too_many_calls")
    call = OutsideCall(
        id=command.id,
        session=found.caller.session,
        sha256=command.sha256,
        is_due=True,
        begun_at=tx.now,
        begun_by=command.process,
    )
    await calls.insert(tx, call, origin)
    return BeginsNow(call, found)


async def ask_from_outside(tx: Transaction, command: AskFromOutside) -> Told | StandingApproval:
    command = await _of_present(tx, command)
    if told := await find_told(tx, command.origin):
        return told
    always = await standing_approvals.list_of(tx, command.caller.principal, command.caller.agent_id, None)
    if allowed := find_covering(always, command.call, None):
        return allowed
    session = await rows.find_by_row(tx, command.caller.session)
    if session is None:
        raise NotFound("Session not found: the caller's own session was deleted.")
    pending = await approvals.list_pending(tx, session.row)
    joined = find_identical(pending, command.call, command.caller.principal)
    approval = joined or await _store(tx, session, command)
    id = tx.new_id("call") if joined else approval.id
    await calls.insert(tx, OutsideCall(id=id, session=session.row, approval=approval.id), command.origin)
    return approval


async def _of_present(tx: Transaction, command: AskFromOutside) -> AskFromOutside:
    """The call as it is the caller's now, who may have been merged, with all their calls, since they were found."""
    old = command.caller.principal
    new = await hold_merges(tx, old)
    if new == old:
        return command
    origin = origins.renamed(command.origin, old=str(old), new=str(new))
    return replace(command, caller=replace(command.caller, principal=new), origin=origin)


async def _store(tx: Transaction, session: Session, command: AskFromOutside) -> Approval:
    """A new request, with its event."""
    if session.pending_approvals >= MAX_OPEN:
        raise Conflict(
            f"Session has {MAX_OPEN} open requests for approval: {str(session.key)!r}. Decide some of them first.",
            code="too_many_approvals",
        )
    approval = Approval(
        id=ApprovalId(tx.new_id("appr")),
        session=session.row,
        session_key=str(session.key),
        session_id=session.id,
        run=None,
        agent_id=command.caller.agent_id,
        principal=command.caller.principal,
        state=ApprovalState.PENDING,
        calls=(command.call,),
        asked_at=tx.now,
        expires_at=tx.now + command.rules.approval.expire_after,
    )
    await store_request(tx, session, approval, made_of=session.taint, rules=command.rules)
    return approval


async def take_call(tx: Transaction, command: TakeCall) -> BeginsNow | None:
    """Notes that the process carries out the approved call, with the rights that its principal has in this moment.

    None if it is not to. A call that may have taken effect in a process that died has its outcome then.
    """
    call = await calls.find(tx, command.id)
    if call is None:
        return None
    is_dropped = command.is_dropped and call.begun_by == command.process
    is_free = is_dropped or await is_left(tx, call, command.process)
    match on_taken(call, is_left=is_free, may_repeat=command.may_repeat):
        case Taking.LEAVE:
            return None
        case Taking.GIVE_UP:
            await end_call(tx, replace(call, outcome=UNKNOWN))
            return None
        case Taking.BEGIN:
            found = await _find_approved(tx, command)
    if isinstance(found, str):
        await end_call(tx, replace(call, outcome=found))
        return None
    begun = replace(call, begun_at=tx.now, begun_by=command.process)
    columns: dict[str, SqlValue] = {"begun_at": tx.now_ms, "begun_by": command.process}
    return BeginsNow(begun, found) if await calls.CLAIMS.write(tx, call.claim, columns) else None


async def _find_approved(tx: Transaction, command: TakeCall) -> FoundCaller | str:
    """The caller of the approved call, or its outcome if it may not run any more."""
    approval = await approvals.find(tx, ApprovalId(command.id))
    assert approval is not None
    target = NamedTarget(None, approval.session_id)
    try:
        found = await find_caller(tx, Rights(approval.principal, command.rules), target, approval.id)
    except REFUSALS as error:
        return json_text({"status": "error", "code": error.code, "error": error.message})
    return found if found.session.id == approval.session_id else _RESET


async def end_call(tx: Transaction, call: OutsideCall) -> None:
    """Stores the outcome, if nobody has taken the call over from who has it as the call says."""
    assert call.outcome is not None
    await calls.store_outcome(tx, call)
    tx.wake(call.session)


async def is_left(query: Query, call: OutsideCall, process: ProcessId) -> bool:
    """Whether no living process has begun the call."""
    return call.begun_by != process and not await processes.is_alive(query, call.begun_by)


async def find_result(query: Query, approval: Approval, call: AskedCall) -> ToolResult | None:
    """The result of a call that the run of the request carried out; None if it has none yet."""
    assert approval.run is not None
    events = await log.read_run(query, system_grant(approval.session), approval.run, from_seq=call.message_seq)
    results = (event.message for event in events)
    return next(
        (
            result
            for result in results
            if isinstance(result, ToolResult) and (result.call_seq, result.call_index) == (call.message_seq, call.index)
        ),
        None,
    )
