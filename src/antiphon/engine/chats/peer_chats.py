"""Chats of webhooks: each peer has one, with a route and commands like any other chat. Contract: channels 1, 2, 4.

What a peer says is pinned to the session that it went to, so that a repeated message finds its first answer even if
the chat uses another session now.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.classification import Classification
from antiphon.domain.commands import ChatCommand
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import AgentId, MessageId, SessionId
from antiphon.domain.keys import ChatType, SessionKey, parse_key
from antiphon.domain.person import Identity
from antiphon.domain.session import DeliveryContext, Source
from antiphon.domain.targets import NamedTarget
from antiphon.engine.chats.chat import Chat, ChatAddress, ChatRoute
from antiphon.engine.chats.commands import perform
from antiphon.engine.chats.occasion import Occasion
from antiphon.engine.chats.routing import find_route
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.sessions import Newcomer, OpenSession, SessionAttributes, open_session
from antiphon.policy.chats import ChannelRules
from antiphon.store import arrivals
from antiphon.store import sessions as rows
from antiphon.store.arrivals import ArrivalRow, PostedRow
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing, find_standing_of_account

ONCE = "This command was carried out already."
"""The answer to a command that comes again and would change something."""


class PeerChat(Struct, frozen=True, kw_only=True):
    """Where a peer writes, and with which rights."""

    principal: Principal
    """That of the peer's messages, unless the account is linked to somebody."""
    identity: Identity
    """The peer's account."""
    name: str
    newcomer: Newcomer | None
    """The person to store with the first message; None if all messages are the owner's."""
    place: DeliveryContext
    """Where answers are sent; nowhere if the webhook has no address."""
    address: ChatAddress
    agent_id: AgentId
    """The agent that the settings name."""
    key_with: Callable[[AgentId], SessionKey]
    """The chat's own session with an agent."""
    is_fixed: bool
    """Whether the chat always uses the same session, which it shares with all others."""
    classification: Classification


class PeerStanding(NamedTuple):
    """The chat as it stands."""

    principal: Principal
    route: ChatRoute


class CommandDone(Struct, frozen=True, kw_only=True):
    session_key: SessionKey
    last_seq: int
    """The newest number of the session's log."""
    answer: str | None
    """None for a sender who may not use the command."""


class PeerChats:
    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def enter(
        self, chat: PeerChat, message_id: str, *, new_session_id: SessionId, at_ms: int
    ) -> tuple[Principal, NamedTarget]:
        """Opens the session of a message, and pins the message to it; who writes, and the session.

        Raises `NotFound`, `Denied`, `Invalid`, `Limited`.
        """
        target = await self._database.read(_target_of, chat, self._rules)
        command = OpenPeerChat(chat=chat, message_id=message_id, new_session_id=new_session_id, at_ms=at_ms)
        return accepted(await self._database.run(_open, command, self._rules, sessions=(target,)))

    async def carry_out(self, chat: PeerChat, message_id: str, command: ChatCommand, occasion: Occasion) -> CommandDone:
        """Carries out a command, once, and queues its answer if the webhook has an address. Raises `Conflict`."""
        target = await self._database.read(_target_of, chat, self._rules)
        typed = PeerCommand(chat=chat, message_id=message_id, command=command, occasion=occasion)
        return accepted(await self._database.run(_carry_out, typed, sessions=(target,)))


class PeerCommand(Struct, frozen=True, kw_only=True):
    chat: PeerChat
    message_id: str
    command: ChatCommand
    occasion: Occasion


class OpenPeerChat(Struct, frozen=True, kw_only=True):
    chat: PeerChat
    message_id: str
    new_session_id: SessionId
    at_ms: int


def _arrival(chat: PeerChat, message_id: str) -> arrivals.ArrivalName:
    """The message's name among all of the webhook: its id is unique only in its chat."""
    said = "\0".join((chat.address.peer, chat.address.thread, message_id))
    name = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
    return arrivals.ArrivalName(chat.address.channel, chat.address.account, name)


