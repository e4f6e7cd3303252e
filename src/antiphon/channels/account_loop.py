"""Serves one account of a channel while this process holds its lease. Contract: channels 1."""

import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, cast

import anyio

from antiphon.channels.files import with_files
from antiphon.channels.intake import Intake
from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.inbound import Inbound, SentFile
from antiphon.engine.chats.accounts import RENEWAL, AccountLease, Accounts
from antiphon.engine.chats.held import HeldMessages
from antiphon.engine.chats.reception import Reception
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)


class Pauses(NamedTuple):
    """After failures, each twice as long as the one before."""

    first: timedelta
    longest: timedelta


PAUSES = Pauses(timedelta(milliseconds=500), timedelta(seconds=30))

FETCH_PAUSE = timedelta(seconds=1)


class PlatformTrouble(NamedTuple):
    """Why the platform does not serve the account now."""

    text: str
    """One or two sentences for `antiphon doctor`, with the remedy."""
    pause: timedelta | None = None
    """How long the platform wishes not to be asked; None if it says nothing."""


class AccountLoop(ABC):
    """Runs in each process that may serve the account; one of them does.

    An adapter says how the account is connected and what its errors mean. The loop holds the lease, posts the messages
    that wait, notes a trouble once when it begins and once when it is over, and pauses after failures.
    """

    title: str
    """What people call the platform."""

    def __init__(
        self,
        reception: Reception,
        accounts: Accounts,
        clock: Clock,
        *,
        name: tuple[str, str],
        further: Sequence[tuple[str, str]] = (),
        pauses: Pauses = PAUSES,
    ) -> None:
        """`name` is the channel and its account; `further` are those of other channels that are served through it."""
        self.channel, self.account = name
        self.reception = reception
        self._further = further
        self.accounts = accounts
        self.clock = clock
        self.intake = Intake(reception, channel=self.channel)
        self._held = HeldMessages(reception, clock)
        self._trouble: str | None = None
        self._is_noted = False
        """Whether it is stored; of an earlier process, a trouble may be that is over."""
        self._serving = Trouble(logger, "Serving the account", action="account_failed", means="Its chats wait.")
        self._pauses = pauses
        self._pause = pauses.first

    @abstractmethod
    async def begin(self, lease: AccountLease) -> None:
        """Learns who the account is, and sets up what the platform has to know; called until it returns."""

    @abstractmethod
    async def listen(self, lease: AccountLease) -> None:
        """Takes in what the platform brings, and calls `works` whenever it answers. Called again after it ends."""

    @abstractmethod
    def trouble_of(self, error: Exception) -> PlatformTrouble | None:
        """What the platform's error means; None for an error of another kind, after which the lease is taken anew."""

    async def open(self) -> None:  # noqa: B027  (most have nothing to do)
        """Makes ready what needs no lease."""

    async def fetch(self, file: SentFile, most: int) -> bytes | None:
        """The file; None if the platform does not give it. Raises `FileTooLarge` beyond `most` bytes.

        After an error that `trouble_of` knows it is called again, as long as a message waits for its files.
        """
        return None

    async def run(self) -> None:
        """Serves until cancelled, whenever no other process does; then others may."""
        while True:
            try:
                await self.open()
                await self.accounts.hold(self.channel, self.account, self._hold, further=self._further)
            except Exception as error:  # a bug of ours must not end the gateway
                self._serving.failed(error, channel=self.channel, account=self.account)
                await anyio.sleep(RENEWAL.total_seconds())

    async def works(self) -> None:
        """The platform answers: an earlier trouble is over."""
        self._serving.worked()
        self._pause = self._pauses.first
        await self._note(None)

    async def wait_after(self, error: Exception) -> None:
        """Notes what is wrong and waits: longer each time, or as long as the platform says. Raises other errors."""
        cause = error
        while isinstance(cause, ExceptionGroup):
            cause = cast("ExceptionGroup[Exception]", cause).exceptions[0]
        trouble = self.trouble_of(cause)
        if trouble is None:
            raise error
        await self._note(trouble.text)
        pause = self._pause if trouble.pause is None else trouble.pause
        self._pause = min(2 * self._pause, self._pauses.longest)
        await anyio.sleep(pause.total_seconds())

    async def store_name(self, lease: AccountLease, *, platform_id: str, name: str) -> None:
        """Stores what the account is on its platform; waits while the store does not work."""
        while True:
            try:
                await self.accounts.note_name(lease, platform_id=platform_id, name=name)
                return
            except Unavailable:
                await anyio.sleep(RENEWAL.total_seconds())

    async def _hold(self, lease: AccountLease) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._held.serve, lease, self._with_files)
            await self._until_it_works(self.begin, lease)
            await self.works()
            while True:
                await self._until_it_works(self.listen, lease)

    async def _until_it_works(self, act: Callable[[AccountLease], Awaitable[None]], lease: AccountLease) -> None:
        while True:
            try:
                return await act(lease)
            except Exception as error:
                await self.wait_after(error)

    async def _with_files(self, inbound: Inbound) -> Inbound:
        return await with_files(inbound, self._fetch, title=self.title)

    async def _fetch(self, file: SentFile, most: int) -> bytes | None:
        while True:
            try:
                return await self.fetch(file, most)
            except Exception as error:
                trouble = self.trouble_of(error)
                if trouble is None:
                    raise
                await anyio.sleep((trouble.pause or FETCH_PAUSE).total_seconds())

    async def _note(self, trouble: str | None) -> None:
        """Logs and stores a trouble once when it begins, and once when it is over."""
        if trouble == self._trouble and self._is_noted:
            return
        facts = {"channel": self.channel, "account": self.account}
        if trouble == self._trouble:
            pass  # it was never in trouble here
        elif trouble is None:
            logger.warning("Account works again", extra={"action": "account_works", **facts})
        else:
            extra = {"action": "account_trouble", "trouble": trouble, **facts}
            logger.warning("Account does not work", extra=extra)
        try:
            await self.accounts.note_trouble(self.channel, self.account, trouble)
        except Unavailable:
            return  # the next failure, or the next success, tries again
        self._trouble, self._is_noted = trouble, True
