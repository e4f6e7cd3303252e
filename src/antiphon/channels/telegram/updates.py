"""Telegram's updates in Antiphon's words. Pure; unknown kinds and fields are passed over. Contract: channels 1.

The client library refuses a whole list of updates if one of them lacks a field, so updates are read here as they came.
"""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import cast

import msgspec
from msgspec import Struct, field

from antiphon.channels.files import LARGEST_FILE, LARGEST_IMAGE, PHOTO, too_large
from antiphon.channels.telegram.settings import ACCOUNT, LONGEST_TEXT, NAME
from antiphon.domain.attachments import fitting_name
from antiphon.domain.citations import LinkedWords, cite, with_addresses
from antiphon.domain.commands import commanded_bot
from antiphon.domain.inbound import (
    ButtonPress,
    ChangeKind,
    ChatChange,
    Cited,
    Filling,
    FromChannel,
    Inbound,
    Sender,
    SentFile,
)
from antiphon.domain.keys import ChatType
from antiphon.domain.message import Attribution, AttributionKind, CitationKind, Whose
from antiphon.domain.position import NumberedPosition
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import bracketed_name

"""The kind of files that become images; all others are files of the workspace."""
PRESS = "press:"
"""Before the id of a press, so that it is not the id of a message."""
LONG_TEXT = 4_000
"""Units of UTF-16 from which on a program of Telegram may have cut a text from a longer one."""
LONGEST_DATA = 64
"""Bytes of a button's data."""


class Me(Struct, frozen=True, kw_only=True):
    """The bot itself."""

    id: int
    username: str = ""
    can_read_all_group_messages: bool = False
    """False in privacy mode: then a group's messages arrive only if they are meant for the bot."""


class _User(Struct, frozen=True, kw_only=True):
    id: int
    is_bot: bool = False
    first_name: str = ""
    last_name: str | None = None
    username: str | None = None
    language_code: str | None = None


class _TelegramChat(Struct, frozen=True, kw_only=True):
    id: int
    type: str
    title: str | None = None


class _Entity(Struct, frozen=True, kw_only=True):
    type: str
    offset: int
    length: int
    user: _User | None = None
    url: str | None = None
    """Of a `text_link`."""


class _File(Struct, frozen=True, kw_only=True):
    file_id: str
    file_size: int | None = None
    file_name: str | None = None


class _ForwardOrigin(Struct, frozen=True, kw_only=True):
    """Who wrote a forwarded message first. Each type of origin has one of these fields."""

    sender_user: _User | None = None
    sender_user_name: str | None = None
    """Of a user who hides their account in forwards."""
    sender_chat: _TelegramChat | None = None
    """A group, in whose name an admin wrote."""
    chat: _TelegramChat | None = None
    """A channel."""


class _Answered(Struct, frozen=True, kw_only=True):
    """A message that another one answers."""

    message_id: int | None = None
    sender: _User | None = field(default=None, name="from")
    sender_chat: _TelegramChat | None = None
    text: str | None = None
    caption: str | None = None
    entities: tuple[_Entity, ...] = ()
    caption_entities: tuple[_Entity, ...] = ()
    forward_origin: _ForwardOrigin | None = None
    forward_date: object = None
    is_automatic_forward: bool = False
    via_bot: _User | None = None
    photo: object = None
    document: object = None
    voice: object = None
    audio: object = None
    video: object = None
    video_note: object = None
    sticker: object = None
    location: object = None
    contact: object = None
    poll: object = None
    story: object = None
    paid_media: object = None
    forum_topic_created: object = None
    """Set in the message that opens a topic, which every message of the topic answers."""


class _Quote(Struct, frozen=True, kw_only=True):
    """The part of a message that its answer quotes."""

    text: str = ""
    entities: tuple[_Entity, ...] = ()


class _AnsweredElsewhere(Struct, frozen=True, kw_only=True):
    """A message of another chat that is answered here; only the quote says what it held."""

    origin: _ForwardOrigin | None = None


