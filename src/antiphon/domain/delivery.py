"""A delivery: a text to be sent through a channel. Contract: channels 1."""

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.channel_form import Button
from antiphon.domain.classification import Classification
from antiphon.domain.ids import ProcessId, RunId, SessionId, SessionRow
from antiphon.domain.message import JsonValue
from antiphon.domain.own_text import CodeSpan
from antiphon.domain.session import DeliveryContext
from antiphon.domain.telling import Cause

MAX_ATTEMPTS = 12
PATIENCE = timedelta(minutes=50)
"""How long attempts go on at least, however soon the platform asks for the next."""
FIRST_WAIT = timedelta(seconds=5)
LONGEST_WAIT = timedelta(minutes=10)
LONGEST_WISH = timedelta(hours=1)
"""The longest pause that a platform may ask for, because later texts wait as long."""
BUSY = "channel_busy"
"""The code of a failure after which the platform asks to wait."""
FLOW = "flow"
"""The code of a text that was suppressed because of what it was made of."""
GONE = "channel_gone"
"""The code of a failure that no text for the place escapes: its person blocked the bot, or the bot left the group."""
THREAD_GONE = "channel_thread_gone"
"""The code of a failure that no text for the thread escapes, while the chat around it takes texts."""
MOVED = "The topic that this is for is closed or was deleted.\n\n"
"""Before a text that stands in the chat itself, because its thread takes none."""
MAY_BE_SHOWN_TWICE = "may_be_shown_twice"
"""The code of a reply whose beginning was sent without an answer: its message cannot be changed or deleted."""
NOT_CLEARED = (
    "The text was made of data that may not go to this place. Set a clearance for the channel and link the recipient's "
    "account to a person with that clearance; then retry the delivery."
)


class DeliveryStatus(StrEnum):
    STREAMING = "streaming"
    """The reply of a run that is still being written; `platform_id` names the message that shows it so far."""
    QUEUED = "queued"
    CLAIMED = "claimed"
    """A process is sending it, or was sending it when it died."""
    SENT = "sent"
    SUPPRESSED = "suppressed"
    """Policy forbade it when it was queued or claimed."""
    DEAD = "dead"
    """Given up; the owner sees it and may retry it."""

    @property
    def is_terminal(self) -> bool:
        return self in (DeliveryStatus.SENT, DeliveryStatus.SUPPRESSED, DeliveryStatus.DEAD)


class DeliveryFile(Struct, frozen=True):
    """A file that a delivery brings along; its bytes are stored apart."""

    name: str
    size: int
    """In bytes."""
    sha256: str


UNREAD_FILES = "No file could be read when this was asked: once it is allowed, the call sends none."
"""In place of a call's files, so that none that nobody has seen goes by an approval. Contract: approvals 3."""


def words_of_files(files: Sequence[DeliveryFile]) -> str:
    """A line for each file, as people are asked about it; empty without files."""
    return "\n".join(f"File {each.name!r}, {each.size} bytes, sha256 {each.sha256}" for each in files)


def data_of_files(files: Sequence[DeliveryFile]) -> list[JsonValue]:
    """The files as events and answers name them."""
    return [{"name": each.name, "bytes": each.size, "sha256": each.sha256} for each in files]


class Delivery(Struct, frozen=True, kw_only=True):
    """One row of the outbox."""

    id: str
    """Stable: the same in every attempt, so that the platform can recognise a repetition."""
    session: SessionRow | None
    """None for words of Antiphon that belong to no session, such as the answer to a command."""
    session_key: str | None
    session_id: SessionId | None
    run_id: RunId | None
    place: DeliveryContext
    text: str
    spans: tuple[CodeSpan, ...] | None = None
    """What is code in Antiphon's own text, which is drawn as it is; None for the Markdown of agents."""
    files: tuple[DeliveryFile, ...] = ()
    """Sent after the text, each as a part of its own."""
    made_of: Classification
    """What the text and its files were made of."""
    status: DeliveryStatus
    attempts: int = 0
    """Claims since it was queued, or since the owner queued it again. With the process they identify one claim."""
    due_at: datetime
    process: ProcessId | None = None
    """The process that claimed it."""
    platform_id: str | None = None
    """The platform's id for it; of its first part, if it has several."""
    parts: tuple[str, ...] = ()
    """The platform's ids of the sent parts, in order; empty for a part without one. Sending goes on after them."""
    approval: str | None = None
    """The request for approval that it shows, with buttons."""
    cause: Cause | None = None
    """Why it stands in the place of a reply; None for any other text. Contract: groups 4."""
    release: str | None = None
    """The hash of what an owner has released, by which it may go where it may not. Contract: flow 11."""
    moved_from: str | None = None
    """The thread that it was for, if it goes to the chat itself because the thread takes no texts."""
    error: str | None = None
    code: str | None = None
    created_at: datetime
    ended_at: datetime | None = None
    buttons: tuple[Button, ...] = ()
    """Under its last part; made when it is claimed."""

    @property
    def claim(self) -> tuple[str, str, int]:
        return self.id, self.process or "", self.attempts

    @property
    def meant_for(self) -> DeliveryContext:
        """The place that it was queued for."""
        return self.place if self.moved_from is None else replace(self.place, thread_id=self.moved_from)

    @property
    def replaces(self) -> str | None:
        """The platform's id of a message that shows an earlier text of this delivery, which its first part replaces."""
        return None if self.parts else self.platform_id

    @property
    def is_withdrawal(self) -> bool:
        """Whether it deletes the message that it replaces."""
        return not self.text and not self.files and self.replaces is not None


class DeliveryFailed(Exception):
    """As far as is known, the text was not sent; the message says why and contains no secret."""

    def __init__(
        self,
        message: str,
        *,
        code: str = "channel_failed",
        is_permanent: bool = False,
        retry_after: timedelta | None = None,
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.is_permanent = is_permanent
        """Whether the platform would reject the same text again."""
        self.retry_after = retry_after
        """When the platform wants the next attempt; None if it does not say."""

    @property
    def was_refused(self) -> bool:
        """Whether it is certain that the platform has not taken the text."""
        return self.is_permanent or self.code == BUSY


def wait_before_next(attempts: int, wish: timedelta | None) -> timedelta:
    """How long a text waits after this many failed attempts: 5 s, 10 s, 20 s … 10 min, unless the platform says."""
    if wish is not None:
        return min(max(wish, FIRST_WAIT), LONGEST_WISH)
    return min(FIRST_WAIT * 2 ** min(attempts - 1, 20), LONGEST_WAIT)


def is_given_up(delivery: Delivery, now: datetime, *, is_permanent: bool) -> bool:
    """Whether a text that has failed again is given up."""
    return is_permanent or (delivery.attempts >= MAX_ATTEMPTS and now - delivery.created_at >= PATIENCE)
