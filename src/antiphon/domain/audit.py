"""What an audit finds, and what its chains hold. Contract: flow 12."""

from enum import StrEnum

from msgspec import Struct


class Fault(StrEnum):
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


class Finding(Struct, frozen=True, kw_only=True):
    """A fault, and its place."""

    fault: Fault
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
    findings: tuple[Finding, ...] = ()
    has_more: bool = False
    """Whether there are more findings than are listed."""
