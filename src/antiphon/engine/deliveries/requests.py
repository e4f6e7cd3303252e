"""Requests for approval in the private chats of those who may decide: asked with buttons, then changed to the answer.

A request never goes to a group. Whether somebody may still decide it, and which buttons they get, is decided when the
message is claimed. Contract: approvals 3, 4, flow 7.
"""

from datetime import datetime

from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.approval import Approval, ApprovalState, AskedCall, Verdict
from antiphon.domain.channel_form import Button
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.delivery import Delivery
from antiphon.domain.ids import ApprovalId
from antiphon.domain.person import person_of
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import exact
from antiphon.engine.access.recipients import may_leave
from antiphon.engine.deliveries.outbox import name_of, show_outcome
from antiphon.engine.rules import Rules
from antiphon.policy.deciders import decide_answer, decide_deciding
from antiphon.policy.decision import Deny
from antiphon.policy.standing import Standing
from antiphon.store import approvals, deliveries
from antiphon.store.database import Query, Transaction
from antiphon.store.deliveries import NewDelivery
from antiphon.store.people import find_names, find_standing_of_account, list_deciders

MOST_SHOWN = 2_400
"""Characters of all arguments together; what is cut can be read on the page."""
MOST_OF_REASON = 300
_LABELS = {Verdict.ONCE: "Approve once", Verdict.ALWAYS: "Always", Verdict.DENY: "Deny"}


async def ask_deciders(tx: Transaction, id: ApprovalId, made_of: Classification, rules: Rules, *, at_ms: int) -> None:
    """Queues the request for each private chat of somebody who may decide it.

    The text holds the exact calls, made of `made_of`, as far as they fit.
    """
    if not rules.chats.channels:
        return
    approval = await approvals.find(tx, id)
    assert approval is not None
    text = _request_text(approval, await _name(tx, approval.principal))
    for identity, standing in await list_deciders(tx, rules.chats.channels):
        if not _may_decide(standing, approval, rules, Verdict.ONCE):
            continue
        place = DeliveryContext(channel=identity.channel, to=identity.platform_id, account_id=identity.account or None)
        request = NewDelivery(
            name=name_of(f"request {id} {identity.channel} {identity.account} {identity.platform_id}"),
            session=None,
            incarnation=None,
            run_id=None,
            place=place,
            text=text,
            made_of=made_of,
            approval=id,
        )
        await deliveries.insert(tx, request, at_ms)


async def as_claimed(tx: Transaction, claimed: Delivery, rules: Rules) -> Delivery | None:
    """The request as its reader may see it now, with buttons; None if it was answered, or is not theirs any more."""
    assert claimed.approval is not None
    place = claimed.place
    approval = await approvals.find(tx, ApprovalId(claimed.approval))
    standing = await find_standing_of_account(tx, place.channel or "", place.account_id or "", place.to or "")
    if approval is None or not approval.is_pending or standing is None:
        return None
    offered = [verdict for verdict in _LABELS if _may_decide(standing, approval, rules, verdict)]
    if not offered:
        return None
    if not await may_leave(tx, claimed.made_of, place, rules.sinks):
        return replace(claimed, text=_hidden_text(approval), made_of=PUBLIC)
    buttons = [Button(label=_LABELS[verdict], data=f"{approval.id}:{verdict.value}") for verdict in offered]
    return replace(claimed, buttons=tuple(buttons))


async def show_answer(tx: Transaction, approval: Approval, at_ms: int) -> None:
    """Queues what became of the request for all messages that show it, without buttons."""
    if approval.is_pending:
        return
    outcome: str | None = None
    for shown in await deliveries.list_requests(tx, approval.id):
        outcome = outcome or await _outcome(tx, approval)
        await show_outcome(tx, shown, outcome, at_ms)


def _may_decide(standing: Standing, approval: Approval, rules: Rules, verdict: Verdict) -> bool:
    deciding = decide_deciding(standing, rules.user_approves)
    if isinstance(deciding, Deny) or not deciding.covers(approval):
        return False
    verdicts = {call.id: verdict for call in approval.calls}
    return not isinstance(decide_answer(standing, approval, verdicts), Deny)


def _request_text(approval: Approval, asker: str) -> str:
    head = f"Approval needed. Agent {approval.agent_id} wants to do this for {asker}:"
    room = MOST_SHOWN // len(approval.calls)
    return "\n\n".join([head, *(_call_text(call, room) for call in approval.calls)])


def _call_text(call: AskedCall, room: int) -> str:
    shown = exact(call.arguments[:room])[:room]
    left = len(call.arguments) - len(shown)
    fence = "```"
    while fence in shown:
        fence += "`"
    cut = f"\n({left} more characters; the page shows all of them.)" if shown != exact(call.arguments) else ""
    return f"{call.tool}\n{fence}json\n{shown}\n{fence}{cut}\n{exact(call.reason[:MOST_OF_REASON])}"


def _hidden_text(approval: Approval) -> str:
    return (
        f"Agent {approval.agent_id} needs an approval. What it asks for may not be shown in this chat: look at the "
        f"page, or at `antiphon approvals show {approval.id}`."
    )


async def _outcome(query: Query, approval: Approval) -> str:
    match approval.state:
        case ApprovalState.EXPIRED:
            return "Nobody decided in time: it was denied."
        case ApprovalState.DECIDED:
            verdicts = {call.verdict for call in approval.calls}
            said = _said(next(iter(verdicts))) if len(verdicts) == 1 else "Approved in part"
            by = "" if approval.decided_by is None else f" by {await _name(query, approval.decided_by)}"
            at = "" if approval.decided_at is None else f", {_minute(approval.decided_at)}"
            return f"{said}{by}{at}."
        case _:
            return "Withdrawn: the work that asked for it has ended."


def _said(verdict: Verdict | None) -> str:
    match verdict:
        case Verdict.ONCE:
            return "Approved once"
        case Verdict.ALWAYS:
            return "Approved now and always"
        case _:
            return "Denied"


async def _name(query: Query, principal: Principal) -> str:
    person = person_of(principal)
    found = None if person is None else (await find_names(query, [person])).get(person)
    return str(principal) if found is None else found.shown


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
