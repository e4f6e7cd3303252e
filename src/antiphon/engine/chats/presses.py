"""The unit of a pressed button: the person who pressed decides, as anywhere else. Contract: approvals 3."""

from antiphon.domain.ids import ApprovalId, SessionRow
from antiphon.domain.inbound import ButtonPress
from antiphon.engine.access.reach import Rights
from antiphon.engine.chats.accounts import AccountLease
from antiphon.engine.chats.occasion import Occasion
from antiphon.engine.chats.take_in import Received, Stale, arrival_of, hold
from antiphon.engine.chats.who import find_who
from antiphon.engine.runs.presses import UNKNOWN, Press
from antiphon.engine.runs.presses import press as carry_out
from antiphon.store import approvals, arrivals
from antiphon.store.arrivals import ArrivalOutcome, ArrivalRow
from antiphon.store.database import Query, Transaction


async def find_pressed(query: Query, press: ButtonPress) -> SessionRow | None:
    """The session that the press is about."""
    found = await approvals.find(query, ApprovalId(press.data.partition(":")[0]))
    return None if found is None else found.session


async def take_press(
    tx: Transaction, press: ButtonPress, lease: AccountLease | None, occasion: Occasion
) -> Received | Stale:
    """Decides as the person to whom the presser's account is linked; the same press again says what was decided."""
    if not await hold(tx, lease, press.place, press.position):
        return Stale()
    arrival = arrival_of(press.place, press.platform_id)
    is_repeated = await arrivals.find(tx, arrival) is not None
    who = await find_who(tx, occasion.rules, press.place, press.sender)
    outcome, toast = ArrivalOutcome.IGNORED, UNKNOWN
    if who.is_linked and not who.standing.is_suspended:
        pressed = Press(rights=Rights(who.standing.principal, occasion.rules), data=press.data, at_ms=occasion.at_ms)
        outcome, toast = ArrivalOutcome.PRESSED, await carry_out(tx, pressed)
    if not is_repeated:
        await arrivals.store(tx, arrival, ArrivalRow(outcome, None), occasion.at_ms)
    return Received(outcome=outcome, toast=toast, is_repeated=is_repeated)
