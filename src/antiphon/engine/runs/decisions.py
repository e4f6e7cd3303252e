"""Listing and deciding approval requests, and what a decision continues. Contract: approvals 1 to 3, 5."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.approval import (
    Approval,
    ApprovalState,
    ApprovalTransition,
    Consequence,
    Verdict,
    on_decided,
    on_expired,
    on_withdrawn,
)
from antiphon.domain.audit import AuditKind
from antiphon.domain.classification import Classification
from antiphon.domain.errors import Conflict, Denied, Invalid, NotFound, TooLarge
from antiphon.domain.ids import ApprovalId
from antiphon.domain.message import JsonObject
from antiphon.domain.person import person_of
from antiphon.domain.run import RunStatus
from antiphon.domain.session import SessionStatus
from antiphon.engine.access.reach import Rights
from antiphon.engine.approvals.answering import store_answer
from antiphon.engine.approvals.parking import continue_parked
from antiphon.engine.approvals.standing import Fields, refuse_always, store_always
from antiphon.engine.approvals.trusting import refuse_trust, refuse_untrusting, store_trust
from antiphon.engine.deliveries.refused import refuse_sent, send_released
from antiphon.engine.ledger.waits import Waits
from antiphon.engine.reports.follow import bring
from antiphon.engine.reports.withheld import refuse_bringing
from antiphon.engine.rules import Rules
from antiphon.engine.runs.ends import CANCELLED_AWAITING, end_awaiting_run, end_continued_run
from antiphon.policy.deciders import decide_answer, decide_deciding, may_see_own
from antiphon.policy.decision import Deny
from antiphon.policy.flow import WITHHELD
from antiphon.policy.rights import reaches_all
from antiphon.policy.shown import is_shown
from antiphon.policy.standing import Standing
from antiphon.store import approvals, audit, calls
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.approvals import ApprovalFilter
from antiphon.store.codec import moment
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_names, find_standing

MAX_NOTE_BYTES = 4_000
MOST_COUNTED = 100


class DecideApproval(Struct, frozen=True, kw_only=True):
    rights: Rights
    id: ApprovalId
    verdicts: Mapping[str, Verdict] | Verdict
    """By the call's id, or one for all calls."""
    fields: Fields
    trust: tuple[str, ...] = ()
    """Hashes of what the run had read, which the session's runs trust from now on."""
    accepts: bool = False
    """Whether the session rises to the result that it gets."""
    note: str | None


class Approvals:
    """What people can do with requests for approval."""

    def __init__(
        self,
        database: Database,
        waits: Waits,
        rules: Rules,
    ) -> None:
        self._database = database
        self._waits = waits
        self._rules = rules

    async def list(self, principal: Principal, where: ApprovalFilter, *, limit: int) -> list[Approval]:
        """Newest first, those that the principal may decide. Raises `Denied` for a principal that may decide none."""
        return await self._database.read(list_requests, self._rights(principal), where, limit)

    async def count_open(self, principal: Principal) -> int | None:
        """How many open requests wait for the principal's decision, at most `MOST_COUNTED`; None if none ever do."""
        return await self._database.read(count_open, self._rights(principal))

    async def get(self, principal: Principal, id: ApprovalId) -> Approval:
        """For those who may decide it, and for the one who asked. Raises `Denied`, `NotFound`."""
        return await self._database.read(_find_for, self._rights(principal), id)

    async def wait(self, principal: Principal, id: ApprovalId, timeout: timedelta) -> Approval:
        """The request once it is answered, or as it is after that time. Raises like `get`.

        A call from outside a run that was approved has run by then, too.
        """
        approval = await self.get(principal, id)

        async def is_answered() -> bool:
            nonlocal approval
            approval = await self.get(principal, id)
            return approval.is_settled

        await self._waits.wait_until(approval.session, timeout, is_answered)
        return approval

    async def resolve(
        self,
        principal: Principal,
        id: ApprovalId,
        verdicts: Mapping[str, Verdict] | Verdict,
        *,
        fields: Fields | None = None,
        trust: Collection[str] = (),
        accepts: bool = False,
        note: str | None = None,
    ) -> Approval:
        """Answers every call of the request, and lets its run go on. The first answer counts.

        What is allowed always is not asked about again while the arguments that `fields` names stay the same. `trust`
        names what the run had read, by its hash: the session's runs trust that content from now on. `accepts` lets the
        session rise to a withheld result, instead of releasing it.
        Raises `Denied` for those who may not decide, or not this (`own_request`), `NotFound`, `Invalid` for an answer
        that does not name each call once (`unknown_call`), allows always what cannot be (`invalid_always`,
        `route_open`), trusts what the request does not name (`unknown_source`) or does not trust what it must
        (`trust_needed`), and `Conflict` for a request that is not open any more (`approval_decided`,
        `approval_expired`, `approval_withdrawn`). Contract: approvals 3.
        """
        if note is not None and len(note.encode("utf-8", "surrogatepass")) > MAX_NOTE_BYTES:
            raise TooLarge(f"Note is larger than {MAX_NOTE_BYTES} bytes. Shorten it.", code="note_too_large")
        found = await self.get(principal, id)
        command = DecideApproval(
            rights=self._rights(principal),
            id=id,
            verdicts=verdicts,
            fields=fields or {},
            trust=tuple(dict.fromkeys(trust)),
            accepts=accepts,
            note=note or None,
        )
        return await self._database.run(decide_approval, command, sessions=(found.session,))

    def _rights(self, principal: Principal) -> Rights:
        return Rights(principal, self._rules)


