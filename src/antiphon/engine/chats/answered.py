"""Groups in which an agent answers, as places that its sessions may write to. Contract: message 1, groups 1."""

from functools import partial

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Invalid
from antiphon.domain.keys import ChatType
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.access.places import ChatAddress, find_route, key_of_group, rules_of, settings_agent
from antiphon.engine.access.recipients import DEFAULT_ACCOUNT
from antiphon.engine.chats.groups import standing_of
from antiphon.engine.deliveries.outgoing import WantedGroup
from antiphon.policy.reception import GroupStanding
from antiphon.policy.rights import reaches_all
from antiphon.store import channel_groups, people, sessions
from antiphon.store.channel_groups import GroupState
from antiphon.store.database import Query
from antiphon.store.deliveries import ChannelAccount


async def find_answered_group(query: Query, wanted: WantedGroup) -> DeliveryContext | None:
    """The place of the group with that id or present address, if the caller's agent answers there on an account.

    None as well for a group that the caller's person takes no part in, unless that person is an owner. Titles name no
    group: anybody may choose them.
    """
    for account in wanted.accounts:
        if (found := await _find_on(query, wanted, account)) is not None:
            return found
    return None


async def _find_on(query: Query, wanted: WantedGroup, account: ChannelAccount) -> DeliveryContext | None:
    rules, named = wanted.rules, wanted.named
    channel, name = account.channel, account.account_id or DEFAULT_ACCOUNT
    group = await channel_groups.find(query, channel, name, named)
    group = group or await channel_groups.find_by_address(query, channel, name, named)
    place = DeliveryContext(
        channel=channel, to=named if group is None else group.address, account_id=account.account_id
    )
    if standing_of(rules, place, group) is not GroupStanding.ALLOWED:
        return None
    if group is not None and group.state is GroupState.LEFT:
        return None
    id, settings = named if group is None else group.group_id, rules_of(rules, channel, name)
    own = settings.groups.get(id) or settings.groups.get(place.to or "")
    if own is not None and own.is_silent:
        return None
    address = ChatAddress(channel=channel, account=name, peer=f"{ChatType.GROUP}:{id}")
    try:
        route = await find_route(
            query,
            rules,
            address,
            settings_agent(rules, settings, address),
            key_with=partial(key_of_group, address),
        )
    except Invalid:  # an id that fits into no key
        return None
    session = await sessions.find_by_key(query, route.session_key)
    if route.agent_id != wanted.caller.agent_id:
        return None
    if not await _reaches(query, wanted.caller.principal, session):
        return None
    return place


async def _reaches(query: Query, principal: Principal, session: Session | None) -> bool:
    if reaches_all(await people.find_standing(query, principal)):
        return True
    return session is not None and await sessions.is_participant(query, session.row, str(principal))
