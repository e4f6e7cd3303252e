"""A reset ends the queued turn of an exchange, and nothing of the exchange begins in the conversation that ended."""

import pytest

from antiphon.domain.run import RunStatus
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_send, wait_at
from tests.story import telling

pytestmark = pytest.mark.anyio


@requirement("sessions:6")
async def test_a_reset_of_the_target_ends_its_queued_turn_without_an_announcement(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        asker, expert = await story.opens("asker"), await story.opens("expert")
        await expert.speaks_at("experts")
        sending = await asker.hears(
            to_send("!say first\n!announce out loud", label="expert"), wait_at("end"), "!turn go on"
        )
        await story.comes_to("end")
        busy = await expert.hears(wait_at("busy"))
        await story.comes_to("busy")
        story.opens_gate("end")
        await story.end_of(sending)
        # Turn 1 of the asker ends, and turn 2 waits behind the expert's own work.
        runs = await story.sees(
            expert.runs, lambda runs: any(run.status is RunStatus.QUEUED and run.exchange is not None for run in runs)
        )
        turn = next(run for run in runs if run.status is RunStatus.QUEUED)
        ended = await story.resets(expert)
        story.opens_gate("busy")
        await story.end_of(busy)
        await story.settles()
        assert (await story.run(turn.id)).code == "reset"
        after = [run for run in await expert.runs() if run.id not in {each.id for each in runs}]
        assert [sent.text for sent in await story.deliveries()] == []
        assert [(run.purpose.value, run.session_id == ended) for run in after] == []
