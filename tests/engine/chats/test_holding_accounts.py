"""One process at a time serves an account, for as long as it is served."""

from datetime import timedelta
from typing import NoReturn

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.ids import ProcessId
from antiphon.engine.chats import accounts
from antiphon.engine.chats.accounts import AccountLease, Accounts, LeaseLost
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
            with pytest.RaisesGroup(LookupError):
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
            tasks.start_soon(one.hold, *NAME, serve)
            await begun.wait()
            clock.pass_time(2 * accounts.LEASE)
            while (lease := await two.take_lease(*NAME)) is None:  # it may have been renewed just now
                clock.pass_time(2 * accounts.LEASE)
            await stopped.wait()
            await two.release(lease)
        # The group ends once `serve` was called again, and returned.
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
