"""The outbox: at least once, in order, seen by the owner (P7)."""

import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import PUBLIC
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.errors import Conflict, Denied, NotFound
from antiphon.domain.message import text_content
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext
from antiphon.engine.deliveries.deliveries import DeliveryFilter
from antiphon.engine.sessions.inbox import Envelope
from antiphon.store.database import Transaction
from antiphon.store.deliveries import NewDelivery, insert
from tests.channels.fake_channel import NAME, Act, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, config, facts, find_session, open_session, read_log, texts, wait_end
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

WAITS = [5, 10, 20, 40, 80, 160, 320, 600, 600, 600, 600]
"""Seconds after the first failed attempt, the second, … up to the last but one."""


async def open_chat(app: App, name: str = "main", to: str = "room") -> None:
    session = await open_session(app, name)
    await Story(app).session(str(session.key)).speaks_at(to, NAME)


async def quiet(app: App) -> None:
    """Returns when nothing that is due is left to send."""
    with anyio.fail_after(SECONDS):
        await app.deliverer.wait_idle()


async def writes(app: App, name: str, text: str) -> Run:
    """Somebody writes at the place where the session speaks, and waits for the answer."""
    session = await find_session(app, name)
    posted = await app.services.inbox.post(
        OWNER,
        app.services.sessions.target(name),
        text_content(text),
        envelope=Envelope(place=session.delivery),
    )
    return await wait_end(app, posted.run_id)


async def say(app: App, text: str, name: str = "main") -> None:
    """Has the session's agent reply exactly that, and waits until the outbox is quiet."""
    assert (await writes(app, name, f"!say {text}")).reply == text
    await quiet(app)


async def the_only(app: App) -> Delivery:
    (delivery,) = await Story(app).deliveries()
    return delivery


async def pass_time(app: App, clock: ManualClock, seconds: float) -> None:
    clock.pass_time(timedelta(seconds=seconds))
    app.deliverer.wake()
    await quiet(app)


async def queue(app: App, texts: list[tuple[DeliveryContext, str]]) -> None:
    """Queues the texts for their places, of the main session, in one unit."""
    session = await find_session(app, "main")

    async def queue_all(tx: Transaction) -> None:
        for place, text in texts:
            delivery = NewDelivery(
                name=hashlib.sha256(f"{place} {text}".encode()).hexdigest()[:20],
                session=session.row,
                incarnation=session.id,
                run_id=None,
                place=place,
                text=text,
                made_of=PUBLIC,
            )
            await insert(tx, delivery, app.services.clock.now_ms())

    await app.database.run(queue_all, sessions=(session.row,))


def place(to: str, account: str | None = None) -> DeliveryContext:
    return DeliveryContext(channel=NAME, to=to, account_id=account)


