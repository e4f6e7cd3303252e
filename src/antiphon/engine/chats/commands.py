"""Carries out the commands of chats, each in the unit of its arrival. Contract: channels 3, 4, send_policy 2, access 4.

Commands act at once, whatever the session is doing. Their answers are Antiphon's own words: they hold names, keys and
counts that anybody in the chat may read, and nothing of what the session was made of.
"""

import logging

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.classification import PUBLIC
from antiphon.domain.commands import ChatCommand, CommandName, Subcommand, help_text, parse
from antiphon.domain.errors import REFUSALS, Denied
from antiphon.domain.keys import ChatType
from antiphon.domain.person import PersonId, person_of
from antiphon.domain.session import DEFAULT_ACCOUNT, HERE, SendOverride, Session, SessionStatus, SessionType
from antiphon.domain.targets import NamedTarget
from antiphon.domain.tokens import ALL_SCOPES, TokenScope
from antiphon.engine.access.places import ChatAddress, ChatRoute
from antiphon.engine.access.reach import Rights, find_session
from antiphon.engine.access.tokens import refuse_clearance
from antiphon.engine.chats.agent_commands import perform_agent
from antiphon.engine.chats.chat import NO_SESSION, Chat
from antiphon.engine.chats.decision_commands import decide
from antiphon.engine.chats.link_commands import link, unlink
from antiphon.engine.chats.memory_commands import forget, show_memory
from antiphon.engine.chats.session_commands import base_of_chats, perform_session, shown_keys, shown_label
from antiphon.engine.chats.task_commands import perform_task
from antiphon.engine.checkpoints.checkpoints import said_of
from antiphon.engine.checkpoints.queue import ask_checkpoint
from antiphon.engine.rules import Rules
from antiphon.engine.runs.cancel import cancel_session
from antiphon.engine.sessions.patches import SessionPatch, patch_session
from antiphon.engine.sessions.resets import reset_session
from antiphon.engine.sessions.senders import JudgedSender, Speaker, admit_sender, judge_sender, principal_of
from antiphon.policy.acts import Act
from antiphon.policy.authorize import Limits, decide_scope
from antiphon.policy.commands import is_owners_approval, may_command, needed_scopes
from antiphon.policy.decision import Deny
from antiphon.policy.rights import is_guest
from antiphon.policy.shown import shown_session
from antiphon.policy.standing import Standing
from antiphon.store import runs as ledger
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_names, find_standing

logger = logging.getLogger(__name__)

MOST_NAMED = 20
"""How many people `/who` names."""
_OVERRIDES = {
    Subcommand.ON: (SendOverride.ALLOW, "Sending is on in this chat."),
    Subcommand.OFF: (SendOverride.DENY, "Sending is off in this chat. `/send on` switches it on again."),
    Subcommand.INHERIT: (None, "Sending follows the settings in this chat."),
}
_STATES = {
    SessionStatus.IDLE: "idle",
    SessionStatus.INACTIVE: "idle",
    SessionStatus.RUNNING: "working",
    SessionStatus.AWAITING_APPROVAL: "waiting for an approval",
}


ONLY_OWNERS_APPROVE = "Only owners approve tasks."


async def perform(tx: Transaction, chat: Chat, command: ChatCommand, rules: Rules) -> str | None:
    """Carries the command out as the sender; the answer for the chat, or None if they may not use it.

    In that case nothing is sent, and the log of Antiphon says so. Contract: channels 4.
    """
    if not may_use(chat, command, rules):
        if is_owners_approval(chat.standing, command, rules.role_commands):
            return ONLY_OWNERS_APPROVE
        logger.info(
            "Command was ignored",
            extra={
                "action": "command_ignored",
                "command": command.name.value,
                "principal": str(chat.standing.principal),
                "session_key": str(chat.route.session_key),
            },
        )
        return None
    if command.usage is not None:
        return command.usage
    try:
        async with tx.attempt():
            return await _carry_out(tx, chat, command, rules)
    except REFUSALS as error:
        return error.message