class _Message(Struct, frozen=True, kw_only=True):
    message_id: int
    chat: _TelegramChat
    date: int = 0
    sender: _User | None = field(default=None, name="from")
    sender_chat: _TelegramChat | None = None
    """Set if a channel or a whole group writes: anonymous admins, linked channels."""
    text: str | None = None
    caption: str | None = None
    entities: tuple[_Entity, ...] = ()
    caption_entities: tuple[_Entity, ...] = ()
    media_group_id: str | None = None
    message_thread_id: int | None = None
    is_topic_message: bool = False
    reply_to_message: _Answered | None = None
    external_reply: _AnsweredElsewhere | None = None
    quote: _Quote | None = None
    forward_origin: _ForwardOrigin | None = None
    forward_date: object = None
    """In place of `forward_origin`, from servers of the Bot API before 7.0."""
    is_automatic_forward: bool = False
    """Set if a channel's post appears in its discussion group."""
    via_bot: _User | None = None
    """The inline bot that made the message."""
    migrate_to_chat_id: int | None = None
    migrate_from_chat_id: int | None = None
    new_chat_title: str | None = None
    new_chat_members: tuple[_User, ...] = ()
    left_chat_member: _User | None = None
    photo: tuple[_File, ...] = ()
    document: _File | None = None
    voice: _File | None = None
    audio: _File | None = None
    video: _File | None = None
    video_note: _File | None = None
    sticker: object = None
    location: object = None
    contact: object = None
    poll: object = None
    story: object = None
    paid_media: object = None


class _Shown(Struct, frozen=True, kw_only=True):
    """The message under which a button was pressed."""

    message_id: int | None = None
    chat: _TelegramChat
    sender: _User | None = field(default=None, name="from")
    message_thread_id: int | None = None
    is_topic_message: bool = False


class _CallbackQuery(Struct, frozen=True, kw_only=True):
    id: str
    sender: _User = field(name="from")
    message: _Shown | None = None
    data: str | None = None


class _ChatMember(Struct, frozen=True, kw_only=True):
    status: str
    is_member: bool = True


class _Membership(Struct, frozen=True, kw_only=True):
    chat: _TelegramChat
    sender: _User = field(name="from")
    old_chat_member: _ChatMember
    new_chat_member: _ChatMember


class _Update(Struct, frozen=True, kw_only=True):
    update_id: int
    message: _Message | None = None
    callback_query: _CallbackQuery | None = None
    my_chat_member: _Membership | None = None


_REFUSED = ("sticker", "location", "contact", "poll", "story", "paid_media")
"""Kinds of content that are not taken in; messages without text that have none of them are the platform's own."""
_FILES = ("photo", "document", "voice", "audio", "video", "video_note")
_IN_GROUP = ("group", "supergroup")


def position_of(update: object) -> int | None:
    """The id of the update; None if it has none."""
    found = cast("dict[str, object]", update).get("update_id") if isinstance(update, dict) else None
    return found if isinstance(found, int) else None


def read_update(update: object, me: Me) -> FromChannel | None:
    """What the update brings; None if it is nothing for Antiphon. Raises `msgspec.ValidationError` for a broken one."""
    found = msgspec.convert(update, _Update)
    position = NumberedPosition(str(found.update_id))
    if found.message is not None:
        return _read_message(found.message, me, position)
    if found.callback_query is not None:
        return _read_press(found.callback_query, me, position)
    if found.my_chat_member is not None:
        return _read_membership(found.my_chat_member, position)
    return None


