"""The unit of a pressed button: the person who pressed decides, as anywhere else. Contract: approvals 3, access 3."""

from msgspec import Struct

from antiphon.domain.errors import REFUSALS
from antiphon.domain.ids import ApprovalId, SessionRow
from antiphon.domain.inbound import ButtonPress
from antiphon.domain.keys import SessionKey
from antiphon.domain.person import person_of
from antiphon.engine.access.reach import Rights
from antiphon.engine.access.who import find_who
from antiphon.engine.chats.accounts import AccountLease
from antiphon.engine.chats.groups import DecideGroup, decide_group
from antiphon.engine.chats.linking import press_answer
from antiphon.engine.chats.pairing import DecidePairing, approve_pairing, refuse_pairing
from antiphon.engine.chats.take_in import Received, Stale, arrival_of, keep_lease
from antiphon.engine.deliveries.outbox import note_copy
from antiphon.engine.deliveries.questions import ADMIT, REFUSE, GroupAsked, group_asked, link_asked, pairing_asked
from antiphon.engine.deliveries.requests import LOOK, LOOK_AT_PAGE, refuse_unseen
from antiphon.engine.rules import Rules
from antiphon.engine.runs.presses import UNKNOWN
from antiphon.engine.runs.presses import press as carry_out
from antiphon.store import approvals, arrivals
from antiphon.store.arrivals import ArrivalOutcome, ArrivalRow
from antiphon.store.channel_groups import GroupState
from antiphon.store.database import Query, Transaction


class TakePress(Struct, frozen=True, kw_only=True):
    press: ButtonPress
    lease: AccountLease | None
    rules: Rules
    foreseen: SessionKey | None = None
    """The session to which a message is posted that waits for the decision."""


async def find_pressed(query: Query, press: ButtonPress) -> SessionRow | None:
    """The session of the request for approval that the press is about."""
    found = await approvals.find(query, ApprovalId(press.subject))
    return None if found is None else found.session


async def take_press(tx: Transaction, command: TakePress) -> Received | Stale:
    """Decides as the person to whom the presser's account is linked; the same press again says what was decided.

    Raises `SessionMoved` if the decision posts to another session than was foreseen.
    """
    press, rules = command.press, command.rules
    if not await keep_lease(tx, command.lease, press.place, press.position):
        return Stale()
    arrival = arrival_of(press.place, press.platform_id)
    is_repeated = await arrivals.find(tx, arrival) is not None
    who = await find_who(tx, rules, press.place, press.sender)
    outcome, toast = ArrivalOutcome.IGNORED, UNKNOWN
    if who.is_linked and not who.standing.is_suspended:
        rights = Rights(who.standing.principal, rules)
        if press.message_id is not None:
            await note_copy(tx, ApprovalId(press.subject), press.place, press.message_id)
        outcome, toast = ArrivalOutcome.PRESSED, await _try_to_decide(tx, command, rights)
    if not is_repeated:
        await arrivals.store(tx, arrival, ArrivalRow(outcome, None), tx.now_ms)
    return Received(outcome=outcome, toast=toast, is_repeated=is_repeated)


async def _try_to_decide(tx: Transaction, command: TakePress, rights: Rights) -> str:
    try:
        async with tx.attempt():
            return await _decide(tx, command, rights)
    except REFUSALS as error:
        return error.message


async def _decide(tx: Transaction, command: TakePress, rights: Rights) -> str:
    """Carries the decision out; the sentence for the person who pressed."""
    subject, word = command.press.subject, command.press.word
    if word in (ADMIT, REFUSE) and (id := pairing_asked(subject)) is not None:
        return await _decide_pairing(tx, command, rights, id, is_admitted=word == ADMIT)
    if word in (ADMIT, REFUSE) and (group := group_asked(subject)) is not None:
        return await _decide_group(tx, command, rights, group, is_allowed=word == ADMIT)
    if word in (ADMIT, REFUSE) and (beginning := link_asked(subject)) is not None:
        return await press_answer(tx, person_of(rights.principal), beginning, is_agreed=word == ADMIT)
    if word == LOOK:
        return LOOK_AT_PAGE
    if refused := await refuse_unseen(tx, command.press, rights):
        return refused
    return await carry_out(tx, rights, command.press.data)


async def _decide_pairing(tx: Transaction, command: TakePress, rights: Rights, id: str, *, is_admitted: bool) -> str:
    decision = DecidePairing(rights=rights, named=id, into=None)
    if is_admitted:
        await approve_pairing(tx, decision, command.foreseen)
        return "Admitted."
    await refuse_pairing(tx, decision)
    return "Refused."


async def _decide_group(
    tx: Transaction, command: TakePress, rights: Rights, group: GroupAsked, *, is_allowed: bool
) -> str:
    decision = DecideGroup(
        rights=rights,
        channel=group.channel,
        account=group.account,
        named=group.group_id,
        state=GroupState.ALLOWED if is_allowed else GroupState.REFUSED,
    )
    await decide_group(tx, decision)
    return "Allowed." if is_allowed else "Refused."
