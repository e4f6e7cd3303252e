"""Fetches the files of messages from Telegram."""

import anyio
from telegram.error import BadRequest, Forbidden, TelegramError

from antiphon.channels.telegram.client import TelegramClient
from antiphon.domain.inbound import SentFile

_PAUSE_SECONDS = 1.0


async def fetch_file(client: TelegramClient, file: SentFile, most: int) -> bytes | None:
    """The file; None if Telegram does not give it. Tries until it is cancelled. Raises `FileTooLarge`."""
    while True:
        try:
            return await client.download(file.file_id, most)
        except (BadRequest, Forbidden):
            return None
        except TelegramError:
            await anyio.sleep(_PAUSE_SECONDS)
