"""Who reads at a place outside, and what may be sent to them. Contract: flow 7."""

from antiphon.domain.classification import Classification
from antiphon.domain.session import DeliveryContext
from antiphon.policy.flow import may_enter
from antiphon.policy.sinks import Sinks
from antiphon.store.database import Query
from antiphon.store.people import find_standing_of_account


async def find_recipient(query: Query, place: DeliveryContext) -> Classification | None:
    """The clearance of the person to whom the place's recipient is linked; None for a recipient that nobody knows.

    One statement, two for an account of a merged person. A suspended person counts as unknown, and so does a group.
    """
    if place.channel is None or place.to is None:
        return None
    standing = await find_standing_of_account(query, place.channel, place.account_id or "", place.to)
    return None if standing is None or standing.is_suspended else standing.clearance


async def may_leave(query: Query, data: Classification, place: DeliveryContext, sinks: Sinks) -> bool:
    """Whether the data may go to the place now. Reads nothing for public data, which may go anywhere."""
    if may_enter(data, sinks.of_place(place, None)):
        return True
    return may_enter(data, sinks.of_place(place, await find_recipient(query, place)))
