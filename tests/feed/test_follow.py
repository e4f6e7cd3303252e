"""Many readers of one log: what one of them costs does not grow with the others. Contract: gateway 1."""

import anyio
import pytest

from antiphon.clock import SystemClock
from antiphon.domain.actor import OWNER
from antiphon.gateway.sse import message_view
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


class CountingClock(SystemClock):
    """Counts how often it is asked for the time: a reader asks once each time that it is woken."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return super().monotonic()


@requirement("gateway:1")
async def test_a_crowd_that_subscribes_is_not_woken_for_each_newcomer(open_home: OpenHome) -> None:
    crowd = 200
    async with open_home() as app, anyio.create_task_group() as tasks:
        services = app.services
        opened = await services.sessions.open(OWNER, services.sessions.target("api:crowd"))
        session = opened.session
        clock = services.hub.clock = CountingClock()

        async def follow(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            view = message_view(include_tools=False)
            async with services.hub.follow(session.row, session.last_seq, view, on_stall=lambda: None) as reader:
                task_status.started()
                await reader.next()

        with anyio.fail_after(SECONDS):
            for _ in range(crowd):
                await tasks.start(follow)
                await services.history.read_logs({session.row: 0})  # a hop: what was marked was read meanwhile
        assert clock.asked < 10 * crowd
        tasks.cancel_scope.cancel()
