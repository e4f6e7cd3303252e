"""The listing of a workspace, as an approved command must find it again. Contract: approvals 3."""

import hashlib
from collections.abc import Iterable
from dataclasses import astuple, dataclass

MAX_LISTED = 10_000
"""Entries above which a workspace cannot be compared; so many take about 0.1 s."""
MAX_DEPTH = 64
"""Levels of nested directories, above which a workspace cannot be compared."""


@dataclass(frozen=True, slots=True, order=True)
class ListedEntry:
    """One entry of a workspace, without its content."""

    path: str
    """Within the workspace, with surrogate escapes for bytes that are no text."""
    mode: int
    """The kind of entry, and its rights."""
    size: int = 0
    modified_ns: int = 0
    """0 for directories, whose entries say more."""
    changed_ns: int = 0
    """The time of the last change by the file system's own clock, which a command cannot set back."""
    target: str = ""
    """Of a link."""


def hash_of_listing(entries: Iterable[ListedEntry]) -> str:
    """SHA-256 over all entries in the order of their paths."""
    found = hashlib.sha256()
    for entry in sorted(entries):
        found.update(repr(astuple(entry)).encode())
    return found.hexdigest()
