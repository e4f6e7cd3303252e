"""The accounts that this process serves: one process polls an account at a time. Contract: channels 1.

A lease has a fence, a number that grows with each takeover. Each unit that takes a message in checks it, so that a
process that was given up stores nothing, whatever its clock says.
"""

import logging
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import NamedTuple

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import ProcessId
from antiphon.domain.position import Position
from antiphon.store import channel_accounts as rows
from antiphon.store import channel_positions
from antiphon.store.claims import Claim
from antiphon.store.database import Database, Transaction
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

LEASE = timedelta(seconds=8)
"""How long a process serves an account after its last sign of life. Others ask for it every two seconds."""
RENEWAL = timedelta(seconds=2)
"""How often a process renews its leases, and asks for the accounts that others serve."""
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


class KeepUp(Struct, frozen=True, kw_only=True):
    """A process renews its leases and asks for accounts."""

    claims: tuple[Claim, ...]
    served_until_ms: int
    requests: tuple[rows.LeaseRequest, ...]


class KeptUp(NamedTuple):
    claims: set[Claim]
    """Those that are still the newest."""
    taken: dict[rows.AccountName, tuple[int, str | None]]
    """The fences and positions of the accounts that this process serves from now on."""


class _Served(NamedTuple):
    lease: AccountLease
    scope: anyio.CancelScope
    """Within which the account is served."""


class _Awaited:
    """An account that another process serves."""

    def __init__(self) -> None:
        self.lease: AccountLease | None = None
        self.is_free = anyio.Event()


class Accounts:
    """Leases of accounts, and what is known about them."""

    def __init__(self, database: Database, process: ProcessId, clock: Clock) -> None:
        self._database = database
        self._process = process
        self._clock = clock
        self._served: dict[rows.AccountName, _Served] = {}
        self._awaited: dict[rows.AccountName, _Awaited] = {}
        self._keeping = Trouble(
            logger, "Renewing leases", action="leases_failed", means="Other processes may take the accounts over."
        )

    async def run(self) -> None:
        """Renews the leases of this process, and asks for the accounts that others serve, until cancelled."""
        while True:
            await anyio.sleep(RENEWAL.total_seconds())
            try:
                await self._keep_up()
            except Exception as error:
                self._keeping.failed(error)
            else:
                self._keeping.worked()

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

        `run` renews the lease meanwhile; it is released afterwards. Once another process has taken the account over,
        `serve` is cancelled, and called again when that one has left.
        """
        has_returned = False
        while not has_returned:
            lease = await self._obtain(rows.AccountName(channel, account))
            try:
                with anyio.CancelScope() as scope:
                    self._served[lease.name] = _Served(lease, scope)
                    await serve(replace(lease, further=tuple(rows.AccountName(*each) for each in further)))
                    has_returned = True
            except* LeaseLost:
                logger.info("Account is served elsewhere", extra={"action": "lease_lost", "channel": channel})
            finally:
                del self._served[lease.name]
                await self._let_go(lease)

    async def _obtain(self, name: rows.AccountName) -> AccountLease:
        """The lease, once no other process serves the account."""
        try:
            lease = await self.take_lease(*name)
        except Unavailable:
            lease = None
        if lease is not None:
            return lease
        awaited = self._awaited[name] = _Awaited()
        try:
            await awaited.is_free.wait()
        except BaseException:
            if awaited.lease is not None:
                await self._let_go(awaited.lease)
            raise
        finally:
            del self._awaited[name]
        assert awaited.lease is not None
        return awaited.lease

    async def _keep_up(self) -> None:
        """One unit for all accounts. The fence keeps this process from storing anything where another one took over."""
        served, served_until = dict(self._served), self._served_until()
        asked = [rows.LeaseRequest(name, self._process, self._clock.now_ms(), served_until) for name in self._awaited]
        if not served and not asked:
            return
        claims = tuple(each.lease.claim for each in served.values())
        command = KeepUp(claims=claims, served_until_ms=served_until, requests=tuple(asked))
        kept = await self._database.run(keep_up, command)
        for name, each in served.items():
            if each.lease.claim not in kept.claims and self._served.get(name) is each:
                each.scope.cancel()
        for name, (fence, position) in kept.taken.items():
            lease, awaited = self._lease_of(name, fence, position), self._awaited.get(name)
            if awaited is None:
                await self._let_go(lease)
            else:
                awaited.lease = lease
                awaited.is_free.set()

    async def _let_go(self, lease: AccountLease) -> None:
        with anyio.move_on_after(RELEASE_SECONDS, shield=True):
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
        return self._lease_of(request.name, *taken)

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

    def _lease_of(self, name: rows.AccountName, fence: int, position: str | None) -> AccountLease:
        return AccountLease(**name._asdict(), process=self._process, fence=fence, position=position)

    def _served_until(self) -> int:
        return self._clock.now_ms() + milliseconds_of(LEASE)


async def note_position(tx: Transaction, name: rows.AccountName, position: Position) -> None:
    """The account, or a chat of it, was read up to that position, never back. The account is locked."""
    chat = channel_positions.WHOLE if position.chat is None else position.chat
    stored = await channel_positions.find(tx, name, chat)
    if stored is None or position.is_after(stored):
        await channel_positions.put(tx, name, chat, position.text)


async def keep_up(tx: Transaction, command: KeepUp) -> KeptUp:
    kept = await rows.extend_all(tx, command.claims, command.served_until_ms)
    if not command.requests:
        return KeptUp(kept, {})
    served = await rows.list_served(tx, command.requests)
    free = [request for request in command.requests if request.name not in served]
    taken = {request.name: await take(tx, request) for request in free}
    return KeptUp(kept, {name: found for name, found in taken.items() if found is not None})


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