def _read_message(message: _Message, me: Me, position: NumberedPosition) -> Inbound | ChatChange | None:
    if message.migrate_to_chat_id is not None:
        return _moved(message.chat.id, message.migrate_to_chat_id, position)
    if message.migrate_from_chat_id is not None:
        return _moved(message.migrate_from_chat_id, message.chat.id, position)
    if change := _read_title(message, position) or _read_members(message, position):
        return change
    sender, is_direct = message.sender, message.chat.type == "private"
    if sender is None or sender.is_bot or message.sender_chat is not None:
        return None
    if not is_direct and message.chat.type not in _IN_GROUP:
        return None
    unfetched, refused = _files_of(message)
    text = message.text if message.text is not None else message.caption
    if text is None and not unfetched and not refused:
        return None
    attribution = _attribution_of(message)
    is_for_another = not is_direct and attribution is None and _is_for_another(message, me)
    is_meant = is_direct or (attribution is None and not is_for_another and _is_meant(message, me))
    return Inbound(
        platform_id=f"{me.id}:{message.chat.id}:{message.message_id}",
        position=position,
        place=_place(message.chat, message.message_thread_id if message.is_topic_message else None),
        chat_type=ChatType.DIRECT if is_direct else ChatType.GROUP,
        title=None if is_direct else bracketed_name(message.chat.title or ""),
        sender=_sender(sender),
        text=_with_addresses(text or "", message.entities if message.text is not None else message.caption_entities),
        is_meant=is_meant,
        is_for_another=is_for_another,
        attribution=attribution,
        cites=_cited_by(message, sender, me),
        has_files=bool(unfetched),
        unfetched=unfetched,
        refused=refused if is_meant else (),
        sent_at=_moment(message.date),
        album=message.media_group_id,
        filling=_filling_of(message.text or ""),
    )


def _filling_of(text: str) -> Filling:
    units = len(text.encode("utf-16-le", "surrogatepass")) // 2
    return Filling.FULL if units >= LONGEST_TEXT else Filling.LONG if units >= LONG_TEXT else Filling.SHORT


def _attribution_of(message: _Message) -> Attribution | None:
    """Whose words the message holds; None for the sender's own, also if it answers or quotes another message."""
    if message.forward_origin is not None or message.forward_date is not None or message.is_automatic_forward:
        name = None if message.forward_origin is None else _author_of(message.forward_origin)
        return Attribution(kind=AttributionKind.FORWARD, name=name)
    if message.via_bot is not None:
        return Attribution(kind=AttributionKind.INLINE_BOT, name=_sender(message.via_bot).name)
    return None


def _cited_by(message: _Message, sender: _User, me: Me) -> tuple[Cited, ...]:
    """What the message answers, or the part of it that it quotes; none for the message that opens a topic."""
    answered, quote = message.reply_to_message, message.quote
    kind = CitationKind.REPLY if quote is None else CitationKind.QUOTE
    quoted = "" if quote is None else _with_addresses(quote.text, quote.entities)
    if answered is None or answered.forum_topic_created is not None:
        if message.external_reply is None or not quoted.strip():
            return ()
        origin = message.external_reply.origin
        return (Cited(citation=cite(kind, Whose.OTHER, quoted, None if origin is None else _author_of(origin))),)
    whose, name = _whose(answered, sender, me)
    text = quoted if quoted.strip() else _words_of(answered)
    if not text.strip():
        return ()
    is_ours = whose is Whose.AGENT and answered.message_id is not None
    return (Cited(citation=cite(kind, whose, text, name), platform_id=str(answered.message_id) if is_ours else None),)


def _whose(answered: _Answered, sender: _User, me: Me) -> tuple[Whose, str | None]:
    """Whose words the answered message holds, and the name of somebody else."""
    if answered.forward_origin is not None:
        return Whose.OTHER, _author_of(answered.forward_origin)
    if answered.via_bot is not None:
        return Whose.OTHER, _sender(answered.via_bot).name
    if answered.forward_date is not None or answered.is_automatic_forward:
        return Whose.OTHER, None
    if answered.sender_chat is not None:
        return Whose.OTHER, bracketed_name(whole_characters(answered.sender_chat.title or "")) or None
    if answered.sender is None:
        return Whose.OTHER, None
    if answered.sender.id in (me.id, sender.id):
        return (Whose.AGENT if answered.sender.id == me.id else Whose.SENDER), None
    return Whose.OTHER, _sender(answered.sender).name


