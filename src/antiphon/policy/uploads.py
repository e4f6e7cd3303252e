"""Decides which files that people send are fetched, before any byte is. Contract: access 4, channels 1."""

from enum import StrEnum

from msgspec import Struct


class FileVerdict(StrEnum):
    FETCH = "fetch"
    ASIDE = "aside"
    """Its message does not address the agent."""
    SENDER_FULL = "sender_full"
    SESSION_FULL = "session_full"
    DISK_FULL = "disk_full"


class FileRoom(Struct, frozen=True, kw_only=True):
    """What is left for files of a message."""

    is_addressed: bool
    of_sender: int | None
    """Bytes that its sender may still store; None for those without a share."""
    of_session: int | None
    """Bytes that people with a share may still store in the session together; None for those without one."""
    of_disk: int
    """Bytes until the disk has no more room than must stay free; negative below that."""


def decide_file(size: int, room: FileRoom) -> FileVerdict:
    """Whether a file of that size is fetched, by what the platform says of it."""
    if not room.is_addressed:
        return FileVerdict.ASIDE
    if room.of_sender is not None and size > room.of_sender:
        return FileVerdict.SENDER_FULL
    if room.of_session is not None and size > room.of_session:
        return FileVerdict.SESSION_FULL
    return FileVerdict.DISK_FULL if size > room.of_disk else FileVerdict.FETCH


def room_after(size: int, room: FileRoom) -> FileRoom:
    """What is left once a file of that size is fetched."""
    return FileRoom(
        is_addressed=room.is_addressed,
        of_sender=None if room.of_sender is None else room.of_sender - size,
        of_session=None if room.of_session is None else room.of_session - size,
        of_disk=room.of_disk - size,
    )
