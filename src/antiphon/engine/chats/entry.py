"""Posts a message of a channel into its chat's session, which it opens if need be. Contract: sessions 3, 4."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import MessageId, SessionId
from antiphon.domain.inbound import LONGEST_QUOTED, Inbound
from antiphon.domain.keys import ChatType, SessionKey, SessionKind
from antiphon.domain.message import Citation, JsonObject, Part, TextPart, UserMessage
from antiphon.domain.session import Session, SessionType, Source
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.places import ChatAddress, find_route, own_key, peer_of_group, rules_of, settings_agent
from antiphon.engine.access.recipients import account_of
from antiphon.engine.access.who import Who
from antiphon.engine.chats.chat import Chat
from antiphon.engine.chats.groups import find_group
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.inbox import Posted, PostMessage
from antiphon.engine.sessions.posting import JudgedEntry, judge_entry, open_and_post
from antiphon.engine.sessions.sessions import Newcomer, OpenSession, SessionAttributes, carry_out
from antiphon.engine.sessions.workspaces import Workspace
from antiphon.policy.chats import GroupRules
from antiphon.policy.trigger import OwnerTrigger, is_triggering
from antiphon.store import sessions as rows
from antiphon.store.codec import milliseconds
from antiphon.store.database import Query, Transaction


class SessionMoved(Exception):
    """The chat uses another session than was foreseen; the unit is undone, and runs again for that one."""

    def __init__(self, key: SessionKey) -> None:
        super().__init__(str(key))
        self.key = key


class Uploaded(Struct, frozen=True, kw_only=True):
    """The files of a message, beside the workspace of an incarnation."""

    session_id: SessionId
    lines: tuple[str, ...]
    """A line for each, which tells the agent where it is."""
    directory: Workspace | None = None
    """Where they are; None if they could not be stored."""
    size: int = 0
    """Of what was written, in bytes."""
    refused: tuple[str, ...] = ()
    """What could not be stored, one plain sentence each, for the sender."""


async def address_of(query: Query, rules: Rules, inbound: Inbound) -> ChatAddress:
    """The chat's name in tables and keys; a group that has moved keeps its first id."""
    place = inbound.place
    assert place.channel is not None and place.to is not None
    group = None if inbound.chat_type is ChatType.DIRECT else await find_group(query, place)
    id = place.to if group is None else group.group_id
    is_direct = inbound.chat_type is ChatType.DIRECT
    peer = f"{ChatType.DIRECT}:{id}" if is_direct else peer_of_group(rules, place.channel, id)
    return ChatAddress(channel=place.channel, account=account_of(place), peer=peer, thread=place.thread_id or "")


async def find_chat(query: Query, rules: Rules, inbound: Inbound, who: Who) -> Chat:
    """The chat in which the message was written, with its route and its session. Raises `Invalid` for absurd ids."""
    address = await address_of(query, rules, inbound)
    channel_rules = rules_of(rules, address.channel, address.account)
    route = await find_route(
        query,
        rules,
        address,
        settings_agent(rules, channel_rules, address),
        key_with=lambda agent: own_key(rules, address, agent, who),
    )
    return Chat(
        place=inbound.place,
        chat_type=inbound.chat_type,
        title=inbound.title,
        standing=who.standing,
        identity=who.identity,
        sender_name=inbound.sender.name,
        rules=channel_rules,
        route=route,
        session=await rows.find_by_key(query, route.session_key),
    )


def group_rules(chat: Chat) -> GroupRules:
    """The settings of the chat's group; the defaults in direct chats."""
    kind, _, id = chat.route.address.peer.partition(":")
    if kind == ChatType.DIRECT or chat.rules is None:
        return GroupRules()
    groups = chat.rules.groups
    return groups.get(id) or groups.get(chat.place.to or "") or GroupRules()


def _opening(rules: Rules, chat: Chat, who: Who) -> OpenSession:
    """Opens the chat's session; from now on its answers go to the chat's place."""
    assert chat.rules is not None
    return OpenSession(
        principal=who.standing.principal,
        target=target_of(chat.route.session_key),
        agent_id=chat.route.agent_id,
        base=rules.agents[chat.route.agent_id].classification,
        source=Source(
            kind="channel",
            platform=chat.place.channel,
            type=SessionType.GROUP if chat.route.session_key.kind is SessionKind.GROUP else SessionType.DIRECT,
        ),
        attributes=SessionAttributes(taint=chat.rules.classification, metadata=_metadata(rules, chat)),
        place=chat.place,
        newcomer=None if who.is_linked else Newcomer(who.identity, who.name),
    )


def _metadata(rules: Rules, chat: Chat) -> JsonObject:
    return dict(rules.chats.form(chat.route.address.channel).ids(chat.place))


