"""The interface of an adapter to a platform. Contract: channels 1."""

from typing import Protocol

from antiphon.domain.delivery import Delivery


class Channel(Protocol):
    """One account of a platform, through which texts leave.

    - `name` is the channel's word in keys and places (`webhook`). `account` names the account; None if the channel has
      only one.
    - `send` returns once the platform has accepted the text, with the platform's id of the message if it has one.
    - `send` raises `DeliveryFailed` if the platform did not accept the text or the outcome is unknown: `is_permanent`
      if the same text would be refused again, `retry_after` if the platform says when to try again.
    - `send` may be called again with a text that was sent: after a crash, or after a lost answer. The delivery's `id`
      is the same then; pass it to the platform if the platform can detect repetitions by it.
    - `send` is called for one text of a place at a time, and concurrently for texts of different places.
    - `send` is cancelled after `timeout_seconds`.
    - The channel keeps no state: the outbox decides what is sent again.
    """

    @property
    def name(self) -> str: ...

    @property
    def account(self) -> str | None: ...

    @property
    def timeout_seconds(self) -> float: ...

    async def send(self, delivery: Delivery) -> str | None: ...

    async def aclose(self) -> None:
        """Closes connections; nothing is sent afterwards."""
        ...
