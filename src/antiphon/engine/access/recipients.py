"""Who reads at a place outside, and what may be sent to them. Contract: flow 7."""

from antiphon.domain.classification import Classification
from antiphon.domain.person import person_principal
from antiphon.domain.session import DEFAULT_ACCOUNT, DeliveryContext
from antiphon.policy.exit import takes
from antiphon.policy.sinks import GroupName, Sinks, clearance_of_group
from antiphon.policy.standing import Standing
from antiphon.store import channel_groups, people
from antiphon.store.database import Query


def account_of(place: DeliveryContext) -> str:
    return place.account_id or DEFAULT_ACCOUNT


async def find_recipient(query: Query, place: DeliveryContext, sinks: Sinks) -> Classification | None:
    """The clearance of the person to whom the place's recipient is linked; None for a recipient that nobody knows.

    Of a group, what all of its members may read. Unknown are suspended persons, and groups whose settings name no
    members. One statement for a person, two for an account of a merged one, three for a group.
    """
    if place.channel is None or place.to is None:
        return None
    if (reader := sinks.reader_of(place)) is not None:
        return _clearance_of(await people.find_standing(query, person_principal(reader)))
    if sinks.groups:
        group = await name_group(query, place)
        if members := sinks.members_of(group, place.to):
            known = await people.list_standings(query, members)
            return clearance_of_group(map(_clearance_of, [*known, *await people.list_standings_in_group(query, group)]))
    return _clearance_of(await people.find_standing_of_account(query, place.channel, place.account_id or "", place.to))


async def name_group(query: Query, place: DeliveryContext) -> GroupName:
    """What the group at the place is called; one that has moved keeps its first id."""
    assert place.channel is not None and place.to is not None
    account = place.account_id or DEFAULT_ACCOUNT
    group = await channel_groups.find_by_address(query, place.channel, account, place.to)
    return GroupName(place.channel, account, place.to if group is None else group.group_id)


async def find_readers(query: Query, place: DeliveryContext, sinks: Sinks) -> tuple[str, ...]:
    """Everybody who is known to read at the place: persons, and accounts that were met in a group."""
    assert place.channel is not None and place.to is not None
    group = await name_group(query, place)
    met = await channel_groups.list_met(query, group)
    person = await people.find_standing_of_account(query, place.channel, place.account_id or "", place.to)
    named = [] if person is None else [str(person.principal)]
    return tuple(sorted({*sinks.members_of(group, place.to), *met, *named}))


def _clearance_of(standing: Standing | None) -> Classification | None:
    return None if standing is None or standing.is_suspended else standing.clearance


async def may_leave(query: Query, data: Classification, place: DeliveryContext, sinks: Sinks) -> bool:
    """Whether the data may go to the place now. Reads nothing for public data, which may go anywhere."""
    if takes(sinks.of_place(place, None), data):
        return True
    return takes(sinks.of_place(place, await find_recipient(query, place, sinks)), data)
