"""Messages that wait before they are posted: decided in the unit of their arrival, before a byte is fetched.

Contract: channels 1, access 4.
"""

from datetime import timedelta

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.errors import REFUSALS, AntiphonError, Invalid, Limited
from antiphon.domain.inbound import Inbound, SentFile
from antiphon.domain.joining import JoinWaits, belongs, wait_of, with_part
from antiphon.domain.keys import ChatType
from antiphon.domain.text import bracketed_name
from antiphon.engine.access.allowances import bytes_left, refuse_bytes, refuse_pace
from antiphon.engine.access.who import Who, find_who
from antiphon.engine.chats.accounts import milliseconds_of
from antiphon.engine.chats.chat import Chat
from antiphon.engine.chats.entry import (
    Arrived,
    content_of,
    find_chat,
    is_addressed,
    judge_for_files,
    sent_ms,
)
from antiphon.engine.rules import Rules
from antiphon.policy.rights import is_favoured
from antiphon.policy.uploads import FileRoom, FileVerdict, decide_file, room_after
from antiphon.store import codec, held_messages
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from antiphon.store.held_messages import HeldMessage, NewHeld

LATE = timedelta(minutes=1)
"""A message that comes so long after it was written had to wait for this program, not for its sender."""
MOST_HELD = 500
"""Messages of one sender with a share that may wait; what comes beyond is refused."""
LEAST_PAUSE_MS = 5_000
"""Before a message that waits, and could not be posted, is tried again."""
LINE_BYTES = 512
"""The most that a message grows by the line about one of its files."""
_WHY = {
    FileVerdict.SENDER_FULL: "You have stored as much as you may. An owner can delete chats, or allow more.",
    FileVerdict.SESSION_FULL: "As much is stored in this chat as may be. An owner can allow more.",
    FileVerdict.DISK_FULL: "The disk is nearly full. An owner can make room.",
}


class Holding(Struct, frozen=True, kw_only=True):
    """A message that waits, or is about to."""

    inbound: Inbound
    who: Who
    rules: Rules
    free_bytes: int = 0
    """On the home's disk; measured only for a message with files."""
    waits: JoinWaits | None = None
    """How long it waits for others that belong to it; None if it stands alone."""

    @property
    def open_ms(self) -> int:
        """How long others may become one with it."""
        if self.waits is None:
            return 0
        return wait_of(self.inbound, self.waits, is_direct=self.inbound.chat_type is ChatType.DIRECT)


async def decide_files(query: Query, holding: Holding, chat: Chat) -> Inbound:
    """The message with the files that are to be fetched; of the others, its text tells the agent."""
    inbound, who, rules = holding.inbound, holding.who, holding.rules
    is_limited, shares = not is_favoured(who.standing), rules.shares
    left = await bytes_left(query, who.standing, shares)
    in_session = 0 if chat.session is None else await rows.stored_in(query, chat.session.row)
    room = FileRoom(
        # Which part of an album addresses the agent is known once all are there.
        is_addressed=inbound.album is not None or is_addressed(rules, chat, who, inbound),
        of_sender=None if left is None else left - len(inbound.text.encode()),
        of_session=shares.session_bytes - in_session if is_limited else None,
        of_disk=holding.free_bytes - shares.free_disk_bytes - await held_messages.size_of_all(query),
    )
    fetched, lines, refused = list[SentFile](), list[str](), list(inbound.refused)
    for file in inbound.unfetched:
        size = file.size + LINE_BYTES
        verdict = decide_file(size, room)
        if verdict is FileVerdict.FETCH:
            fetched.append(file)
            room = room_after(size, room)
            continue
        lines.append(_left_line(file))
        if (why := _WHY.get(verdict)) is not None:
            refused.append(f"The file {bracketed_name(file.name)!r} was not taken in. {why}")
    text = "\n".join(part for part in (inbound.text, *lines) if part)
    return replace(inbound, text=text, unfetched=tuple(fetched), refused=tuple(refused))


def _left_line(file: SentFile) -> str:
    return f"[{file.kind}: {file.name}, not fetched]"


async def hold(tx: Transaction, holding: Holding) -> None:
    """Lets the message wait for its files and its turn; the refusal if it may not be taken in."""
    rules, standing = holding.rules, holding.who.standing
    written_ms = sent_ms(holding.inbound, tx.now_ms)
    try:
        await refuse_pace(tx, standing, rules.shares, at_ms=written_ms)
    except Limited as error:
        await hold_late(tx, holding, error)
        return
    await refuse_bytes(tx, standing, _size_of(holding.inbound), rules.shares)
    await _store(tx, holding, is_counted=True, due_ms=tx.now_ms + holding.open_ms)


