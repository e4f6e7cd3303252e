"""Chats of programs that post to webhooks and hooks. Contract: keys 1, 4, channels 1, 2, 4.

A webhook's peer has a chat with a route and commands, like any other; a hook's messages go where its settings say.
Each is pinned to the session that it went to, so that a repeated one finds its first answer wherever the chat is now.
"""

import hashlib
from collections.abc import Callable
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.classification import Classification
from antiphon.domain.commands import ChatCommand
from antiphon.domain.errors import Conflict, Unavailable
from antiphon.domain.ids import AgentId, MessageId
from antiphon.domain.keys import ChatType, SessionKey, parse_key
from antiphon.domain.person import Identity
from antiphon.domain.session import DeliveryContext, Source
from antiphon.domain.targets import NamedTarget
from antiphon.domain.text import bracketed_name
from antiphon.engine.access.places import ChatAddress, ChatRoute, find_route
from antiphon.engine.chats.chat import Chat
from antiphon.engine.chats.commands import perform
from antiphon.engine.chats.entry import SessionMoved, target_of
from antiphon.engine.chats.loops import is_looping, loop_refused
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.inbox import Posted, PostMessage
from antiphon.engine.sessions.posting import open_and_post
from antiphon.engine.sessions.sessions import Newcomer, OpenSession, SessionAttributes
from antiphon.policy.chats import ChannelRules
from antiphon.store import arrivals, chat_names
from antiphon.store import sessions as rows
from antiphon.store.arrivals import ArrivalRow, PostedRow
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing, find_standing_of_account

MOST_TRIES = 5
ONCE = "This command was carried out already."
"""The answer to a command that comes again and would change something."""


class ProgramChat(Struct, frozen=True, kw_only=True):
    """Where a program writes, and with which rights."""

    principal: Principal
    """That of its messages, unless the account is linked to somebody."""
    identity: Identity
    """Its account."""
    name: str
    newcomer: Newcomer | None
    """The person to store with the first message; None if all messages are the owner's."""
    place: DeliveryContext
    """Where answers are sent; nowhere if they stay in the log."""
    address: ChatAddress
    agent_id: AgentId
    """The agent that the settings name."""
    key_with: Callable[[AgentId], SessionKey]
    """The chat's own session with an agent."""
    is_fixed: bool
    """Whether the chat always uses the session that `key_with` names."""
    source: Source
    """Of a session that is new."""
    classification: Classification
    most_sessions: int | None = None
    """In how many sessions the program may take part; None for what its person may."""


class _ProgramRoute(NamedTuple):
    """The chat as it stands."""

    principal: Principal
    route: ChatRoute


class CommandDone(Struct, frozen=True, kw_only=True):
    session_key: SessionKey
    last_seq: int
    """The newest number of the session's log."""
    answer: str | None
    """None for a sender who may not use the command."""


class ProgramChats:
    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def post(self, chat: ProgramChat, message_id: str, posting: PostMessage) -> Posted:
        """Opens the session of a message, stores it there as the program's, and pins it there, in one unit.

        `posting` is the command of `Inbox.post`, whatever its principal and target. Raises `NotFound`, `Denied`,
        `Invalid`, `Limited`, and `Conflict`, also for a session of another agent (`agent_mismatch`); then nothing is
        stored.
        """
        command = PostProgramMessage(chat=chat, message_id=message_id, posting=posting)
        key = (await self._database.read(_found_for, command)).key
        for _ in range(MOST_TRIES):
            try:
                return await self._database.run(_post, command, key, sessions=(target_of(key),))
            except SessionMoved as moved:
                key = moved.key
        raise Unavailable("Program posts to another session again and again. Try once more.", code="store_busy")

    async def carry_out(self, chat: ProgramChat, message_id: str, command: ChatCommand) -> CommandDone:
        """Carries out a command, once, and queues its answer if the webhook has an address. Raises `Conflict`."""
        target = await self._database.read(_target_of, chat, self._rules)
        typed = ProgramCommand(chat=chat, message_id=message_id, command=command, rules=self._rules)
        return await self._database.run(_carry_out, typed, sessions=(target,))


class ProgramCommand(Struct, frozen=True, kw_only=True):
    chat: ProgramChat
    message_id: str
    command: ChatCommand
    rules: Rules


class PostProgramMessage(Struct, frozen=True, kw_only=True):
    chat: ProgramChat
    message_id: str
    """As the program names it."""
    posting: PostMessage


class _ProgramTarget(NamedTuple):
    """Where a message goes."""

    principal: Principal
    key: SessionKey
    agent_id: AgentId
    pinned: ArrivalRow | None
    """What became of it, if it came before."""


