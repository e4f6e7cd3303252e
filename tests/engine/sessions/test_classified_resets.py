"""What was said before a reset keeps its classification, whatever the session holds since."""

import pytest

from antiphon.domain.classification import Level, join_all
from antiphon.domain.finding import WITHHELD
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.runs.test_classified_runs import BOOKS, PARTS
from tests.story import telling

pytestmark = pytest.mark.anyio


@requirement("sessions:6", "flow:6")
async def test_a_result_from_before_a_reset_stays_withheld(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        child = await desk.spawns_in_a_run(BOOKS)
        await story.settles()
        await story.resets(child)
        assert (await child.session()).taint.level is Level.PUBLIC
        (run,) = [run for run in await story.runs() if run.session == (await child.session()).row]
        answer = await desk.calls_in_a_run("sessions_wait", runIds=[run.id])
        (shown,) = answer["runs"]
        assert shown == {"runId": run.id, "status": "ok", "withheld": True}


@requirement("sessions:6", "flow:6")
async def test_what_a_child_had_found_when_it_was_reset_stays_withheld(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        child = await desk.spawns_in_a_run(BOOKS, to_call("gate", name="door"))
        await story.comes_to("door")
        await story.resets(child)
        story.opens_gate("door")
        await story.settles()
        (record,) = await desk.records()
        assert record.result == WITHHELD
        assert join_all(event.classification for event in await desk.log()).level is Level.PUBLIC


@requirement("sessions:6", "flow:6")
async def test_a_result_from_before_a_reset_is_not_accepted_after_it(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        desk = await story.opens("desk")
        child = await desk.spawns_in_a_run(BOOKS)
        await story.settles()
        await story.resets(desk)
        answer = await desk.calls_in_a_run("sessions_wait", runIds=[child.run_id], accept=True)
        assert answer["runs"] == [{"runId": child.run_id, "status": "ok", "withheld": True}]
        assert (await desk.session()).taint.level is Level.PUBLIC
