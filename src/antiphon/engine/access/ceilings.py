"""What a session may take in, by its own clearance and that of the place where it answers. Contract: flow 2, 7."""

from antiphon.domain.classification import EVERYTHING, Classification
from antiphon.domain.errors import Denied
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.access.recipients import find_recipient
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.flow import ceiling, may_hold
from antiphon.policy.sinks import Sinks
from antiphon.store.database import Query


async def find_ceiling(
    query: Query, session: Session, sinks: Sinks, *, place: DeliveryContext | None = None
) -> Classification:
    """The session's ceiling now; `place` is where an answer goes besides the session's own place."""
    return ceiling(session, await find_place_clearance(query, sinks, session.delivery, place))


async def find_place_clearance(query: Query, sinks: Sinks, *places: DeliveryContext | None) -> Classification:
    """What may go to all of the places that are outside."""
    found = EVERYTHING
    for place in dict.fromkeys(places):
        if place is not None and place.is_outside:
            found = found.meet(sinks.of_place(place, await find_recipient(query, place, sinks)))
    return found


def decide_above(data: Classification, ceiling: Classification) -> Decision:
    """Whether the session may take the data in."""
    if may_hold(data, ceiling):
        return ALLOW
    return Deny(
        "above_clearance",
        "Session may not hold this: it is classified above the clearance of the session, or of the place where the "
        "session answers. Raise that clearance, or use another session.",
    )


def refuse_above(data: Classification, ceiling: Classification) -> None:
    """Refuses data that the session may not take in."""
    if isinstance(denied := decide_above(data, ceiling), Deny):
        raise Denied(denied.reason, code=denied.rule)