def _words_of(answered: _Answered) -> str:
    """What the message says; of one without words, what it is."""
    if answered.text is not None:
        return _with_addresses(answered.text, answered.entities)
    said = _with_addresses(answered.caption or "", answered.caption_entities)
    kinds = (kind for kind in (*_FILES, *_REFUSED) if getattr(answered, kind))
    shown = next((f"[{kind.replace('_', ' ')}]" for kind in kinds), "")
    return "\n".join(part for part in (shown, said) if part)


def _with_addresses(text: str, entities: Sequence[_Entity]) -> str:
    """The text in whole characters, with the addresses behind its linked words."""
    units = text.encode("utf-16-le", "surrogatepass")
    links = [
        LinkedWords(len(units[: max(each.offset + each.length, 0) * 2].decode("utf-16-le", "replace")), each.url)
        for each in entities
        if each.type == "text_link" and each.url
    ]
    return with_addresses(whole_characters(text), links)


def _author_of(origin: _ForwardOrigin) -> str | None:
    if origin.sender_user is not None:
        return _sender(origin.sender_user).name
    chat = origin.chat or origin.sender_chat
    name = origin.sender_user_name if chat is None else chat.title
    return None if name is None else bracketed_name(whole_characters(name))


def _files_of(message: _Message) -> tuple[tuple[SentFile, ...], tuple[str, ...]]:
    """The files to fetch, and a sentence for each thing that cannot be taken in."""
    unfetched: list[SentFile] = []
    refused: list[str] = []
    sizes = [size for size in message.photo if (size.file_size or 0) <= LARGEST_IMAGE]
    if sizes:
        size = _size_of(sizes[-1].file_size, LARGEST_IMAGE) * 4 // 3 + 4  # as it is encoded in the message
        unfetched.append(SentFile(file_id=sizes[-1].file_id, kind=PHOTO, name="photo.jpg", size=size))
    elif message.photo:
        refused.append(too_large(PHOTO, ""))
    named = (
        ("document", message.document, "file"),
        ("voice", message.voice, "voice.ogg"),
        ("audio", message.audio, "audio.mp3"),
        ("video", message.video, "video.mp4"),
        ("video", message.video_note, "video.mp4"),
    )
    for kind, file, usual in named:
        if file is None:
            continue
        name = fitting_name(whole_characters(file.file_name or ""), usual)
        size = _size_of(file.file_size, LARGEST_FILE)
        if size > LARGEST_FILE:
            refused.append(too_large(kind, name))
        else:
            unfetched.append(SentFile(file_id=file.file_id, kind=kind, name=name, size=size))
    refused += [
        f"A {kind.replace('_', ' ')} cannot be taken in. Send text, a photo, a file or a voice message."
        for kind in _REFUSED
        if getattr(message, kind) is not None
    ]
    return tuple(unfetched), tuple(refused)


def _size_of(said: int | None, most: int) -> int:
    """What the platform says, or the most that is taken in if it says nothing that can be."""
    return most if said is None or said < 0 else said


def _is_for_another(message: _Message, me: Me) -> bool:
    """Whether it is a command to another bot, and does not mention this one."""
    commanded = commanded_bot(message.text or message.caption or "")
    return commanded not in (None, me.username.lower()) and not _is_mentioned(message, me)


def _is_meant(message: _Message, me: Me) -> bool:
    """Whether the bot is mentioned, answered, or commanded by name."""
    origin = message.reply_to_message
    if (
        origin is not None
        and origin.forum_topic_created is None
        and origin.sender is not None
        and origin.sender.id == me.id
    ):
        return True
    return _is_mentioned(message, me)


def _is_mentioned(message: _Message, me: Me) -> bool:
    if message.text is not None:
        return _names(message.text, message.entities, me)
    return _names(message.caption or "", message.caption_entities, me)


def _names(text: str, entities: Sequence[_Entity], me: Me) -> bool:
    units, name = text.encode("utf-16-le", "surrogatepass"), f"@{me.username}".lower()
    for entity in entities:
        span = units[max(entity.offset, 0) * 2 : max(entity.offset + entity.length, 0) * 2]
        said = span.decode("utf-16-le", "replace").lower()
        match entity.type:
            case "mention" if said == name:
                return True
            case "bot_command" if said.endswith(name):
                return True
            case "text_mention" if entity.user is not None and entity.user.id == me.id:
                return True
            case _:
                pass
    return False


