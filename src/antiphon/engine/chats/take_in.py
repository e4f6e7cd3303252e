"""The unit that takes a message of a channel in: admitted or not, posted or carried out, once. Contract: channels 1.

The unit's session is foreseen by a read, because the database locks sessions before a unit begins. If it turns out to
be another one, because the chat was routed elsewhere in between, the unit is undone and runs again.
"""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.commands import ChatCommand, CommandName, parse
from antiphon.domain.errors import REFUSALS, AntiphonError, Invalid, Limited
from antiphon.domain.inbound import Inbound, Sender
from antiphon.domain.keys import ChatType, SessionKey
from antiphon.domain.message import check_content
from antiphon.domain.position import Position
from antiphon.domain.session import DeliveryContext
from antiphon.engine.access.answered_groups import standing_of
from antiphon.engine.access.bindings import note_use
from antiphon.engine.access.machines import is_of_machine
from antiphon.engine.access.places import rules_of
from antiphon.engine.access.recipients import account_of
from antiphon.engine.access.who import Who, find_who, introduce, is_admitted, note_seen
from antiphon.engine.chats import linking, pairing
from antiphon.engine.chats.accounts import AccountLease, note_position
from antiphon.engine.chats.chat import Chat
from antiphon.engine.chats.citing import settle_cites
from antiphon.engine.chats.commands import perform
from antiphon.engine.chats.entry import (
    Arrived,
    SessionMoved,
    Uploaded,
    content_of,
    find_chat,
    judge_for_files,
    post_in_chat,
)
from antiphon.engine.chats.groups import ask_owners, find_group, note_allowed, note_met
from antiphon.engine.chats.holding import LEAST_PAUSE_MS, Holding, decide_files, hold, hold_late, join
from antiphon.engine.chats.linking import Linked
from antiphon.engine.chats.loops import is_looping, loop_refused, tell_of_loop
from antiphon.engine.chats.memory_commands import made_of_answer
from antiphon.engine.chats.owners import tell_of_unproven
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.inbox import Posted
from antiphon.policy.reception import Admission, AdmissionRequest, decide_admission, decide_after_wrong_code
from antiphon.policy.rights import reaches_all
from antiphon.store import arrivals, channel_accounts, chat_names, held_messages, link_codes, pairings
from antiphon.store.arrivals import ArrivalOutcome, ArrivalRow, PostedRow
from antiphon.store.database import Query, Transaction
from antiphon.store.held_messages import HeldMessage
from antiphon.store.pairings import PairingState

TOO_MANY = "Too many messages within a minute. This one was not taken in; write again a little later."


class Received(Struct, frozen=True, kw_only=True):
    """What became of something that a channel brought."""

    outcome: ArrivalOutcome
    posted: Posted | None = None
    """The message, if it was stored."""
    is_repeated: bool = False
    """Whether it had come before; this is its first answer."""
    toast: str | None = None
    """What the person who pressed a button sees at once."""
    refused: AntiphonError | None = None
    """Why the message of an admitted sender was not stored."""
    may_enter: bool = False
    """Whether the bot may join the chat to which it is invited. It may be asked again, for an owner may allow it."""


class Stale(Struct, frozen=True):
    """The lease is another process's; nothing was stored."""


class TakeIn(Struct, frozen=True, kw_only=True):
    inbound: Inbound
    lease: AccountLease | None
    rules: Rules
    was_told: bool = False
    """Whether the sender was told lately that a message was not taken in."""
    uploaded: Uploaded | None = None
    """Where its files were written."""
    held: HeldMessage | None = None
    """Set if it waited and goes on now."""
    free_bytes: int = 0
    """What is free on the home's disk; measured only for a message with files."""


class Foreseen(Struct, frozen=True, kw_only=True):
    """What a read says about a message before its unit runs."""

    key: SessionKey | None
    """The session that the unit will write to; None if it writes to none."""
    is_entering: bool = False
    """Whether the message will be posted."""


def arrival_of(place: DeliveryContext, platform_id: str) -> arrivals.ArrivalName:
    assert place.channel is not None
    return arrivals.ArrivalName(place.channel, account_of(place), platform_id)


