"""Replies shown while they are written: drafts, edits, what is held back, and what remains after a crash."""

import inspect
import itertools
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import anyio
import pytest

from antiphon.building import App, Parts
from antiphon.domain.channel_form import ChannelForm, Streaming
from antiphon.domain.classification import NO_COMPARTMENTS, Classification, Level
from antiphon.domain.delivery import DeliveryStatus
from antiphon.domain.ids import RunId
from antiphon.domain.message import AssistantMessage, text_content
from antiphon.domain.person import Identity, PersonId
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.domain.telling import Cause, sentence
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.engine.sessions.inbox import Envelope
from antiphon.policy.written.reading import read_rules
from antiphon.store import people
from antiphon.store.database import Transaction
from tests.channels.fake_channel import NAME, Act, LiveFakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_deliveries import quiet
from tests.engine.stage import OWNER, ManualClock, config, facts, open_session, read_log, wait_end
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

NO_SECRET = {"field": "text", "op": "contains", "value": "secret"}
GROUP = "agent:main:fake:group:room"


class Writer:
    """A runner whose runs write what the test says, when it says so."""

    def __init__(self) -> None:
        self._begun: list[RunContext] = []
        self._changed = anyio.Event()
        self._endings: dict[RunId, tuple[anyio.Event, list[str]]] = {}

    async def run(self, context: RunContext) -> RunEnding:
        transcript = await context.read_log()
        ended, said = self._endings[context.run.id] = (anyio.Event(), [])
        self._begun.append(context)
        self._changed.set()
        await ended.wait()
        if not said:
            return RunEnding(outcome=Outcome(status=RunStatus.ERROR, error="It failed.", code="failed"))
        message = AssistantMessage(
            message_id=context.ids.new("msg"), content=text_content(said[0]), saw=transcript.last_seq
        )
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply=said[0]), message=message)

    async def begins(self, count: int = 1) -> RunContext:
        """The newest run, once so many have begun."""
        with anyio.fail_after(SECONDS):
            while len(self._begun) < count:
                self._changed = anyio.Event()
                await self._changed.wait()
        return self._begun[-1]

    def end(self, context: RunContext, reply: str | None) -> None:
        """Ends the run with that reply; None for a failure."""
        ended, said = self._endings[context.run.id]
        if reply is not None:
            said.append(reply)
        ended.set()


class Scene:
    """One system with a chat, and a platform that shows what is written in it."""

    def __init__(self, app: App, clock: ManualClock, writer: Writer) -> None:
        self.app = app
        self._clock = clock
        self._writer = writer

    async def asked(self, key: str, *, thread: str | None = None, runs: int = 1) -> RunContext:
        """Somebody writes in the session's chat; returns the run that begins."""
        await open_session(self.app, key)
        place = DeliveryContext(channel=NAME, to="room", thread_id=thread)
        await self.app.services.inbox.post(
            OWNER, self.app.services.sessions.target(key), text_content("hello"), envelope=Envelope(place=place)
        )
        context = await self._writer.begins(runs)
        await self.settle()
        return context

    async def settle(self) -> None:
        with anyio.fail_after(SECONDS):
            await self.app.live.wait_idle()

    async def passes(self, seconds: float) -> None:
        self._clock.pass_time(timedelta(seconds=seconds))
        self.app.live.wake()
        await self.settle()

    async def writes(self, context: RunContext, words: str, *, seconds: float) -> None:
        """The words are written, and that much time passes."""
        context.emit(words)
        await self.passes(seconds)

    async def ends(self, context: RunContext, reply: str | None, *, is_sent: bool = True) -> None:
        self._writer.end(context, reply)
        await wait_end(self.app, context.run.id)
        if is_sent:
            await quiet(self.app)


def shown(channel: LiveFakeChannel) -> list[str]:
    return [part.text for part in channel.shown.values()]