def _read_press(press: _CallbackQuery, me: Me, position: NumberedPosition) -> ButtonPress | None:
    """None for buttons of other bots' messages and for data that Antiphon did not make."""
    shown = press.message
    if shown is None or shown.sender is None or shown.sender.id != me.id or press.sender.is_bot or not press.data:
        return None
    if not press.data.isascii() or not press.data.isprintable() or len(press.data) > LONGEST_DATA:
        return None
    return ButtonPress(
        platform_id=f"{PRESS}{press.id}",
        position=position,
        place=_place(shown.chat, shown.message_thread_id if shown.is_topic_message else None),
        sender=_sender(press.sender),
        data=press.data,
        message_id=None if shown.message_id is None else str(shown.message_id),
    )


def _read_membership(change: _Membership, position: NumberedPosition) -> ChatChange | None:
    kind = _change_of(change)
    if kind is None:
        return None
    is_group = change.chat.type in _IN_GROUP
    return ChatChange(
        kind=kind,
        position=position,
        place=_place(change.chat, None),
        title=bracketed_name(change.chat.title or "") if is_group else None,
        sender=_sender(change.sender),
    )


def _read_title(message: _Message, position: NumberedPosition) -> ChatChange | None:
    """A group's new title, whoever gave it."""
    if message.new_chat_title is None or message.chat.type not in _IN_GROUP:
        return None
    by = message.sender if message.sender_chat is None else None  # an admin who hides is nobody
    return ChatChange(
        kind=ChangeKind.RENAMED,
        position=position,
        place=_place(message.chat, None),
        title=bracketed_name(whole_characters(message.new_chat_title)),
        sender=None if by is None else _sender(by),
    )


def _read_members(message: _Message, position: NumberedPosition) -> ChatChange | None:
    """People who joined or left a group. Other bots do not read the messages of this one."""
    kind, users = ChangeKind.JOINED, message.new_chat_members
    if message.left_chat_member is not None:
        kind, users = ChangeKind.PARTED, (message.left_chat_member,)
    people = tuple(str(user.id) for user in users if not user.is_bot)
    if not people or message.chat.type not in _IN_GROUP:
        return None
    return ChatChange(kind=kind, position=position, place=_place(message.chat, None), people=people)


def _change_of(change: _Membership) -> ChangeKind | None:
    was, is_in = _is_in(change.old_chat_member), _is_in(change.new_chat_member)
    if change.chat.type == "private":
        return ChangeKind.BLOCKED if was and not is_in else None
    if change.chat.type not in _IN_GROUP or was == is_in:
        return None
    return ChangeKind.ADDED if is_in else ChangeKind.LEFT


def _is_in(member: _ChatMember) -> bool:
    return member.status not in ("left", "kicked") and (member.status != "restricted" or member.is_member)


def _moved(old: int, new: int, position: NumberedPosition) -> ChatChange:
    place = DeliveryContext(channel=NAME, to=str(old), account_id=ACCOUNT)
    return ChatChange(kind=ChangeKind.MOVED, position=position, place=place, moved_to=str(new))


def _place(chat: _TelegramChat, thread: int | None) -> DeliveryContext:
    return DeliveryContext(
        channel=NAME, to=str(chat.id), account_id=ACCOUNT, thread_id=None if thread is None else str(thread)
    )


def _sender(user: _User) -> Sender:
    name = f"{user.first_name} {user.last_name or ''}".strip() or user.username or ""
    return Sender(id=str(user.id), name=bracketed_name(whole_characters(name)), language=user.language_code)


def _moment(seconds: int) -> datetime | None:
    try:
        return datetime.fromtimestamp(seconds, UTC) if seconds > 0 else None
    except (ValueError, OverflowError, OSError):
        return None


def whole_characters(text: str) -> str:
    """The text with pairs of surrogates joined, and halves of pairs replaced."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
