"""Matrix's events in Antiphon's words. Pure; unknown kinds and fields are passed over. Contract: channels 1."""

import json
import re
from datetime import UTC, datetime
from typing import Any

from antiphon.channels.files import sent_file
from antiphon.channels.json_facts import Json, find, words
from antiphon.channels.matrix.rooms import KnownRoom, Rooms
from antiphon.channels.matrix.settings import MatrixSettings
from antiphon.domain.citations import cite
from antiphon.domain.inbound import ChangeKind, ChatChange, Cited, FromChannel, Inbound, Sender, SentFile
from antiphon.domain.keys import ChatType
from antiphon.domain.message import CitationKind, Whose
from antiphon.domain.text import bracketed_name

_FILES = {"m.image": "image/jpeg", "m.file": "", "m.audio": "audio/ogg", "m.video": "video/mp4"}
"""The types of files that do not say theirs."""
_QUOTED = re.compile(r"(?:> .*\n?)+\n*")
"""In older programs, what a message answers stands before its words."""
_REPLY = "content", "m.relates_to", "m.in_reply_to", "event_id"
NO_KEY = (
    "This message is encrypted, and there is no key for it here. What is sent from now on may be readable; otherwise "
    "use a room without encryption."
)


def message_id(room: str, event: str) -> str:
    """The id of a message in deliveries and arrivals."""
    return f"{room}/{event}"


def split_id(id: str) -> tuple[str, str]:
    room, _, event = id.rpartition("/$")
    return room, f"${event}"


def answered_by(event: Json) -> str:
    """The event that this one answers; empty if none. In a thread, older programs are shown an answer to its newest."""
    is_shown = find(event, "content", "m.relates_to", "is_falling_back") is True
    return "" if is_shown else words(event, *_REPLY)


