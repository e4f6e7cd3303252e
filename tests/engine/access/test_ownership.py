"""What a gateway remembers of the home's token, and for how long. Contract: access 2."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, cast

import anyio
import pytest

from antiphon.building import App
from antiphon.clock import RandomIds
from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole
from antiphon.engine.access.ownership import Ownership
from antiphon.feed.local import LocalNotifier
from antiphon.store import tokens
from antiphon.store.database import Database
from antiphon.store.people import NAMES
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

TOKEN = "owner-token-of-this-test"


class SlowDatabase:
    """While it is slow, an answer takes until the test lets it go."""

    def __init__(self, database: Database, *, is_slow: bool = False) -> None:
        self._database = database
        self.is_slow = is_slow
        self.has_read, self.may_answer = anyio.Event(), anyio.Event()

    async def read(self, query: Any, *arguments: Any) -> Any:
        found = await self._database.read(query, *arguments)
        if self.is_slow:
            self.has_read.set()
            await self.may_answer.wait()
        return found

    async def run(self, unit: Any, *arguments: Any, **named: Any) -> Any:
        return await self._database.run(unit, *arguments, **named)


async def rights(app: App, ownership: Ownership, notifier: LocalNotifier) -> None:
    people = app.services.people
    ann = (await people.invite(OWNER, "Ann", PersonRole.OWNER)).person.principal
    await people.change_role(ann, "owner", PersonRole.USER)
    await people.change_role(ann, "owner", PersonRole.OWNER)
    notifier.publish([NAMES])


async def token(app: App, ownership: Ownership, notifier: LocalNotifier) -> None:
    await ownership.replace(OWNER, "another")


@requirement("access:2")
@pytest.mark.parametrize("changes", [rights, token])
async def test_a_read_that_a_change_overlaps_is_repeated(
    open_home: OpenHome, changes: Callable[[App, Ownership, LocalNotifier], Awaitable[None]]
) -> None:
    async with open_home() as app:
        await app.services.ownership.replace(OWNER, TOKEN)
        database, notifier = SlowDatabase(app.database, is_slow=True), LocalNotifier()
        clock = ManualClock()
        ownership = Ownership(
            cast(Database, database), notifier, app.services.rules, app.home, clock=clock, ids=RandomIds(clock)
        )
        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(partial(ownership.holds, TOKEN, first=""))
                await database.has_read.wait()
                await changes(app, ownership, notifier)
                database.may_answer.set()
        is_held = await ownership.holds(TOKEN, first="")
        present = await app.database.read(tokens.find_owner_token)
    assert present is not None and ownership.revision == present.revision
    assert is_held is (changes is rights)
