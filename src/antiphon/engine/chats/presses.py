"""The unit of a pressed button: the person who pressed decides, as anywhere else. Contract: approvals 3."""

import hashlib

from antiphon.domain.approval import Verdict
from antiphon.domain.ids import ApprovalId, SessionRow, StandingApprovalId
from antiphon.domain.inbound import ButtonPress
from antiphon.engine.access.reach import Rights
from antiphon.engine.chats.accounts import Lease
from antiphon.engine.chats.occasion import Occasion
from antiphon.engine.chats.take_in import Received, Stale, arrival_of, hold
from antiphon.engine.chats.who import find_who
from antiphon.engine.refusal import Refusal
from antiphon.engine.runs.decisions import DecideApproval, decide_approval
from antiphon.store import approvals, arrivals
from antiphon.store.arrivals import ArrivalRow, Outcome
from antiphon.store.database import Query, Transaction

UNKNOWN_BUTTON = "This button is not valid any more."
_SAID = {
    Verdict.ONCE: "Approved once.",
    Verdict.ALWAYS: "Approved, now and always.",
    Verdict.DENY: "Denied.",
}
"""What the person sees who has decided."""


async def find_pressed(query: Query, press: ButtonPress) -> SessionRow | None:
    """The session that the press is about."""
    id, _ = _read(press)
    found = None if id is None else await approvals.find(query, id)
    return None if found is None else found.session


async def take_press(
    tx: Transaction, press: ButtonPress, lease: Lease | None, occasion: Occasion
) -> Received | Stale:
    """Decides as the person to whom the presser's account is linked; the same press again says what was decided."""
    if not await hold(tx, lease, press.place, press.position):
        return Stale()
    arrival = arrival_of(press.place, press.platform_id)
    is_repeated = await arrivals.find(tx, arrival) is not None
    who = await find_who(tx, occasion.rules, press.place, press.sender)
    outcome, toast = Outcome.IGNORED, UNKNOWN_BUTTON
    id, verdict = _read(press)
    if who.is_linked and not who.standing.is_suspended and id is not None and verdict is not None:
        outcome, toast = Outcome.PRESSED, await _decide(tx, Rights(who.standing.principal, occasion.rules), id, verdict, occasion)
    if not is_repeated:
        await arrivals.store(tx, arrival, ArrivalRow(outcome, None), occasion.at_ms)
    return Received(outcome=outcome, toast=toast, is_repeated=is_repeated)


async def _decide(tx: Transaction, rights: Rights, id: ApprovalId, verdict: Verdict, occasion: Occasion) -> str:
    found = await approvals.find(tx, id)
    decision = DecideApproval(
        rights=rights,
        id=id,
        verdicts=verdict,
        fields={},
        note=None,
        standing_ids={call.id: _standing_id(call.id, occasion) for call in (found.calls if found else ())},
        at_ms=occasion.at_ms,
    )
    decided = await decide_approval(tx, decision)
    return decided.error.message if isinstance(decided, Refusal) else _SAID[verdict]


def _standing_id(call: str, occasion: Occasion) -> StandingApprovalId:
    digits = hashlib.sha256(f"{occasion.drawn} {call}".encode()).hexdigest()[:20]
    return StandingApprovalId(f"always_{occasion.at_ms:011x}{digits}")


def _read(press: ButtonPress) -> tuple[ApprovalId | None, Verdict | None]:
    """The request and the decision that the button carries; None for other buttons."""
    id, _, word = press.data.rpartition(":")
    try:
        return ApprovalId(id), Verdict(word)
    except ValueError:
        return None, None
