"""What was said arrives: texts beside tool calls are delivered a step, in order, once. Contract: runs 2."""

from datetime import timedelta
from typing import Any

import anyio
import pytest

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_form import ChannelForm, Streaming
from antiphon.domain.message import AssistantMessage, TextPart, ToolCallPart, text_content
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import Outcome, PlaceGot, Run, RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.engine.sessions.inbox import Envelope
from tests.channels.fake_channel import NAME, FakeChannel, LiveFakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_deliveries import quiet
from tests.engine.deliveries.test_live import Scene, Writer, shown
from tests.engine.stage import ManualClock, config, find_run, read_log, texts, wait_end
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

DIRECT, GROUP = "agent:main:fake:direct:42", "agent:main:fake:group:room"
PLACES = {DIRECT: DeliveryContext(channel=NAME, to="42"), GROUP: DeliveryContext(channel=NAME, to="club")}
TRAIN = "The train leaves at 9:14."
STATUS = {"name": "session_status"}


def wipe() -> str:
    """Deletes everything."""
    return "gone"


async def asks(app: App, key: str, model: str, place: DeliveryContext | None = None) -> Run:
    """Somebody writes in the chat, whose session has that model; the run as it has ended."""
    place, target = place or PLACES[key], app.services.sessions.target(key)
    await app.services.sessions.open(OWNER, target, place=place)
    await app.services.sessions.patch(OWNER, target, {"model": model})
    posted = await app.services.inbox.post(OWNER, target, text_content("hello"), envelope=Envelope(place=place))
    run = await wait_end(app, posted.run_id)
    await quiet(app)
    return await find_run(app, run.id)


@requirement("runs:2", "groups:4")
@pytest.mark.parametrize(
    ("last", "heard"),
    [("", [TRAIN]), ("Noted.", [TRAIN, "Noted."]), (TRAIN, [TRAIN]), ("<NO_REPLY>", [TRAIN])],
    ids=["empty", "other", "same", "marker"],
)
async def test_what_stands_beside_a_call_is_heard_once_and_the_reply_follows(
    open_home: OpenHome, last: str, heard: list[str]
) -> None:
    channel = FakeChannel()
    async with open_home(parts=Parts(channels=[channel])) as app:
        model = Story(app).script([{"text": TRAIN, "calls": [STATUS]}, {"text": last}])
        run = await asks(app, DIRECT, model)
        assert channel.texts == heard
        assert (run.status, run.reply, run.place_got) == (RunStatus.OK, last or TRAIN, PlaceGot.SENT)


@requirement("runs:2")
@pytest.mark.parametrize(("last", "heard"), [("Noted.", ["Noted."]), ("", [TRAIN])], ids=["other", "empty"])
async def test_a_group_hears_the_reply_alone_which_is_the_newest_text(
    open_home: OpenHome, last: str, heard: list[str]
) -> None:
    channel = FakeChannel()
    async with open_home(parts=Parts(channels=[channel])) as app:
        model = Story(app).script([{"text": TRAIN, "calls": [STATUS]}, {"text": last}])
        run = await asks(app, GROUP, model)
        assert (channel.texts, run.reply) == (heard, last or TRAIN)


@requirement("runs:2")
@pytest.mark.parametrize(("interim", "kind"), [("send", "group"), ("drop", "direct")])
async def test_the_channel_says_what_becomes_of_it(open_home: OpenHome, interim: str, kind: str) -> None:
    channel = FakeChannel("door")
    channel.name = "webhook"
    place = DeliveryContext(channel="webhook", to="7", account_id="door")
    section: dict[str, Any] = {"secret": "0123456789abcdef", "interim": interim}
    async with open_home(config(channels__webhook={"door": section}), Parts(channels=[channel])) as app:
        model = Story(app).script([{"text": TRAIN, "calls": [STATUS]}, {"text": "Noted."}])
        await asks(app, f"agent:main:webhook:door:{kind}:7", model, place)
        assert channel.texts == ([TRAIN, "Noted."] if interim == "send" else ["Noted."])