def _arrival(chat: ProgramChat, message_id: str) -> arrivals.ArrivalName:
    """The message's name among all of its webhook or hook. An id is unique only in its chat."""
    address = chat.address
    said = "\0".join((address.peer, address.thread, message_id)) if address.peer else message_id
    name = hashlib.sha256(said.encode("utf-8", "surrogatepass")).hexdigest()
    return arrivals.ArrivalName(chat.address.channel, chat.address.account, name)


async def _look(query: Query, chat: ProgramChat, rules: Rules) -> _ProgramRoute:
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
    return _ProgramRoute(principal, route)


async def _target_of(query: Query, chat: ProgramChat, rules: Rules) -> NamedTarget:
    """The session that the unit will lock; the unit looks again."""
    return NamedTarget((await _look(query, chat, rules)).route.session_key, None)


async def _found_for(query: Query, command: PostProgramMessage) -> _ProgramTarget:
    chat, (principal, route) = command.chat, await _look(query, command.chat, command.posting.rules)
    pinned = await arrivals.find(query, _arrival(chat, command.message_id))
    if pinned is None or pinned.posted is None:
        return _ProgramTarget(principal, route.session_key, route.agent_id, pinned)
    key = parse_key(pinned.posted.session_key)
    return _ProgramTarget(principal, key, key.agent_id or route.agent_id, pinned)


async def _post(tx: Transaction, command: PostProgramMessage, foreseen: SessionKey) -> Posted:
    chat, posting, rules = command.chat, command.posting, command.posting.rules
    principal, key, agent_id, pinned = await _found_for(tx, command)
    if pinned is not None and pinned.outcome is arrivals.ArrivalOutcome.COMMAND:
        raise _reused(command.message_id)
    if key != foreseen:
        raise SessionMoved(key)
    if chat.is_fixed and (pinned is None or pinned.posted is None):
        # A route may lead to a session of any agent, and a repetition stores nothing.
        await _refuse_other_agent(tx, key, agent_id)
    if pinned is None and chat.place.is_outside:
        head = await rows.find_head_by_key(tx, key)
        row = None if head is None else head.row
        if await is_looping(tx, rules, chat.place, row, sender=principal, came_ms=tx.now_ms):
            raise loop_refused(chat.place)
    opening = OpenSession(
        principal=principal,
        target=NamedTarget(key, None),
        agent_id=agent_id,
        base=rules.agent(agent_id).classification,
        source=chat.source,
        attributes=SessionAttributes(taint=chat.classification),
        place=chat.place,
        newcomer=chat.newcomer,
    )
    posting = replace(posting, principal=principal, target=NamedTarget(key, None))
    if chat.most_sessions is not None:
        rules = replace(rules, shares=replace(rules.shares, sessions=chat.most_sessions))
    entered = await open_and_post(tx, opening, posting, rules)
    if chat.newcomer is not None and chat.place.is_outside and chat.place.channel == chat.identity.channel:
        await chat_names.put(tx, chat.place, bracketed_name(chat.name))
    if pinned is None or pinned.posted is None:
        row = PostedRow(entered.session.row, str(key), MessageId(command.message_id), entered.posted.seq, None)
        place = _arrival(chat, command.message_id)
        await arrivals.store(tx, place, ArrivalRow(arrivals.ArrivalOutcome.POSTED, row), tx.now_ms)
    return entered.posted


async def _carry_out(tx: Transaction, typed: ProgramCommand) -> CommandDone:
    peer, message_id, command, rules = typed.chat, typed.message_id, typed.command, typed.rules
    principal, route = await _look(tx, peer, rules)
    session, place = await rows.find_by_key(tx, route.session_key), _arrival(peer, message_id)
    first = await arrivals.find(tx, place)
    if first is not None and first.outcome is not arrivals.ArrivalOutcome.COMMAND:
        raise _reused(message_id)
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
        answer = await perform(tx, chat, command, rules)
    if first is None:
        await arrivals.store(tx, place, ArrivalRow(arrivals.ArrivalOutcome.COMMAND, None), tx.now_ms)
        if answer is not None and peer.place.is_outside:
            name = f"{place.channel} {place.account} {place.platform_id}"
            await enqueue_notice(tx, peer.place, answer, name=name)
    return CommandDone(
        session_key=route.session_key, last_seq=0 if session is None else session.last_seq, answer=answer
    )


async def _refuse_other_agent(query: Query, key: SessionKey, wanted: AgentId) -> None:
    agent = key.agent_id
    if agent is None and (existing := await rows.find_head_by_key(query, key)) is not None:
        agent = AgentId(existing.agent_id)
    if agent in (None, wanted):
        return
    raise Conflict(
        f"Session belongs to another agent: {str(key)!r} is {agent!r}'s, and the hook's is {wanted!r}. "
        "Delete the session, or set another session_key.",
        code="agent_mismatch",
    )


def _reused(message_id: str) -> Conflict:
    return Conflict(f"Message id was used for another message: {message_id!r}. Use a new id.", code="message_id_reused")
