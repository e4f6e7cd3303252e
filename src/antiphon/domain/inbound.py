"""What a channel brings in: adapters translate the updates of a platform into these. Contract: channels 1.

Text is as the platform gave it, without half surrogates. Ids are the platform's, as text, and never display names.
"""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.keys import ChatType
from antiphon.domain.message import Attribution, Citation, Part, Whose
from antiphon.domain.position import Position
from antiphon.domain.session import DeliveryContext

LONGEST_QUOTED = 64 * 1024
"""Characters that are kept of what a sender's program repeated."""
LONGEST_HOLD = timedelta(minutes=5)
"""How far ahead a message that waits may be due; it waits again if its time has not come then."""


class Sender(Struct, frozen=True, kw_only=True):
    """Who wrote, pressed or changed something on a platform."""

    id: str
    """Immutable."""
    name: str
    """The display name; not unique, and chosen by the sender."""
    language: str | None = None
    """A language tag such as `de`, if the platform tells it."""


class InboundFile(Struct, frozen=True, kw_only=True):
    """A file for the session's workspace."""

    name: str
    """The sender's name for it; not safe as a path."""
    data: bytes
    kind: str
    """`document | voice | audio | video`, for the line that tells the agent."""


class SentFile(Struct, frozen=True, kw_only=True):
    """A file of a message that lies on the platform."""

    file_id: str
    """The platform's, to fetch it by."""
    kind: str
    """`photo | document | voice | audio | video`."""
    name: str
    """The sender's name for it; not safe as a path."""
    size: int
    """In bytes as it would be stored: what the platform says, or the most that is taken in."""


class Filling(StrEnum):
    """How much of what one message of the platform can hold its text takes."""

    SHORT = "short"
    LONG = "long"
    """So much that the sender's program may have cut it from a longer text, between two lines or words."""
    FULL = "full"
    """All; if it was cut, then anywhere."""


class Cited(Struct, frozen=True, kw_only=True):
    """Words that a message points at, as its platform tells them."""

    citation: Citation
    """Words of the bot's account are the agent's only if `platform_id` names a text that was sent to the chat."""
    platform_id: str | None = None
    """The platform's id of the bot's message that holds them."""


class Inbound(Struct, frozen=True, kw_only=True):
    """A message that somebody wrote."""

    platform_id: str
    """Unique in the account; the same if the platform gives the message again."""
    position: Position | None = None
    """How far the account, or its chat, is read with it."""
    place: DeliveryContext
    """The chat, with its channel, account and thread: where answers go."""
    chat_type: ChatType
    title: str | None = None
    """The group's title; None in direct chats."""
    sender: Sender
    is_proven: bool = True
    """Whether the platform proves that the sender wrote it; otherwise it is not taken in, and owners are told."""
    is_automatic: bool = False
    """Whether a program wrote it that answers or sends by itself, as it says; then it is not taken in."""
    text: str
    quoted: str = ""
    """What the sender's program repeated of earlier messages: kept in the log, and in no prompt."""
    is_meant: bool = True
    """Whether the sender addresses the bot: mentions, answers or commands it by name; always in direct chats."""
    is_for_another: bool = False
    """Whether it is a command to another bot of the group, by that bot's name: then nobody here answers it."""
    attribution: Attribution | None = None
    """Whose words the text is; None for the sender's own. Words of others are never a command. Contract: groups 5."""
    cites: tuple[Cited, ...] = ()
    """What it points at."""
    images: tuple[Part, ...] = ()
    """Image parts."""
    files: tuple[InboundFile, ...] = ()
    has_files: bool = False
    """Whether it came with images or files, fetched or not."""
    unfetched: tuple[SentFile, ...] = ()
    """Its files that are not fetched yet."""
    refused: tuple[str, ...] = ()
    """What could not be taken in, one plain sentence each, for the sender."""
    sent_at: datetime | None = None
    album: str | None = None
    """The platform's name of the album that it is in."""
    filling: Filling = Filling.SHORT
    parts: tuple["Inbound", ...] = ()
    """While it waits: later messages that belong to it, in order."""
    part_ids: tuple[str, ...] = ()
    """The platform's ids of messages that became one with it."""

    @property
    def has_foreign_words(self) -> bool:
        """Whether words in it, or beside it, are somebody else's for certain."""
        return self.attribution is not None or any(each.citation.whose is Whose.OTHER for each in self.cites)


class ButtonPress(Struct, frozen=True, kw_only=True):
    """Somebody pressed a button under a message of the bot."""

    platform_id: str
    """Of the press."""
    position: Position | None = None
    place: DeliveryContext
    sender: Sender
    data: str
    """What the button carries: `<approval id>:<decision>`."""
    message_id: str | None = None
    """The platform's id of the message with the button."""

    @property
    def subject(self) -> str:
        """What the press is about."""
        return self.data.rpartition(":")[0]

    @property
    def word(self) -> str:
        """The decision."""
        return self.data.rpartition(":")[2]


class ChangeKind(StrEnum):
    INVITED = "invited"
    """Somebody invites the bot to a chat, on a platform where it has to join by itself: if the answer is `may_enter`.
    The place of a private chat is its sender."""
    ADDED = "added"
    """The bot was added to a group."""
    LEFT = "left"
    """The bot left a group, or was removed."""
    BLOCKED = "blocked"
    """Somebody blocked the bot in a direct chat."""
    MOVED = "moved"
    """A group has a new id."""
    RENAMED = "renamed"
    """A group has a new title."""
    JOINED = "joined"
    """People joined a group."""
    PARTED = "parted"
    """Somebody left a group, or was removed."""


class ChatChange(Struct, frozen=True, kw_only=True):
    """Something happened to a chat: to a group, unless it says so."""

    kind: ChangeKind
    position: Position | None = None
    place: DeliveryContext
    title: str | None = None
    sender: Sender | None = None
    moved_to: str | None = None
    """The new id of a group that moved."""
    people: tuple[str, ...] = ()
    """The accounts that joined or left a group."""


FromChannel = Inbound | ButtonPress | ChatChange
