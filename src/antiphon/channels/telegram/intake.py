"""Takes updates in, one after the other. Contract: channels 1."""

import logging

import anyio
from msgspec import ValidationError
from telegram.error import TelegramError

from antiphon.channels.telegram.client import TelegramClient
from antiphon.channels.telegram.updates import PRESS, Me, position_of, read_update
from antiphon.domain.inbound import ButtonPress, ChatChange, FromChannel, Inbound
from antiphon.engine.chats.accounts import AccountLease, LeaseLost
from antiphon.engine.chats.reception import Reception

logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""How often an update is tried that fails for another reason than the store; then the next one is taken in."""
PAUSE_SECONDS = 0.5
LONGEST_TOAST = 200


class Intake:
    """Hands updates to the reception. Fetches no file: nothing slow may stand before the updates of others."""

    def __init__(self, client: TelegramClient, reception: Reception) -> None:
        self._client = client
        self._reception = reception

    async def take(self, update: object, me: Me, lease: AccountLease | None) -> None:
        """Returns once the update is stored, or needs no storing; then it may be confirmed.

        Raises `LeaseLost`, and without a lease `Unavailable`.
        """
        content = self._read(update, me)
        if content is None:
            return
        failures = 0
        while True:
            try:
                await self._receive(content, lease)
                return
            except LeaseLost:
                raise
            except Exception as error:  # a bug of ours, or damage of one chat, must not stop the chats behind it
                if not self._reception.is_of_message(error):
                    if lease is None:
                        raise
                    await anyio.sleep(PAUSE_SECONDS)
                    continue
                failures += 1
                is_over = failures == ATTEMPTS or lease is None
                logger.exception(
                    "Update failed",
                    extra={"action": "update_failed", "update_id": position_of(update), "is_skipped": is_over},
                )
                if is_over:
                    return
                await anyio.sleep(PAUSE_SECONDS)

    def _read(self, update: object, me: Me) -> FromChannel | None:
        try:
            return read_update(update, me)
        except ValidationError as error:
            # The message of the error names fields and types, never what was written.
            logger.warning(
                "Update cannot be read",
                extra={"action": "update_unread", "update_id": position_of(update), "error": str(error)},
            )
            return None

    async def _receive(self, content: FromChannel, lease: AccountLease | None) -> None:
        match content:
            case Inbound():
                await self._reception.receive(content, lease)
            case ChatChange():
                await self._reception.change(content, lease)
            case ButtonPress():
                received = await self._reception.press(content, lease)
                await self._answer(content, received.toast)

    async def _answer(self, press: ButtonPress, toast: str | None) -> None:
        """Tells the person who pressed; after some minutes Telegram shows no answer any more."""
        try:
            await self._client.bot.answer_callback_query(
                press.platform_id.removeprefix(PRESS), text=toast and toast[:LONGEST_TOAST]
            )
        except TelegramError as error:
            logger.debug("Press was not answered", extra={"action": "press_unanswered", "error": type(error).__name__})
