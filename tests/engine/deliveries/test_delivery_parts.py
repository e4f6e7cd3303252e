"""Deliveries in parts, places that are gone, and Antiphon's own words to places without a session."""

from datetime import timedelta

import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_form import ChannelForm
from antiphon.domain.classification import Classification, Level
from antiphon.domain.delivery import GONE, Delivery, DeliveryStatus
from antiphon.domain.session import DeliveryContext
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.store.database import Transaction
from antiphon.wire import deliveries as wire
from tests.channels.fake_channel import NAME, Act, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.deliveries.test_deliveries import open_chat, pass_time, quiet, say, the_only, writes
from tests.engine.stage import ManualClock, config, facts, read_log
from tests.story import Story

pytestmark = pytest.mark.anyio

FORM = ChannelForm(longest=64)
LONG = " ".join(f"{letter * 40}." for letter in "abc")
SENT = [f"{letter * 40}." for letter in "abc"]
PLACE = DeliveryContext(channel=NAME, to="stranger")


async def tell(app: App, text: str, place: DeliveryContext = PLACE, *, level: Level = Level.PUBLIC) -> None:
    """Queues a notice."""

    async def queue(tx: Transaction) -> None:
        await enqueue_notice(tx, place, text, name=text, made_of=Classification(level))

    await app.database.run(queue)
    await quiet(app)


@requirement("channels:1")
async def test_a_long_reply_leaves_in_parts_and_is_one_delivery(open_home: OpenHome) -> None:
    channel = FakeChannel(form=FORM)
    async with open_home(parts=Parts(channels=[channel])) as app:
        await open_chat(app)
        await say(app, LONG)
        assert channel.texts == SENT
        assert [part.index for part in channel.parts] == [0, 1, 2]
        sent = await the_only(app)
        assert {taken.id for taken in channel.taken} == {sent.id}
        assert (sent.status, sent.parts, sent.text) == ("sent", ("platform-1", "platform-2", "platform-3"), LONG)
        assert sent.platform_id == "platform-1"
        assert len(facts(await read_log(app, "main"), "delivered")) == 1


@requirement("channels:1")
async def test_a_part_that_fails_is_tried_again_and_those_before_it_are_not(open_home: OpenHome) -> None:
    clock, channel = ManualClock(), FakeChannel(form=FORM)
    async with open_home(parts=Parts(channels=[channel], clock=clock)) as app:
        await open_chat(app)
        channel.will(Act.TAKE, Act.BUSY)
        channel.retry_after = timedelta(seconds=30)
        await say(app, LONG)
        waiting = await the_only(app)
        assert (waiting.status, waiting.parts, channel.texts) == ("queued", ("platform-1",), SENT[:1])
        await tell(app, "meanwhile, elsewhere")
        assert channel.texts == [SENT[0], "meanwhile, elsewhere"]
        await pass_time(app, clock, 30)
        assert channel.texts == [SENT[0], "meanwhile, elsewhere", *SENT[1:]]
        assert (await the_first(app)).status is DeliveryStatus.SENT


async def the_first(app: App) -> Delivery:
    return (await Story(app).deliveries())[0]


@requirement("channels:1")
@pytest.mark.parametrize("sent", [0, 1, 2])
async def test_a_restart_goes_on_after_the_last_part_that_is_stored(open_home: OpenHome, sent: int) -> None:
    first, second = FakeChannel(form=FORM), FakeChannel(form=FORM)
    async with open_home(config(gateway__drain_seconds=0), Parts(channels=[first])) as app:
        await open_chat(app)
        first.will(*[Act.TAKE] * sent, Act.TAKE_AND_HANG)
        await writes(app, "main", f"!say {LONG}")
        await first.until_asked(sent + 1)
    async with open_home(parts=Parts(channels=[second])) as app:
        await second.until_asked(3 - sent)
        await quiet(app)
        assert second.texts == SENT[sent:]  # the part on its way is the only one that is sent twice
        ended = await the_only(app)
        assert (ended.status, len(ended.parts)) == ("sent", 3)
        assert {taken.id for taken in [*first.taken, *second.taken]} == {ended.id}


@requirement("channels:1")
async def test_the_owner_is_told_once_of_a_place_that_is_gone_until_it_works_again(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with open_home(parts=Parts(channels=[channel])) as app:
        await open_chat(app)
        for text, act in [("1", Act.GONE), ("2", Act.GONE), ("3", Act.TAKE), ("4", Act.GONE), ("5", Act.GONE)]:
            channel.will(act)
            await say(app, text)
        assert [found.code for found in await Story(app).deliveries()] == [GONE, GONE, None, GONE, GONE]
        told = [fact["deliveryId"] for fact in facts(await read_log(app, "main"), "error")]
        gone = await Story(app).deliveries()
        assert told == [gone[0].id, gone[3].id]


@requirement("channels:1")
async def test_words_of_no_session_are_sent_listed_and_tried_again(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with open_home(parts=Parts(channels=[channel])) as app:
        await tell(app, "Your code is K7F2M9QX.")
        assert channel.texts == ["Your code is K7F2M9QX."]
        sent = await the_only(app)
        assert (sent.status, sent.session, sent.session_key) == ("sent", None, None)
        shown = wire.delivery(sent)
        assert (shown.session_key, shown.to) == (None, "stranger")
        channel.will(Act.REFUSE)
        await tell(app, "refused")
        dead = (await Story(app).deliveries())[1]
        assert dead.status is DeliveryStatus.DEAD
        await app.services.deliveries.retry(OWNER, dead.id)
        await quiet(app)
        assert channel.texts[-1] == "refused"
        await tell(app, "", DeliveryContext(channel=NAME, to="nobody"))
        await tell(app, "to nowhere", DeliveryContext())
        assert len(await Story(app).deliveries()) == 2


@requirement("flow:7")
async def test_words_of_no_session_are_checked_like_any_other(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with open_home(parts=Parts(channels=[channel])) as app:
        await tell(app, "secret", level=Level.CONFIDENTIAL)
        assert (channel.taken, (await the_only(app)).status) == ([], "suppressed")
