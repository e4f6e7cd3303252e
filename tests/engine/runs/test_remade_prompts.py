"""A session that is deleted and made anew begins without the conversation that was deleted."""

from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.domain.message import AssistantMessage, text_content, text_of
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.transcript import Summary
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.story import telling

pytestmark = pytest.mark.anyio


class PromptRunner:
    """Answers each run, and keeps the texts that its prompt had."""

    def __init__(self) -> None:
        self.prompts: list[list[str]] = []

    async def run(self, context: RunContext) -> RunEnding:
        transcript = await context.read_log()
        shown = (entry for entry in context.entries() if not isinstance(entry, Summary))
        self.prompts.append([text_of(entry.message.content) for entry in shown])
        message = AssistantMessage(
            message_id=context.ids.new("msg"), content=text_content("noted"), saw=transcript.last_seq
        )
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply="noted"), message=message)


@requirement("sessions:7")
async def test_a_session_made_anew_does_not_remember_what_was_deleted(open_home: OpenHome) -> None:
    runner: Any = PromptRunner()
    async with telling(open_home, Parts(runner=runner)) as story:
        work = await story.opens("work")
        await work.answers("my old secret")
        await work.answers("go on")
        await story.deletes(work)
        again = await story.opens("work")
        await again.answers("hello")
        assert runner.prompts[1] == ["my old secret", "noted", "go on"]
        assert runner.prompts[2] == ["hello"]