@requirement("channels:1")
async def test_a_reply_leaves_by_the_channel_of_its_session_and_the_log_tells(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with open_home(parts=Parts(channels=[channel])) as app:
        await open_chat(app)
        await say(app, "hello")
        sent = await the_only(app)
        assert [(taken.id, taken.text, taken.place.to) for taken in channel.taken] == [(sent.id, "hello", "room")]
        assert (sent.status, sent.attempts, sent.platform_id) == (DeliveryStatus.SENT, 1, "platform-1")
        told = {"deliveryId": sent.id, "channel": NAME, "to": "room", "platformId": "platform-1"}
        assert facts(await read_log(app, "main"), "delivered") == [told]


@requirement("groups:3")
async def test_silence_is_not_sent_and_stands_in_the_log_as_it_was_said(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with open_home(parts=Parts(channels=[channel])) as app:
        await open_chat(app)
        await say(app, "<NO_REPLY>")
        await say(app, "  <EMPTY_RESPONSE><NO_REPLY> ".strip())
        await say(app, "Noted. <NO_REPLY>")
        await say(app, "<no_reply> in small letters is no marker")
        assert channel.texts == ["Noted.", "<no_reply> in small letters is no marker"]
        assert "<NO_REPLY>" in texts(await read_log(app, "main"))


@requirement("channels:1")
async def test_a_dropped_text_is_sent_again_under_its_id_after_growing_waits_and_given_up_in_the_end(
    open_home: OpenHome,
) -> None:
    clock, channel = ManualClock(), FakeChannel()
    async with open_home(parts=Parts(channels=[channel], clock=clock)) as app:
        await open_chat(app)
        channel.will(*[Act.DROP] * 12)
        await say(app, "lost?")
        for attempt, seconds in enumerate(WAITS, start=1):
            waiting = await the_only(app)
            assert (waiting.status, waiting.attempts, waiting.code) == ("queued", attempt, "channel_unreachable")
            await pass_time(app, clock, seconds - 0.001)
            assert len(channel.asked) == attempt
            await pass_time(app, clock, 0.001)
            assert len(channel.asked) == attempt + 1
        dead = await the_only(app)
        assert (dead.status, dead.attempts, dead.code) == ("dead", 12, "channel_unreachable")
        assert {asked.id for asked in channel.asked} == {dead.id}
        (error,) = facts(await read_log(app, "main"), "error")
        assert (error["code"], error["deliveryId"], error["to"]) == ("delivery_dead", dead.id, "room")
        await pass_time(app, clock, 86_400)
        assert len(channel.asked) == 12 and channel.taken == []

        queued = await app.services.deliveries.retry(OWNER, dead.id)
        assert (queued.status, queued.attempts, queued.error) == ("queued", 0, None)
        await quiet(app)
        assert [(taken.id, taken.text) for taken in channel.taken] == [(dead.id, "lost?")]
        assert (await the_only(app)).status is DeliveryStatus.SENT


@requirement("channels:1")
async def test_texts_wait_for_the_process_that_has_the_keys(open_home: OpenHome) -> None:
    class Tied(FakeChannel):
        sends_here = False

    channel = Tied()
    async with open_home(parts=Parts(channels=[channel])) as app:
        await open_chat(app)
        await say(app, "hello")
        waiting = await the_only(app)
        assert (waiting.status, waiting.attempts, channel.asked) == (DeliveryStatus.QUEUED, 0, [])
        channel.sends_here = True
        await quiet(app)
        assert channel.texts == ["hello"]


@requirement("channels:1")
async def test_a_platform_that_acts_and_hangs_gets_the_same_id_again(open_home: OpenHome) -> None:
    clock, channel = ManualClock(), FakeChannel(timeout_seconds=0.05)
    async with open_home(parts=Parts(channels=[channel], clock=clock)) as app:
        await open_chat(app)
        channel.will(Act.TAKE_AND_HANG, Act.TAKE_AND_DROP)
        await say(app, "once or thrice")
        waiting = await the_only(app)
        assert (waiting.status, waiting.code) == ("queued", "channel_timeout")
        await pass_time(app, clock, 5)
        await pass_time(app, clock, 10)
        assert [taken.id for taken in channel.taken] == [waiting.id] * 3
        assert len(facts(await read_log(app, "main"), "delivered")) == 1


@requirement("channels:1")
async def test_a_busy_platform_says_when_to_come_back_and_nothing_is_lost(open_home: OpenHome) -> None:
    clock, channel = ManualClock(), FakeChannel()
    async with open_home(parts=Parts(channels=[channel], clock=clock)) as app:
        await open_chat(app)
        channel.will(*[Act.BUSY] * 20)
        channel.retry_after = timedelta(seconds=30)
        await say(app, "patience")
        for attempt in range(1, 20):
            await pass_time(app, clock, 29.999)
            assert len(channel.asked) == attempt
            await pass_time(app, clock, 0.001)
        channel.retry_after = timedelta(days=3)
        channel.will(Act.BUSY)
        await pass_time(app, clock, 30)
        assert channel.taken == []
        await pass_time(app, clock, 3600)
        assert channel.texts == ["patience"]


@requirement("channels:1")
async def test_texts_for_one_place_keep_their_order_and_another_place_does_not_wait(open_home: OpenHome) -> None:
    clock, channel = ManualClock(), FakeChannel()
    async with open_home(parts=Parts(channels=[channel], clock=clock)) as app:
        await open_chat(app)
        await open_chat(app, "cli:other", to="other")
        channel.will(Act.DROP)
        await say(app, "one")
        for text in ("two", "three", "four"):
            await say(app, text)  # the clock stands still
        await pass_time(app, clock, 1)  # ids of one moment sort by chance, so a later one is needed
        await say(app, "meanwhile", "cli:other")
        assert channel.texts == ["meanwhile"]
        await pass_time(app, clock, 4)
        assert channel.texts == ["meanwhile", "one", "two", "three", "four"]


@requirement("channels:1")
async def test_a_place_whose_first_text_is_dead_goes_on_with_the_next(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with open_home(parts=Parts(channels=[channel])) as app:
        await open_chat(app)
        channel.will(Act.REFUSE)
        await say(app, "refused")
        await say(app, "taken")
        assert channel.texts == ["taken"]
        refused, taken = await Story(app).deliveries()
        assert (refused.status, refused.code, refused.attempts) == ("dead", "channel_refused", 1)
        assert taken.status is DeliveryStatus.SENT


@requirement("channels:1")
async def test_one_text_of_a_place_is_sent_at_a_time_and_a_hanging_account_leaves_room_for_others(
    open_home: OpenHome,
) -> None:
    slow, fast = FakeChannel("slow"), FakeChannel("fast")
    async with open_home(parts=Parts(channels=[slow, fast])) as app:
        await open_session(app, "main")
        slow.hold()
        slow_texts = [(place(f"room-{number % 20}", "slow"), str(number)) for number in range(40)]
        fast_texts = [(place(f"room-{number % 2}", "fast"), str(number)) for number in range(40)]
        await queue(app, slow_texts + fast_texts)
        await fast.until_asked(40)
        assert 0 < len(slow.asked) == slow.most_at_once < 20
        assert not slow.has_overlapped and not fast.has_overlapped
        slow.release()
        await quiet(app)
        assert len(slow.taken) == len(fast.taken) == 40
        for channel in (slow, fast):
            for to in {taken.place.to for taken in channel.taken}:
                numbers = [int(taken.text) for taken in channel.taken if taken.place.to == to]
                assert numbers == sorted(numbers)


@requirement("send_policy:3")
async def test_a_policy_that_changed_since_a_reply_was_queued_holds_when_it_is_claimed(open_home: OpenHome) -> None:
    clock, channel = ManualClock(), FakeChannel()
    async with open_home(parts=Parts(channels=[channel], clock=clock)) as app:
        await open_chat(app)
        target = app.services.sessions.target("main")
        channel.will(Act.DROP)
        await say(app, "not any more")
        await app.services.sessions.patch(OWNER, target, {"send_policy": "deny"})
        await pass_time(app, clock, 5)
        suppressed = await the_only(app)
        assert (suppressed.status, suppressed.code) == ("suppressed", "send_denied")
        (told,) = facts(await read_log(app, "main"), "delivery_suppressed")
        assert (told["deliveryId"], told["channel"], told["to"]) == (suppressed.id, NAME, "room")
        assert channel.taken == []
        await app.services.sessions.patch(OWNER, target, {"send_policy": None})
        await app.services.deliveries.retry(OWNER, suppressed.id)
        await quiet(app)
        assert [(taken.id, taken.text) for taken in channel.taken] == [(suppressed.id, "not any more")]


@requirement("send_policy:3")
async def test_the_rules_are_judged_by_the_channel_that_the_text_goes_to(open_home: OpenHome) -> None:
    channel = FakeChannel()
    rules: dict[str, Any] = {"rules": [{"match": {"channel": NAME, "chat_type": "direct"}, "action": "deny"}]}
    async with open_home(config(session__send_policy=rules), Parts(channels=[channel])) as app:
        await open_session(app, "main")
        await queue(app, [(place("room"), "news")])
        await quiet(app)
        assert ((await the_only(app)).status, channel.taken) == ("suppressed", [])


@requirement("channels:1")
async def test_texts_of_an_account_that_nobody_serves_wait_and_are_not_in_the_way(
    open_home: OpenHome,
) -> None:
    channel, late = FakeChannel(), FakeChannel("late")
    async with open_home(parts=Parts(channels=[channel])) as app:
        await open_session(app, "main")
        await queue(app, [(place("room", "late"), "early"), (place("room"), "news")])
        await quiet(app)
        assert channel.texts == ["news"]
        waiting = (await Story(app).deliveries())[0]
        assert (waiting.status, waiting.text) == ("queued", "early")
    async with open_home(parts=Parts(channels=[late])) as app:
        await quiet(app)
        assert late.texts == ["early"]


@requirement("channels:1")
async def test_a_restart_sends_what_was_being_sent_again_and_keeps_the_order(open_home: OpenHome) -> None:
    first, second = FakeChannel(), FakeChannel()
    async with open_home(config(gateway__drain_seconds=0), Parts(channels=[first])) as app:
        await open_chat(app)
        first.will(Act.TAKE_AND_HANG)
        await writes(app, "main", "!say one")
        await writes(app, "main", "!say two")
        await first.until_asked(1)
        assert (await Story(app).deliveries())[0].status is DeliveryStatus.CLAIMED
        with pytest.raises(Conflict) as refused:
            await app.services.deliveries.retry(OWNER, first.asked[0].id)
        assert refused.value.code == "delivery_busy"
    async with open_home(parts=Parts(channels=[second])) as app:
        await second.until_asked(2)
        await quiet(app)
        assert second.texts == ["one", "two"]
        assert second.taken[0].id == first.taken[0].id
        assert len(facts(await read_log(app, "main"), "delivered")) == 2


@requirement("channels:1")
async def test_what_is_being_sent_may_end_before_the_process_does(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with open_home(config(gateway__drain_seconds=10), Parts(channels=[channel])) as app:
        await open_chat(app)
        channel.will(Act.TAKE_SLOWLY)
        await writes(app, "main", "!say last words")
        await channel.until_asked(1)
    async with open_home() as app:
        assert (await the_only(app)).status is DeliveryStatus.SENT


@requirement("channels:1")
async def test_a_text_of_an_ended_incarnation_is_noted_there(open_home: OpenHome) -> None:
    channel = FakeChannel()
    async with open_home(parts=Parts(channels=[channel])) as app:
        await open_chat(app)
        channel.hold()
        await writes(app, "main", "!say late")
        await channel.until_asked(1)
        before = await find_session(app, "main")
        await app.services.resets.reset(OWNER, app.services.sessions.target("main"))
        channel.release()
        await quiet(app)
        (told,) = [event for event in await read_log(app, "main") if event.type == "delivered"]
        assert told.session_id == before.id


@requirement("channels:1")
async def test_a_deleted_session_sends_nothing_more(open_home: OpenHome) -> None:
    clock, channel = ManualClock(), FakeChannel()
    async with open_home(parts=Parts(channels=[channel], clock=clock)) as app:
        await open_chat(app, "cli:gone")
        channel.will(Act.DROP)
        await say(app, "never", "cli:gone")
        await app.services.sessions.delete(OWNER, app.services.sessions.target("cli:gone"))
        await pass_time(app, clock, 5)
        assert (channel.taken, await Story(app).deliveries()) == ([], [])


@requirement("channels:1")
async def test_the_owner_lists_finds_and_retries_and_nobody_else_does(open_home: OpenHome) -> None:
    channel = FakeChannel()
    stranger = Principal(PrincipalKind.PERSON, "webhook:x")
    async with open_home(parts=Parts(channels=[channel])) as app:
        await open_chat(app)
        channel.will(Act.REFUSE)
        await say(app, "refused")
        await say(app, "taken")
        services = app.services.deliveries
        taken, refused = await services.list(OWNER, DeliveryFilter(), limit=10)
        dead = DeliveryFilter(statuses=frozenset({DeliveryStatus.DEAD}))
        assert [found.id for found in await services.list(OWNER, dead, limit=10)] == [refused.id]
        older = await services.list(OWNER, DeliveryFilter(before=taken.id), limit=10)
        assert [found.id for found in older] == [refused.id]
        with pytest.raises(Conflict) as sent:
            await services.retry(OWNER, taken.id)
        assert sent.value.code == "delivery_sent"
        for act in (services.get(stranger, taken.id), services.retry(stranger, taken.id), services.get(OWNER, "dlv_x")):
            with pytest.raises(NotFound):
                await act
        with pytest.raises(Denied):
            await services.list(stranger, DeliveryFilter(), limit=10)


@requirement("channels:1")
@pytest.mark.parametrize("database_section", ["postgres"], indirect=True)
async def test_two_processes_share_the_work_and_send_each_text_once(
    home: Path, database_section: DatabaseSection
) -> None:
    channels = [FakeChannel(), FakeChannel()]
    shared = config().model_copy(update={"database": database_section})
    async with (
        open_app(home / "a", shared, Parts(channels=[channels[0]])) as app,
        open_app(home / "b", shared, Parts(channels=[channels[1]])) as other,
    ):
        await open_session(app, "main")
        for channel in channels:
            channel.hold()
        for text in ("first", "second"):
            await queue(app, [(place(f"room-{number}"), text) for number in range(30)])
        for channel in channels:
            await channel.until_asked(1)
        for channel in channels:
            channel.release()
        with anyio.fail_after(SECONDS):
            while any(found.status is not DeliveryStatus.SENT for found in await Story(app).deliveries()):
                for each in (app, other):
                    each.deliverer.wake()
                    await each.deliverer.wait_idle()
        asked = [*channels[0].asked, *channels[1].asked]
        assert len({each.id for each in asked}) == len(asked) == 60
        assert len(facts(await read_log(app, "main"), "delivered")) == 60


@requirement("channels:1")
@pytest.mark.parametrize("database_section", ["postgres"], indirect=True)
async def test_the_claims_of_a_process_that_is_given_up_are_taken_over_and_what_it_says_later_counts_no_more(
    home: Path, database_section: DatabaseSection
) -> None:
    lost, heir = FakeChannel(), FakeChannel()
    shared = config(gateway__drain_seconds=0).model_copy(update={"database": database_section})
    async with open_app(home / "a", shared, Parts(channels=[lost])) as app:
        await open_chat(app)
        lost.hold()
        await writes(app, "main", "!say one")
        await lost.until_asked(1)
        claimed = await the_only(app)

        async with open_app(home / "b", shared, Parts(channels=[heir])) as other:
            await quiet(other)
            assert heir.asked == []  # the first one lives

            async def give_up(tx: Transaction) -> None:
                await tx.execute("UPDATE deliveries SET process = 'proc_dead' WHERE id = ?", (claimed.id,))

            await app.database.run(give_up)
            other.deliverer.wake()
            await heir.until_asked(1)
            await quiet(other)
            sent = await the_only(other)
            assert (sent.status, sent.id) == (DeliveryStatus.SENT, claimed.id)
            lost.release()
            await quiet(app)
            assert lost.taken[0].id == heir.taken[0].id == claimed.id
            assert await the_only(other) == sent
            assert len(facts(await read_log(other, "main"), "delivered")) == 1