async def _carry_out(tx: Transaction, chat: Chat, command: ChatCommand, rules: Rules) -> str:
    is_group = chat.chat_type is not ChatType.DIRECT
    match command.name:
        case CommandName.HELP:
            return _help(chat, rules, is_group=is_group)
        case CommandName.START if command.argument is None:
            return _help(chat, rules, is_group=is_group)
        case CommandName.LINK | CommandName.START:
            return await link(tx, chat, command, rules)
        case CommandName.UNLINK:
            return await unlink(tx, chat, rules)
        case CommandName.STATUS:
            return await _status(tx, chat, rules)
        case CommandName.WHO:
            return await _who(tx, chat, rules)
        case CommandName.STOP:
            return await _stop(tx, chat, rules)
        case CommandName.NEW | CommandName.RESET:
            return await _reset(tx, chat, rules)
        case CommandName.CHECKPOINT:
            return await _checkpoint(tx, chat, rules)
        case CommandName.SEND:
            return await _set_sending(tx, chat, command.sub, rules)
        case CommandName.SESSION:
            return await perform_session(tx, chat, command, rules)
        case CommandName.AGENT:
            return await perform_agent(tx, chat, command, rules)
        case CommandName.MEMORY:
            return await show_memory(tx, chat, command, rules)
        case CommandName.FORGET:
            return await forget(tx, chat, command, rules)
        case CommandName.TASK:
            return await perform_task(tx, chat, command, rules)
        case CommandName.APPROVE | CommandName.DENY:
            return await decide(tx, chat, command, rules)


def may_use(chat: Chat, command: ChatCommand, rules: Rules) -> bool:
    """Whether the sender may give the command in this chat."""
    is_group = chat.chat_type is not ChatType.DIRECT
    return may_command(chat.standing, command, rules.role_commands, is_group=is_group)


def _help(chat: Chat, rules: Rules, *, is_group: bool) -> str:
    """The commands that the sender may use here, in some form."""
    names = [
        name
        for name in rules.role_commands.of(chat.standing)
        if may_command(chat.standing, ChatCommand(name=name), rules.role_commands, is_group=is_group)
    ]
    return help_text(names)


async def _status(query: Query, chat: Chat, rules: Rules) -> str:
    session, agent = chat.session, rules.agents.get(chat.route.agent_id)
    name = chat.route.agent_id if agent is None else agent.name
    lines = [f"Agent: {name}"]
    if session is None:
        return "\n".join([*lines, NO_SESSION])
    waiting = len(await ledger.find_queued(query, session.row))
    lines.append(f"State: {_STATES[session.status]}" + (f", {waiting} waiting" if waiting else ""))
    if is_guest(chat.standing):
        return "\n".join(lines)
    shown = shown_session(session, PUBLIC)
    if agent is not None:
        lines.append(f"Model: {shown.model or agent.model}")
    keys = [f"({key})" for key in shown_keys(chat.route, shown)]
    lines.append(" ".join([f"Session: {shown_label(chat.route, shown)}", *keys]))
    if shown.usage.total_tokens:
        lines.append(f"Tokens: {shown.usage.total_tokens:,}")
    if session.queue_mode is not None:
        lines.append(f"Queue mode: {session.queue_mode.value}")
    if session.send_policy is not None:
        lines.append(f"Sending: {'on' if session.send_policy is SendOverride.ALLOW else 'off'}")
    return "\n".join(lines)


async def _who(query: Query, chat: Chat, rules: Rules) -> str:
    """The sender as Antiphon knows them, the agent, and who else takes part in the session."""
    own = person_of(chat.standing.principal)
    taking_part = () if chat.session is None else chat.session.participants
    others = sorted({text.removeprefix("person:") for text in taking_part if text.startswith("person:")} - {own})
    ids = [PersonId(id) for id in others[:MOST_NAMED]]
    names = await find_names(query, [*ids, *(() if own is None else (own,))])
    known = None if own is None else names.get(own)
    role = "guest" if is_guest(chat.standing) else str(chat.standing.role)
    agent = rules.agents.get(chat.route.agent_id)
    shown = chat.sender_name if known is None else known.shown
    lines = [
        f"You: {shown or own}" + ("" if f"({role})" in shown else f" ({role})"),
        f"Agent: {chat.route.agent_id if agent is None else agent.name}",
    ]
    if ids:
        named = ", ".join(names[id].shown if id in names else id for id in ids)
        more = f" and {len(others) - len(ids)} more" if len(others) > len(ids) else ""
        lines.append(f"Also here: {named}{more}")
    return "\n".join(lines)


