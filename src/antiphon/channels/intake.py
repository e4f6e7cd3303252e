"""Takes the events of an account in, one after the other. Contract: channels 1."""

import logging
from collections.abc import Callable
from typing import TypeVar

import anyio
from msgspec import ValidationError

from antiphon.domain.inbound import ButtonPress, ChatChange, FromChannel, Inbound
from antiphon.engine.chats.accounts import AccountLease, LeaseLost
from antiphon.engine.chats.reception import Reception
from antiphon.engine.chats.take_in import Received

logger = logging.getLogger(__name__)

ATTEMPTS = 3
"""How often an event is tried that fails for another reason than the store; then the next one is taken in."""
PAUSE_SECONDS = 0.5

Read = TypeVar("Read")


class Intake:
    """Hands events to the reception. Fetches no file: nothing slow may stand before the events of others."""

    def __init__(self, reception: Reception, *, channel: str) -> None:
        self._reception = reception
        self._channel = channel

    async def take(
        self, read: Callable[[], FromChannel | None], lease: AccountLease | None, *, name: object = None
    ) -> Received | None:
        """Returns once the event is stored, or needs no storing; then it may be confirmed to the platform.

        `read` translates it; None, or `msgspec.ValidationError`, if it is nothing for Antiphon. `name` stands for it in
        the log. The answer is None if nothing was taken in. Raises `LeaseLost`, and without a lease `Unavailable`.
        """
        content = self.read(read, name=name)
        if content is None:
            return None
        failures = 0
        while True:
            try:
                return await self._receive(content, lease)
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
                self._log("Event failed", "event_failed", name, failed=error, is_skipped=is_over)
                if is_over:
                    return None
                await anyio.sleep(PAUSE_SECONDS)

    def read(self, read: Callable[[], Read], *, name: object = None) -> Read | None:
        """What the event says; None for one that cannot be read: its platform would send it again and again."""
        try:
            return read()
        except ValidationError as error:
            # The message of the error names fields and types, never what was written.
            self._log("Event cannot be read", "event_unread", name, error=str(error))
        except Exception as error:  # a bug of ours must not stop what comes behind it
            self._log("Event cannot be read", "event_failed", name, failed=error)
        return None

    async def _receive(self, content: FromChannel, lease: AccountLease | None) -> Received:
        match content:
            case Inbound():
                return await self._reception.receive(content, lease)
            case ChatChange():
                return await self._reception.change(content, lease)
            case ButtonPress():
                return await self._reception.press(content, lease)

    def _log(self, said: str, action: str, name: object, *, failed: Exception | None = None, **facts: object) -> None:
        """Of an error of ours with its stack."""
        level = logging.WARNING if failed is None else logging.ERROR
        extra = {"action": action, "channel": self._channel, "event": name, **facts}
        logger.log(level, said, exc_info=failed, extra=extra)
