"""Groups of channels in which agents answer, and whether they still do. Contract: groups 1, message 1, tasks 1."""

from functools import partial
from typing import NamedTuple

from antiphon.domain.actor import Principal
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.session import DEFAULT_ACCOUNT, DeliveryContext, Session
from antiphon.engine.access.places import ChatAddress, find_route, key_of_group, peer_of_group, rules_of, settings_agent
from antiphon.engine.access.recipients import account_of
from antiphon.engine.rules import Rules
from antiphon.policy.reception import GroupStanding
from antiphon.policy.rights import reaches_all
from antiphon.store import channel_groups, people, sessions
from antiphon.store.channel_groups import ChannelGroup, GroupState
from antiphon.store.database import Query
from antiphon.store.deliveries import ChannelAccount


class GroupAsker(NamedTuple):
    """In whose name a group is named."""

    rules: Rules
    principal: Principal
    agent_id: AgentId


def standing_of(rules: Rules, place: DeliveryContext, group: ChannelGroup | None) -> GroupStanding:
    """Whether the bot may answer there. A group that the settings name is allowed."""
    assert place.channel is not None and place.to is not None
    named = rules_of(rules, place.channel, account_of(place)).groups
    if place.to in named or (group is not None and group.group_id in named):
        return GroupStanding.ALLOWED
    match group:
        case None:
            return GroupStanding.UNKNOWN
        case ChannelGroup(state=GroupState.ALLOWED):
            return GroupStanding.ALLOWED
        case ChannelGroup(state=GroupState.LEFT):
            return GroupStanding.UNKNOWN
        case _:
            return GroupStanding.CLOSED


async def find_answered(query: Query, asker: GroupAsker, account: ChannelAccount, named: str) -> DeliveryContext | None:
    """The place of the group with that id or present address, if the asker's agent answers there on the account.

    None as well for a group that the asker takes no part in, unless they are an owner. Titles name no group: anybody
    may choose them.
    """
    channel, name = account.channel, account.account_id or DEFAULT_ACCOUNT
    group = await channel_groups.find(query, channel, name, named)
    group = group or await channel_groups.find_by_address(query, channel, name, named)
    place = DeliveryContext(
        channel=channel, to=named if group is None else group.address, account_id=account.account_id
    )
    return place if await _answers(query, asker, place, group) else None


async def _answers(query: Query, asker: GroupAsker, place: DeliveryContext, group: ChannelGroup | None) -> bool:
    """Whether the asker's agent answers there, and the asker takes part in it or is an owner."""
    rules, channel, name = asker.rules, place.channel, account_of(place)
    assert channel is not None and place.to is not None
    if not _is_answered(rules, place, group):
        return False
    id, settings = place.to if group is None else group.group_id, rules_of(rules, channel, name)
    address = ChatAddress(channel=channel, account=name, peer=peer_of_group(rules, channel, id))
    try:
        route = await find_route(
            query,
            rules,
            address,
            settings_agent(rules, settings, address),
            key_with=partial(key_of_group, rules, address),
        )
    except Invalid:  # an id that fits into no key
        return False
    if route.agent_id != asker.agent_id:
        return False
    return await _reaches(query, asker.principal, await sessions.find_by_key(query, route.session_key))


async def find_present_place(
    query: Query, rules: Rules, place: DeliveryContext, asker: GroupAsker | None = None
) -> DeliveryContext | None:
    """The place under its present address; None for a group that was left, or in which the bot is silent by now.

    With an `asker`, None as well for a group that `find_answered` would not find for them now.
    """
    assert place.channel is not None and place.to is not None
    channel, account = place.channel, account_of(place)
    group = await channel_groups.find_by_address(query, channel, account, place.to)
    group = group or await channel_groups.find(query, channel, account, place.to)
    if group is None and place.to not in rules_of(rules, channel, account).groups:
        return place  # no group
    present = place if group is None else _moved(place, group)
    if asker is not None:
        return present if await _answers(query, asker, present, group) else None
    return present if _is_answered(rules, present, group) else None


def _moved(place: DeliveryContext, group: ChannelGroup) -> DeliveryContext:
    return DeliveryContext(
        channel=place.channel, to=group.address, account_id=place.account_id, thread_id=place.thread_id
    )


def _is_answered(rules: Rules, place: DeliveryContext, group: ChannelGroup | None) -> bool:
    assert place.channel is not None
    if standing_of(rules, place, group) is not GroupStanding.ALLOWED:
        return False
    if group is not None and group.state is GroupState.LEFT:
        return False
    groups = rules_of(rules, place.channel, account_of(place)).groups
    own = groups.get(place.to or "") if group is None else groups.get(group.group_id) or groups.get(place.to or "")
    return own is None or not own.is_silent


async def _reaches(query: Query, principal: Principal, session: Session | None) -> bool:
    if reaches_all(await people.find_standing(query, principal)):
        return True
    return session is not None and await sessions.is_participant(query, session.row, str(principal))
