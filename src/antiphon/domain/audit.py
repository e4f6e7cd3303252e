"""What an audit finds, and what its chains hold. Contract: flow 12."""

from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.message import JsonObject


class AuditKind(StrEnum):
    """What a row of a process's chain is about."""

    DENIED = "denied"
    """Policy said no, or showed nothing; equal ones of one caller within a minute are one row."""
    READ = "read"
    """A person read something above PUBLIC: one row a session and hour."""
    STREAM_OPENED = "stream_opened"
    """A person follows a session from which something above PUBLIC comes."""
    STREAM_ENDED = "stream_ended"
    RELEASED = "released"
    """An owner let words go where they may not."""
    TRUSTED = "trusted"
    """An owner trusts something that was read, or does not any more."""
    RULES_LOADED = "rules_loaded"
    """A set of rules is in force from now on."""
    MERGED = "merged"
    """A person counts as another one from then on: events of the one name the other."""
    SEALS_MOVED = "seals_moved"
    """The file of seals began anew, or holds a seal that the home does not have."""


class AuditRow(Struct, frozen=True, kw_only=True):
    """A row of the chain of a process."""

    process: str
    n: int
    at: datetime
    kind: str
    content: JsonObject
    count: int


class SealedHead(NamedTuple):
    """The newest hash of a chain, with the number of its row."""

    chain: str
    number: int
    hash: bytes


class KeptSeal(NamedTuple):
    """A seal as it stands in a file outside the home."""

    home: str
    n: int
    hash: bytes


class ChainFault(StrEnum):
    """What is wrong at a place of a chain."""

    CHANGED = "changed"
    """The row, or the hash that stands in it or in the one before, is not what was stored."""
    MISSING = "missing"
    """A row between two others is gone."""
    CUT_OFF = "cut_off"
    """Rows at the end are gone, or were added without a hash."""
    BEGINNING = "beginning"
    """The chain does not begin where it began: rows at its beginning are gone or were added."""
    UNKNOWN = "unknown"
    """Rows stand in a chain that does not exist."""
    REWRITTEN = "rewritten"
    """The row is not the one that was sealed: the chain from there on was written anew."""
    ROLLED_BACK = "rolled_back"
    """A seal that was kept apart is not in the home: the home is older than the seal, or another one."""


class ChainFinding(Struct, frozen=True, kw_only=True):
    """A fault, and its place."""

    fault: ChainFault
    chain: str
    """`session:<row>`, `process:<id>`, or `seals`."""
    number: int
    """The event's `seq`, or the number of the row or seal."""
    name: str | None = None
    """The session's key."""


class Checked(Struct, frozen=True, kw_only=True):
    """What a check of all chains read and found."""

    logs: int = 0
    events: int = 0
    covered: int = 0
    """Events from before the chain began, which one hash covers."""
    processes: int = 0
    rows: int = 0
    seals: int = 0
    newest_seal: int | None = None
    kept: int = 0
    """Seals that were kept apart, and that were looked for in the home."""
    findings: tuple[ChainFinding, ...] = ()
    has_more: bool = False
    """Whether there are more findings than are listed."""
