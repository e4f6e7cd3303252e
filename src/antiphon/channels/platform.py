"""What `antiphon doctor` says of accounts on a platform, which it asks. Contract: channels 1."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import TypeVar

import anyio
from msgspec.structs import replace

from antiphon.channels.checks import check_people, check_rooms
from antiphon.channels.greetings import GreetingChannel
from antiphon.channels.kind import ChannelKind, Given
from antiphon.clock import Clock, SystemClock
from antiphon.domain.chat_state import NO_CHATS, ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.domain.errors import Invalid

S = TypeVar("S")
T = TypeVar("T")


class PlatformChannel(GreetingChannel):
    """Accounts of a platform that says what is wrong with them."""

    @abstractmethod
    async def look(self, account: str) -> list[CheckResult]:
        """What the platform says of it; nothing is changed there. The first is of the account, the names of others
        are what they are about. Raises `failures`."""

    @abstractmethod
    def trouble_text(self, error: Exception) -> str | None:
        """What one of the `failures` means; None if it is of another kind."""


class PlatformKind(ChannelKind[S, T]):
    """A kind whose platform is asked about its accounts: its `open` gives a `PlatformChannel`."""

    bot = "the bot"
    """What an account is."""
    rooms = "group"
    """What a chat of several people is."""
    remedies: Mapping[str, str] = {}
    """By the trouble."""

    @abstractmethod
    def open(self, settings: T, clock: Clock) -> PlatformChannel: ...

    def check(self, given: Given[S] | None, chats: ChatState, *, is_running: bool) -> Iterator[CheckResult]:
        """Asks the platform about each account. A running gateway is not disturbed: what it found is in `chats`."""
        if given is None:
            return
        try:
            opened = self.open(self.read(given), SystemClock())
        except Invalid as error:
            yield CheckResult(self.name, Grade.BROKEN, error.message, "Until this is fixed, nothing starts.")
            return
        yield from anyio.run(self._look, opened, chats if is_running else NO_CHATS)
        remedy = f"Run `antiphon pair link`, and send `{opened.link_command} CODE yes` to {self.bot} directly."
        yield from check_people(self.name, self.title, chats, remedy=remedy, rooms=self.rooms, bot=self.bot)
        for each in self.further(given.section):
            yield from check_rooms(each.channel, chats, rooms=self.rooms, bot=self.bot)

    async def _look(self, opened: PlatformChannel, chats: ChatState) -> list[CheckResult]:
        try:
            return [result for account in opened.accounts for result in await self._look_at(account, opened, chats)]
        finally:
            await opened.aclose()

    async def _look_at(self, account: str, opened: PlatformChannel, chats: ChatState) -> list[CheckResult]:
        row = self.name if len(opened.accounts) == 1 else f"{self.name} {account}"
        trouble = chats.trouble(self.name, account)
        try:
            found = await opened.look(account)
        except opened.failures as error:
            trouble = opened.trouble_text(error) or f"{self.title} does not serve the account: {type(error).__name__}."
            found = list[CheckResult]()
        if trouble is None:
            return [replace(each, name=f"{row} {each.name}".strip()) for each in found]
        look_there = f"docs/places/{self.name.upper()}.md lists the usual mistakes."
        return [CheckResult(row, Grade.BROKEN, trouble, self.remedies.get(trouble, look_there))]