async def keep_lease(
    tx: Transaction, lease: AccountLease | None, place: DeliveryContext, position: Position | None
) -> bool:
    """Whether this process may take something in; then no other does so for this account until the unit commits.

    The account, or the chat, was read up to the position.
    """
    if lease is not None:
        name = lease.name
        if not await channel_accounts.keep(tx, lease.claim):
            return False
    else:
        assert place.channel is not None
        name = channel_accounts.AccountName(place.channel, account_of(place))
        await channel_accounts.lock(tx, name)
    if position is not None:
        await note_position(tx, name, position)
    return True


async def foresee(query: Query, rules: Rules, inbound: Inbound) -> Foreseen:
    first = await arrivals.find(query, arrival_of(inbound.place, inbound.platform_id))
    if first is not None and first.outcome is not ArrivalOutcome.HELD:
        return Foreseen(key=None)
    who = await find_who(query, rules, inbound.place, inbound.sender)
    asked = await _admission_request(query, rules, inbound, who)
    if decide_admission(asked) is not Admission.ENTER:
        return Foreseen(key=None)
    try:
        chat = await find_chat(query, rules, inbound, who)
    except Invalid:
        return Foreseen(key=None)
    return Foreseen(key=chat.route.session_key, is_entering=command_in(inbound, None) is None)


async def take_in(tx: Transaction, command: TakeIn, foreseen: SessionKey | None) -> Received | Stale:
    inbound, rules, at_ms = command.inbound, command.rules, tx.now_ms
    if not await keep_lease(tx, command.lease, inbound.place, inbound.position):
        return Stale()
    arrival = arrival_of(inbound.place, inbound.platform_id)
    first = await arrivals.find(tx, arrival)
    if first is not None and not await _goes_on(tx, command, first):
        return Received(outcome=first.outcome, posted=shown(first.posted), is_repeated=True)
    if inbound.chat_type is not ChatType.DIRECT:
        await note_met(tx, rules, inbound.place, [inbound.sender.id])
    who = await find_who(tx, rules, inbound.place, inbound.sender)
    asked = await _admission_request(tx, rules, inbound, who)
    if inbound.is_proven and not inbound.is_automatic:
        await note_seen(tx, who)
    admission = decide_admission(asked)
    received: Received | None = None
    if admission is Admission.REDEEM:
        received, admission = await _redeem(tx, command, who, asked)
    match admission:
        case _ if received is not None:
            pass
        case Admission.IGNORE if inbound.is_automatic:
            return Received(outcome=ArrivalOutcome.IGNORED)  # its id may be that of a message that is genuine
        case Admission.ENTER:
            received = await _enter(tx, command, who, foreseen)
        case Admission.PAIR:
            message = None if _is_command(inbound) else inbound
            await pairing.open_pairing(tx, who, inbound, message=message)
            received = Received(outcome=ArrivalOutcome.IGNORED if message is None else ArrivalOutcome.WAITING)
        case Admission.WAIT:
            is_kept = not _is_command(inbound) and await pairing.keep_first(tx, who, inbound)
            received = Received(outcome=ArrivalOutcome.WAITING if is_kept else ArrivalOutcome.IGNORED)
        case Admission.ASK_OWNERS:
            group = await find_group(tx, inbound.place)
            await ask_owners(tx, inbound.place, group, title=inbound.title, by=None)
            received = Received(outcome=ArrivalOutcome.IGNORED)
        case Admission.TELL_OWNERS:
            await tell_of_unproven(tx, inbound.place, inbound.sender.id)
            return Received(outcome=ArrivalOutcome.IGNORED)  # its id may be that of a message that is genuine
        case _:
            received = Received(outcome=ArrivalOutcome.IGNORED)
    if command.held is not None and received.outcome is not ArrivalOutcome.HELD:
        await held_messages.delete(tx, command.held.id)
    for platform_id in (inbound.platform_id, *inbound.part_ids):
        name = arrival_of(inbound.place, platform_id)
        await arrivals.store(tx, name, ArrivalRow(received.outcome, _row(received.posted)), at_ms)
    return received


