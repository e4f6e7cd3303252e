"""The feed of changes: nothing is missed, also if wakes were. Contract: gateway 3."""

from collections.abc import Mapping, Sequence

import anyio
import pytest

from antiphon.building import App
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import text_content
from antiphon.feed.changes import Change, Changes
from antiphon.feed.follow import LogSlice
from antiphon.feed.local import LocalNotifier
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


class Noting:
    """Notes what it is told, by session."""

    def __init__(self) -> None:
        self.told: dict[SessionRow, list[int]] = {}
        self.came = anyio.Event()

    async def take(self, changes: Sequence[Change]) -> None:
        for change in changes:
            self.told.setdefault(change.session, []).extend(event.seq for event in change.events)
        self.came.set()

    async def look_again(self) -> None:
        return

    async def holds(self, wanted: Mapping[SessionRow, Sequence[int]]) -> None:
        with anyio.fail_after(SECONDS):
            while self.told != wanted:
                self.came = anyio.Event()
                await self.came.wait()


async def append(app: App, name: str) -> None:
    target = app.services.sessions.target(name)
    await app.services.inbox.append(OWNER, target, text_content("x"))


async def row_of(app: App, name: str) -> SessionRow:
    return (await app.services.sessions.open(OWNER, app.services.sessions.target(name))).session.row


@requirement("gateway:3")
async def test_what_happened_while_wakes_were_lost_is_reported_once_they_come_again(open_home: OpenHome) -> None:
    async with open_home() as app, anyio.create_task_group() as tasks:
        history, notifier = app.services.history, LocalNotifier()
        changes = Changes(notifier, history.read_logs, history.read_heads, app.services.clock)
        old, quiet = await row_of(app, "api:old"), await row_of(app, "api:quiet")
        reader = Noting()
        await changes.add(reader)
        tasks.start_soon(changes.run)
        await append(app, "api:old")
        new = await row_of(app, "api:new")
        notifier.tell(None)
        await reader.holds({old: [2], new: [1]})
        await append(app, "api:quiet")
        notifier.tell([quiet])
        await reader.holds({old: [2], new: [1], quiet: [2]})
        tasks.cancel_scope.cancel()


@requirement("gateway:3")
async def test_a_report_that_began_for_other_readers_is_not_told_to_those_who_came_later(open_home: OpenHome) -> None:
    async with open_home() as app, anyio.create_task_group() as tasks:
        history, notifier = app.services.history, LocalNotifier()
        is_reading, may_read = anyio.Event(), anyio.Event()

        async def read_logs(cursors: Mapping[SessionRow, int]) -> Mapping[SessionRow, LogSlice]:
            is_reading.set()
            await may_read.wait()
            return await history.read_logs(cursors)

        changes = Changes(notifier, read_logs, history.read_heads, app.services.clock)
        session = await row_of(app, "api:chat")
        before, later = Noting(), Noting()
        await changes.add(before)
        tasks.start_soon(changes.run)
        notifier.tell([session])
        with anyio.fail_after(SECONDS):
            await is_reading.wait()
        changes.remove(before)
        await changes.add(later)
        await append(app, "api:chat")
        notifier.tell([session])
        may_read.set()
        await later.holds({session: [2]})
        await append(app, "api:chat")
        notifier.tell([session])
        await later.holds({session: [2, 3]})
        tasks.cancel_scope.cancel()
