"""One process at a time serves an account, for as long as it is served."""

from collections import Counter
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any, NoReturn, cast

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.ids import ProcessId
from antiphon.engine.chats import accounts
from antiphon.engine.chats.accounts import AccountLease, Accounts, LeaseLost
from antiphon.store.database import Database
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import Lobby, lobby
from tests.engine.stage import ManualClock
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

NAME = ("letter", "default")


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accounts, "RENEWAL", timedelta(milliseconds=20))


async def both(scene: Lobby) -> tuple[Accounts, Accounts]:
    """The accounts as two processes see them, the first of which lives."""
    names = (await scene.living_process(), ProcessId("two"))
    one, two = (Accounts(scene.app.database, name, scene.app.services.clock) for name in names)
    return one, two


@requirement("channels:1")
@pytest.mark.parametrize("fails", [False, True], ids=["returns", "fails"])
async def test_an_account_is_free_at_once_when_its_serving_ends(open_home: OpenHome, fails: bool) -> None:
    async def serve(lease: AccountLease) -> None:
        if fails:
            raise LookupError

    async with lobby(open_home, Parts(clock=ManualClock())) as scene:
        one, two = await both(scene)
        if fails:
            with pytest.raises(LookupError):
                await one.hold(*NAME, serve)
        else:
            await one.hold(*NAME, serve)
        assert await two.take_lease(*NAME) is not None


@requirement("channels:1")
async def test_a_process_that_was_given_up_serves_no_more_and_waits_for_its_turn(open_home: OpenHome) -> None:
    clock, begun, stopped = ManualClock(), anyio.Event(), anyio.Event()
    fences: list[int] = []

    async def serve(lease: AccountLease) -> None:
        fences.append(lease.fence)
        if len(fences) > 1:
            return
        begun.set()
        try:
            await anyio.sleep_forever()
        finally:
            stopped.set()

    async with lobby(open_home, Parts(clock=clock)) as scene, anyio.create_task_group() as tasks:
        one, two = await both(scene)
        with anyio.fail_after(SECONDS):
            tasks.start_soon(one.run)
            tasks.start_soon(one.hold, *NAME, serve)
            await begun.wait()
            clock.pass_time(2 * accounts.LEASE)
            while (lease := await two.take_lease(*NAME)) is None:  # it may have been renewed just now
                clock.pass_time(2 * accounts.LEASE)
            await stopped.wait()
            await two.release(lease)
            while len(fences) < 2:  # `serve` is called again
                await anyio.sleep(0.01)
            tasks.cancel_scope.cancel()
    assert len(fences) == 2 and fences[1] >= fences[0] + 2, "the other process had it meanwhile"


@requirement("channels:1")
async def test_a_lease_that_is_lost_within_a_unit_ends_nothing(open_home: OpenHome) -> None:
    calls = 0

    async def serve(lease: AccountLease) -> None:
        nonlocal calls
        calls += 1

        async def fail() -> NoReturn:
            raise LeaseLost

        if calls == 1:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(fail)

    async with open_home() as app:
        with anyio.fail_after(SECONDS):
            await app.inside.accounts.hold(*NAME, serve)
    assert calls == 2


class Counting:
    """A store that counts its units, by name."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.units: Counter[str] = Counter()

    async def run(self, unit: Any, *arguments: Any, **named: Any) -> Any:
        self.units[unit.__name__] += 1
        return await self._database.run(unit, *arguments, **named)


NAMES = [("letter", str(number)) for number in range(5)]


@requirement("channels:1")
async def test_a_process_keeps_all_its_accounts_and_asks_for_all_others_in_one_unit(open_home: OpenHome) -> None:
    clock = ManualClock()
    serving: list[tuple[str, AccountLease]] = []

    async with lobby(open_home, Parts(clock=clock)) as scene, anyio.create_task_group() as tasks:
        stores = [Counting(scene.app.database), Counting(scene.app.database)]
        ids = (await scene.living_process(), ProcessId("two"))
        one, two = (Accounts(cast(Database, store), id, clock) for store, id in zip(stores, ids, strict=True))

        async def serves(name: str, lease: AccountLease) -> None:
            serving.append((name, lease))
            await anyio.sleep_forever()

        async def until(is_so: Callable[[], bool]) -> None:
            with anyio.fail_after(SECONDS):
                while not is_so():
                    await anyio.sleep(0.005)

        async def process(accounts: Accounts, name: str, scope: anyio.CancelScope) -> None:
            with scope:
                async with anyio.create_task_group() as inner:
                    inner.start_soon(accounts.run)
                    for each in NAMES:
                        inner.start_soon(accounts.hold, *each, partial(serves, name))

        first, second = anyio.CancelScope(), anyio.CancelScope()
        tasks.start_soon(process, one, "one", first)
        await until(lambda: len(serving) == 5)
        tasks.start_soon(process, two, "two", second)
        await until(lambda: stores[1].units["take"] == 5)
        before = [store.units.copy() for store in stores]
        for _ in range(4):
            clock.pass_time(accounts.LEASE / 2)  # without renewals they would be lost
            count = stores[0].units["keep_up"] + 2
            await until(lambda count=count: stores[0].units["keep_up"] >= count)
        done = [store.units - earlier for store, earlier in zip(stores, before, strict=True)]
        assert [set(units) for units in done] == [{"keep_up"}, {"keep_up"}]
        assert len(serving) == 5, "all were renewed"
        first.cancel()
        await until(lambda: len(serving) == 10)
        assert {name for name, _ in serving[5:]} == {"two"} and stores[1].units["take"] == 5
        second.cancel()