class EventReader:
    """Reads the events of one account."""

    def __init__(self, settings: MatrixSettings, rooms: Rooms) -> None:
        self._settings = settings
        self._me = settings.user
        self._rooms = rooms

    def read(self, room: KnownRoom, event: Json, cited: Json | None) -> list[FromChannel]:
        """What the event brings. `cited` is the event that it answers."""
        kind, is_group = event.get("type"), self._rooms.partner(room) is None
        if kind in ("m.room.message", "m.sticker", "m.room.encrypted"):
            message = self._read_message(room, event, cited) if self.is_person(room, words(event, "sender")) else None
            return [] if message is None else [message]
        if kind == "m.room.member" and is_group:
            return self._read_member(room, event)
        if kind == "m.room.name" and is_group:
            return [self.change(ChangeKind.RENAMED, room, event, title=bracketed_name(room.title))]
        return []

    def is_person(self, room: KnownRoom, sender: str) -> bool:
        """Whether it is somebody of the room's channel: neither the account, nor a bridge's bot, nor foreign there."""
        shown = self._settings.bridge_of(sender)
        return sender != self._me and not self.is_foreign(room, sender) and (shown is None or shown.owns(sender))

    def is_foreign(self, room: KnownRoom, sender: str) -> bool:
        """Whether the sender belongs to a bridge, and the room to another channel."""
        shown = self._settings.bridge_of(sender)
        return shown is not None and shown != self._rooms.bridge_of(room)

    def sender(self, room: KnownRoom, user: str) -> Sender:
        return Sender(id=user, name=bracketed_name(room.members.get(user, user)))

    def change(self, kind: ChangeKind, room: KnownRoom, event: Json | None = None, **more: Any) -> ChatChange:
        by = words(event, "sender")
        sender = self.sender(room, by) if by and self.is_person(room, by) else None
        return ChatChange(kind=kind, place=self._rooms.place(room), sender=sender, **more)

    def _read_member(self, room: KnownRoom, event: Json) -> list[FromChannel]:
        """The room is as it is after the event. Once the account is there, it sees who else is."""
        user, now = words(event, "state_key"), find(event, "content", "membership")
        if now == find(event, "unsigned", "prev_content", "membership") or (user == self._me and now != "join"):
            return []
        if user == self._me:
            people = tuple(each for each in room.members if self.is_person(room, each))
            added = self.change(ChangeKind.ADDED, room, event, title=bracketed_name(room.title))
            old = self._rooms.replaced(room)
            moved = [] if old is None else [self.change(ChangeKind.MOVED, old, moved_to=room.id)]
            return [*moved, added, self.change(ChangeKind.JOINED, room, people=people)]
        if now not in ("join", "leave", "ban") or not self.is_person(room, user):
            return []
        return [self.change(ChangeKind.JOINED if now == "join" else ChangeKind.PARTED, room, event, people=(user,))]

    def _read_message(self, room: KnownRoom, event: Json, cited: Json | None) -> Inbound | None:
        """None for a correction, and for the words of a program."""
        kind, relation = words(event, "content", "msgtype"), words(event, "content", "m.relates_to", "rel_type")
        if relation == "m.replace" or kind == "m.notice":
            return None
        text, is_unread = words(event, "content", "body"), event["type"] == "m.room.encrypted"
        file = self._file(event, kind)
        unfetched, refused = (file,) if isinstance(file, SentFile) else (), (file,) if isinstance(file, str) else ()
        if is_unread:
            refused = (NO_KEY,)
        elif event["type"] == "m.sticker" or kind == "m.location":
            refused = (f"A {kind.removeprefix('m.') or 'sticker'} cannot be taken in. Send text, a photo or a file.",)
        name = words(event, "content", "filename")  # of a file with a caption
        if kind not in ("m.text", "m.emote") and (kind not in _FILES or name in ("", text)):
            text = ""
        if not text and not unfetched and not refused:
            return None
        if text.startswith("> <@") and answered_by(event):
            text = _QUOTED.sub("", text, count=1)
        partner, author = self._rooms.partner(room), words(event, "sender")
        is_answer = words(cited, "sender") == self._me
        is_meant = partner is not None or is_unread or is_answer or self._is_mentioned(event)
        return Inbound(
            # Once a room, as what was told already is recognised.
            platform_id=message_id(room.id, "$no-key" if is_unread else words(event, "event_id")),
            place=self._rooms.place(room, words(event, "content", "m.relates_to", "event_id") or None)
            if relation == "m.thread"
            else self._rooms.place(room),
            chat_type=ChatType.GROUP if partner is None else ChatType.DIRECT,
            title=bracketed_name(room.title) if partner is None else None,
            sender=self.sender(room, author),
            text=text,
            is_meant=is_meant,
            cites=self._cited_by(room, author, cited),
            has_files=bool(unfetched),
            unfetched=unfetched,
            refused=refused if is_meant else (),
            sent_at=moment(event),
        )

    def _is_mentioned(self, event: Json) -> bool:
        """Older programs do not say whom they mention."""
        if find(event, "content", "m.mentions") is not None:
            named = find(event, "content", "m.mentions", "user_ids")
            return isinstance(named, list) and self._me in named
        html = words(event, "content", "formatted_body")
        return self._me in words(event, "content", "body") or f"matrix.to/#/{self._me}" in html

    def _file(self, event: Json, kind: str) -> SentFile | str | None:
        """The file to fetch; a sentence about one that is too large. Of an encrypted room, the id holds the key."""
        sealed, address = find(event, "content", "file"), words(event, "content", "url")
        if kind not in _FILES or not (sealed or address):
            return None
        size, type = find(event, "content", "info", "size"), words(event, "content", "info", "mimetype")
        name = words(event, "content", "filename") or words(event, "content", "body")
        id, size = json.dumps(sealed) if sealed else address, size if isinstance(size, int) else None
        return sent_file(id, name, type or _FILES[kind], size)

    def _cited_by(self, room: KnownRoom, sender: str, cited: Json | None) -> tuple[Cited, ...]:
        said, author = words(cited, "content", "body"), words(cited, "sender")
        if cited is None or not said.strip():
            return ()
        whose = Whose.AGENT if author == self._me else Whose.SENDER if author == sender else Whose.OTHER
        citation = cite(CitationKind.REPLY, whose, said, self.sender(room, author).name)
        id = message_id(room.id, words(cited, "event_id"))
        return (Cited(citation=citation, platform_id=id if whose is Whose.AGENT else None),)


def invitation(rooms: Rooms, settings: MatrixSettings, room_id: str, state: list[Json]) -> ChatChange | None:
    """Who invites the account to what; None if the invitation does not say."""
    room, inviter = KnownRoom(room_id, settings.user), ""
    for event in state:
        room.note(event)
        if event.get("type") == "m.room.member" and event.get("state_key") == settings.user:
            inviter = words(event, "sender")
    if not inviter:
        return None
    old = None if room.is_private else rooms.replaced(room)  # what was decided about that holds for this
    place = rooms.place_of(inviter if room.is_private else room_id, settings.bridge_of(inviter))
    place = place if old is None else rooms.place(old)
    sender = Sender(id=inviter, name=bracketed_name(room.members.get(inviter, inviter)))
    title = None if room.is_private else bracketed_name(room.name or room.alias or room_id)
    return ChatChange(kind=ChangeKind.INVITED, place=place, title=title, sender=sender)


def begin_of(me: str, events: list[Json]) -> int:
    """Where in a room's events those begin that came since the account was last invited, or came by itself."""
    for index in range(len(events) - 1, -1, -1):
        if events[index].get("type") == "m.room.member" and events[index].get("state_key") == me:
            now = find(events[index], "content", "membership")
            before = find(events[index], "unsigned", "prev_content", "membership")
            if now == "invite" or (now == "join" and before not in ("join", "invite")):
                return index
    return -1


def moment(event: Json) -> datetime | None:
    try:
        return datetime.fromtimestamp(event["origin_server_ts"] / 1000, UTC)
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        return None
