"""Where the results of a task go, as people and programs write it: `chat`, `me`, `log`, a channel with a group's id.

Contract: tasks 1. The same words are used on the page, the command line, in chats, over HTTP, in Python and by agents.
"""

from enum import StrEnum

from msgspec import Struct

from antiphon.domain.errors import Invalid
from antiphon.domain.session import DEFAULT_ACCOUNT, DeliveryContext

SEND_TO_FORMS = "chat, chat:<session key>, me, log, or a group as <channel>/<group id>"
MAX_SEND_TO = 400


class SendToKind(StrEnum):
    CHAT = "chat"
    """A session, as a record there, and the place where that session answers."""
    ME = "me"
    """The newest chat that its maker has with a bot, looked up at each firing."""
    PLACE = "place"
    """A group; of tasks that were made before results had a choice, the chat in which they were made."""
    LOG = "log"
    """Nowhere: they stay in the log of the task."""


class SendTo(Struct, frozen=True, kw_only=True):
    """As somebody wrote it; whether it exists and is theirs is judged where it is used."""

    kind: SendToKind = SendToKind.CHAT
    session_key: str | None = None
    """Of `chat`: another session than the one in which the task is made."""
    channel: str | None = None
    account: str | None = None
    group: str | None = None

    @property
    def text(self) -> str:
        """As `parse_send_to` reads it."""
        if self.kind is SendToKind.PLACE:
            return place_text(DeliveryContext(channel=self.channel, to=self.group, account_id=self.account))
        return self.kind.value if self.session_key is None else f"{self.kind.value}:{self.session_key}"


TO_CHAT = SendTo()


def parse_send_to(text: str) -> SendTo:
    """Raises `Invalid` (`invalid_task`)."""
    word = text.strip()
    kind, colon, key = word.partition(":")
    if kind.lower() == SendToKind.CHAT and colon and key.strip():
        return SendTo(session_key=key.strip())
    if (named := word.lower()) in (SendToKind.CHAT, SendToKind.ME, SendToKind.LOG):
        return SendTo(kind=SendToKind(named))
    channel, slash, group = word.partition("/")
    name, _, account = channel.partition(":")
    if slash and name and group and len(word) <= MAX_SEND_TO:
        return SendTo(kind=SendToKind.PLACE, channel=name, account=account or None, group=group)
    raise Invalid(f"Place of results is not known: {word[:80]!r}. Write {SEND_TO_FORMS}.", code="invalid_task")


def place_text(place: DeliveryContext) -> str:
    """The place as `parse_send_to` reads it: `signal/-100123`, `signal:work/-100123`."""
    account = "" if place.account_id in (None, DEFAULT_ACCOUNT) else f":{place.account_id}"
    return f"{place.channel}{account}/{place.to}"
