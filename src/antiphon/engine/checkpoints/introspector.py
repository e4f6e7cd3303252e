"""The port to what looks back at a conversation, and what it hands back."""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.checkpoint import CheckpointReason
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.ids import NoteId, RunId, SessionId
from antiphon.domain.message import Usage
from antiphon.domain.note import MemoryScope, Note
from antiphon.domain.person import PersonRole
from antiphon.domain.session import Session
from antiphon.domain.transcript import Entry, Undecided
from antiphon.engine.ledger.spending import Spender, SpentToday
from antiphon.policy.standing import Standing
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
    kept: "KeptSoFar"
    asker: Principal | None = None
    """Whose turn was the last, or without turns who wrote last; None if nobody did."""
    scope: MemoryScope | None = None
    """Whose notes it may read and change; None for a session without memory."""

    @property
    def is_present(self) -> bool:
        """Whether the incarnation is the session's present one."""
        return self.incarnation == self.session.id


class KeptSoFar(Struct, frozen=True, kw_only=True):
    """What the session keeps of its conversation so far, as far as the checkpoint may read it."""

    working_memory: str = ""
    description: str | None = None
    made_of: Classification = PUBLIC


class NoteChange(Struct, frozen=True, kw_only=True):
    """A note to add, to replace or to delete."""

    id: NoteId | None = None
    """None for a new one."""
    text: str | None = None
    """None to delete it."""


class DecidedChanges(Struct, frozen=True, kw_only=True):
    """What a checkpoint changes, all in the unit of its end."""

    made_of: Classification = PUBLIC
    """The join of all that it read. Contract: flow 8."""
    working_memory: str | None = None
    """The new text, whole; None leaves the one before."""
    description: str | None = None
    notes: tuple[NoteChange, ...] = ()


class LookedBack(Struct, frozen=True, kw_only=True):
    changes: DecidedChanges = DecidedChanges()
    error: str | None = None
    """Why it failed, for people; None for a success."""
    code: str | None = None


class ReadEntries(NamedTuple):
    entries: list[Entry]
    undecided: Undecided
    standing: Standing
    """Of the spender."""


class CheckpointReader(Protocol):
    """What an introspector reads and notes, each with the fence of its checkpoint."""

    async def read_entries(self) -> ReadEntries:
        """The range of the log, in model order, as far as it flows to the ceiling."""
        ...

    async def read_roles(self) -> Mapping[str, PersonRole]: ...

    async def read_notes(self) -> list[Note]:
        """The newest notes that it may read and change, newest first."""
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