@requirement("channels:1")
async def test_a_direct_chat_shows_drafts_and_gets_the_reply_once(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked("main")
        await scene.passes(0.299)
        assert (channel.typed, channel.drafts) == (0, [])
        await scene.passes(0.001)
        assert (channel.typed, channel.drafts) == (1, [])
        await scene.passes(3.999)
        assert channel.typed == 1
        await scene.passes(0.001)
        assert channel.typed == 2
        await scene.writes(context, "Once", seconds=0.299)
        assert channel.drafts == []
        await scene.passes(0.001)
        assert [text for _, text in channel.drafts] == ["Once"]
        await scene.writes(context, " upon", seconds=1.499)
        assert len(channel.drafts) == 1
        await scene.writes(context, " a time", seconds=0.001)
        assert [text for _, text in channel.drafts] == ["Once", "Once upon a time"]
        await scene.passes(19.999)
        assert len(channel.drafts) == 2
        await scene.passes(0.001)
        assert [text for _, text in channel.drafts[1:]] == ["Once upon a time"] * 2
        assert len({id for id, _ in channel.drafts}) == 1 and channel.drafts[0][0] > 0
        assert (channel.typed, channel.shown) == (2, {})
        await scene.ends(context, "Once upon a time.")
        assert shown(channel) == ["Once upon a time."]
        await scene.passes(60)
        assert (len(channel.drafts), len(channel.taken)) == (3, 1)


@requirement("flow:9")
async def test_nothing_more_is_shown_once_rules_look_at_texts(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked("agent:main:fake:direct:room")
        await scene.writes(context, "Once", seconds=10)
        before = list(channel.drafts)
        assert before
        rule = {"id": "a", "hook": "PRE_OUTPUT", "action": "REDACT", "when": [NO_SECRET]}
        app.services.rules.written.replace(read_rules([rule], str), NO_COMPARTMENTS)
        await scene.writes(context, " a secret", seconds=60)
        assert channel.drafts == before
        await scene.ends(context, "Once a secret")
        assert shown(channel) == ["Once a [redacted: a]"]


@requirement("channels:1")
async def test_in_a_group_the_message_that_is_edited_is_the_delivery(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        await scene.writes(context, "Once", seconds=0.3)
        assert (shown(channel), channel.drafts) == (["Once"], [])
        (streaming,) = await Story(app).deliveries()
        assert (streaming.status, streaming.platform_id) == (DeliveryStatus.STREAMING, "platform-1")
        await scene.writes(context, " upon", seconds=5.999)
        assert shown(channel) == ["Once"]
        await scene.passes(0.001)
        assert shown(channel) == ["Once upon"]
        await scene.ends(context, "Once upon a time.")
        assert {id: part.text for id, part in channel.shown.items()} == {"platform-1": "Once upon a time."}
        (sent,) = await Story(app).deliveries()
        assert (sent.id, sent.status, sent.parts) == (streaming.id, "sent", ("platform-1",))
        assert {asked.id for asked in channel.asked} == {sent.id}
        log = await read_log(app, GROUP)
        assert len(facts(log, "delivered")) == 1 and facts(log, "error") == []


@requirement("channels:1")
async def test_words_that_may_have_arrived_are_not_sent_again_and_the_log_tells(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        channel.will(Act.TAKE_AND_DROP)
        await scene.writes(context, "Once", seconds=10)
        (streaming,) = await Story(app).deliveries()
        assert (streaming.status, streaming.platform_id) == (DeliveryStatus.STREAMING, None)
        await scene.writes(context, " upon", seconds=10)
        assert shown(channel) == ["Once"]
        await scene.ends(context, "Once upon a time.")
        assert shown(channel) == ["Once", "Once upon a time."]
        (sent,) = await Story(app).deliveries()
        assert {asked.id for asked in channel.asked} == {sent.id} == {streaming.id}
        assert channel.asked[-1].attempts == 2, "so that a channel that can will look for it"
        (told,) = facts(await read_log(app, GROUP), "error")
        assert (told["code"], told["deliveryId"]) == ("may_be_shown_twice", sent.id)
        context = await scene.asked(GROUP, runs=2)
        channel.will(Act.TAKE_AND_DROP)
        await scene.writes(context, "I will", seconds=10)
        await scene.ends(context, None)
        codes = [fact["code"] for fact in facts(await read_log(app, GROUP), "error")]
        assert codes.count("may_be_shown_twice") == 2


@requirement("channels:1")
async def test_words_that_were_refused_are_sent_again(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        channel.will(Act.BUSY)
        await scene.writes(context, "Once", seconds=10)
        assert (shown(channel), await Story(app).deliveries()) == ([], [])
        await scene.passes(10)
        assert shown(channel) == ["Once"]
        await scene.ends(context, "Once upon a time.")
        assert shown(channel) == ["Once upon a time."]
        assert facts(await read_log(app, GROUP), "error") == []


@requirement("channels:1")
async def test_a_restart_sends_no_words_again_that_may_have_arrived(open_home: OpenHome) -> None:
    clock, channel, first, second = ManualClock(), LiveFakeChannel(), Writer(), Writer()
    async with open_home(config(gateway__drain_seconds=0), Parts(runner=first, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, first)
        context = await scene.asked(GROUP)
        channel.will(Act.TAKE_AND_HANG)
        context.emit("Once")
        clock.pass_time(timedelta(seconds=10))
        app.live.wake()
        await channel.until_asked(1)
    async with open_home(parts=Parts(runner=second, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, second)
        again = await second.begins()
        assert again.run.id == context.run.id
        await scene.settle()
        await scene.writes(again, "Once upon", seconds=10)
        assert shown(channel) == ["Once"]
        await scene.ends(again, "Once upon a time.")
        assert shown(channel) == ["Once", "Once upon a time."]
        (sent,) = await Story(app).deliveries()
        assert {asked.id for asked in channel.asked} == {sent.id}
        (told,) = facts(await read_log(app, GROUP), "error")
        assert (told["code"], told["deliveryId"]) == ("may_be_shown_twice", sent.id)


@requirement("channels:1")
async def test_words_are_shown_in_their_turn_although_their_session_changes_meanwhile(open_home: OpenHome) -> None:
    """A change may touch the rights that were just found: they are found again, in the same turn."""
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        async with anyio.create_task_group() as tasks:

            async def change_on() -> None:
                target = app.services.sessions.target(GROUP)
                for n in itertools.count():
                    await app.services.sessions.patch(OWNER, target, {"label": f"label {n}"})

            tasks.start_soon(change_on)
            context.emit("Once")
            clock.pass_time(timedelta(seconds=10))
            app.live.wake()
            await channel.until_asked(1)
            tasks.cancel_scope.cancel()
        assert shown(channel) == ["Once"]
        await scene.ends(context, "Once.")


@requirement("channels:1")
async def test_all_topics_of_a_group_share_one_pace(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        one = await scene.asked(f"{GROUP}:topic:1", thread="1")
        two = await scene.asked(f"{GROUP}:topic:2", thread="2", runs=2)
        for second in range(60):
            one.emit(f"{second} ")
            two.emit(f"{second} ")
            await scene.passes(1)
            assert len(channel.asked) <= 1 + second // 6
        assert len(channel.asked) == 10
        await scene.ends(one, "Done.")
        await scene.ends(two, "Done too.")
        assert sorted(shown(channel)) == ["Done too.", "Done."]


@requirement("channels:1")
async def test_a_complete_reply_goes_before_changes_that_are_due(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        one = await scene.asked(f"{GROUP}:topic:1", thread="1")
        two = await scene.asked(f"{GROUP}:topic:2", thread="2", runs=2)
        await scene.writes(one, "One", seconds=10)
        two.emit("Two")
        channel.hold()
        await scene.ends(one, "One is done.", is_sent=False)
        await channel.until_asked(2)
        for _ in range(3):
            await scene.passes(10)
        await scene.passes(3)
        assert [asked.text for asked in channel.asked] == ["One", "One is done."]
        channel.release()
        await quiet(app)
        await scene.passes(5.999)
        assert shown(channel) == ["One is done."]
        await scene.passes(0.001)
        assert shown(channel) == ["One is done.", "Two"]
        await scene.ends(two, "Two is done.")
        assert shown(channel) == ["One is done.", "Two is done."]


@requirement("channels:1")
async def test_a_complete_reply_waits_as_long_as_the_platform_says_and_then_goes_first(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    channel.retry_after = timedelta(seconds=30)
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        one = await scene.asked(f"{GROUP}:topic:1", thread="1")
        two = await scene.asked(f"{GROUP}:topic:2", thread="2", runs=2)
        channel.will(Act.BUSY)
        await scene.writes(one, "One", seconds=0.3)
        assert len(channel.asked) == 1
        two.emit("Two")
        await scene.ends(one, "One is done.")
        await scene.passes(29)
        app.deliverer.wake()
        await quiet(app)
        assert len(channel.asked) == 1
        await scene.passes(1)
        assert len(channel.asked) == 1, "the complete reply is due, so nothing is changed"
        channel.will(Act.BUSY)
        app.deliverer.wake()
        await quiet(app)
        await scene.passes(29.999)
        assert [asked.text for asked in channel.asked] == ["One", "One is done."]
        await scene.passes(0.001)
        app.deliverer.wake()
        await quiet(app)
        assert shown(channel) == ["One is done."]
        await scene.passes(6)
        assert shown(channel) == ["One is done.", "Two"]
        await scene.ends(two, "Two is done.")


@requirement("channels:1")
async def test_a_change_that_is_refused_for_a_day_holds_complete_replies_back_for_an_hour(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    channel.retry_after = timedelta(days=1)
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        channel.will(Act.BUSY)
        await scene.writes(context, "Once", seconds=0.3)
        await scene.ends(context, "Once upon a time.")
        clock.pass_time(timedelta(minutes=59))
        app.deliverer.wake()
        await quiet(app)
        assert shown(channel) == []
        clock.pass_time(timedelta(minutes=1))
        app.deliverer.wake()
        await quiet(app)
        assert shown(channel) == ["Once upon a time."]


@requirement("channels:1")
async def test_texts_that_wait_in_one_topic_hold_no_changes_back_in_another(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        two = await scene.asked(f"{GROUP}:topic:2", thread="2")
        channel.will(Act.DROP)
        for number in (1, 2):
            one = await scene.asked(f"{GROUP}:topic:1", thread="1", runs=1 + number)
            await scene.ends(one, f"Reply {number}.")
        assert [asked.text for asked in channel.asked] == ["Reply 1."], "the other waits until this one is tried again"
        await scene.writes(two, "Two", seconds=1)
        assert shown(channel) == ["Two"]
        await scene.ends(two, "Two is done.")


@requirement("channels:1")
@pytest.mark.parametrize("key", ["main", GROUP], ids=["draft", "group"])
async def test_no_reply_is_shown_before_an_earlier_text_that_waits_for_its_next_try(
    open_home: OpenHome, key: str
) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        one = await scene.asked(key)
        channel.will(Act.DROP, Act.DROP)
        await scene.ends(one, "One is done.")
        two = await scene.asked(key, runs=2)
        await scene.writes(two, "Two", seconds=2)
        assert (channel.drafts, shown(channel)) == ([], [])
        await scene.passes(3)
        app.deliverer.wake()
        await quiet(app)
        assert len(channel.asked) == 2, "it is tried again, and waits ten seconds more"
        await scene.writes(two, " goes on", seconds=9)
        assert (channel.drafts, shown(channel)) == ([], [])
        await scene.passes(1)
        app.deliverer.wake()
        await quiet(app)
        await scene.passes(6)
        assert shown(channel)[0] == "One is done."
        assert [text for _, text in channel.drafts] + shown(channel)[1:] == ["Two goes on"]
        await scene.ends(two, "Two is done.")
        assert shown(channel) == ["One is done.", "Two is done."]


@requirement("channels:1")
async def test_a_reply_that_people_see_already_goes_on_although_a_later_text_waits(open_home: OpenHome) -> None:
    form = ChannelForm(streaming=Streaming.EDIT, group_interval_ms=1_000)
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel(form=form)
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        one = await scene.asked(GROUP)
        await scene.writes(one, "One", seconds=1)
        channel.will(Act.DROP)
        two = await scene.asked("agent:main:fake:group:other", runs=2)
        await scene.ends(two, "Two is done.")
        await scene.writes(one, " goes on", seconds=2)
        assert shown(channel) == ["One goes on"]
        await scene.ends(one, "One is done.")


@requirement("channels:1")
async def test_a_reply_goes_on_being_shown_after_the_clock_went_back(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        await scene.writes(context, "One", seconds=1)
        clock.step(-timedelta(hours=2))
        await scene.writes(context, " goes on", seconds=6)
        assert shown(channel) == ["One goes on"]
        await scene.ends(context, "Done.")


@requirement("channels:1")
async def test_a_channel_learns_that_a_text_grows_and_whom_it_answers(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel(form=ChannelForm(streaming=Streaming.EDIT))
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        await app.database.run(link_owner)
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        await scene.writes(context, "One", seconds=10)
        await scene.writes(context, " goes on", seconds=10)
        await scene.ends(context, "One goes on, and ends.")
        assert [(part.text, part.is_growing, part.asker) for part in channel.parts] == [
            ("One", True, "olga-here"),
            ("One goes on", True, "olga-here"),
            ("One goes on, and ends.", False, None),
        ]


async def link_owner(tx: Transaction) -> None:
    """An account of the owner where the chat is, and one elsewhere."""
    for account, id in (("elsewhere", "olga-elsewhere"), ("default", "olga-here")):
        identity = Identity(channel=NAME, account=account, platform_id=id)
        await people.insert_identity(tx, identity, PersonId(OWNER.name), tx.now_ms)


@requirement("groups:3")
async def test_no_part_of_a_marker_is_shown_and_a_silent_stream_leaves_nothing(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        for piece in ("<", "NO", "_REPLY", ">"):
            await scene.writes(context, piece, seconds=10)
        assert channel.asked == []
        await scene.ends(context, "<NO_REPLY>")
        context = await scene.asked(GROUP, runs=2)
        await scene.writes(context, "Well ", seconds=10)
        assert shown(channel) == ["Well"]
        await scene.writes(context, "<EMPTY_RES", seconds=10)
        assert shown(channel) == ["Well"]
        await scene.ends(context, "<EMPTY_RESPONSE>")
        assert (channel.shown, channel.withdrawn) == ({}, ["platform-1"])
        assert await Story(app).deliveries() == []


@requirement("channels:1")
async def test_the_message_of_a_run_that_fails_says_why_and_that_of_a_cancelled_one_is_withdrawn(
    open_home: OpenHome,
) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        await scene.writes(context, "I will", seconds=10)
        await scene.ends(context, None)
        assert (shown(channel), channel.withdrawn) == ([sentence(Cause.FAULT, None)], [])
        context = await scene.asked(GROUP, runs=2)
        await scene.writes(context, "I will", seconds=10)
        assert shown(channel)[1:] == ["I will"]
        await app.services.runs.cancel(OWNER, context.run.id)
        await wait_end(app, context.run.id)
        await quiet(app)
        assert (len(channel.shown), len(channel.withdrawn)) == (1, 1)


@requirement("channels:1")
async def test_after_a_restart_the_same_message_is_completed(open_home: OpenHome) -> None:
    clock, channel, first, second = ManualClock(), LiveFakeChannel(), Writer(), Writer()
    async with open_home(config(gateway__drain_seconds=0), Parts(runner=first, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, first)
        context = await scene.asked(GROUP)
        await scene.writes(context, "Once", seconds=10)
    async with open_home(parts=Parts(runner=second, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, second)
        again = await second.begins()
        assert again.run.id == context.run.id
        await scene.settle()
        await scene.writes(again, "Once upon", seconds=10)
        assert shown(channel) == ["Once upon"]
        await scene.ends(again, "Once upon a time.")
        assert {id: part.text for id, part in channel.shown.items()} == {"platform-1": "Once upon a time."}


@requirement("channels:1")
async def test_a_change_on_its_way_does_not_cover_the_reply(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        channel.hold()
        context.emit("Once")
        clock.pass_time(timedelta(seconds=10))
        app.live.wake()
        await channel.until_asked(1)
        writer.end(context, "Once upon a time.")
        channel.release()
        await wait_end(app, context.run.id)
        await quiet(app)
        assert {id: part.text for id, part in channel.shown.items()} == {"platform-1": "Once upon a time."}


@requirement("flow:7")
async def test_words_that_may_not_go_to_the_place_are_not_shown(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)
        context.surroundings = Classification(Level.CONFIDENTIAL)
        await scene.writes(context, "The secret", seconds=10)
        assert channel.asked == []
        await scene.ends(context, None)
        context = await scene.asked(GROUP, runs=2)
        await scene.writes(context, "Once", seconds=10)
        context.surroundings = Classification(Level.CONFIDENTIAL)
        await scene.writes(context, " there was a secret", seconds=10)
        assert shown(channel) == ["Once"]
        await scene.ends(context, None)
        assert channel.shown == {}


class RisingClock(ManualClock):
    """Tells when somebody asks for the time to send a change, which is after the place was judged."""

    def __init__(self) -> None:
        super().__init__()
        self.on_change: Callable[[], None] | None = None

    def now_ms(self) -> int:
        here = inspect.currentframe()
        caller = None if here is None or here.f_back is None else here.f_back.f_code.co_name
        if self.on_change is not None and caller == "_has_turn":
            then, self.on_change = self.on_change, None
            then()
        return super().now_ms()


@requirement("flow:7")
async def test_words_that_come_while_a_change_waits_for_its_turn_are_judged_too(open_home: OpenHome) -> None:
    clock, writer, channel = RisingClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked(GROUP)

        def rise() -> None:
            context.surroundings = Classification(Level.CONFIDENTIAL)
            context.emit(" there was a secret")

        clock.on_change = rise
        await scene.writes(context, "Once", seconds=10)
        assert clock.on_change is None and channel.asked == []
        await scene.ends(context, None)
        assert channel.shown == {}


@requirement("send_policy:3")
async def test_nothing_is_shown_where_the_reply_may_not_be_sent(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    rules: dict[str, Any] = {"rules": [{"match": {"channel": NAME, "chat_type": "direct"}, "action": "deny"}]}
    settings = config(session__send_policy=rules)
    async with open_home(settings, Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked("main")
        await scene.writes(context, "Once", seconds=10)
        assert (channel.typed, channel.drafts, channel.asked) == (0, [], [])
        await scene.ends(context, "Once")
        assert channel.taken == []


@requirement("channels:1")
async def test_a_busy_chat_is_left_alone_and_a_chat_without_drafts_gets_edits(open_home: OpenHome) -> None:
    clock, writer, channel = ManualClock(), Writer(), LiveFakeChannel()
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked("main")
        channel.will(Act.BUSY, Act.REFUSE)
        channel.retry_after = timedelta(seconds=30)
        await scene.writes(context, "Once", seconds=1)
        await scene.writes(context, " upon", seconds=29.999)
        assert (channel.drafts, channel.asked) == ([], [])
        await scene.passes(0.001)
        await scene.passes(10)
        assert (channel.drafts, shown(channel)) == ([], ["Once upon"])
        await scene.ends(context, "Once upon a time.")
        assert shown(channel) == ["Once upon a time."]


@requirement("channels:1")
async def test_only_as_much_is_shown_as_one_message_holds(open_home: OpenHome) -> None:
    clock, writer = ManualClock(), Writer()
    channel = LiveFakeChannel(form=ChannelForm(longest=64, streaming=Streaming.EDIT))
    async with open_home(parts=Parts(runner=writer, clock=clock, channels=[channel])) as app:
        scene = Scene(app, clock, writer)
        context = await scene.asked("main")
        long = f"{'a' * 40}. {'b' * 40}."
        await scene.writes(context, long, seconds=10)
        assert shown(channel) == ["a" * 40 + "."]
        await scene.ends(context, long)
        assert shown(channel) == ["a" * 40 + ".", "b" * 40 + "."]