async def list_requests(query: Query, rights: Rights, where: ApprovalFilter, limit: int) -> list[Approval]:
    """Those that the principal may decide, newest first; refused for a principal that may decide none."""
    deciding = decide_deciding(await find_standing(query, rights.principal), rights.rules.user_approves)
    if isinstance(deciding, Deny):
        raise _denied(deciding)
    return [_shown(each, deciding.clearance) for each in await approvals.list_page(query, deciding, where, limit=limit)]


async def count_open(query: Query, rights: Rights) -> int | None:
    """How many open requests wait for the principal, at most `MOST_COUNTED`; None if none ever do."""
    standing = await find_standing(query, rights.principal)
    deciding = decide_deciding(standing, rights.rules.user_approves)
    if isinstance(deciding, Deny):
        return None
    own = None if reaches_all(standing) else standing.principal  # nobody below owner decides what they asked for
    return await approvals.count_open(query, deciding, own, MOST_COUNTED)


async def _find_for(query: Query, rights: Rights, id: ApprovalId) -> Approval:
    """The request, for those who may decide it and for the one who asked, as far as it flows to them."""
    standing = await find_standing(query, rights.principal)
    approval = await approvals.find(query, id)
    if approval is None or not may_see_own(standing, approval):
        approval = _admit(standing, rights.rules, id, approval)
    return _shown(approval, standing.clearance)


def _shown(approval: Approval, clearance: Classification) -> Approval:
    """The request as somebody with that clearance sees it: its call may have brought more than it was made of.

    Contract: flow 3.
    """
    if approval.outcome is None or is_shown(approval.outcome_made_of, clearance):
        return approval
    return replace(approval, outcome=WITHHELD)


def _admit(standing: Standing, rules: Rules, id: ApprovalId, approval: Approval | None) -> Approval:
    """The request, if the person sees it as a decider. A hidden request and a missing one get the same answer."""
    deciding = decide_deciding(standing, rules.user_approves)
    if isinstance(deciding, Deny):
        raise _denied(deciding)
    if approval is None or not deciding.covers(approval):
        raise NotFound(f"Request for approval not found: {id[:80]!r}")
    return approval


def _denied(decision: Deny) -> Denied:
    return Denied(decision.reason, code=decision.rule)


async def decide_approval(tx: Transaction, command: DecideApproval) -> Approval:
    """Stores the decision with its event, and lets the run go on, in one unit."""
    standing = await find_standing(tx, command.rights.principal)
    approval = _admit(standing, command.rights.rules, command.id, await approvals.find(tx, command.id))
    tx.hold(approval.session)
    if not approval.is_pending:
        raise await _answered_before(tx, approval)
    verdicts = _verdicts(approval, command.verdicts)
    if isinstance(decision := decide_answer(standing, approval, verdicts), Deny):
        raise _denied(decision)
    refuse_always(approval, verdicts, command.fields)
    refuse_trust(standing, approval, command.trust)
    refuse_untrusting(approval, verdicts, command.trust)
    await refuse_sent(tx, approval, verdicts)
    await _refuse_bringing(tx, approval, verdicts, command)
    at = moment(tx.now_ms)
    if at >= approval.expires_at:
        await tx.keep(expire_approval, approval.id)
    else:
        decided = on_decided(approval, verdicts, by=standing.principal, note=command.note, at=at)
        if await _carry_out(tx, decided, accepts=command.accepts):
            await _store_always(tx, decided.approval, command)
            await store_trust(tx, approval, command.trust, by=standing.principal)
            await _record_release(tx, decided.approval)
            return decided.approval
    current = await approvals.find(tx, command.id)
    assert current is not None
    raise await _answered_before(tx, current)


