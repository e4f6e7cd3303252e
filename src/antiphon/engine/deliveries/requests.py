"""Requests for approval in the private chats of those who may decide: asked with buttons, then changed to the answer.

A request never goes to a group. Whether somebody may still decide it, what the message shows and which buttons it gets
is decided when it is claimed; a press counts for what its message shows. Contract: approvals 3, 4, flow 7.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final

from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.approval import (
    ACCEPT,
    ACCEPT_BUTTON,
    TRUST,
    TRUST_AND_SEND,
    TRUST_BUTTON,
    Approval,
    ApprovalState,
    Verdict,
    verdict_of,
)
from antiphon.domain.channel_form import Button, ChannelForm
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.ids import ApprovalId
from antiphon.domain.inbound import ButtonPress
from antiphon.domain.own_text import Code, OwnText, own_text
from antiphon.domain.person import person_named, person_of, person_principal, private_chat
from antiphon.domain.request_text import draw_request, shows_read, shows_whole
from antiphon.domain.session import DeliveryContext
from antiphon.domain.source_words import actors_in
from antiphon.domain.text import shown_name
from antiphon.engine.access.reach import Rights
from antiphon.engine.access.recipients import may_leave
from antiphon.engine.deliveries.outbox import name_of, show_outcome
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.deciders import decide_answer, decide_deciding
from antiphon.policy.decision import Deny
from antiphon.policy.rights import decide_act
from antiphon.policy.standing import Standing
from antiphon.store import approvals, deliveries
from antiphon.store.database import Query, Transaction
from antiphon.store.deliveries import NewDelivery
from antiphon.store.people import find_names, find_standing, find_standing_of_account, list_deciders

MOST_OPEN: Final = 20
"""Open requests of one principal that are sent one by one; of more, people get one message that counts them."""
LOOK: Final = "page"
"""The word of the button under a request that its message does not show whole."""
SEND_ONCE: Final = "Send once"
"""Instead of the words of a verdict that allows, under words that only an owner may let go."""
LOOK_AT_PAGE: Final = "The page shows all of it: “antiphon open” prints its address."
SHOWN_ANEW: Final = (
    "An older version has written this message, and it may not show the call as it runs. It is shown anew: look at it "
    "before you decide."
)
NOT_SEEN: Final = "This message does not show all that would run, so it cannot be approved here. Look at the page."
READ_NOT_SEEN: Final = "This message does not say what was read, so it cannot be trusted here. Look at the page."
_MORE: Final = "more:"
"""Before the principal, where the id of a request would be: the message counts the principal's other requests."""


async def ask_deciders(tx: Transaction, id: ApprovalId, made_of: Classification, rules: Rules) -> None:
    """Queues the request for each private chat of somebody who may decide it.

    The message will hold the exact calls, made of `made_of`, as far as they fit.
    """
    if not rules.chats.channels:
        return
    approval = await approvals.find(tx, id)
    assert approval is not None
    is_sent = await approvals.count_open_of(tx, approval.principal, MOST_OPEN + 1) <= MOST_OPEN
    for identity, standing in await list_deciders(tx, rules.chats.channels):
        if not _may_decide(standing, approval, rules, Verdict.ONCE):
            continue
        place = private_chat(identity)
        if is_sent:
            await _queue(tx, place, id, made_of, cause="request")
        else:
            await _queue_count(tx, place, approval)


async def as_claimed(tx: Transaction, claimed: Delivery, form: ChannelForm, rules: Rules) -> Delivery | None:
    """The request as its reader may see it now, with buttons; None if it was answered, or is not theirs any more."""
    assert claimed.approval is not None
    place = claimed.place
    standing = await find_standing_of_account(tx, place.channel or "", place.account_id or "", place.to or "")
    if standing is None:
        return None
    if claimed.approval.startswith(_MORE):
        return await _count_as_claimed(tx, claimed, standing, rules)
    approval = await approvals.find(tx, ApprovalId(claimed.approval))
    if approval is None or not approval.is_pending:
        return None
    offered = [verdict for verdict in Verdict if _may_decide(standing, approval, rules, verdict)]
    if not offered:
        return None
    if not await may_leave(tx, claimed.made_of, place, rules.sinks):
        hidden = _hidden_text(approval)
        return replace(claimed, text=hidden.text, spans=hidden.spans, made_of=PUBLIC)
    message = draw_request(approval, await names_in(tx, approval), form)
    drawn = replace(claimed, text=message.text, spans=message.spans)
    await deliveries.redraw(tx, drawn)
    may_trust = bool(approval.trustable) and not isinstance(decide_act(standing, Act.TRUST), Deny)
    is_whole = shows_whole(message, approval)
    buttons = _buttons(approval, offered, is_whole=is_whole, may_trust=may_trust)
    return replace(drawn, buttons=buttons)


