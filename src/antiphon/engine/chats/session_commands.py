"""`/session`: the conversations of a chat. Each has a session below the chat's own. Contract: channels 3, keys 1.

The chat's own session is called Main. `/session new` leaves the session before behind: lists hide it until somebody
writes there again, or opens it.
"""

from datetime import timedelta

from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.classification import PUBLIC
from antiphon.domain.commands import ChatCommand, Subcommand
from antiphon.domain.durations import parse_duration
from antiphon.domain.errors import REFUSALS, Invalid, NotFound
from antiphon.domain.ids import AgentId
from antiphon.domain.keys import MAX_SLUG_LENGTH, ChatType, SessionKey, chat_key, parse_key, slug_from_name
from antiphon.domain.label import MAX_LABEL_LENGTH, parse_label
from antiphon.domain.session import SessionStatus, SessionSummary, SessionType, Source
from antiphon.domain.targets import NamedTarget
from antiphon.domain.thread_bindings import said_of_limits
from antiphon.domain.words import folded
from antiphon.engine.access.bindings import find_binding, set_limits
from antiphon.engine.access.places import ChatRoute
from antiphon.engine.access.reach import reach_of
from antiphon.engine.chats.chat import Chat
from antiphon.engine.chats.earlier import PastConversation, list_earlier, named_by_id
from antiphon.engine.chats.routing import change_route
from antiphon.engine.checkpoints.queue import queue_checkpoint
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.forks import ForkOpening, ForkSession, fork_session
from antiphon.engine.sessions.sessions import OpenSession, SessionAttributes, open_session
from antiphon.policy.acts import Act
from antiphon.policy.reach import as_public
from antiphon.policy.rights import reaches_all
from antiphon.policy.shown import shown_session
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from antiphon.store.people import find_standing
from antiphon.store.sessions import SessionFilter
from antiphon.store.thread_bindings import ThreadBinding

MAIN = "Main"
_CHAT = ":chat:"
LISTED = 20
MOST = 1_000
"""How many conversations of a chat are looked at."""
FIXED = (
    "Sessions and agents are switched in chats of channels. Here, choose another session from the list, "
    "or name one when you start the terminal's chat."
)
BOUND = "This thread is a sub-agent's. Only who had it begun, or an owner, can change that."
UNBOUND = "This is no thread of a sub-agent: only those end by themselves."
LISTED_EARLIER = 5
EARLIER = "Earlier here; send /session switch #id to go on from a copy"
UNKNOWN = 'Unknown session "{}". Send /session list to see them.'


def base_of_chats(key: SessionKey) -> SessionKey:
    """The session below which the conversations of its chat are."""
    head, marker, slug = key.value.rpartition(_CHAT)
    return parse_key(head) if marker and ":" not in slug else key


async def perform_session(tx: Transaction, chat: Chat, command: ChatCommand, rules: Rules) -> str:
    route = chat.route
    match command.sub:
        case Subcommand.LIST:
            return await _list(tx, chat)
        case Subcommand.NEW | Subcommand.SWITCH | Subcommand.MAIN if not can_switch(chat):
            return FIXED
        case Subcommand.NEW | Subcommand.SWITCH | Subcommand.MAIN if await is_bound_by_other(tx, chat):
            return BOUND
        case Subcommand.IDLE | Subcommand.MAX_AGE:
            return await _limit_binding(tx, chat, command)
        case Subcommand.NEW:
            return await _begin(tx, chat, command.argument, rules)
        case Subcommand.MAIN:
            return await _choose(tx, chat, None, rules, said=f"Switched to session {MAIN}.")
        case Subcommand.SWITCH:
            return await _switch(tx, chat, command.argument or "", rules)
        case _:
            if (binding := await find_binding(tx, route.address)) is not None:
                return f"Session: a sub-agent's\n{route.session_key}\n{said_of_limits(binding.limits)}"
            if chat.session is None or route.session_key == route.base_key:
                return f"Session: {MAIN}\n{route.session_key}"
            shown = shown_session(chat.session, PUBLIC)
            return "\n".join([f"Session: {shown_label(route, shown)}", *shown_keys(route, shown)])


async def is_bound_by_other(query: Query, chat: Chat) -> bool:
    """Whether the thread is a sub-agent's, and somebody else than the sender bound it. Owners may do what they may."""
    binding = await find_binding(query, chat.route.address)
    return binding is not None and not await _may_change(query, chat, binding)