async def _stop(tx: Transaction, chat: Chat, rules: Rules) -> str:
    if chat.session is None:
        return NO_SESSION
    cancelled = await cancel_session(tx, chat.rights(rules), chat.target)
    if cancelled.run_id is None and not cancelled.below:
        return "Nothing is running."
    below = "" if not cancelled.below else f" So is the work of {cancelled.below} below it."
    return f"The answer is being stopped.{below}"


async def _reset(tx: Transaction, chat: Chat, rules: Rules) -> str:
    if chat.session is None:
        return NO_SESSION
    await reset_session(tx, chat.rights(rules), chat.target)
    return "A new conversation begins."


async def _checkpoint(tx: Transaction, chat: Chat, rules: Rules) -> str:
    if chat.session is None:
        return NO_SESSION
    return said_of(await ask_checkpoint(tx, chat.rights(rules), chat.target))


async def _set_sending(tx: Transaction, chat: Chat, sub: Subcommand, rules: Rules) -> str:
    if chat.session is None:
        return NO_SESSION
    override, said = _OVERRIDES[sub]
    patch = SessionPatch(changes={"send_policy": None if override is None else override.value})
    await patch_session(tx, chat.rights(rules), chat.target, patch)
    return said


class TypedCommand(Struct, frozen=True, kw_only=True):
    speaker: Speaker
    target: NamedTarget
    """The session in which it was typed."""
    command: ChatCommand
    rules: Rules


class ChatCommands:
    """Commands outside channels: on the page and in the terminal, where a session is the chat."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def run(
        self, speaker: Speaker, target: NamedTarget, text: str, *, held: frozenset[TokenScope] = ALL_SCOPES
    ) -> str | None:
        """Carries out the command that the text is, and returns its answer; None for ordinary text.

        `held` are the scopes of the credential that asks. Raises `NotFound` for a session that the principal may not
        see, `Denied` for a command that they may not use, or that their credential does not cover.
        """
        command = parse(text)
        if command is None:
            await self._database.read(_look, speaker, target, self._rules)
            return None
        _refuse_credential(speaker, command, held)
        typed = TypedCommand(speaker=speaker, target=target, command=command, rules=self._rules)
        answer = await self._database.run(_run_in_session, typed, sessions=(target,))
        if answer is None:
            raise Denied(f"Command is not open to you: '/{command.name}'. /help lists those that are.")
        return answer


def _refuse_credential(speaker: Speaker, command: ChatCommand, held: frozenset[TokenScope]) -> None:
    """Refuses a command that does more than its credential may."""
    for scope in sorted(needed_scopes(command) - held):
        decision = decide_scope(Limits(scopes=held), scope, serves_bound=False)
        assert isinstance(decision, Deny)
        raise Denied(decision.reason, code=decision.rule)
    if command.name is CommandName.LINK:
        refuse_clearance(principal_of(speaker), None)


async def _look(query: Query, speaker: Speaker, target: NamedTarget, rules: Rules) -> Session | JudgedSender:
    """The session in which something is typed; with the sender for whom a channel speaks."""
    if not isinstance(speaker, Principal):
        return await judge_sender(query, speaker)
    found = await find_session(query, Rights(speaker, rules), Act.READ, target)
    return found.session


async def _run_in_session(tx: Transaction, typed: TypedCommand) -> str | None:
    speaker, rules = typed.speaker, typed.rules
    found = await _look(tx, speaker, typed.target, rules)
    if isinstance(found, Session):
        chat = _chat_here(await find_standing(tx, principal_of(speaker)), found)
        return await perform(tx, chat, typed.command, typed.rules)
    chat = _chat_here(found.standing, found.session)
    if may_use(chat, typed.command, rules):
        await admit_sender(tx, found)
    return await perform(tx, chat, typed.command, typed.rules)


def _chat_here(standing: Standing, session: Session) -> Chat:
    """The session as the chat of somebody who reads its log."""
    is_group = session.source.type is SessionType.GROUP
    return Chat(
        place=HERE,
        chat_type=session.key.chat_type or (ChatType.GROUP if is_group else ChatType.DIRECT),
        standing=standing,
        route=ChatRoute(
            address=ChatAddress(channel="webchat", account=DEFAULT_ACCOUNT, peer=""),
            agent_id=session.agent_id,
            base_key=base_of_chats(session.key),
            session_key=session.key,
        ),
        session=session,
    )