async def _refuse_bringing(
    query: Query, approval: Approval, verdicts: Mapping[str, Verdict], command: DecideApproval
) -> None:
    if approval.result is None and command.accepts:
        raise Invalid("Request is about no result that could be accepted.", code="nothing_to_accept")
    if approval.result is not None and any(verdict.means.allows for verdict in verdicts.values()):
        await refuse_bringing(query, approval, command.rights.rules, accepts=command.accepts)


async def _store_always(tx: Transaction, decided: Approval, command: DecideApproval) -> None:
    if any(call.verdict is not None and call.verdict.means.stands for call in decided.calls):
        stored = await approvals.find(tx, decided.id)
        assert stored is not None
        await store_always(tx, stored, command.fields)


async def _record_release(tx: Transaction, decided: Approval) -> None:
    """Adds a row for words that were let go, and for a result that was brought."""
    released = [call for call in decided.calls if call.verdict is not None and call.verdict.means.allows]
    for call in released:
        if call.release is None and decided.result is None:
            continue
        content: JsonObject = {
            "by": str(decided.decided_by),
            "approval": decided.id,
            "session": decided.session,
            "decision": str(call.verdict),
        }
        if call.release is not None:
            content["sha256"] = call.release.sha256
        await audit.append(tx, AuditKind.RELEASED, content)


def _verdicts(approval: Approval, given: Mapping[str, Verdict] | Verdict) -> Mapping[str, Verdict]:
    ids = {call.id for call in approval.calls}
    if isinstance(given, Verdict):
        return dict.fromkeys(ids, given)
    if set(given) != ids:
        calls = ", ".join(sorted(ids))
        raise Invalid(
            f"Decisions do not fit the request: its calls are {calls}; decide each of them once.",
            code="unknown_call",
        )
    return given


async def expire_approval(tx: Transaction, id: ApprovalId) -> None:
    """Denies the calls of a request whose time is over; ends its run if that was cancelled meanwhile.

    A suspended person's call from outside a run is withdrawn instead.
    """
    approval, at = await approvals.find(tx, id), moment(tx.now_ms)
    if approval is None or not approval.is_pending or at < approval.expires_at:
        return
    standing = await find_standing(tx, approval.principal)
    is_withdrawn = approval.run is None and standing.is_suspended
    await _carry_out(tx, (on_withdrawn if is_withdrawn else on_expired)(approval, at=at))


async def _carry_out(tx: Transaction, answered: ApprovalTransition, *, accepts: bool = False) -> bool:
    """Stores the answer and lets the run go on; False if the request has none to take any more."""
    approval = answered.approval
    run = None if approval.run is None else await ledger.find(tx, approval.run)
    if run is not None and run.is_cancel_requested:
        await tx.keep(end_awaiting_run, run, CANCELLED_AWAITING)
        return False
    if not await store_answer(tx, approval):
        return False
    match answered.then:
        case Consequence.RESUME:
            assert run is not None and run.is_awaiting_approval and not run.is_parked
            await ledger.change(tx, run.id, {"status": RunStatus.RUNNING.value})
            await rows.update(tx, run.session, {"status": SessionStatus.RUNNING.value})
            await tx.dispatch(run.session, run.asker)
        case Consequence.CONTINUE:
            assert run is not None and run.is_awaiting_approval and run.is_parked
            await end_continued_run(tx, run)
            session = await rows.find_by_row(tx, run.session)
            assert session is not None
            await continue_parked(tx, run, session, approval)
        case Consequence.BEGIN:
            await calls.make_due(tx, approval.id)
        case Consequence.SEND:
            await send_released(tx, approval)
        case Consequence.BRING:
            await bring(tx, approval, accepts=accepts)
        case Consequence.NOTHING | Consequence.PARK:
            pass
    return True


async def _answered_before(query: Query, approval: Approval) -> Conflict:
    """Tells a later decider what was decided, by whom and when."""
    return _answered(approval, "" if approval.decided_by is None else await _name_of(query, approval.decided_by))


async def _name_of(query: Query, principal: Principal) -> str:
    person = person_of(principal)
    found = None if person is None else (await find_names(query, [person])).get(person)
    return str(principal) if found is None else found.shown


def _answered(approval: Approval, by: str) -> Conflict:
    at = "" if approval.decided_at is None else f" at {_minute(approval.decided_at)}"
    match approval.state:
        case ApprovalState.EXPIRED:
            return Conflict(f"Request for approval has expired: {approval.id!r}{at}.", code="approval_expired")
        case ApprovalState.WITHDRAWN:
            return Conflict(f"Request for approval was withdrawn: {approval.id!r}{at}.", code="approval_withdrawn")
        case _:
            said = ", ".join(f"{call.tool}: {call.verdict}" for call in approval.calls)
            return Conflict(
                f"Request for approval is already decided: {approval.id!r}, by {by}{at} ({said}).",
                code="approval_decided",
            )


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
