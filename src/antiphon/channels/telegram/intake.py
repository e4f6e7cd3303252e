"""Takes updates in, and answers presses. Contract: channels 1."""

import logging

from telegram.error import TelegramError

from antiphon.channels.intake import Intake
from antiphon.channels.telegram.client import TelegramClient
from antiphon.channels.telegram.settings import NAME
from antiphon.channels.telegram.updates import PRESS, Me, position_of, read_update
from antiphon.domain.inbound import ButtonPress, FromChannel
from antiphon.engine.chats.accounts import AccountLease
from antiphon.engine.chats.reception import Reception

logger = logging.getLogger(__name__)

LONGEST_TOAST = 200


class TelegramIntake:
    """Takes updates in one after the other, polled or posted."""

    def __init__(self, client: TelegramClient, reception: Reception) -> None:
        self._client = client
        self._intake = Intake(reception, channel=NAME)

    async def take(self, update: object, me: Me, lease: AccountLease | None) -> None:
        """Returns and raises like `Intake.take`."""
        pressed: ButtonPress | None = None

        def read() -> FromChannel | None:
            nonlocal pressed
            content = read_update(update, me)
            pressed = content if isinstance(content, ButtonPress) else None
            return content

        received = await self._intake.take(read, lease, name=position_of(update))
        if pressed is not None and received is not None:
            await self._answer(pressed, received.toast)

    async def _answer(self, press: ButtonPress, toast: str | None) -> None:
        """Tells the person who pressed; after some minutes Telegram shows no answer any more."""
        try:
            await self._client.bot.answer_callback_query(
                press.platform_id.removeprefix(PRESS), text=toast and toast[:LONGEST_TOAST]
            )
        except TelegramError as error:
            logger.debug("Press was not answered", extra={"action": "press_unanswered", "error": type(error).__name__})
