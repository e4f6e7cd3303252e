"""How a child was spawned, and what happens to it afterwards. Contract: spawn 1 to 6."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import JsonObject


class Mode(StrEnum):
    """What a child is for."""

    RUN = "run"
    """One task: one result, then it is archived."""
    SESSION = "session"
    """A lasting child: each of its runs reports."""


class Cleanup(StrEnum):
    """What happens to a child once its result has arrived."""

    KEEP = "keep"
    DELETE = "delete"


class Context(StrEnum):
    """How much of the requester's conversation a child gets."""

    NONE = "none"
    FORK = "fork"
    """A copy of the conversation, up to the message that its requester answers."""


class Spawn(Struct, frozen=True, kw_only=True):
    """One row per child."""

    child: SessionRow
    origin: str
    """Identifies the call that made it; a repeated call finds it."""
    run: RunId
    """The run of its task."""
    request: str | None
    """A digest of everything that the call asked for; None once the child is deleted."""
    task: str
    mode: Mode
    cleanup: Cleanup
    time_limit: timedelta | None
    """How long each of its runs may take."""
    archive_after: timedelta | None = None
    """How long after its result it is hidden from lists; None for never."""
    attach_as: JsonObject | None = None
    """Kept for mounts, and not used yet."""
    receipt: JsonObject | None = None
    """The receipt of its attachments."""
    returns: JsonObject | None = None
    """For a child in quarantine: the JSON Schema of what it returns. Contract: flow 10."""
    due_at: datetime | None = None
    """When it is archived or deleted, unless it is busy then."""
    kept_until: datetime | None = None
    """Until then someone may wait for its result: it is not deleted before."""
