"""After an outage: what people wrote meanwhile, in each chat and thread, at most as the settings say."""

from datetime import timedelta
from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.testing.faults import Fault
from tests.channels.slack.fake_slack import BOT, HOME, FakeSlack
from tests.channels.slack.slack_platform import CHANNEL
from tests.channels.slack.workspace import MENTION, Workspace, open_workspace
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock

pytestmark = pytest.mark.anyio

ANN, BEN, OLGA = "U7ANN", "U8BEN", "U1OLGA"


async def begin_outage(workspace: Workspace) -> None:
    fake = workspace.fake
    await workspace.app.deliverer.wait_idle()
    fake.opening = "something_new"
    fake.cut()
    await fake.until(lambda: not fake.connections)


@requirement("channels:1")
async def test_all_chats_and_threads_are_caught_up_in_order(open_home: OpenHome, fake: FakeSlack) -> None:
    async with open_workspace(open_home, fake, access__messages_per_minute=100_000) as workspace:
        await workspace.says(ANN, "one")
        thread = await workspace.mentions(ANN, "plans")
        await begin_outage(workspace)
        for number in range(120):  # more than a page
            fake.write(BEN, f"small talk {number}", channel=CHANNEL)
        fake.write(ANN, "two")
        fake.write(ANN, "three")
        fake.write(ANN, f"{MENTION} more", channel=CHANNEL, thread=thread)
        new = fake.write(BEN, f"{MENTION} mine", channel=CHANNEL)
        fake.write(BEN, "hello?")
        fake.opening = None
        await workspace.sees(f"D{ANN}", "three")
        await workspace.sees(CHANNEL, "more", thread)
        await workspace.sees(CHANNEL, "mine", new)
        await workspace.sees(f"D{BEN}", "hello?")
        assert fake.texts(f"D{ANN}") == ["echo: one", "echo: two", "echo: three"]
        assert len(fake.own(CHANNEL, thread)) == 2


@requirement("channels:1")
async def test_a_restart_catches_up_and_answers_nothing_twice(open_home: OpenHome, fake: FakeSlack) -> None:
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "one")
        thread = await workspace.mentions(ANN, "plans")
        await workspace.app.deliverer.wait_idle()
    fake.write(ANN, "two")
    fake.write(ANN, f"{MENTION} more", channel=CHANNEL, thread=thread)
    async with open_workspace(open_home, fake) as workspace:
        await workspace.sees(f"D{ANN}", "two")
        await workspace.sees(CHANNEL, "more", thread)
        await workspace.app.deliverer.wait_idle()
        assert fake.texts(f"D{ANN}") == ["echo: one", "echo: two"] and len(fake.own(CHANNEL, thread)) == 2


@requirement("channels:1")
async def test_of_old_messages_and_those_beyond_the_most_owners_are_told_once(
    open_home: OpenHome, fake: FakeSlack
) -> None:
    clock = ManualClock()
    fake.now = lambda: clock.now().timestamp()
    settings: Any = {
        "catch_up": {"hours": 1, "messages": 2},
        "session__identity_links": {"owner": [f"slack:{HOME}.{OLGA}"]},
    }
    async with open_workspace(open_home, fake, Parts(clock=clock), **settings) as workspace:
        await workspace.says(OLGA, "one")
        await workspace.says(ANN, "one")
        await workspace.app.deliverer.wait_idle()
    fake.write(ANN, "too old")
    fake.write(BEN, "silence", channel=CHANNEL)
    clock.pass_time(timedelta(hours=2))
    for number in range(4):
        fake.write(ANN, f"missed {number}")
    for _ in range(2):
        async with open_workspace(open_home, fake, Parts(clock=clock), **settings) as workspace:
            await workspace.sees(f"D{ANN}", "missed 3")
            await workspace.sees(f"D{OLGA}", "3 of the messages")
            await workspace.app.deliverer.wait_idle()
            assert fake.texts(f"D{ANN}") == ["echo: one", "echo: missed 2", "echo: missed 3"]
            assert len(fake.texts(f"D{OLGA}")) == 2 and fake.texts(CHANNEL) == []


@requirement("channels:1")
async def test_the_first_start_does_not_answer_what_was_answered_before(open_home: OpenHome, fake: FakeSlack) -> None:
    fake.write(ANN, "to the old gateway")
    ts = fake.next_ts()
    fake.messages[f"D{ANN}"][ts] = {"type": "message", "user": BOT, "bot_id": "B0BOT", "text": "its answer", "ts": ts}
    fake.write(ANN, "to nobody yet")
    async with open_workspace(open_home, fake) as workspace:
        await workspace.sees(f"D{ANN}", "to nobody yet")
        await workspace.app.deliverer.wait_idle()
        assert fake.texts(f"D{ANN}") == ["its answer", "echo: to nobody yet"]


@requirement("channels:1")
async def test_a_chat_that_slack_does_not_show_keeps_nothing_from_the_others(
    open_home: OpenHome, fake: FakeSlack
) -> None:
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "one")
        await workspace.says(BEN, "one")
        await begin_outage(workspace)
        fake.refuse("users.conversations", "missing_scope", needed="im:read")
        fake.refuse("conversations.history", "channel_not_found")
        fake.will("conversations.history", Fault.BUSY)
        fake.retry_after = "0"
        fake.write(BEN, "two")
        fake.opening = None
        await workspace.sees(f"D{BEN}", "two")
        await workspace.says(ANN, "three")


@requirement("channels:1")
async def test_a_message_whose_sender_is_unknown_for_now_waits_for_who_it_is(
    open_home: OpenHome, fake: FakeSlack
) -> None:
    fake.add_user("U9FAY", "Fay", team="T0OTHER")
    async with open_workspace(open_home, fake) as workspace:
        await workspace.says(ANN, "one")
        fake.will("users.info", Fault.DROP)
        fake.write("U9FAY", "who am I?", team="")
        await workspace.sees("DU9FAY", "who am I?")
        rows = await workspace.app.database.read(_read_identities)
        assert {row[0] for row in rows} == {f"{HOME}.{ANN}", "T0OTHER.U9FAY"}


async def _read_identities(query: Any) -> Any:
    return await query.fetch_all("SELECT platform_id FROM identities")