def is_addressed(rules: Rules, chat: Chat, who: Who, inbound: Inbound) -> bool:
    """Whether the message will make the agent answer."""
    kind = SessionType.GROUP if chat.route.session_key.kind is SessionKind.GROUP else SessionType.DIRECT
    return is_triggering(
        kind, who.standing, mentioned=is_mentioned(chat, inbound), owner_trigger=_owner_trigger(rules, chat, inbound)
    )


def is_mentioned(chat: Chat, inbound: Inbound) -> bool:
    return inbound.is_meant and not group_rules(chat).is_silent


def _owner_trigger(rules: Rules, chat: Chat, inbound: Inbound) -> OwnerTrigger:
    group = group_rules(chat)
    if group.is_silent or inbound.is_for_another:
        return OwnerTrigger.MENTION
    return group.owner_trigger or rules.owner_trigger


class Arrived(Struct, frozen=True, kw_only=True):
    """A message with what was done for it before it is posted."""

    inbound: Inbound
    content: tuple[Part, ...]
    file_bytes: int = 0
    held_bytes: int | None = None
    """What is held for it of its sender's share; None if it did not wait."""
    cites: tuple[Citation, ...] = ()
    """What it points at."""
    cited: Classification = PUBLIC
    """What the agent's words among them were made of."""


def sent_ms(inbound: Inbound, at_ms: int) -> int:
    """When it was written, as its platform says; never later than now."""
    return at_ms if inbound.sent_at is None else min(milliseconds(inbound.sent_at), at_ms)


async def post_in_chat(tx: Transaction, rules: Rules, chat: Chat, who: Who, *, arrived: Arrived) -> Posted:
    """Stores the message and queues its run, as the sender, in the unit of its arrival; a refusal leaves no session."""
    opening = _opening(rules, chat, who)
    post = _posting(rules, chat, who, arrived=arrived, now_ms=tx.now_ms)
    try:
        return (await open_and_post(tx, opening, post, rules)).posted
    except Conflict as error:
        if error.code != "message_id_reused":
            raise
    # Its arrival shows that it came once; somebody else who may post here has used its id.
    own = MessageId(f"{post.message.message_id}:{tx.random_hex(12)}")
    post = replace(post, message=replace(post.message, message_id=own))
    return (await open_and_post(tx, opening, post, rules)).posted


async def open_for_files(tx: Transaction, rules: Rules, chat: Chat, who: Who, *, arrived: Arrived) -> Session:
    """The chat's session, opened for files of a message that may be stored; the message is counted with its unit."""
    judged = await judge_for_files(tx, rules, chat, who, arrived=arrived)
    return (await carry_out(tx, judged.opening)).session


async def judge_for_files(tx: Transaction, rules: Rules, chat: Chat, who: Who, *, arrived: Arrived) -> JudgedEntry:
    """Whether the message may be stored, apart from its sender's pace. Writes nothing."""
    opening = _opening(rules, chat, who)
    post = _posting(rules, chat, who, arrived=arrived, now_ms=tx.now_ms)
    return await judge_entry(tx, opening, post, rules, is_counted=False)


def _posting(rules: Rules, chat: Chat, who: Who, *, arrived: Arrived, now_ms: int) -> PostMessage:
    assert chat.rules is not None
    inbound = arrived.inbound
    rules = replace(rules, owner_trigger=_owner_trigger(rules, chat, inbound))
    return PostMessage(
        principal=who.standing.principal,
        target=target_of(chat.route.session_key),
        message=UserMessage(
            message_id=message_id_of(inbound),
            content=arrived.content,
            sender=None if inbound.chat_type is ChatType.DIRECT else inbound.sender.name or inbound.sender.id,
            mentioned=is_mentioned(chat, inbound),
            attribution=inbound.attribution,
            cites=arrived.cites,
            quoted=inbound.quoted[:LONGEST_QUOTED],
        ),
        may_repeat=True,
        mode=chat.rules.queue_mode,
        is_mode_chosen=False,
        rules=rules,
        place=chat.place,
        route=chat.rules.classification.join(arrived.cited),
        is_delivered=False,
        is_of_channel=True,
        file_bytes=arrived.file_bytes,
        sent_ms=sent_ms(inbound, now_ms),
        held_bytes=arrived.held_bytes,
    )


def content_of(inbound: Inbound, uploaded: Uploaded | None = None) -> tuple[Part, ...]:
    """The message as it is stored: its text with a line for each file, and its images."""
    lines = () if uploaded is None else uploaded.lines
    text = "\n".join(part for part in (inbound.text, *lines) if part)
    return (*((TextPart(text=text),) if text else ()), *inbound.images)


def message_id_of(inbound: Inbound) -> MessageId:
    """The id in the log; unique, because the platform's id is unique in the account."""
    return MessageId(f"{inbound.place.channel}:{account_of(inbound.place)}:{inbound.platform_id}")


def target_of(key: SessionKey) -> NamedTarget:
    return NamedTarget(key, None)