async def _look(query: Query, chat: PeerChat, rules: Rules) -> PeerStanding:
    identity = chat.identity
    linked = None
    if chat.newcomer is not None:
        linked = await find_standing_of_account(query, identity.channel, identity.account, identity.platform_id)
    principal = chat.principal if linked is None else linked.principal
    if chat.is_fixed:
        key = chat.key_with(chat.agent_id)
        route = ChatRoute(address=chat.address, agent_id=chat.agent_id, base_key=key, session_key=key)
    else:
        route = await find_route(query, rules, chat.address, chat.agent_id, key_with=chat.key_with)
    return PeerStanding(principal, route)


async def _target_of(query: Query, chat: PeerChat, rules: Rules) -> NamedTarget:
    """The session that the unit will lock; the unit looks again."""
    return NamedTarget((await _look(query, chat, rules)).route.session_key, None)


async def _open(tx: Transaction, command: OpenPeerChat, rules: Rules) -> tuple[Principal, NamedTarget] | Refusal:
    chat, (principal, route) = command.chat, await _look(tx, command.chat, rules)
    place = _arrival(chat, command.message_id)
    pinned = await arrivals.find(tx, place)
    key, agent_id = route.session_key, route.agent_id
    if pinned is not None and pinned.outcome is arrivals.ArrivalOutcome.COMMAND:
        return _reused(command.message_id)
    if pinned is not None and pinned.posted is not None:
        key = parse_key(pinned.posted.session_key)
        agent_id = key.agent_id or agent_id
    opening = OpenSession(
        principal=principal,
        target=NamedTarget(key, None),
        agent_id=agent_id,
        base=rules.agent(agent_id).classification,
        source=Source(kind="channel", platform=chat.address.channel),
        attributes=SessionAttributes(taint=chat.classification),
        place=chat.place,
        newcomer=chat.newcomer,
        new_session_id=command.new_session_id,
        at_ms=command.at_ms,
    )
    opened = await open_session(tx, opening, rules)
    if isinstance(opened, Refusal):
        return opened
    if pinned is None:
        posted = PostedRow(opened.session.row, str(key), MessageId(command.message_id), opened.session.last_seq, None)
        await arrivals.store(tx, place, ArrivalRow(arrivals.ArrivalOutcome.POSTED, posted), command.at_ms)
    return principal, NamedTarget(key, None)


async def _carry_out(tx: Transaction, typed: PeerCommand) -> CommandDone | Refusal:
    peer, message_id, command, occasion = typed.chat, typed.message_id, typed.command, typed.occasion
    principal, route = await _look(tx, peer, occasion.rules)
    session, place = await rows.find_by_key(tx, route.session_key), _arrival(peer, message_id)
    first = await arrivals.find(tx, place)
    if first is not None and first.outcome is not arrivals.ArrivalOutcome.COMMAND:
        return _reused(message_id)
    chat = Chat(
        place=peer.place,
        chat_type=ChatType.DIRECT,
        standing=await find_standing(tx, principal),
        identity=None if peer.is_fixed else peer.identity,
        is_shared=peer.newcomer is None,
        sender_name=peer.name,
        rules=ChannelRules(agent_id=peer.agent_id, classification=peer.classification),
        route=route,
        session=session,
    )
    answer = ONCE
    if first is None or command.is_reading:
        answer = await perform(tx, chat, command, occasion)
    if first is None:
        await arrivals.store(tx, place, ArrivalRow(arrivals.ArrivalOutcome.COMMAND, None), occasion.at_ms)
        if answer is not None and peer.place.is_outside:
            name = f"{place.channel} {place.account} {place.platform_id}"
            await enqueue_notice(tx, peer.place, answer, name=name, at_ms=occasion.at_ms)
    return CommandDone(
        session_key=route.session_key, last_seq=0 if session is None else session.last_seq, answer=answer
    )


def _reused(message_id: str) -> Refusal:
    return Refusal(
        Conflict(f"Message id was used for another message: {message_id!r}. Use a new id.", code="message_id_reused")
    )
