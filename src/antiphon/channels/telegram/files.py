"""Fetches the files of messages: photos become image parts, all others files of the workspace."""

import base64
from datetime import timedelta

import anyio
from msgspec.structs import replace
from telegram.error import BadRequest, Forbidden, TelegramError

from antiphon.channels.telegram.client import FileTooLarge, TelegramClient
from antiphon.channels.telegram.settings import LARGEST_FILE, LARGEST_IMAGE
from antiphon.channels.telegram.updates import PHOTO, too_large
from antiphon.domain.inbound import Inbound, InboundFile, SentFile
from antiphon.domain.message import ImagePart
from antiphon.domain.text import bracketed_name

PATIENCE = timedelta(seconds=60)
"""How long fetching one file may take; later messages of the chat wait meanwhile."""
_PAUSE_SECONDS = 1.0
_IMAGES = ((b"\xff\xd8\xff", "image/jpeg"), (b"\x89PNG\r\n\x1a\n", "image/png"))


async def with_files(client: TelegramClient, inbound: Inbound) -> Inbound:
    """The message with its files, and a sentence for the sender about each file that could not be fetched."""
    images, files, refused = list(inbound.images), list(inbound.files), list(inbound.refused)
    for attachment in inbound.unfetched:
        try:
            data = await _fetch(client, attachment)
        except FileTooLarge:
            refused.append(too_large(attachment.kind, attachment.name))
            continue
        if data is None:
            refused.append(_not_fetched(attachment))
        elif attachment.kind != PHOTO:
            files.append(InboundFile(name=attachment.name, data=data, kind=attachment.kind))
        elif (mime_type := _kind_of(data)) is None:
            refused.append("The photo cannot be read and was not taken in.")
        else:
            images.append(ImagePart(mime_type=mime_type, data=base64.b64encode(data).decode()))
    return replace(inbound, images=tuple(images), files=tuple(files), refused=tuple(refused), unfetched=())


def _not_fetched(attachment: SentFile) -> str:
    return f"The file {bracketed_name(attachment.name)!r} could not be fetched from Telegram. Send it again."


async def _fetch(client: TelegramClient, attachment: SentFile) -> bytes | None:
    """The file; None if Telegram does not give it, or not in time. Raises `FileTooLarge` by what arrives."""
    most = LARGEST_IMAGE if attachment.kind == PHOTO else LARGEST_FILE
    with anyio.move_on_after(PATIENCE.total_seconds()):
        while True:
            try:
                return await client.download(attachment.file_id, most)
            except (BadRequest, Forbidden):
                return None
            except TelegramError:
                await anyio.sleep(_PAUSE_SECONDS)
    return None


def _kind_of(data: bytes) -> str | None:
    """The type of a picture by its first bytes, whatever its name says."""
    return next((mime_type for head, mime_type in _IMAGES if data.startswith(head)), None)