async def _goes_on(tx: Transaction, command: TakeIn, first: ArrivalRow) -> bool:
    """Whether it is a message that waited until now, and not one that came again."""
    if command.held is None or first.outcome is not ArrivalOutcome.HELD:
        return False
    return await held_messages.is_waiting(tx, command.held)


async def _admission_request(query: Query, rules: Rules, inbound: Inbound, who: Who) -> AdmissionRequest:
    """What is known about the message, as far as the decision can depend on it."""
    place, identity = inbound.place, who.identity
    is_machine, is_proven = is_of_machine(rules, identity), inbound.is_proven
    is_automatic = inbound.is_automatic
    access = rules_of(rules, identity.channel, identity.account).access
    if inbound.chat_type is not ChatType.DIRECT:
        group = standing_of(rules, place, await find_group(query, place))
        is_suspended = who.standing.is_suspended
        return AdmissionRequest(
            access=access,
            group=group,
            is_admitted=False,
            is_meant=inbound.is_meant or rules.chats.form(identity.channel).is_invited,
            is_proven=is_proven,
            is_suspended=is_suspended,
            is_machine=is_machine,
            is_automatic=is_automatic,
        )
    admitted = await is_admitted(query, who)
    asked = AdmissionRequest(
        access=access,
        is_admitted=admitted,
        is_proven=is_proven,
        is_suspended=who.standing.is_suspended,
        is_machine=is_machine,
        is_automatic=is_automatic,
    )
    if _code_in(inbound) is not None:
        since_ms = query.now_ms - linking.WRONG_CODES_LIFE_MS
        wrong = await link_codes.count_wrong(query, identity, since_ms)
        asked = replace(asked, brings_code=True, wrong_codes=wrong)
    if admitted or access is not ChannelAccess.PAIRING:
        return asked
    newest = await pairings.find_newest(query, identity.channel, identity.account, identity.platform_id)
    open_pairings = await pairings.count_open(query, identity.channel, identity.account, query.now_ms)
    if newest is None:
        return replace(asked, open_pairings=open_pairings)
    return replace(
        asked,
        open_pairings=open_pairings,
        is_waiting=newest.state is PairingState.OPEN and not pairing.is_over(newest, query.now_ms),
        was_told=pairing.was_told(newest, query.now_ms),
    )


async def would_enter(tx: Transaction, rules: Rules, place: DeliveryContext, sender: Sender) -> bool:
    """Whether the bot may join the private chat with the sender: one whose message would be answered in some way."""
    message = Inbound(platform_id="", place=place, chat_type=ChatType.DIRECT, sender=sender, text="")
    who = await find_who(tx, rules, place, sender)
    return decide_admission(await _admission_request(tx, rules, message, who)) is not Admission.IGNORE


async def _redeem(
    tx: Transaction, command: TakeIn, who: Who, asked: AdmissionRequest
) -> tuple[Received | None, Admission]:
    """Links the account, and tells the sender; after a stranger's wrong code, what is done with their message."""
    typed = _code_in(command.inbound)
    assert typed is not None and typed.argument is not None
    redeemed = await linking.redeem(tx, who, typed.argument, said=typed.sub)
    following = decide_after_wrong_code(asked)
    if redeemed.linked in (Linked.WRONG, Linked.LOCKED) and following is not Admission.ENTER:
        return None, following
    await _say(tx, command, redeemed.text)
    return Received(outcome=ArrivalOutcome.COMMAND), following


