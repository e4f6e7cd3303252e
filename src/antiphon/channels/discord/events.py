"""Discord's events in Antiphon's words. Pure; unknown kinds and fields are passed over. Contract: channels 1.

They are read as they came: the library keeps servers and members in memory, and gives up at what it does not expect.
"""

import re
from datetime import UTC, datetime
from typing import Final

import msgspec
from msgspec import Struct

from antiphon.channels.discord.client import DiscordMe
from antiphon.channels.discord.rooms import DiscordRoom, DiscordRooms, DiscordUser, Snowflake
from antiphon.channels.discord.settings import NAME
from antiphon.channels.files import sent_file
from antiphon.domain.citations import cite
from antiphon.domain.inbound import ButtonPress, Cited, Inbound, Sender, SentFile
from antiphon.domain.keys import ChatType
from antiphon.domain.message import Attribution, AttributionKind, CitationKind, Whose
from antiphon.domain.position import NumberedPosition
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import bracketed_name

PLAIN: Final = (0, 19)
"""The types of messages that people write: a message, and an answer to one."""
FORWARD: Final = 1
COMPONENT: Final = 3
"""The type of a press."""
LONGEST_DATA: Final = 100
"""Characters of a button's data."""
EPOCH_MS: Final = 1_420_070_400_000
"""The time from which Discord's ids count."""
_NAMED: Final = re.compile(r"<(?P<kind>@!?|@&|#)(?P<id>\d{1,20})>|<a?(?P<emoji>:\w{2,32}:)\d{1,20}>")
_DIRECT: Final = "@"
"""Before the id of a channel of direct messages, where positions name chats."""


class _GuildMember(Struct, frozen=True, kw_only=True):
    nick: str | None = None
    user: DiscordUser | None = None
    """Of whom presses a button."""


class DiscordFile(Struct, frozen=True, kw_only=True):
    id: Snowflake
    filename: str = ""
    size: int = 0
    url: str = ""
    content_type: str | None = None


class _MessageReference(Struct, frozen=True, kw_only=True):
    type: int = 0
    message_id: str | None = None
    channel_id: str | None = None


class _WrittenMessage(Struct, frozen=True, kw_only=True):
    """What a forwarded message held."""

    content: str = ""
    mentions: tuple[DiscordUser, ...] = ()
    attachments: tuple[DiscordFile, ...] = ()
    sticker_items: tuple[object, ...] = ()


class _MessageSnapshot(Struct, frozen=True, kw_only=True):
    message: _WrittenMessage


class _AnsweredMessage(_WrittenMessage, frozen=True, kw_only=True):
    """A message that another one answers."""

    id: Snowflake
    author: DiscordUser
    webhook_id: str | None = None
    message_snapshots: tuple[_MessageSnapshot, ...] = ()


class DiscordMessage(_AnsweredMessage, frozen=True, kw_only=True):
    channel_id: Snowflake
    guild_id: Snowflake | None = None
    type: int = 0
    member: _GuildMember | None = None
    timestamp: str = ""
    nonce: str | int | None = None
    mention_roles: tuple[str, ...] = ()
    referenced_message: _AnsweredMessage | None = None
    message_reference: _MessageReference | None = None
    poll: object = None

    @property
    def is_persons(self) -> bool:
        """Whether a person wrote it: no bot, webhook, nor Discord itself."""
        return not (self.author.bot or self.author.system or self.webhook_id) and self.type in PLAIN


class _PressData(Struct, frozen=True, kw_only=True):
    custom_id: str = ""
    component_type: int = 0


class _PressedMessage(Struct, frozen=True, kw_only=True):
    """The message under which a button was pressed."""

    id: Snowflake
    author: DiscordUser | None = None


class DiscordPress(Struct, frozen=True, kw_only=True):
    id: Snowflake
    token: str
    type: int
    channel_id: Snowflake | None = None
    guild_id: Snowflake | None = None
    channel: DiscordRoom | None = None
    member: _GuildMember | None = None
    user: DiscordUser | None = None
    message: _PressedMessage | None = None
    data: _PressData = _PressData()
    locale: str | None = None


class DiscordReader(Struct, frozen=True, kw_only=True):
    """For whom events are read."""

    me: DiscordMe
    account: str
    rooms: DiscordRooms

    def place(self, room: DiscordRoom, person: str) -> DeliveryContext:
        """Direct messages are with the person, threads in their channel."""
        to, thread = (room.id, None) if not room.is_thread else (room.parent_id or room.id, room.id)
        to = person if room.is_direct else to
        return DeliveryContext(channel=NAME, to=to, account_id=self.account, thread_id=thread)

    def title(self, room: DiscordRoom) -> str | None:
        if room.is_direct:
            return None
        shown = (self.rooms.find(room.parent_id or "") or room) if room.is_thread else room
        return bracketed_name(shown.name or shown.id)


def read_message(message: DiscordMessage, room: DiscordRoom, bot: DiscordReader) -> Inbound | None:
    """None for what no person wrote, and for what holds nothing."""
    if not message.is_persons:
        return None
    snapshot = message.message_snapshots[0].message if message.message_snapshots else None
    is_forward = snapshot is not None and (message.message_reference or _MessageReference()).type == FORWARD
    shown = snapshot if snapshot is not None and is_forward else message
    unfetched, refused = _files_of(message, shown)
    if not shown.content.strip() and not unfetched and not refused:
        return None
    is_meant = room.is_direct or (not is_forward and _is_meant(message, bot))
    return Inbound(
        platform_id=f"{bot.me.id}:{message.channel_id}:{message.id}",
        position=position_of(message.id, room),
        place=bot.place(room, message.author.id),
        chat_type=ChatType.DIRECT if room.is_direct else ChatType.CHANNEL,
        title=bot.title(room),
        sender=_sender(message.author, message.member),
        text=with_names(shown, bot),
        is_meant=is_meant,
        attribution=Attribution(kind=AttributionKind.FORWARD) if is_forward else None,
        cites=_cited_by(message, bot),
        has_files=bool(unfetched),
        unfetched=unfetched,
        refused=refused if is_meant else (),
        sent_at=moment_of(message.id),
    )