async def _may_change(query: Query, chat: Chat, binding: ThreadBinding) -> bool:
    if reaches_all(chat.standing):
        return True
    maker = await find_standing(query, Principal.parse(binding.bound_by))
    return maker.principal == chat.standing.principal


async def _limit_binding(tx: Transaction, chat: Chat, command: ChatCommand) -> str:
    """Changes how long the thread stays the sub-agent's. Contract: spawn 4, channels 3."""
    binding = await find_binding(tx, chat.route.address)
    if binding is None:
        return UNBOUND
    if not await _may_change(tx, chat, binding):
        return BOUND
    given, length = command.argument or "", None
    if given.lower() != Subcommand.OFF:
        try:
            length = parse_duration(given)
        except Invalid as error:
            return error.message
    length_ms = None if length is None else length // timedelta(milliseconds=1)
    is_idle = command.sub is Subcommand.IDLE
    limits = replace(binding.limits, **{"idle_ms" if is_idle else "max_age_ms": length_ms})
    await set_limits(tx, binding, limits)
    return said_of_limits(limits)


def can_switch(chat: Chat) -> bool:
    """Whether the chat has a route of its own, which commands can change."""
    return chat.identity is not None


def shown_label(route: ChatRoute, session: SessionSummary) -> str:
    """What the session is called: by its label if anybody may read it."""
    if session.key == route.base_key:
        return MAIN
    return f'"{_name(session)}"'


def shown_keys(route: ChatRoute, session: SessionSummary) -> list[str]:
    """The key, unless it could tell a label that not everybody may read."""
    return [] if _is_key_hidden(session) else [str(session.key)]


def _name(session: SessionSummary) -> str:
    if _is_key_hidden(session):
        return f"Begun {session.created_at:%Y-%m-%d %H:%M} UTC"
    return session.label or session.key.last_segment


def _is_key_hidden(session: SessionSummary) -> bool:
    """Whether the key may have been made of a label that is not shown."""
    return session.label is None and base_of_chats(session.key) != session.key


async def _chats(query: Query, chat: Chat) -> list[SessionSummary]:
    """The conversations that were begun in the chat, newest first, with labels that anybody may read."""
    try:
        reach = reach_of(chat.standing, Act.READ)
    except REFUSALS:
        return []
    where = SessionFilter(below=f"{chat.route.base_key}{_CHAT}", include_inactive=True)
    found = await rows.list_page(query, as_public(reach), where, limit=MOST, after=None)
    return sorted(found, key=lambda session: (session.created_at, session.row), reverse=True)


async def _list(query: Query, chat: Chat) -> str:
    found, route = await _chats(query, chat), chat.route
    shown = found[:LISTED]
    active = next((session for session in found[LISTED:] if session.key == route.session_key), None)
    if active is not None:
        shown[-1] = active
    lines = [MAIN, *(_name(session) for session in shown)]
    keys = [route.base_key, *(session.key for session in shown)]
    marked = [
        f"- {line}" + (" active" if key == route.session_key else "") for line, key in zip(lines, keys, strict=True)
    ]
    more = [f"... {len(found) - len(shown)} more"] if len(found) > len(shown) else []
    earlier = (await list_earlier(query, chat))[:LISTED_EARLIER]
    told = [EARLIER, *(f"- {each.short_id} {each.name}" for each in earlier)] if earlier else []
    return "\n".join(["Sessions", *marked, *more, *told])


async def _begin(tx: Transaction, chat: Chat, name: str | None, rules: Rules) -> str:
    taken = await _chats(tx, chat)
    try:
        label = parse_label(name or _next_name(taken))
        if len(label) > MAX_LABEL_LENGTH:
            return f"Name is longer than {MAX_LABEL_LENGTH} characters."
        key = await _free_key(tx, chat.route.base_key, label)
    except ValueError as error:
        return f"Name {error}."
    except Invalid as error:
        return error.message
    opened = await open_session(tx, opening_of(chat, key, label, rules), rules)
    left = chat.session
    if left is not None and left.status is SessionStatus.IDLE:
        await rows.update(tx, left.row, {"status": SessionStatus.INACTIVE.value})
        await queue_checkpoint(tx, left, rules)
    said = f'Created session "{label}". New messages in this chat will use it.'
    return await _choose(tx, chat, opened.session.key, rules, said=said)


