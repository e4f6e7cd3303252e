"""A run that a reset has ended sends nothing in the name of the conversation that began after it."""

from datetime import timedelta

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import AntiphonError
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import AssistantMessage, ToolCallPart, text_content
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.transcript import OpenCall
from antiphon.engine.access.caller import Caller
from antiphon.engine.exchanges.send import Address, Exchanges
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.story import telling
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


class LateSender:
    """The asker's run is at work while its session is reset, and sends before it learns of that."""

    def __init__(self) -> None:
        self.exchanges: Exchanges | None = None
        self.is_at_work, self.goes_on, self.has_sent = anyio.Event(), anyio.Event(), anyio.Event()
        self.answer: object = None

    async def run(self, context: RunContext) -> RunEnding:
        transcript = await context.read_log()
        if context.run.session_key.endswith(":asker") and not self.has_sent.is_set():
            part = ToolCallPart(call_id="c", name="sessions_send", arguments="{}")
            step = AssistantMessage(message_id=context.ids.new("msg"), content=(part,), saw=transcript.last_seq)
            seq = await context.record_step(step)
            call = OpenCall(message_seq=seq, index=0, part=part, is_begun=False)
            await context.record_call(call, await context.standing())
            self.is_at_work.set()
            with anyio.CancelScope(shield=True), anyio.fail_after(SECONDS):
                await self.goes_on.wait()
                await self._send(context, seq)
        message = AssistantMessage(message_id=context.ids.new("msg"), content=text_content("hi"), saw=context.last_seq)
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply="hi"), message=message)

    async def _send(self, context: RunContext, seq: int) -> None:
        assert self.exchanges is not None
        caller = Caller(
            session=SessionRow(context.run.session),
            agent_id=context.agent.id,
            principal=OWNER,
            call_id=f"{context.run.id}-{seq}-0",
            run=context,
        )
        try:
            address = Address(label="expert", name="expert")
            self.answer = await self.exchanges.send(caller, address, "hello", timedelta(0))
        except AntiphonError as error:
            self.answer = error
        self.has_sent.set()


@requirement("sessions:6", "runs:5")
async def test_a_run_that_was_reset_begins_no_exchange_of_the_new_conversation(open_home: OpenHome) -> None:
    runner = LateSender()
    async with telling(open_home, Parts(runner=runner)) as story:
        runner.exchanges = story.app.services.exchanges
        asker = await story.opens("asker")
        await story.opens("expert")
        asked = await asker.hears("go")
        with anyio.fail_after(SECONDS):
            await runner.is_at_work.wait()
        await story.resets(asker)
        runner.goes_on.set()
        assert (await story.end_of(asked)).code == "reset"
        await story.settles()
        present = (await asker.session()).id
        assert [run.purpose.value for run in await asker.runs() if run.session_id == present] == []