async def refuse_unseen(tx: Transaction, press: ButtonPress, rights: Rights) -> str | None:
    """Why the press does not approve: its message does not show all that would run. None if it may be carried out.

    The message counts, not the button under it: it may be forged, or of an older version. Such a message is drawn anew.
    """
    verdict = verdict_of(press.word)
    approval = await approvals.find(tx, ApprovalId(press.subject))
    if verdict is None or not verdict.means.allows or approval is None or not approval.is_pending:
        return None
    standing = await find_standing(tx, rights.principal)
    if not _may_decide(standing, approval, rights.rules, verdict):
        return None  # the decision itself says why not
    shown = await deliveries.list_shown_at(tx, approval.id, press.place)
    pressed = [each for each in shown if press.message_id in (each.platform_id, *each.parts)] or shown
    messages = [OwnText(each.text, each.spans or ()) for each in pressed]
    if messages and all(shows_whole(each, approval) for each in messages):
        if press.word != TRUST:
            return None
        names = await names_in(tx, approval)
        return None if all(shows_read(each, approval, names) for each in messages) else READ_NOT_SEEN
    old = [each for each in pressed if each.status is DeliveryStatus.SENT and not _has_block(each)]
    for each in old:
        await deliveries.delete(tx, each.id)
        await _queue(tx, each.place, approval.id, each.made_of, cause=f"anew {each.id}", replaces=each.platform_id)
    return SHOWN_ANEW if old else NOT_SEEN


def _has_block(shown: Delivery) -> bool:
    """Whether this version has drawn the request: older ones marked no arguments."""
    return any(span.is_block for span in shown.spans or ())


async def show_answer(tx: Transaction, approval: Approval) -> None:
    """Queues what became of the request for all messages that show it, without buttons."""
    if approval.is_pending:
        return
    outcome: OwnText | None = None
    for shown in await deliveries.list_requests(tx, approval.id):
        outcome = outcome or await _outcome(tx, approval)
        await show_outcome(tx, shown, outcome)
    for place in await deliveries.list_places(tx, _subject_of_count(approval.principal)):
        await _queue_count(tx, place, approval)


async def _queue(
    tx: Transaction,
    place: DeliveryContext,
    subject: ApprovalId,
    made_of: Classification,
    *,
    cause: str,
    replaces: str | None = None,
) -> None:
    """Queues a message that is drawn when it is claimed, for its channel and its reader."""
    request = NewDelivery(
        name=name_of(f"{cause} {subject} {place.channel} {place.account_id or ''} {place.to}"),
        session=None,
        incarnation=None,
        run_id=None,
        place=place,
        text="Approval needed.",
        spans=(),
        made_of=made_of,
        replaces=replaces,
        approval=subject,
    )
    await deliveries.insert(tx, request, tx.now_ms)


def _subject_of_count(principal: Principal) -> ApprovalId:
    return ApprovalId(f"{_MORE}{principal}")


async def _queue_count(tx: Transaction, place: DeliveryContext, approval: Approval) -> None:
    """Queues the message that counts the principal's other requests; it counts, for all that wait, when it is claimed.

    Each change of the number queues one: one that is being claimed beside this unit may not know of the change.
    """
    subject = _subject_of_count(approval.principal)
    await _queue(tx, place, subject, PUBLIC, cause=f"count {approval.id} {approval.state.value}")