@requirement("runs:2", "approvals:1")
async def test_what_stands_beside_a_call_that_waits_for_approval_is_heard(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with open_home(parts=Parts(channels=[channel], tools=[tool(wipe, effects=["deletes"])])) as app:
        model = Story(app).script([{"text": TRAIN, "calls": [{"name": "wipe"}]}, {"text": "Noted."}])
        target = app.services.sessions.target(DIRECT)
        await app.services.sessions.open(OWNER, target, place=PLACES[DIRECT])
        await app.services.sessions.patch(OWNER, target, {"model": model})
        envelope = Envelope(place=PLACES[DIRECT])
        posted = await app.services.inbox.post(OWNER, target, text_content("hello"), envelope=envelope)
        assert posted.run_id is not None
        with anyio.fail_after(SECONDS):
            while (await find_run(app, posted.run_id)).status is not RunStatus.AWAITING_APPROVAL:
                await anyio.sleep(0.01)
        await quiet(app)
        assert channel.texts == [TRAIN]
        await app.services.runs.cancel(OWNER, posted.run_id)
        await quiet(app)
        cancelled = await find_run(app, posted.run_id)
        assert (channel.texts, cancelled.place_got) == ([TRAIN], PlaceGot.SENT)


@requirement("runs:2", "runs:4")
async def test_a_complete_answer_that_a_steered_message_overtook_is_heard_too(open_home: OpenHome) -> None:
    writer, channel = Writer(), FakeChannel()
    async with open_home(parts=Parts(channels=[channel], runner=writer)) as app:
        scene = Scene(app, ManualClock(), writer)
        context = await scene.asked(GROUP)
        target = app.services.sessions.target(GROUP)
        envelope = Envelope(place=DeliveryContext(channel=NAME, to="room"))
        await app.services.inbox.post(OWNER, target, text_content("and back?"), mode=QueueMode.STEER, envelope=envelope)
        writer.end(context, TRAIN)
        again = await writer.begins(2)
        assert again.run.id == context.run.id
        await scene.ends(again, "At 17:02.")
        assert channel.texts == [TRAIN, "At 17:02."]
        run = await find_run(app, context.run.id)
        assert (run.reply, run.place_got) == ("At 17:02.", PlaceGot.SENT)


class Stepping:
    """A runner that says something beside a call, waits, and ends; begun again, it goes on after its step."""

    def __init__(self) -> None:
        self.has_begun, self.has_stepped, self.goes_on = anyio.Event(), anyio.Event(), anyio.Event()

    async def run(self, context: RunContext) -> RunEnding:
        transcript = await context.read_log()
        if not transcript.steps_of(context.run.id):
            context.emit("The train")
            self.has_begun.set()
            await self.goes_on.wait()
            content = (TextPart(text=TRAIN), ToolCallPart(call_id="c", name="nothing", arguments="{}"))
            id = context.ids.new("msg")
            await context.record_step(AssistantMessage(message_id=id, content=content, saw=transcript.last_seq))
            self.goes_on = anyio.Event()
            self.has_stepped.set()
            context.emit("Not")
            await self.goes_on.wait()
        message = AssistantMessage(
            message_id=context.ids.new("msg"), content=text_content("Noted."), saw=context.last_seq
        )
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply="Noted."), message=message)


@requirement("runs:2", "runs:8", "channels:1")
async def test_a_restart_after_a_step_does_not_say_it_again(open_home: OpenHome) -> None:
    first, second, channel = Stepping(), Stepping(), FakeChannel()
    async with open_home(config(gateway__drain_seconds=0), Parts(channels=[channel], runner=first)) as app:
        target = app.services.sessions.target(DIRECT)
        await app.services.sessions.open(OWNER, target, place=PLACES[DIRECT])
        envelope = Envelope(place=PLACES[DIRECT])
        posted = await app.services.inbox.post(OWNER, target, text_content("hello"), envelope=envelope)
        first.goes_on.set()
        with anyio.fail_after(SECONDS):
            await first.has_stepped.wait()
    async with open_home(parts=Parts(channels=[channel], runner=second)) as app:
        await wait_end(app, posted.run_id)
        await quiet(app)
        assert channel.texts == [TRAIN, "Noted."]
        assert texts(await read_log(app, DIRECT)).count(TRAIN) == 1


@requirement("runs:2", "channels:1")
async def test_a_message_shown_while_it_was_written_becomes_the_text_of_its_step(open_home: OpenHome) -> None:
    clock, runner = ManualClock(), Stepping()
    channel = LiveFakeChannel("door", form=ChannelForm(streaming=Streaming.EDIT))
    channel.name = "webhook"
    place = DeliveryContext(channel="webhook", to="7", account_id="door")
    settings = config(channels__webhook={"door": {"secret": "0123456789abcdef"}})
    async with open_home(settings, Parts(channels=[channel], runner=runner, clock=clock)) as app:
        target = app.services.sessions.target(key := "agent:main:webhook:door:direct:7")
        await app.services.sessions.open(OWNER, target, place=place)
        posted = await app.services.inbox.post(OWNER, target, text_content("hello"), envelope=Envelope(place=place))

        async def passes() -> None:
            clock.pass_time(timedelta(seconds=5))
            app.live.wake()
            with anyio.fail_after(SECONDS):
                await app.live.wait_idle()

        with anyio.fail_after(SECONDS):
            await runner.has_begun.wait()  # time that passes before it would count against its limit
            while shown(channel) != ["The train"]:
                await passes()
        runner.goes_on.set()
        with anyio.fail_after(SECONDS):
            await runner.has_stepped.wait()
        await quiet(app)
        with anyio.fail_after(SECONDS):
            while shown(channel) != [TRAIN, "Not"]:
                await passes()
        runner.goes_on.set()
        await wait_end(app, posted.run_id)
        await quiet(app)
        assert shown(channel) == [TRAIN, "Noted."] and not channel.withdrawn
        assert len(channel.shown) == 2 and key