async def _choose(tx: Transaction, chat: Chat, key: SessionKey | None, rules: Rules, *, said: str) -> str:
    """Lets the chat use that session from its next message on, or its own; the agent stays."""
    route = chat.route
    await change_route(
        tx,
        route.address,
        agent_id=route.agent_id if route.is_stored else None,
        session_key=key,
        by=chat.standing.principal,
    )
    return said


def _next_name(taken: list[SessionSummary]) -> str:
    """`Chat 1`, and so on."""
    slugs = {session.key.last_segment for session in taken}
    number = len(taken) + 1
    while f"chat-{number}" in slugs:
        number += 1
    return f"Chat {number}"


async def _free_key(query: Query, base: SessionKey, label: str) -> SessionKey:
    """The key with the label's slug, or with a number after it if that is taken, also by one the sender cannot see.

    Several people may have one base key; a new conversation is never one that somebody else has begun.
    """
    slug, number = slug_from_name(label), 1
    key = chat_key(base, slug)
    while await rows.find_by_key(query, key) is not None:
        number += 1
        end = f"-{number}"
        key = chat_key(base, f"{slug[: MAX_SLUG_LENGTH - len(end)]}{end}")
    return key


def opening_of(chat: Chat, key: SessionKey, label: str | None, rules: Rules) -> OpenSession:
    """A session with the place and the origin of the one before, so that replies still reach the chat."""
    before, agent = chat.session, rules.agent(AgentId(chat.route.agent_id))
    platform = chat.place.channel or chat.route.address.channel
    is_group = chat.chat_type is not ChatType.DIRECT
    source = Source(kind="channel", platform=platform, type=SessionType.GROUP if is_group else SessionType.DIRECT)
    taint = None if chat.rules is None else chat.rules.classification
    return OpenSession(
        principal=chat.standing.principal,
        target=NamedTarget(key, None),
        agent_id=agent.id,
        base=agent.classification if before is None else agent.classification.join(before.base),
        source=source if before is None or before.parent is not None else before.source,
        attributes=SessionAttributes(label=label, metadata={} if before is None else before.metadata, taint=taint),
        place=chat.place,
    )


async def _switch(tx: Transaction, chat: Chat, name: str, rules: Rules) -> str:
    if name == str(chat.route.base_key):
        return await _choose(tx, chat, None, rules, said=f"Switched to session {MAIN}.")
    earlier = named_by_id(await list_earlier(tx, chat), name)
    if len(earlier) > 1:
        return f"Several conversations begin so: {', '.join(each.short_id for each in earlier)}."
    if earlier:
        return await _go_on_from(tx, chat, earlier[0], rules)
    found = _named(await _chats(tx, chat), name)
    if found is None:
        return UNKNOWN.format(name[:MAX_LABEL_LENGTH])
    said = f"Switched to session {shown_label(chat.route, found)}."
    return await _choose(tx, chat, found.key, rules, said=said)


async def _go_on_from(tx: Transaction, chat: Chat, earlier: PastConversation, rules: Rules) -> str:
    """Forks the earlier conversation, and lets the chat use the copy."""
    label = f"From {earlier.name[: len('2026-01-01 00:00')]}"
    command = ForkSession(
        principal=chat.standing.principal,
        target=NamedTarget(None, earlier.id),
        seq=None,
        new_segment=tx.random_hex(12),
        rules=rules,
        opening=ForkOpening(key=await _free_key(tx, chat.route.base_key, label), label=label, place=chat.place),
    )
    try:
        forked = await fork_session(tx, command)
    except NotFound:
        return UNKNOWN.format(earlier.short_id)
    said = f'Goes on from {earlier.short_id} in session "{label}". New messages in this chat will use it.'
    return await _choose(tx, chat, forked.key, rules, said=said)


def _named(chats: list[SessionSummary], name: str) -> SessionSummary | None:
    """The newest of that key, else of that name, else of that end of the key; case does not matter for names."""
    wanted = folded(name.strip('"'))
    by_key = (session for session in chats if session.key.value == name)
    by_label = (session for session in chats if folded(_name(session)) == wanted)
    by_slug = (session for session in chats if session.key.last_segment == wanted)
    return next(by_key, None) or next(by_label, None) or next(by_slug, None)
