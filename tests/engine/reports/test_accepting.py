"""A session accepts a result that is above it: by its own act, as far as it may hold it. Contract: flow 2, 6."""

import pytest

from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.event import EventType
from antiphon.engine.sessions.patches import session_columns
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.runs.test_classified_runs import BOOKS, PARTS, of_type
from tests.story import telling

pytestmark = pytest.mark.anyio


@requirement("flow:6", "flow:2")
async def test_a_session_accepts_what_its_child_found_and_rises(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(BOOKS, "!say the secret")
        await story.settles()
        before = (await boss.session()).taint
        assert before.level is Level.PUBLIC
        run = await boss.answers(to_call("sessions_wait", runIds=[child.run_id], accept=True))
        assert "the secret" in (run.reply or "")
        (raised,) = [event for event in of_type(await boss.log(), EventType.TAINT_RAISED) if event.run_id == run.id]
        (result,) = [event for event in of_type(await boss.log(), EventType.TOOL_RESULT) if event.run_id == run.id]
        assert raised.seq < result.seq and result.classification.level is Level.CONFIDENTIAL
        assert (await boss.session()).taint == result.classification
        assert run.made_of.level is Level.CONFIDENTIAL


@requirement("flow:6")
async def test_a_session_accepts_the_reply_of_one_that_rose(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk, peer = await story.opens("desk"), await story.opens("peer")
        sent = await desk.sends_in_a_run(BOOKS, "!say the secret", sessionKey=peer.key, timeoutSeconds=0)
        await story.settles()
        refused = await desk.calls_in_a_run("sessions_wait", runIds=[sent["runId"]])
        assert refused["runs"][0] == {"runId": sent["runId"], "status": "ok", "withheld": True}
        accepted = await desk.calls_in_a_run("sessions_wait", runIds=[sent["runId"]], accept=True)
        assert accepted["runs"][0]["reply"] == "the secret"
        assert (await desk.session()).taint.level is Level.CONFIDENTIAL


@requirement("flow:6", "flow:2")
@pytest.mark.parametrize("limit", ["clearance", "place"])
async def test_nothing_is_accepted_above_what_a_session_may_hold(open_home: OpenHome, limit: str) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(BOOKS, "!say the secret")
        await story.settles()
        if limit == "clearance":
            await boss.changes(**session_columns({"clearance": Classification(Level.INTERNAL)}))
        else:
            await boss.speaks_at("somewhere")
        answer = await boss.calls_in_a_run("sessions_wait", runIds=[child.run_id], accept=True)
        assert answer["runs"] == [{"runId": child.run_id, "status": "ok", "withheld": True}]
        assert (await boss.session()).taint.level is PUBLIC.level
        assert not any("the secret" in str(event.message) for event in await boss.log())


@requirement("flow:6", "tools:1")
async def test_nothing_is_accepted_from_outside_a_run(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        child = await boss.spawns(BOOKS, "!say the secret")
        await story.settles()
        answer = await boss.calls("sessions_wait", runIds=[child.run_id], accept=True)
        assert (answer["status"], answer["code"]) == ("error", "no_run")
        assert (await boss.session()).taint.level is Level.PUBLIC


@requirement("flow:6", "answers:2")
async def test_nobody_elses_result_is_accepted(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss, other = await story.opens("boss"), await story.opens("other")
        child = await boss.spawns(BOOKS, "!say the secret")
        await story.settles()
        for run_id in (child.run_id, "run_none"):
            answer = await other.calls_in_a_run("sessions_wait", runIds=[run_id], accept=True)
            assert answer["code"] == "not_found"
