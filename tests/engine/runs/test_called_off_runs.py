"""A message never joins a run that was called off before it came."""

import pytest

from antiphon.building import Parts
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import RunStatus
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import HeldRunner
from tests.story import telling

pytestmark = pytest.mark.anyio


@requirement("runs:4")
async def test_a_message_after_a_cancellation_is_answered(open_home: OpenHome) -> None:
    runner = HeldRunner(is_stubborn=True)
    async with telling(open_home, Parts(runner=runner)) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("work")
        await runner.until_begun(1)
        before = await child.hears("before the cancellation", mode=QueueMode.COLLECT)
        await story.cancels_work_of(boss)
        after = await child.hears("after the cancellation", mode=QueueMode.COLLECT)
        runner.release_all()
        await story.settles()
        assert (await story.end_of(before)).status is RunStatus.CANCELLED
        assert (await story.end_of(after)).status is RunStatus.OK