async def _count_as_claimed(tx: Transaction, claimed: Delivery, standing: Standing, rules: Rules) -> Delivery | None:
    """How many requests of the principal wait besides those that were sent; in place of the message that said so."""
    assert claimed.approval is not None
    principal = Principal.parse(claimed.approval.removeprefix(_MORE))
    deciding = decide_deciding(standing, rules.user_approves)
    if isinstance(deciding, Deny):
        return None
    count = await approvals.count_unshown(tx, deciding, principal, claimed.place)
    shown = await deliveries.list_shown_at(tx, ApprovalId(claimed.approval), claimed.place)
    earlier = [each for each in shown if each.id != claimed.id]
    for each in earlier:
        await deliveries.delete(tx, each.id)
    replaced = next((each.platform_id for each in reversed(earlier) if each.platform_id is not None), None)
    if not count and replaced is None:
        return None
    message = _count_text(await _name(tx, principal), count)
    # A message that counts none any more is done with: the next one is a new message, which people notice.
    subject = claimed.approval if count else None
    drawn = replace(claimed, text=message.text, spans=message.spans, platform_id=replaced, approval=subject)
    await deliveries.redraw(tx, drawn)
    return drawn


def _buttons(approval: Approval, offered: Sequence[Verdict], *, is_whole: bool, may_trust: bool) -> tuple[Button, ...]:
    id = approval.id
    is_allowed = is_whole and not approval.needs_trust and approval.may_release
    verdicts = [verdict for verdict in offered if is_allowed or not verdict.means.allows]
    buttons = [
        Button(
            label=SEND_ONCE if approval.is_release and verdict is Verdict.ONCE else verdict.means.button,
            data=f"{id}:{verdict.value}",
        )
        for verdict in verdicts
    ]
    if is_whole and approval.result is not None:
        buttons.insert(0, Button(label=ACCEPT_BUTTON, data=f"{id}:{ACCEPT}"))
    if is_whole and may_trust:
        label = TRUST_AND_SEND if approval.needs_trust else TRUST_BUTTON
        buttons.insert(0 if approval.needs_trust else 1, Button(label=label, data=f"{id}:{TRUST}"))
    return (*buttons, *(() if is_whole else (Button(label="Look at the page", data=f"{id}:{LOOK}"),)))


def _may_decide(standing: Standing, approval: Approval, rules: Rules, verdict: Verdict) -> bool:
    deciding = decide_deciding(standing, rules.user_approves)
    if isinstance(deciding, Deny) or not deciding.covers(approval):
        return False
    if verdict.means.stands and not approval.may_stand:
        return False
    verdicts = {call.id: verdict for call in approval.calls}
    return not isinstance(decide_answer(standing, approval, verdicts), Deny)


def _hidden_text(approval: Approval) -> OwnText:
    return own_text(
        f"Agent {approval.agent_id} needs an approval. What it asks for may not be shown in this chat: look at the "
        "page, or at ",
        Code(f"antiphon approvals show {approval.id}"),
        ".",
    )


def _count_text(asker: str, count: int) -> OwnText:
    name = Code(shown_name(asker))
    if not count:
        return own_text("No more requests for approval wait for ", name, ".")
    noun = "request" if count == 1 else "requests"
    return own_text(
        f"And {count} more {noun} for approval of ", name, ", which are not sent one by one. The page shows them."
    )


async def _outcome(query: Query, approval: Approval) -> OwnText:
    match approval.state:
        case ApprovalState.EXPIRED:
            return own_text("Nobody decided in time: it was denied.")
        case ApprovalState.DECIDED:
            verdicts = {call.verdict for call in approval.calls}
            said = (verdicts.pop() or Verdict.DENY).means.outcome if len(verdicts) == 1 else "Approved in part"
            at = "" if approval.decided_at is None else f", {_minute(approval.decided_at)}"
            if approval.decided_by is None:
                return own_text(f"{said}{at}.")
            return own_text(f"{said} by ", Code(shown_name(await _name(query, approval.decided_by))), f"{at}.")
        case _:
            return own_text("Withdrawn: the work that asked for it has ended.")


async def names_in(query: Query, approval: Approval) -> Mapping[str, str]:
    """The names of the persons whom the message names."""
    ids = [id for each in (str(approval.principal), *actors_in(approval.sources)) if (id := person_named(each))]
    found = await find_names(query, ids)
    return {str(person_principal(id)): person.shown for id, person in found.items()}


async def _name(query: Query, principal: Principal) -> str:
    person = person_of(principal)
    found = None if person is None else (await find_names(query, [person])).get(person)
    return str(principal) if found is None else found.shown


def _minute(at: datetime) -> str:
    return f"{at:%Y-%m-%d %H:%M} UTC"