def position_of(message: str, room: DiscordRoom) -> NumberedPosition:
    return NumberedPosition(message, f"{_DIRECT}{room.id}" if room.is_direct else room.id)


def chat_of(position: str) -> tuple[str, bool]:
    """The channel that a position names, and whether it holds direct messages."""
    return position.removeprefix(_DIRECT), position.startswith(_DIRECT)


def read_press(press: DiscordPress, room: DiscordRoom, bot: DiscordReader) -> ButtonPress | None:
    """None for what is no press of a button under a message of the bot, and for data that Antiphon did not make."""
    user = press.user or (None if press.member is None else press.member.user)
    message, data = press.message, press.data.custom_id
    if press.type != COMPONENT or user is None or user.bot or message is None:
        return None
    if message.author is not None and message.author.id != bot.me.id:
        return None
    if not data.isascii() or not data.isprintable() or not 0 < len(data) <= LONGEST_DATA:
        return None
    return ButtonPress(
        platform_id=f"press:{press.id}",
        place=bot.place(room, user.id),
        sender=_sender(user, press.member, language=press.locale),
        data=data,
        message_id=message.id,
    )


def with_names(message: _WrittenMessage, bot: DiscordReader) -> str:
    """The text with the names of those whom it mentions, as people see it."""
    people = {each.id: each for each in message.mentions}

    def shown(found: re.Match[str]) -> str:
        id, kind = found["id"], found["kind"]
        if found["emoji"] is not None:
            return found["emoji"]
        if kind == "#":
            room = bot.rooms.find(id)
            return found[0] if room is None or not room.name else f"#{bracketed_name(room.name)}"
        if kind == "@&":
            name = bot.me.username if id in bot.rooms.own_roles else bot.rooms.role_name(id)
        else:
            name = bot.me.username if id == bot.me.id else None
            name = _name_of(people[id]) if name is None and id in people else name
        return f"@{bracketed_name(name)}" if name else found[0]

    return _NAMED.sub(shown, message.content)


def _is_meant(message: DiscordMessage, bot: DiscordReader) -> bool:
    """Whether the bot, or its own role, is mentioned, or one of its messages answered."""
    answered = message.referenced_message
    return (
        any(each.id == bot.me.id for each in message.mentions)
        or not bot.rooms.own_roles.isdisjoint(message.mention_roles)
        or (answered is not None and answered.author.id == bot.me.id)
    )


def _cited_by(message: DiscordMessage, bot: DiscordReader) -> tuple[Cited, ...]:
    answered = message.referenced_message
    if answered is None:
        return ()
    whose, name = Whose.OTHER, _name_of(answered.author)
    if answered.author.id in (bot.me.id, message.author.id) and not answered.message_snapshots:
        whose = Whose.AGENT if answered.author.id == bot.me.id else Whose.SENDER
    words = [with_names(each, bot) for each in (answered, *(each.message for each in answered.message_snapshots))]
    words += ["[file]"] if answered.attachments else []
    text = "\n".join(filter(str.strip, words))
    if not text:
        return ()
    platform_id = answered.id if whose is Whose.AGENT else None
    return (Cited(citation=cite(CitationKind.REPLY, whose, text, bracketed_name(name)), platform_id=platform_id),)


def _files_of(message: DiscordMessage, shown: _WrittenMessage) -> tuple[tuple[SentFile, ...], tuple[str, ...]]:
    """The files to fetch, and a sentence for each thing that cannot be taken in."""
    sorted_files = [
        sent_file(
            f"{message.channel_id}/{message.id}/{file.id}",
            file.filename,
            (file.content_type or "").partition(";")[0].strip().lower(),
            file.size or None,
        )
        for file in shown.attachments
    ]
    refused = [each for each in sorted_files if isinstance(each, str)]
    for kind, has_some in (("sticker", bool(shown.sticker_items)), ("poll", message.poll is not None)):
        if has_some:
            refused.append(f"A {kind} cannot be taken in. Send text, a photo, a file or a voice message.")
    return tuple(each for each in sorted_files if not isinstance(each, str)), tuple(refused)


def _name_of(user: DiscordUser) -> str:
    return user.global_name or user.username or user.id


def _sender(user: DiscordUser, member: _GuildMember | None, *, language: str | None = None) -> Sender:
    name = (None if member is None else member.nick) or _name_of(user)
    return Sender(id=user.id, name=bracketed_name(name), language=language)


def moment_of(snowflake: str) -> datetime | None:
    """When the thing with that id came to be."""
    try:
        return datetime.fromtimestamp(((int(snowflake) >> 22) + EPOCH_MS) / 1000, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def snowflake_of(moment: datetime) -> int:
    """The least id of what came to be since then."""
    return max(int(moment.timestamp() * 1000) - EPOCH_MS, 0) << 22


def convert_message(data: object) -> DiscordMessage:
    """Raises `msgspec.ValidationError`."""
    return msgspec.convert(data, DiscordMessage)
