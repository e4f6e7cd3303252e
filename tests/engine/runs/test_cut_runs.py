"""Runs that were cut off or crashed: their partial text is kept, and their end is as classified as their prompt."""

import pytest

from antiphon.building import Parts
from antiphon.domain.classification import Classification, Level
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.run import MAX_ATTEMPTS, RunStatus
from antiphon.engine.ledger.fence import Claimant
from antiphon.engine.runs.lifecycle import claim
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import HeldRunner
from tests.story import telling

pytestmark = pytest.mark.anyio

SECRET = Classification(Level.CONFIDENTIAL)


@requirement("flow:4")
@pytest.mark.parametrize("is_stubborn", [False, True])
async def test_a_requester_does_not_learn_how_work_on_a_secret_was_cut(open_home: OpenHome, is_stubborn: bool) -> None:
    runner = HeldRunner(is_stubborn=is_stubborn)
    async with telling(open_home, Parts(runner=runner, unwind_seconds=0.05)) as story:
        asker, expert = await story.opens("asker"), await story.opens("expert")
        first = await expert.hears("a secret", route=SECRET)
        await runner.until_begun(1)
        sent = await asker.calls("sessions_send", label="expert", message="hello", timeoutSeconds=0)
        runner.release(first)
        await runner.until_begun(2)
        assert (await expert.session()).taint.level is Level.CONFIDENTIAL
        await story.cancels(sent["runId"])
        ended = await story.end_of(sent["runId"])
        runner.release_all()
        await story.settles()
        assert ended.status is RunStatus.CANCELLED
        assert ended.made_of.level is Level.CONFIDENTIAL
        assert [text for text in await asker.texts() if "cancelled" in text] == []


@requirement("flow:4")
async def test_a_requester_does_not_learn_that_work_on_a_secret_crashed(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with telling(open_home, Parts(runner=runner)) as story:
        app = story.app
        asker, expert = await story.opens("asker"), await story.opens("expert")
        first = await expert.hears("a secret", route=SECRET)
        await runner.until_begun(1)
        sent = await asker.calls("sessions_send", label="expert", message="hello", timeoutSeconds=0)
        runner.release(first)
        await runner.until_begun(2)
        run = await story.run(sent["runId"])
        assert run.process is not None
        claimant = Claimant(process=run.process, time_limits={AgentId("main"): None})
        sessions = (SessionRow(run.session), (await asker.session()).row)
        for _ in range(MAX_ATTEMPTS):  # what the next process does that finds the run unfinished
            await app.database.run(claim, SessionRow(run.session), claimant, sessions=sessions)
        runner.release_all()
        await story.settles()
        ended = await story.run(run.id)
        assert ended.code == "crashed"
        assert [text for text in await asker.texts() if "died" in text] == []
        assert ended.made_of.level is Level.CONFIDENTIAL


@requirement("runs:5")
async def test_a_run_that_is_fenced_off_keeps_its_partial_text(open_home: OpenHome) -> None:
    runner = HeldRunner(is_stubborn=True)
    async with telling(open_home, Parts(runner=runner, unwind_seconds=0.05)) as story:
        work = await story.opens("work")
        asked = await work.hears("go")
        await runner.until_begun(1)
        await story.cancels(asked)
        ended = await story.end_of(asked)
        runner.release_all()
        assert ended.status is RunStatus.CANCELLED
        assert ended.reply == "partial "
