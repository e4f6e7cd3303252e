"""The interface of an adapter to a platform. Adapters translate and keep nothing. Contract: channels 1."""

from typing import Protocol

from antiphon.domain.channel_form import ChannelForm, DeliveryPart
from antiphon.domain.delivery import Delivery
from antiphon.domain.session import DeliveryContext


class Channel(Protocol):
    """One account of a platform, through which texts leave.

    - `name` is the channel's word in keys and places (`webhook`). `account` names the account; None if the channel has
      only one.
    - `form` says what one message can hold; the deliverer cuts texts into parts accordingly.
    - `send` sends one part, or replaces the message that `part.replaces` names. It returns once the platform has
      accepted the text, with the platform's id of the message if it has one.
    - `send` raises `DeliveryFailed` if the platform did not accept the text or the outcome is unknown: `is_permanent`
      if the same text would be refused again, `retry_after` if the platform says when to try again. Its code is
      `channel_gone` if no text for this place will be accepted: the bot is blocked, or has left. The owner is told of
      that once. It is `channel_thread_gone` if only the thread takes no texts; then the text goes to the chat itself.
    - Replacing a message with the same text succeeds. Replacing a message that is gone, or cannot be changed any
      more, fails for good; then the text is sent as a new message.
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

    @property
    def form(self) -> ChannelForm: ...

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None: ...

    async def aclose(self) -> None:
        """Closes connections; nothing is sent afterwards."""
        ...


class TiedChannel(Channel, Protocol):
    """A channel whose library keeps keys or a connection that only the process has which serves the account."""

    @property
    def sends_here(self) -> bool:
        """Whether this process has them now. If not, texts wait for the one that has: nothing fails meanwhile."""
        ...


class LiveChannel(Channel, Protocol):
    """A channel that shows a reply while it is written: its `form.streaming` is not `none`.

    Each method raises `DeliveryFailed`, like `send`; nothing is lost if it does.
    """

    async def draft(self, place: DeliveryContext, draft_id: int, text: str) -> None:
        """Shows the text so far as a draft; the same `draft_id` replaces the one before."""
        ...

    async def typing(self, place: DeliveryContext) -> None:
        """Shows for some seconds that an answer is being written."""
        ...

    async def withdraw(self, place: DeliveryContext, platform_id: str) -> None:
        """Deletes a message of the bot."""
        ...


class ThreadedChannel(Channel, Protocol):
    """A channel that can begin a thread; its kind has `Ability.OPENS_THREADS`."""

    async def open_thread(self, place: DeliveryContext, message_id: str | None, title: str) -> str:
        """Begins a thread in the chat and returns its id, which `DeliveryContext.thread_id` holds from then on.

        It stands under the message whose `Inbound.platform_id` is given; under one of its own, which says the title, if
        none is given, or if that message is in a thread itself and so can have none. Called again for the same message
        it finds the same thread, where the platform lets it. Titles are not used where threads have none. Raises
        `DeliveryFailed`, like `send`.
        """
        ...


class ReactingChannel(Channel, Protocol):
    """A channel on which the bot can react to messages; its kind has `Ability.REACTS`."""

    async def react(self, place: DeliveryContext, platform_id: str, emoji: str, *, is_shown: bool) -> None:
        """Shows the emoji as the bot's reaction to the message whose `Inbound.platform_id` is given, or takes it away.

        The bot has no other reaction there. It may be called again, and succeeds if nothing is to change, also because
        the message is gone. Raises `DeliveryFailed`, like `send`; nothing is lost if it does.
        """
        ...