async def _enter(tx: Transaction, command: TakeIn, who: Who, foreseen: SessionKey | None) -> Received:
    """Posts the message or carries the command out, in the chat's session."""
    inbound, rules = command.inbound, command.rules
    try:
        chat = await find_chat(tx, rules, inbound, who)
    except Invalid as error:  # an id of the platform that fits into no key
        return Received(outcome=ArrivalOutcome.IGNORED, refused=error)
    if chat.route.session_key != foreseen:
        raise SessionMoved(chat.route.session_key)
    if who.linked_by_settings is not None:
        await linking.link(tx, who, who.linked_by_settings)
        who = await find_who(tx, rules, inbound.place, inbound.sender)
    if inbound.chat_type is ChatType.DIRECT:
        await chat_names.put(tx, inbound.place, who.name)
    else:
        await note_allowed(tx, inbound.place, title=inbound.title)
    typed = await _typed(tx, inbound, who)
    if typed is not None:
        if not who.is_linked:  # a command may name them, as `/link` does
            await introduce(tx, who, who.identity.person_id)
        made_of = await made_of_answer(tx, chat, typed, command.rules)
        answer = await perform(tx, chat, typed, command.rules)
        if answer is not None:
            await _say(tx, command, answer, made_of=made_of)
        return Received(outcome=ArrivalOutcome.COMMAND if answer is not None else ArrivalOutcome.IGNORED)
    if command.held is not None:
        return await _post(tx, command, chat, who)
    holding = Holding(
        inbound=inbound,
        who=who,
        rules=rules,
        free_bytes=command.free_bytes,
        waits=None if chat.rules is None else chat.rules.join_waits,
    )
    try:
        async with tx.attempt():
            is_joined = await join(tx, holding, chat)
    except REFUSALS as error:
        return await _refuse(tx, command, who, error)
    if is_joined:
        return Received(outcome=ArrivalOutcome.HELD)
    if inbound.unfetched or holding.open_ms or await held_messages.is_waiting_in(tx, inbound.place):
        return await _wait(tx, command, holding, chat)
    return await _post(tx, command, chat, who)


async def _wait(tx: Transaction, command: TakeIn, holding: Holding, chat: Chat) -> Received:
    """Lets the message wait for its parts or files, or behind one that does. One without them is posted at once."""
    rules, inbound, who = command.rules, command.inbound, holding.who
    if inbound.unfetched or holding.open_ms:
        arrived = Arrived(inbound=inbound, content=content_of(inbound))
        try:
            await judge_for_files(tx, rules, chat, who, arrived=arrived)
        except REFUSALS as error:
            refuse = _refuse if inbound.unfetched else _wait_or_refuse
            return await refuse(tx, command, who, error)
    if inbound.unfetched:
        inbound = await decide_files(tx, holding, chat)
        command, holding = replace(command, inbound=inbound), replace(holding, inbound=inbound)
    is_waiting = inbound.unfetched or holding.open_ms or await held_messages.is_waiting_in(tx, inbound.place)
    if not is_waiting:
        return await _post(tx, command, chat, who)
    try:
        async with tx.attempt():
            await hold(tx, holding)
    except REFUSALS as error:
        return await _refuse(tx, command, who, error)
    return Received(outcome=ArrivalOutcome.HELD)


async def _post(tx: Transaction, command: TakeIn, chat: Chat, who: Who) -> Received:
    inbound, rules, uploaded = command.inbound, command.rules, command.uploaded
    refused = (*inbound.refused, *(() if uploaded is None else uploaded.refused))
    if refused and inbound.is_meant:
        await _say(tx, command, "\n".join(dict.fromkeys(refused)), about="refused")
    content = content_of(inbound, uploaded)
    if not content:
        return Received(outcome=ArrivalOutcome.IGNORED)
    try:
        check_content(content)
    except AntiphonError as error:
        await _tell_refusal(tx, command, error.message)
        return Received(outcome=ArrivalOutcome.IGNORED, refused=error)
    session = None if chat.session is None else chat.session.row
    came_ms = tx.now_ms if command.held is None else command.held.held_at
    if await is_looping(tx, rules, inbound.place, session, sender=who.standing.principal, came_ms=came_ms):
        await tell_of_loop(tx, inbound.place)
        return Received(outcome=ArrivalOutcome.IGNORED, refused=loop_refused(inbound.place))
    if uploaded is not None and (chat.session is None or chat.session.id != uploaded.session_id):
        raise SessionMoved(chat.route.session_key)
    cites, cited = await settle_cites(tx, rules, chat, inbound)
    arrived = Arrived(
        inbound=inbound,
        content=content,
        cites=cites,
        cited=cited,
        file_bytes=0 if uploaded is None else uploaded.size,
        held_bytes=None if command.held is None else command.held.size,
    )
    try:
        async with tx.attempt():
            posted = await post_in_chat(tx, rules, chat, who, arrived=arrived)
    except REFUSALS as error:
        return await _wait_or_refuse(tx, command, who, error)
    if inbound.place.thread_id is not None and chat.route.is_stored:
        await note_use(tx, chat.route.address)
    return Received(outcome=ArrivalOutcome.POSTED, posted=posted)