async def join(tx: Transaction, holding: Holding, chat: Chat) -> bool:
    """Makes the message one with an open one of its sender that it belongs to; False if there is none.

    If it does not belong to the open one, nothing more will: then that one waits no longer.
    """
    inbound, at_ms, waits = holding.inbound, tx.now_ms, holding.waits
    if waits is None:
        return False
    held = await held_messages.find_open(tx, inbound.place, str(holding.who.standing.principal), at_ms)
    if held is None:
        return False
    first = codec.inbound(held.message)
    if first.sender.id != inbound.sender.id or not belongs(inbound, first):
        await held_messages.close(tx, held, at_ms)
        return False
    if inbound.unfetched:
        inbound = await decide_files(tx, holding, chat)
    size = _size_of(inbound)
    await refuse_bytes(tx, holding.who.standing, size, holding.rules.shares)
    until_ms = min(held.held_at + waits.most_ms, at_ms + waits.part_ms)
    message = with_part(first, replace(inbound, position=None))
    await held_messages.add_part(tx, held, message, size=size, open_until=until_ms)
    return True


async def hold_late(tx: Transaction, holding: Holding, error: AntiphonError) -> None:
    """Lets a message wait for its sender's pace if it is late by no fault of theirs; else raises the error."""
    is_late = tx.now_ms - sent_ms(holding.inbound, tx.now_ms) >= milliseconds_of(LATE)
    if not is_late or not isinstance(error, Limited):
        raise error
    due_ms = tx.now_ms + 1000 * error.retry_after_seconds
    try:
        await _store(tx, holding, is_counted=False, due_ms=due_ms)
    except Limited:
        raise error from None


class GoOn(Struct, frozen=True, kw_only=True):
    """The turn of a message that waited has come."""

    held: HeldMessage
    inbound: Inbound
    rules: Rules


async def ready(tx: Transaction, command: GoOn) -> Inbound | None:
    """The message with the files that are to be fetched if it may be posted now; else it is due later.

    None only for what passes, and only in a direct chat: elsewhere it is refused, and nobody waits behind it.
    """
    held, rules, inbound = command.held, command.rules, command.inbound
    who = await find_who(tx, rules, inbound.place, inbound.sender)
    try:
        chat = await find_chat(tx, rules, inbound, who)
    except Invalid:
        return inbound
    if inbound.chat_type is not ChatType.DIRECT:
        return inbound if is_addressed(rules, chat, who, inbound) else _without_files(inbound)
    arrived = Arrived(inbound=inbound, content=content_of(inbound), held_bytes=held.size)
    try:
        await judge_for_files(tx, rules, chat, who, arrived=arrived)
    except Limited as error:
        pause_ms = max(LEAST_PAUSE_MS, 1000 * error.retry_after_seconds)
        await held_messages.postpone(tx, held.id, tx.now_ms + pause_ms)
        return None
    except REFUSALS:
        pass  # it is refused when it is posted
    return inbound


def _without_files(inbound: Inbound) -> Inbound:
    lines = "\n".join(part for part in (inbound.text, *map(_left_line, inbound.unfetched)) if part)
    return replace(inbound, text=lines, unfetched=())


async def count_held(tx: Transaction, command: GoOn) -> bool:
    """Whether the sender's pace lets the message go on now; else it is due later."""
    held, rules, inbound, at_ms = command.held, command.rules, command.inbound, tx.now_ms
    who = await find_who(tx, rules, inbound.place, inbound.sender)
    try:
        await refuse_pace(tx, who.standing, rules.shares, at_ms=at_ms)
    except Limited as error:
        await held_messages.postpone(tx, held.id, at_ms + 1000 * error.retry_after_seconds)
        return False
    await held_messages.set_counted(tx, held.id)
    return True


def _size_of(inbound: Inbound) -> int:
    """The most that it will take of its sender's share."""
    return len(inbound.text.encode()) + sum(file.size + LINE_BYTES for file in inbound.unfetched)


async def _store(tx: Transaction, holding: Holding, *, is_counted: bool, due_ms: int) -> None:
    principal, is_first = str(holding.who.standing.principal), is_favoured(holding.who.standing)
    if not is_first and (await held_messages.share_of(tx, principal)).messages >= MOST_HELD:
        raise Limited(f"Guest has {MOST_HELD} messages that wait, the maximum.", code="too_many_messages")
    inbound = replace(holding.inbound, position=None)
    new = NewHeld(
        principal=principal,
        is_favoured=is_first,
        is_counted=is_counted,
        size=_size_of(inbound),
        message=inbound,
        held_at=tx.now_ms,
        due_at=due_ms,
        open_until=due_ms if is_counted and holding.open_ms else 0,
    )
    await held_messages.insert(tx, new)
