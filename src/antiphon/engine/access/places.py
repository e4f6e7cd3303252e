"""Chats of channels as places: what they are called, which session they use, and what the send policy says of them.

Contract: keys 5, send_policy 3.
"""

from collections.abc import Callable
from functools import partial

from msgspec import Struct

from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.inbound import Sender
from antiphon.domain.keys import ChatType, SessionKey, direct_key, group_key, main_key, parse_key, thread_key
from antiphon.domain.session import DeliveryContext
from antiphon.engine.access.recipients import account_of
from antiphon.engine.access.who import Who, find_who
from antiphon.engine.rules import Rules
from antiphon.policy.chats import ChannelRules
from antiphon.policy.rights import reaches_all
from antiphon.policy.send import SendFacts
from antiphon.store import channel_groups, routes
from antiphon.store import sessions as rows
from antiphon.store.database import Query
from antiphon.store.routes import RouteName


class ChatAddress(Struct, frozen=True, kw_only=True):
    """What a chat is called in the tables of routes and groups."""

    channel: str
    account: str
    peer: str
    """`direct:<platform id>`, `group:<group id>` or `channel:<group id>`; a group that has moved keeps its id."""
    thread: str = ""
    """The thread or topic; empty for the chat itself."""


class ChatRoute(Struct, frozen=True, kw_only=True):
    """Which agent and session a chat uses."""

    address: ChatAddress
    agent_id: AgentId
    base_key: SessionKey
    """The chat's own session with this agent, which `/session main` returns to."""
    session_key: SessionKey
    """The session of the next message: the chat's own, unless another was chosen."""
    version: int = 0
    """Grows with each change of the stored row; 0 without one."""
    is_stored: bool = False
    """Whether somebody chose the agent or the session; otherwise the settings decide."""
    is_fallback: bool = False
    """Whether the stored agent is not configured any more, so that the settings decide."""


def rules_of(rules: Rules, channel: str, account: str) -> ChannelRules:
    """The settings of the account; those of an account that nobody has configured are the defaults."""
    return rules.chats.channels.get((channel, account)) or ChannelRules(agent_id=rules.default_agent)


def settings_agent(rules: Rules, channel_rules: ChannelRules, address: ChatAddress) -> AgentId:
    """The agent that the settings name for the chat."""
    kind, _, id = address.peer.partition(":")
    group = None if kind == ChatType.DIRECT else channel_rules.groups.get(id)
    named = channel_rules.agent_id if group is None or group.agent_id is None else group.agent_id
    return named if named in rules.agents else rules.default_agent


def own_key(rules: Rules, address: ChatAddress, agent_id: AgentId, who: Who) -> SessionKey:
    """The session that the chat has by itself with this agent. Raises `Invalid` if its ids are too long for a key."""
    chats, (kind, _, id) = rules.chats, address.peer.partition(":")
    if chats.is_global:
        return main_key(agent_id)
    if kind != ChatType.DIRECT:
        return key_of_group(rules, address, agent_id)
    key = direct_key(
        agent_id,
        channel=address.channel,
        peer=id,
        account=address.account,
        scope=chats.dm_scope,
        shares_main=reaches_all(who.standing),
        person=who.folded,
    )
    return thread_key(key, address.thread) if address.thread else key


def key_of_group(rules: Rules, address: ChatAddress, agent_id: AgentId) -> SessionKey:
    """The session that the group, or its topic, has by itself with this agent. Raises `Invalid` like `own_key`."""
    thread, (kind, _, id) = address.thread or None, address.peer.partition(":")
    named = {"topic" if rules.chats.form(address.channel).has_topics else "thread": thread}
    return group_key(agent_id, channel=address.channel, chat_type=ChatType(kind), platform_id=id, **named)


def peer_of_group(rules: Rules, channel: str, id: str) -> str:
    """What the group of that id is called in addresses."""
    return f"{rules.chats.form(channel).group_type}:{id}"


async def find_route(
    query: Query, rules: Rules, address: ChatAddress, agent_id: AgentId, *, key_with: Callable[[AgentId], SessionKey]
) -> ChatRoute:
    """The chat's route; a thread follows its chat's agent, unless it has a route of its own.

    `agent_id` is the agent that the settings name, and `key_with` gives the chat's own session with an agent.
    """
    stored = await routes.find(query, name_of_route(address))
    own = next((route for route in stored if route.thread == address.thread), None)
    chosen = next((route.agent_id for route in stored if route.agent_id is not None), None)
    is_fallback = chosen is not None and chosen not in rules.agents
    agent = agent_id if chosen is None or is_fallback else chosen
    base = key = key_with(agent)
    if own is not None and own.session_key is not None and not is_fallback:
        named = read_key(own.session_key)
        is_fallback = named is None or (named.agent_id is not None and named.agent_id not in rules.agents)
        if named is not None and not is_fallback:
            key, agent = named, named.agent_id or agent
    return ChatRoute(
        address=address,
        agent_id=agent,
        base_key=base,
        session_key=key,
        version=0 if own is None else own.version,
        is_stored=bool(stored),
        is_fallback=is_fallback,
    )


def name_of_route(address: ChatAddress) -> RouteName:
    return RouteName(address.channel, address.account, address.peer, address.thread)


def read_key(text: str) -> SessionKey | None:
    try:
        return parse_key(text)
    except Invalid:
        return None


async def is_group(query: Query, rules: Rules, place: DeliveryContext) -> bool:
    """Whether a group is known at the place, or the settings name one."""
    assert place.channel is not None and place.to is not None
    channel, account = place.channel, account_of(place)
    known = await channel_groups.find_by_address(query, channel, account, place.to)
    return known is not None or place.to in rules_of(rules, channel, account).groups


async def find_address(query: Query, rules: Rules, place: DeliveryContext) -> ChatAddress:
    """What the chat at the place is called in tables: a group if one is known there, or the settings name one."""
    assert place.channel is not None and place.to is not None
    channel, account = place.channel, account_of(place)
    group = await channel_groups.find_by_address(query, channel, account, place.to)
    is_one = group is not None or place.to in rules_of(rules, channel, account).groups
    id = place.to if group is None else group.group_id
    peer = peer_of_group(rules, channel, id) if is_one else f"{ChatType.DIRECT}:{id}"
    return ChatAddress(channel=channel, account=account, peer=peer, thread=place.thread_id or "")


async def find_addressed(query: Query, rules: Rules, place: DeliveryContext) -> SendFacts | None:
    """What the send policy knows of a chat by its place; None if its ids fit into no session's key."""
    address = await find_address(query, rules, place)
    settings, (kind, _, id) = rules_of(rules, address.channel, address.account), address.peer.partition(":")
    try:
        if kind != ChatType.DIRECT:
            key_with = partial(key_of_group, rules, address)
        else:
            who = await find_who(query, rules, place, Sender(id=id, name=""))
            key_with = partial(_own_key_with, rules, address, who)
        route = await find_route(query, rules, address, settings_agent(rules, settings, address), key_with=key_with)
    except Invalid:
        return None
    session = await rows.find_by_key(query, route.session_key)
    return SendFacts(
        key=str(route.session_key),
        channel=address.channel,
        chat_type=kind,
        override=None if session is None else session.send_policy,
    )


def _own_key_with(rules: Rules, address: ChatAddress, who: Who, agent: AgentId) -> SessionKey:
    return own_key(rules, address, agent, who)
