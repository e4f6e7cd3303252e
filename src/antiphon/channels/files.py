"""Fetches the files of messages: photos become image parts, all others files of the workspace."""

import base64
from collections.abc import AsyncIterable, Awaitable, Callable
from datetime import timedelta

import anyio
from msgspec.structs import replace

from antiphon.domain.attachments import fitting_name
from antiphon.domain.inbound import Inbound, InboundFile, SentFile
from antiphon.domain.message import ImagePart
from antiphon.domain.text import bracketed_name

PHOTO = "photo"
"""The kind of a file that models are shown."""
MIB = 1024 * 1024
LARGEST_FILE = 20 * MIB
"""The largest file that is taken in."""
LARGEST_IMAGE = 5 * MIB
"""The largest picture that is shown to models."""
PATIENCE = timedelta(seconds=60)
"""How long fetching one file may take; later messages of the chat wait meanwhile."""
PICTURE_TYPES = ("image/jpeg", "image/png")
"""The types of pictures that models are shown."""
_IMAGES = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"))

PIECE = 64 * 1024
"""Bytes that are read at once."""

Fetch = Callable[[SentFile, int], Awaitable[bytes | None]]
"""Fetches a file of at most so many bytes; None if the platform does not give it. Raises `FileTooLarge`."""


class FileTooLarge(Exception):
    """The platform sends more of a file than may be taken in."""


async def read_at_most(pieces: AsyncIterable[bytes], most: int) -> bytes:
    """All bytes that come. Raises `FileTooLarge` once there are more than `most`."""
    found = bytearray()
    async for piece in pieces:
        found += piece
        if len(found) > most:
            raise FileTooLarge
    return bytes(found)


async def with_files(inbound: Inbound, fetch: Fetch, *, title: str) -> Inbound:
    """The message with its files, and a sentence for the sender about each file that could not be fetched."""
    images, files, refused = list(inbound.images), list(inbound.files), list(inbound.refused)
    for attachment in inbound.unfetched:
        is_photo, data = attachment.kind == PHOTO, None
        try:
            with anyio.move_on_after(PATIENCE.total_seconds()):
                data = await fetch(attachment, LARGEST_IMAGE if is_photo else LARGEST_FILE)
        except FileTooLarge:
            refused.append(too_large(attachment.kind, attachment.name))
            continue
        if data is None:
            name = bracketed_name(attachment.name)
            refused.append(f"The file {name!r} could not be fetched from {title}. Send it again.")
        elif not is_photo:
            files.append(InboundFile(name=attachment.name, data=data, kind=attachment.kind))
        elif (mime_type := picture_type(data)) is None:
            refused.append("The photo cannot be read and was not taken in.")
        else:
            images.append(ImagePart(mime_type=mime_type, data=base64.b64encode(data).decode()))
    return replace(inbound, images=tuple(images), files=tuple(files), refused=tuple(refused), unfetched=())


def too_large(kind: str, name: str) -> str:
    """A sentence for the sender about a file that is too large."""
    if kind == PHOTO:
        return f"The photo is larger than {LARGEST_IMAGE // MIB} MiB and was not taken in. Send it as a file."
    return f"The file {bracketed_name(name)!r} is larger than {LARGEST_FILE // MIB} MiB and was not taken in."


def sent_file(file_id: str, name: str, mime_type: str, size: int | None) -> SentFile | str:
    """The file to fetch, as platforms describe files by their types; a sentence for the sender if it is too large.

    `size` is what the platform says; None if it says nothing.
    """
    sort, is_photo = mime_type.partition("/")[0], mime_type in PICTURE_TYPES
    kind = PHOTO if is_photo else sort if sort in ("audio", "video") else "document"
    most = LARGEST_IMAGE if is_photo else LARGEST_FILE
    size = most if size is None or size < 0 else size
    name = fitting_name(name, "file")
    if size > most:
        return too_large(kind, name)
    size = size * 4 // 3 + 4 if is_photo else size  # as it is encoded in the message
    return SentFile(file_id=file_id, kind=kind, name=name, size=size)


def picture_type(data: bytes) -> str | None:
    """The type of a picture by its first bytes, whatever its name says; None if models are not shown it."""
    return next((mime_type for head, mime_type in _IMAGES if data.startswith(head)), None)
