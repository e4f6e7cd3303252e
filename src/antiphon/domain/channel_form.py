"""What one message of a channel can hold, and the parts of a text that fit. Contract: channels 1."""

from enum import StrEnum

from msgspec import Struct

from antiphon.domain.attachments import Attachment
from antiphon.domain.own_text import CodeSpan


class LengthUnit(StrEnum):
    CHARACTERS = "characters"
    UTF16 = "utf16"
    """Units of UTF-16: two for each character beyond the first plane."""


class Streaming(StrEnum):
    """How a reply is shown while it is written."""

    NONE = "none"
    EDIT = "edit"
    """One message, sent with the first words and edited."""
    DRAFT = "draft"
    """A draft in direct chats, which vanishes by itself; one message that is edited in groups."""


class ChannelForm(Struct, frozen=True, kw_only=True):
    """What a channel can carry."""

    longest: int | None = None
    """The longest text of one message, in `unit`; None without a limit."""
    unit: LengthUnit = LengthUnit.CHARACTERS
    streaming: Streaming = Streaming.NONE
    stream_interval_ms: int = 1_500
    """The least time between two changes in a direct chat while a reply is written."""
    group_interval_ms: int = 6_000
    """The same for a group, with all of its topics."""
    has_buttons: bool = False
    files: int | None = None
    """The largest file in bytes; None if the channel sends no files."""
    table_width: int | None = None
    """Where tables of Markdown are shown as written: the widest that is drawn with columns. None leaves them."""


PLAIN_FORM = ChannelForm()
"""Texts of any length, sent once each."""


class Button(Struct, frozen=True, kw_only=True):
    """A button under a message."""

    label: str
    data: str
    """Comes back in the press; at most 64 bytes."""


class DeliveryPart(Struct, frozen=True, kw_only=True):
    """One message of a delivery."""

    index: int
    """0 for the first."""
    text: str
    """Empty for a file."""
    file: Attachment | None = None
    """What is sent, in place of a text."""
    spans: tuple[CodeSpan, ...] | None = None
    """Of Antiphon's own text, which is drawn as it is; None for the words of an agent, which may be rendered."""
    buttons: tuple[Button, ...] = ()
    replaces: str | None = None
    """The platform's id of a message that this text replaces, instead of being a new message."""
    is_growing: bool = False
    """Whether it is the beginning of a reply that is still being written."""
    asker: str | None = None
    """The platform's id of the person whom a growing text answers; None if they have no account there."""