async def _wait_or_refuse(tx: Transaction, command: TakeIn, who: Who, error: AntiphonError) -> Received:
    """Lets a message wait that only came too soon after others, if it waited before or came late.

    In a group it does not wait for other work of its sender: the messages of everybody else there wait behind it.
    """
    at_ms = tx.now_ms
    is_direct = command.inbound.chat_type is ChatType.DIRECT
    if command.held is not None and is_direct and isinstance(error, Limited):
        pause_ms = max(LEAST_PAUSE_MS, 1000 * error.retry_after_seconds)
        await held_messages.postpone(tx, command.held.id, at_ms + pause_ms)
        return Received(outcome=ArrivalOutcome.HELD)
    if command.held is None:
        holding = Holding(inbound=command.inbound, who=who, rules=command.rules)
        try:
            await hold_late(tx, holding, error)
        except REFUSALS:
            return await _refuse(tx, command, who, error)
        return Received(outcome=ArrivalOutcome.HELD)
    return await _refuse(tx, command, who, error)


async def _refuse(tx: Transaction, command: TakeIn, who: Who, error: AntiphonError) -> Received:
    await _tell_refusal(tx, command, _explained(error, who))
    return Received(outcome=ArrivalOutcome.IGNORED, refused=error)


async def _typed(query: Query, inbound: Inbound, who: Who) -> ChatCommand | None:
    """The command that the message is, by the name that the bot has on its platform."""
    if not _is_command(inbound):
        return None
    account = channel_accounts.AccountName(who.identity.channel, who.identity.account)
    return command_in(inbound, await channel_accounts.find_name(query, account))


async def _tell_refusal(tx: Transaction, command: TakeIn, text: str) -> None:
    """Tells the sender, but not a group that did not speak to the bot, and not again and again."""
    if command.inbound.is_meant and not command.was_told:
        await _say(tx, command, text, about="refusal")


def _explained(error: AntiphonError, who: Who) -> str:
    """Why a message was not taken in. Only owners are told names of sessions and settings."""
    if reaches_all(who.standing):
        return f"Message was not taken in. {error.message}"
    return TOO_MANY if isinstance(error, Limited) else "Message was not taken in. An owner can find out why."


async def _say(
    tx: Transaction, command: TakeIn, text: str, *, about: str = "answer", made_of: Classification = PUBLIC
) -> None:
    """Queues Antiphon's own words for the chat, in the same unit."""
    inbound = command.inbound
    name = f"{about} {inbound.place.channel} {account_of(inbound.place)} {inbound.platform_id}"
    await enqueue_notice(tx, inbound.place, text, name=name, made_of=made_of)


def command_in(inbound: Inbound, bot_name: str | None) -> ChatCommand | None:
    """The command that the message is; one with files is a message, and so are words that are not the sender's."""
    if inbound.attribution is not None or inbound.images or inbound.files or inbound.has_files:
        return None
    return parse(inbound.text, bot_name)


def _is_command(inbound: Inbound) -> bool:
    return inbound.attribution is None and inbound.text.lstrip().startswith("/")


def _code_in(inbound: Inbound) -> ChatCommand | None:
    """The command with which the message brings a code: `/start <code>` or `/link <code> [yes]`."""
    command = command_in(inbound, None)
    if command is None or command.name not in (CommandName.LINK, CommandName.START):
        return None
    return None if command.argument is None else command


def shown(posted: PostedRow | None) -> Posted | None:
    if posted is None:
        return None
    return Posted(
        session=posted.session,
        session_key=posted.session_key,
        message_id=posted.message_id,
        seq=posted.seq,
        run_id=posted.run_id,
        triggered=posted.run_id is not None,
    )


def _row(posted: Posted | None) -> PostedRow | None:
    if posted is None:
        return None
    return PostedRow(posted.session, posted.session_key, posted.message_id, posted.seq, posted.run_id)
