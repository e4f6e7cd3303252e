"""What an adapter to a platform is. Contract: channels 1."""

from typing import Protocol

from antiphon.domain.delivery import Delivery


class Channel(Protocol):
    """One account of a platform, by which texts leave.

    - `name` is the word of the channel in keys and places (`webhook`), `account` which of its accounts this is; None
      where the channel has only one.
    - `send` returns once the platform has taken the text, with the platform's id of the message if it has one.
    - It raises `DeliveryFailed` where the platform has not, or where nobody knows; `is_permanent` if the same text
      would be refused again, `retry_after` if the platform says when to come back.
    - It may be called again with a text that was sent: after a crash, or after an answer that was lost. The delivery's
      `id` is the same then, and goes to the platform wherever that can tell repetitions by it.
    - It is called for one text of a place at a time, and at once for texts of several places.
    - It is cancelled after `timeout_seconds`.
    - It keeps nothing: what is to be sent again is for the outbox to say.
    """

    @property
    def name(self) -> str: ...

    @property
    def account(self) -> str | None: ...

    @property
    def timeout_seconds(self) -> float: ...

    async def send(self, delivery: Delivery) -> str | None: ...

    async def aclose(self) -> None:
        """Gives connections back; nothing is sent afterwards."""
        ...
