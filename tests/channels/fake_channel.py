"""A platform under the test's control: it records what it gets, and fails as it is told to."""

from collections import deque
from datetime import timedelta
from enum import StrEnum

import anyio

from antiphon.domain.channel_form import PLAIN_FORM, ChannelForm, DeliveryPart, Streaming
from antiphon.domain.delivery import GONE, Delivery, DeliveryFailed
from antiphon.domain.session import DeliveryContext
from tests.waiting import SECONDS

NAME = "fake"
SLOW_SECONDS = 0.3


class Act(StrEnum):
    """What the platform does with one request."""

    TAKE = "take"
    TAKE_SLOWLY = "take_slowly"
    """It takes the text after a moment."""
    DROP = "drop"
    """The connection breaks before the text arrives."""
    TAKE_AND_DROP = "take_and_drop"
    """It breaks after the text arrived."""
    TAKE_AND_HANG = "take_and_hang"
    """The text arrives; the answer never comes."""
    BUSY = "busy"
    """HTTP 429, as it were."""
    REFUSE = "refuse"
    """It will never take the text."""
    GONE = "gone"
    """It is blocked, or was removed."""


class FakeChannel:
    """Implements `Channel`. Takes texts at once, unless the test scripts or holds them."""

    def __init__(
        self, account: str | None = None, *, timeout_seconds: float = 30.0, form: ChannelForm = PLAIN_FORM
    ) -> None:
        self.name = NAME
        self.account = account
        self.timeout_seconds = timeout_seconds
        self.form = form
        self.taken: list[Delivery] = []
        """What arrived, repetitions included."""
        self.parts: list[DeliveryPart] = []
        """The parts of that, likewise."""
        self.asked: list[Delivery] = []
        """Every request, in the order in which they began."""
        self.shown: dict[str, DeliveryPart] = {}
        """The messages that people see there, by their ids, the oldest first."""
        self.most_at_once = 0
        self.has_overlapped = False
        """Whether two requests for one place were under way at the same time."""
        self.retry_after: timedelta | None = None
        """What it says when it is busy."""
        self._script: deque[Act] = deque()
        self._held: anyio.Event | None = None
        self._at_once: list[DeliveryContext] = []
        self._changed = anyio.Event()

    def will(self, *acts: Act) -> None:
        """What it does with the next requests, one after the other; then it takes again."""
        self._script.extend(acts)

    def hold(self) -> None:
        """Requests stay unanswered until `release`."""
        self._held = anyio.Event()

    def release(self) -> None:
        assert self._held is not None
        self._held.set()
        self._held = None

    @property
    def texts(self) -> list[str]:
        return [part.text for part in self.parts]

    async def until_asked(self, count: int) -> None:
        with anyio.fail_after(SECONDS):
            while len(self.asked) < count:
                await self._changed.wait()

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        act = self._script.popleft() if self._script else Act.TAKE
        self.asked.append(delivery)
        self._changed.set()
        self._changed = anyio.Event()
        self.has_overlapped |= delivery.place in self._at_once
        self._at_once.append(delivery.place)
        self.most_at_once = max(self.most_at_once, len(self._at_once))
        try:
            if self._held is not None:
                await self._held.wait()
            return await self._act(act, delivery, part)
        finally:
            self._at_once.remove(delivery.place)

    async def _act(self, act: Act, delivery: Delivery, part: DeliveryPart) -> str:
        if act is Act.TAKE_SLOWLY:
            await anyio.sleep(SLOW_SECONDS)
        if act in (Act.TAKE, Act.TAKE_SLOWLY, Act.TAKE_AND_DROP, Act.TAKE_AND_HANG):
            self.taken.append(delivery)
            self.parts.append(part)
            id = part.replaces or f"platform-{len(self.taken)}"
            self.shown[id] = part
            if act in (Act.TAKE, Act.TAKE_SLOWLY):
                return id
        match act:
            case Act.TAKE_AND_HANG:
                await anyio.sleep_forever()
                raise AssertionError
            case Act.BUSY:
                raise DeliveryFailed("Too many requests.", code="channel_busy", retry_after=self.retry_after)
            case Act.REFUSE:
                raise DeliveryFailed("No such chat.", code="channel_refused", is_permanent=True)
            case Act.GONE:
                raise DeliveryFailed("The bot was blocked.", code=GONE, is_permanent=True)
            case _:
                raise DeliveryFailed("The connection broke.", code="channel_unreachable")

    async def aclose(self) -> None:
        return


class LiveFakeChannel(FakeChannel):
    """Implements `LiveChannel`: it also shows drafts and that somebody is typing, and deletes messages."""

    def __init__(self, account: str | None = None, *, form: ChannelForm | None = None) -> None:
        super().__init__(account, form=form or ChannelForm(streaming=Streaming.DRAFT, has_buttons=True))
        self.drafts: list[tuple[int, str]] = []
        """Each draft with its id."""
        self.typed = 0
        self.withdrawn: list[str] = []

    async def draft(self, place: DeliveryContext, draft_id: int, text: str) -> None:
        await self._answer(place)
        self.drafts.append((draft_id, text))

    async def typing(self, place: DeliveryContext) -> None:
        self.typed += 1

    async def withdraw(self, place: DeliveryContext, platform_id: str) -> None:
        self.shown.pop(platform_id, None)
        self.withdrawn.append(platform_id)

    async def _answer(self, place: DeliveryContext) -> None:
        """What `send` does with a request, for those that are no message."""
        act = self._script.popleft() if self._script else Act.TAKE
        match act:
            case Act.BUSY:
                raise DeliveryFailed("Too many requests.", code="channel_busy", retry_after=self.retry_after)
            case Act.REFUSE:
                raise DeliveryFailed("No drafts here.", code="channel_refused", is_permanent=True)
            case Act.GONE:
                raise DeliveryFailed("The bot was blocked.", code=GONE, is_permanent=True)
            case _:
                return
