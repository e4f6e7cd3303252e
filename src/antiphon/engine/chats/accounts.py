"""The accounts that this process serves: one process polls an account at a time. Contract: channels 1.

A lease has a fence, a number that grows with each takeover. Each unit that takes a message in checks it, so that a
process that was given up stores nothing, whatever its clock says.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import ProcessId
from antiphon.domain.position import Position
from antiphon.store import channel_accounts as rows
from antiphon.store import channel_positions
from antiphon.store.database import Database, Transaction

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=8)
"""How long a process serves an account after its last sign of life. Others ask for it every two seconds."""
RENEWAL = timedelta(seconds=2)
"""How often the lease is renewed, and how often other processes ask for it."""
RELEASE_SECONDS = 5.0


class AccountLease(Struct, frozen=True, kw_only=True):
    """The right of this process to serve an account."""

    channel: str
    account: str
    process: ProcessId
    fence: int
    position: str | None
    """How far the account was read; None before the first message, and where positions count in chats."""
    further: tuple[rows.AccountName, ...] = ()
    """Accounts of other channels that are served through this one."""

    @property
    def name(self) -> rows.AccountName:
        return rows.AccountName(self.channel, self.account)

    @property
    def names(self) -> tuple[rows.AccountName, ...]:
        """All accounts that are served under it."""
        return self.name, *self.further

    @property
    def claim(self) -> tuple[str, str, int]:
        return self.channel, self.account, self.fence


class LeaseLost(Exception):
    """Another process serves the account now. Nothing of the unit was stored."""


class Accounts:
    """Leases of accounts, and what is known about them."""

    def __init__(self, database: Database, process: ProcessId, clock: Clock) -> None:
        self._database = database
        self._process = process
        self._clock = clock

    async def hold(
        self,
        channel: str,
        account: str,
        serve: Callable[[AccountLease], Awaitable[None]],
        *,
        further: Sequence[tuple[str, str]] = (),
    ) -> None:
        """Calls `serve` once no other process serves the account; returns when it returns, and raises what it raises.

        `further` are accounts of other channels, as channel and account, that are served through it.

        The lease is renewed meanwhile, and released afterwards. Once another process has taken the account over,
        `serve` is cancelled, and called again when that one has left.
        """
        has_returned = False
        while not has_returned:
            try:
                lease = await self.take_lease(channel, account)
            except Unavailable:
                lease = None
            if lease is None:
                await anyio.sleep(RENEWAL.total_seconds())
                continue
            try:
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(self._renew, lease, tasks.cancel_scope)
                    await serve(replace(lease, further=tuple(rows.AccountName(*each) for each in further)))
                    has_returned = True
                    tasks.cancel_scope.cancel()
            except* LeaseLost:
                logger.info("Account is served elsewhere", extra={"action": "lease_lost", "channel": channel})
            finally:
                with anyio.move_on_after(RELEASE_SECONDS, shield=True):
                    await self._let_go(lease)

    async def _renew(self, lease: AccountLease, scope: anyio.CancelScope) -> None:
        """Until the lease is lost; the fence keeps this process from storing anything if another one took over."""
        while True:
            await anyio.sleep(RENEWAL.total_seconds())
            try:
                if not await self.renew(lease):
                    scope.cancel()
                    return
            except Unavailable:
                continue

    async def _let_go(self, lease: AccountLease) -> None:
        try:
            await self.release(lease)
        except Exception:  # it runs out by itself
            logger.debug("Lease was not released", extra={"action": "lease_kept", "channel": lease.channel})

    async def take_lease(self, channel: str, account: str) -> AccountLease | None:
        """The lease, if no other process serves the account; ask again after `RENEWAL`. Raises `Unavailable`."""
        request = rows.LeaseRequest(
            rows.AccountName(channel, account), self._process, self._clock.now_ms(), self._served_until()
        )
        taken = await self._database.run(take, request)
        if taken is None:
            return None
        fence, position = taken
        return AccountLease(channel=channel, account=account, process=self._process, fence=fence, position=position)

    async def renew(self, lease: AccountLease) -> bool:
        """Extends the lease; False if another process has taken the account over. Raises `Unavailable`."""
        return await self._database.run(rows.extend, lease.claim, self._served_until())

    async def release(self, lease: AccountLease) -> None:
        """Lets another process serve the account at once. May be called twice."""
        await self._database.run(rows.release, lease.claim)

    async def note_name(self, lease: AccountLease, *, platform_id: str, name: str) -> None:
        """Stores what the account is on its platform, such as the id and the name of a bot."""
        await self._database.run(rows.set_name, lease.claim, platform_id, name)

    async def note_trouble(self, channel: str, account: str, trouble: str | None) -> None:
        """Stores why the account is not served, for `doctor` and the page; None if it is served."""
        await self._database.run(rows.set_trouble, rows.AccountName(channel, account), trouble)

    async def list(self) -> list[rows.AccountRow]:
        """All accounts that were ever served, with their troubles."""
        return await self._database.read(rows.list_all)

    async def positions(self, lease: AccountLease) -> dict[str, str]:
        """How far each chat was read, by chat: the chats from which something was taken in."""
        return await self._database.read(channel_positions.list_chats, lease.name)

    async def advance(self, lease: AccountLease, position: Position) -> None:
        """Stores how far the account was read where nothing was to be taken in.

        Raises `LeaseLost`, and `Unavailable`.
        """
        if not await self._database.run(_advance, lease, position):
            raise LeaseLost(f"Another process serves {lease}.")

    def _served_until(self) -> int:
        return self._clock.now_ms() + milliseconds_of(LEASE)


async def note_position(tx: Transaction, name: rows.AccountName, position: Position) -> None:
    """The account, or a chat of it, was read up to that position, never back. The account is locked."""
    chat = channel_positions.WHOLE if position.chat is None else position.chat
    stored = await channel_positions.find(tx, name, chat)
    if stored is None or position.is_after(stored):
        await channel_positions.put(tx, name, chat, position.text)


async def take(tx: Transaction, request: rows.LeaseRequest) -> tuple[int, str | None] | None:
    """The fence and the account's position, if it is free."""
    fence = await rows.take(tx, request)
    return None if fence is None else (fence, await channel_positions.find(tx, request.name))


async def _advance(tx: Transaction, lease: AccountLease, position: Position) -> bool:
    if not await rows.keep(tx, lease.claim):
        return False
    await note_position(tx, lease.name, position)
    return True


def milliseconds_of(length: timedelta) -> int:
    return length // timedelta(milliseconds=1)
