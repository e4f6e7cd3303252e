"""The port to what looks back at a conversation, and what it hands back."""

from typing import Protocol

from msgspec import Struct

from antiphon.domain.checkpoint import CheckpointReason
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.ids import RunId, SessionId
from antiphon.domain.message import Usage
from antiphon.domain.session import Session
from antiphon.domain.transcript import Entry
from antiphon.engine.ledger.spending import Spender, SpentToday
from antiphon.store.checkpoints import CheckpointFence


class BegunCheckpoint(Struct, frozen=True, kw_only=True):
    """A checkpoint that this process has begun, and what it may read."""

    fence: CheckpointFence
    run: RunId
    reason: CheckpointReason
    session: Session
    """As it is now; of an ended incarnation only what does not change."""
    incarnation: SessionId
    after: int
    through: int
    """It reads the events of the incarnation behind `after`, up to this one."""
    model: str
    spender: Spender
    ceiling: Classification
    """What it may read: what flows to what the incarnation has taken in, and to the place where it answers."""
    working_memory: str = ""
    working_memory_made_of: Classification = PUBLIC

    @property
    def is_present(self) -> bool:
        """Whether the incarnation is the session's present one."""
        return self.incarnation == self.session.id


class Changes(Struct, frozen=True, kw_only=True):
    """What a checkpoint changes, all in the unit of its end."""

    made_of: Classification = PUBLIC
    """The join of all that it read. Contract: flow 8."""
    working_memory: str | None = None
    """The new text, whole; None leaves the one before."""
    description: str | None = None


class LookedBack(Struct, frozen=True, kw_only=True):
    changes: Changes = Changes()
    error: str | None = None
    """Why it failed, for people; None for a success."""
    code: str | None = None


class CheckpointReader(Protocol):
    """What an introspector reads and notes, each with the fence of its checkpoint."""

    async def read_entries(self) -> list[Entry]:
        """The range of the log, in model order, as far as it flows to the ceiling."""
        ...

    async def spent_today(self) -> SpentToday: ...

    async def note_usage(self, usage: Usage, model: str, *, is_counted: bool) -> None:
        """Adds what a response used. Raises `Fenced` if another process has taken the checkpoint over."""
        ...


class Introspector(Protocol):
    """Looks back at a range of a log.

    - `look_back` asks a model, and changes nothing itself; it does not raise for a failing provider.
    """

    async def look_back(self, begun: BegunCheckpoint, reader: CheckpointReader) -> LookedBack: ...
