"""What the retention has deleted is in no later prompt, also where a process still has it in memory."""

from datetime import timedelta

import pytest

from antiphon.building import Parts
from antiphon.engine.sessions.upkeep import Upkeep
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.runs.test_remade_prompts import PromptRunner
from tests.engine.stage import ManualClock
from tests.story import telling

pytestmark = pytest.mark.anyio

KEPT = timedelta(days=30)


@requirement("sessions:8")
async def test_a_prompt_does_not_hold_what_the_retention_has_deleted(open_home: OpenHome) -> None:
    runner, clock = PromptRunner(), ManualClock()
    async with telling(open_home, Parts(runner=runner, clock=clock)) as story:
        old = await story.opens("old")
        for text in ("one", "two"):
            await old.answers(text)
        clock.pass_time(KEPT + timedelta(days=1))
        await old.answers("three")
        upkeep = Upkeep(story.app.database, story.app.workspaces, clock, stale_after=None, retention=KEPT)
        assert await upkeep.prune() > 0
        assert await old.texts() == ["three", "noted"]
        await old.answers("four")
        assert runner.prompts[-1] == ["three", "noted", "four"]
