"""Results that their session may not read yet: its owner is asked, and brings them to it. Contract: flow 6, 11.

A result is *released* if it enters the log as what the session holds already, *accepted* if the session rises to it.
"""

import json

from msgspec.structs import replace

from antiphon.domain.approval import RESULT, Approval, ApprovalState, AskedCall, hash_of_text
from antiphon.domain.classification import Classification
from antiphon.domain.errors import Conflict, Denied, NotFound
from antiphon.domain.finding import record_parts
from antiphon.domain.ids import ApprovalId, MessageId
from antiphon.domain.message import ReportStage, ReportStep, TextPart, UserMessage
from antiphon.domain.report import Report
from antiphon.domain.session import Session
from antiphon.engine.access.ceilings import find_ceiling
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.access.releases import decide_released, find_release
from antiphon.engine.deliveries.asking import MAX_OPEN, store_request
from antiphon.engine.ledger.append import Arrival, NewMessage, derived_id
from antiphon.engine.reports import messages
from antiphon.engine.reports.result import Result
from antiphon.engine.rules import Rules
from antiphon.policy.decision import ALLOW, Deny
from antiphon.policy.flow import may_hold
from antiphon.policy.rights import reaches_all, trusted_by
from antiphon.store import sessions as rows
from antiphon.store import spawns
from antiphon.store.database import Query, Transaction
from antiphon.store.people import find_standing


async def ask_result(tx: Transaction, report: Report, result: Result, rules: Rules) -> None:
    """Asks the owner whose work it was; nobody if the session was begun anew, or asks about much already."""
    session = None if report.requester is None else await rows.find_by_row(tx, report.requester)
    standing = await find_standing(tx, report.principal)
    if session is None or session.id != report.requester_incarnation or not reaches_all(standing):
        return
    if session.pending_approvals >= MAX_OPEN:
        return
    parts = [part.text for part in record_parts(result.finding) if isinstance(part, TextPart)]
    arguments = json.dumps({"parts": parts}, separators=(",", ":"), ensure_ascii=False)
    call = ForeseenCall(session, ALLOW, "".join(parts), result.made_of)
    release = await find_release(tx, call, rules, report.principal)
    assert release is not None
    asked = AskedCall(
        id="1",
        tool=RESULT,
        arguments=arguments,
        sha256=hash_of_text(arguments),
        definition="",
        reason=release.question,
        is_untrusted=result.made_of.integrity > trusted_by(standing),
        release=replace(release, standing=None),
    )
    approval = Approval(
        id=ApprovalId(tx.new_id("appr")),
        session=session.row,
        session_key=str(session.key),
        session_id=session.id,
        run=None,
        result=report.id,
        shows=result.made_of,
        agent_id=session.agent_id,
        principal=report.principal,
        state=ApprovalState.PENDING,
        calls=(asked,),
        asked_at=tx.now,
        expires_at=tx.now + rules.approval.expire_after,
    )
    await store_request(tx, session, approval, made_of=result.made_of, rules=rules)


async def refuse_bringing(query: Query, approval: Approval, rules: Rules, *, accepts: bool) -> None:
    """Refuses to bring a result to a session that may not hold it, or that is not what it was when this was asked."""
    session = await rows.find_by_row(query, approval.session)
    report = None if approval.result is None else await spawns.find_report(query, approval.result)
    if session is None or report is None:
        raise NotFound("Result not found: its session was deleted.")
    (call,) = approval.calls
    if accepts:
        if not may_hold(approval.shows, await find_ceiling(query, session, rules.sinks, place=report.place)):
            raise Denied("Session may not hold this result: it is above its clearance.", code="above_clearance")
        return
    if not approval.may_release:
        raise Conflict(
            "Words of others are in this result, so it cannot be released. Accept it, or deny it.", code="trust_needed"
        )
    assert call.release is not None and call.released is not None
    now = ForeseenCall(session, ALLOW, call.release.text, approval.shows)
    if isinstance(denied := await decide_released(query, now, call.released, rules), Deny):
        raise Conflict(
            "Session or who reads there has changed since this was asked, so it cannot be released any more. "
            "Accept it, or deny it.",
            code=denied.rule,
        )


async def find_brought(query: Query, approval: Approval, *, accepts: bool) -> tuple[Session, Report, NewMessage]:
    """The result as its session gets it, for the run that answers it."""
    assert approval.result is not None
    session, report = await rows.find_by_row(query, approval.session), await spawns.find_report(query, approval.result)
    assert session is not None and report is not None
    notice = await messages.find_notice(query, report, session)
    (call,) = approval.calls
    step = ReportStep(id=report.id, stage=ReportStage.RECORD, answers=())
    message = UserMessage(
        message_id=MessageId(derived_id("msg", 0, report.id, "brought")),
        content=tuple(TextPart(text=text) for text in json.loads(call.arguments)["parts"]),
        provenance=notice.provenance,
        report=step,
    )
    words = NewMessage(
        message=message,
        actor=notice.actor,
        classification=_brought(session, approval.shows, accepts=accepts),
        arrival=Arrival.RECORDED,
        incarnation=session.id,
        is_addressed=True,
    )
    return session, report, words


def _brought(session: Session, made_of: Classification, *, accepts: bool) -> Classification:
    return made_of if accepts else session.taint.with_integrity(made_of.integrity)
