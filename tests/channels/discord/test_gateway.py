"""The connection as it ends on real networks: resumed, begun anew, closed with each code. No message is lost."""

import json
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from antiphon.channels.discord.settings import (
    INTENTS_REFUSED,
    STARTS_SPENT,
    TOO_MANY_SERVERS,
    UNREACHABLE,
    WRONG_TOKEN,
)
from tests.channels.discord.bots import key_of, open_bot
from tests.channels.discord.fake_discord import ANN, BEN, EPOCH_MS, FAMILY, OLGA, FakeDiscord
from tests.channels.discord.fake_gateway import CUT, MESSAGE_CONTENT, Json
from tests.claims import requirement
from tests.conftest import OpenHome

pytestmark = pytest.mark.anyio


@requirement("channels:1")
async def test_a_connection_that_is_cut_is_resumed(open_home: OpenHome, fake: FakeDiscord) -> None:
    async with open_bot(open_home, fake, access="public", queue_mode="enqueue") as bot:
        await bot.says("hello")
        fake.put(CUT)
        await fake.until(lambda: not fake.lines)
        fake.write("meanwhile")
        await bot.sees("meanwhile", fake.dm_of(ANN["id"]))
        assert (fake.identifies(), fake.resumes()) == (1, 1)


@requirement("channels:1")
@pytest.mark.parametrize("code", [1000, 1006, 4000, 4001, 4002, 4003, 4005, 4007, 4008, 4009])
async def test_after_a_code_that_allows_it_the_bot_connects_again(
    open_home: OpenHome, fake: FakeDiscord, code: int
) -> None:
    async with open_bot(open_home, fake, access="public", queue_mode="enqueue") as bot:
        await bot.says("hello")
        fake.put(CUT if code == 1006 else code)
        await fake.until(lambda: not fake.is_connected())
        fake.write("meanwhile")
        await bot.sees("meanwhile", fake.dm_of(ANN["id"]))
        await bot.says("after")
        await bot.settles()
        assert fake.texts(fake.dm_of(ANN["id"])) == ["echo: hello", "echo: meanwhile", "echo: after"]
        await bot.has_trouble(None)


@requirement("channels:1")
@pytest.mark.parametrize(
    ("code", "trouble"),
    [
        (4004, WRONG_TOKEN),
        (4010, UNREACHABLE),
        (4011, TOO_MANY_SERVERS),
        (4012, UNREACHABLE),
        (4013, INTENTS_REFUSED),
        (4014, INTENTS_REFUSED),
    ],
)
async def test_a_code_that_ends_it_is_a_trouble_with_its_remedy_until_it_is_mended(
    open_home: OpenHome, fake: FakeDiscord, code: int, trouble: str
) -> None:
    fake.closes_new = [code]
    async with open_bot(open_home, fake, waits=False, access="public") as bot:
        await bot.has_trouble(trouble)
        await fake.until(fake.is_connected)
        await bot.says("hello")
        await bot.has_trouble(None)


async def test_a_gateway_that_closes_every_connection_at_once_is_not_asked_without_pause(
    open_home: OpenHome, fake: FakeDiscord
) -> None:
    fake.closes_new = [4000] * 1_000
    async with open_bot(open_home, fake, waits=False, access="public") as bot:
        await bot.has_trouble(UNREACHABLE)
        assert fake.identifies() <= 6, "a bot that begins 1,000 sessions a day loses its token"
        fake.closes_new = []
        await fake.until(fake.is_connected)
        await bot.says("hello")


@requirement("channels:1")
async def test_discord_asks_the_bot_to_connect_again(open_home: OpenHome, fake: FakeDiscord) -> None:
    async with open_bot(open_home, fake, access="public", queue_mode="enqueue") as bot:
        await bot.says("hello")
        fake.put({"op": 7, "d": None})
        await fake.until(lambda: fake.resumes() == 1 and fake.is_connected())
        await bot.says("after")


@requirement("channels:1")
@pytest.mark.parametrize("may_resume", [True, False])
async def test_a_session_that_discord_ends_is_resumed_or_begun_anew(
    open_home: OpenHome, fake: FakeDiscord, *, may_resume: bool
) -> None:
    async with open_bot(open_home, fake, access="public", queue_mode="enqueue") as bot:
        await bot.says("hello")
        if not may_resume:
            fake.end_sessions()
        fake.write("meanwhile")
        fake.put({"op": 9, "d": may_resume})
        await bot.sees("meanwhile", fake.dm_of(ANN["id"]))
        await bot.settles()
        assert fake.texts(fake.dm_of(ANN["id"])) == ["echo: hello", "echo: meanwhile"]
        assert (fake.identifies(), fake.resumes()) == ((1, 1) if may_resume else (2, 0))


@requirement("channels:1")
async def test_what_no_event_told_is_found_in_the_history(open_home: OpenHome, fake: FakeDiscord) -> None:
    """A session that cannot be resumed; more is written than one page of the history holds, in several chats."""
    thread = fake.add_thread("plans")
    groups = {FAMILY: {"owner_trigger": "mention"}}
    async with open_bot(open_home, fake, access="public", groups=groups, queue_mode="enqueue") as bot:
        await bot.says("hello")
        for channel in (FAMILY, thread):
            fake.write(f"<@{fake.me['id']}> hello", channel=channel)
            await bot.sees("hello", channel)
        fake.end_sessions()
        fake.limits["history"] = (2, 0.5)
        for number in range(150):
            fake.write(f"talk {number}", channel=FAMILY, sender=BEN, is_lost=True)
        for channel in (FAMILY, thread):
            fake.write(f"<@{fake.me['id']}> and now", channel=channel, is_lost=True)
        fake.write("still there?", is_lost=True)
        fake.put(4009)
        for channel in (FAMILY, thread):
            await bot.sees("and now", channel)
        await bot.sees("still there?", fake.dm_of(ANN["id"]))
        await bot.settles()
        assert len(fake.texts(FAMILY)) == len(fake.texts(thread)) == 2
        talk = [text for text in await bot.heard(key_of(FAMILY)) if "talk" in text]
        assert talk == [f"talk {number}" for number in range(150)]


@requirement("channels:1")
async def test_what_is_too_old_or_too_much_is_told_once(open_home: OpenHome, fake: FakeDiscord) -> None:
    settings: Json = {"access": "public", "queue_mode": "enqueue", "catch_up": {"hours": 1, "messages": 2}}
    dm = fake.dm_of(ANN["id"])
    long_ago = int((datetime.now(UTC) - timedelta(hours=2)).timestamp() * 1000) - EPOCH_MS << 22
    async with open_bot(open_home, fake, **settings) as bot:
        await bot.link_owner()
        owners = fake.dm_of(OLGA["id"])
        fake.write("hello", id=str(long_ago))
        await bot.sees("hello", dm)
        fake.end_sessions()
        fake.write("too old", id=str(long_ago + 1), is_lost=True)
        for number in range(3):
            fake.write(f"number {number}", is_lost=True)
        fake.put(4009)
        await bot.sees("number 2", dm)
        await bot.settles()
        assert fake.texts(dm) == ["echo: hello", "echo: number 1", "echo: number 2"]
        assert [text for text in fake.texts(owners) if "2 of the messages on discord" in text]
        fake.end_sessions()
        fake.put(4009)
        await fake.until(lambda: fake.identifies() == 3 and fake.is_connected())
        await bot.says("once more")
        assert len([text for text in fake.texts(owners) if "not taken in" in text]) == 1


async def test_channels_that_are_gone_or_closed_meanwhile_hold_nothing_up(
    open_home: OpenHome, fake: FakeDiscord
) -> None:
    gone = fake.add_thread("gone")
    async with open_bot(open_home, fake, access="public", groups={FAMILY: {}}, queue_mode="enqueue") as bot:
        for channel in (gone, FAMILY):
            fake.write(f"<@{fake.me['id']}> hello", channel=channel)
            await bot.sees("hello", channel)
        await bot.says("hello")
        fake.end_sessions()
        fake.write("unseen", channel=FAMILY, is_lost=True)
        del fake.channels[gone]
        fake.refuses[FAMILY] = (403, 50001, "Missing Access")
        fake.write("still there?", is_lost=True)
        fake.put(4009)
        await bot.sees("still there?", fake.dm_of(ANN["id"]))
        await bot.has_trouble(None)


@requirement("channels:1")
async def test_an_event_that_comes_again_is_taken_in_once(open_home: OpenHome, fake: FakeDiscord) -> None:
    async with open_bot(open_home, fake, access="public", queue_mode="enqueue") as bot:
        fake.write("hello", times=3)
        await bot.says("after")
        await bot.settles()
        assert fake.texts(fake.dm_of(ANN["id"])) == ["echo: hello", "echo: after"]


@pytest.mark.parametrize(
    "event",
    [
        {"op": 0, "t": "MESSAGE_CREATE", "s": 90, "d": {"id": "x", "channel_id": [], "author": None}},
        {"op": 0, "t": "MESSAGE_CREATE", "s": 90, "d": None},
        {"op": 0, "t": "GUILD_CREATE", "s": 90, "d": {"id": 5}},
        {"op": 0, "t": "CHANNEL_UPDATE", "s": 90, "d": []},
        {"op": 0, "t": "GUILD_DELETE", "s": 90, "d": {"id": "5"}},
        {"op": 0, "t": "INTERACTION_CREATE", "s": 90, "d": {"id": "5", "type": 99}},
        {"op": 0, "t": "NO_SUCH_EVENT", "s": 90, "d": {"id": 5}},
        {"op": 99, "d": {}},
        {"op": 1, "d": None},
    ],
    ids=str,
)
async def test_events_that_make_no_sense_are_passed_over(
    open_home: OpenHome, fake: FakeDiscord, event: dict[str, object]
) -> None:
    async with open_bot(open_home, fake, access="public") as bot:
        fake.put(event)
        await bot.says("hello")
        assert fake.identifies() == 1


@pytest.mark.parametrize(
    "data", [b"{", b"7", json.dumps({"op": 10, "d": {}}).encode(), b"\xc3(", b"[" * 99_999], ids=len
)
async def test_payloads_that_make_no_sense_end_the_connection_and_nothing_else(
    open_home: OpenHome, fake: FakeDiscord, data: bytes
) -> None:
    async with open_bot(open_home, fake, access="public") as bot:
        await bot.says("hello")
        fake.put(data)
        await fake.until(lambda: fake.identifies() + fake.resumes() >= 2 and fake.is_connected())
        await bot.says("after")


async def test_a_bot_that_has_begun_too_many_sessions_begins_none(open_home: OpenHome, fake: FakeDiscord) -> None:
    fake.starts_left = 0
    async with open_bot(open_home, fake, waits=False, access="public") as bot:
        await bot.has_trouble(STARTS_SPENT)
        assert not fake.received


@requirement("channels:1")
async def test_a_wrong_token_is_told_and_one_that_is_revoked_later(open_home: OpenHome, fake: FakeDiscord) -> None:
    token, fake.token = fake.token, "another"
    async with open_bot(open_home, fake, waits=False, token=token, access="public") as bot:
        await bot.has_trouble(WRONG_TOKEN)
        fake.token = token
        await fake.until(fake.is_connected)
        await bot.says("hello")
        fake.token = "another"
        fake.end_sessions()
        fake.put(4009)
        await bot.has_trouble(WRONG_TOKEN)
        fake.token = token
        await fake.until(fake.is_connected)
        await bot.says("after")


async def test_without_the_intent_the_bot_reads_what_is_meant_for_it(open_home: OpenHome, fake: FakeDiscord) -> None:
    fake.flags = 0
    async with open_bot(open_home, fake, access="public", groups={FAMILY: {}}) as bot:
        (identified,) = [each for each in fake.received if each["op"] == 2]
        assert not identified["d"]["intents"] & MESSAGE_CONTENT
        fake.write("secret talk", channel=FAMILY)
        fake.write(f"<@{fake.me['id']}> hello", channel=FAMILY)
        await bot.sees("hello", FAMILY)
        await bot.says("and here")
        assert "secret" not in fake.texts(FAMILY)[0]


async def test_a_flood_is_taken_in_after_the_last_stored_message(
    open_home: OpenHome, fake: FakeDiscord, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Memory holds so many events; the rest is read from the history."""
    monkeypatch.setattr("antiphon.channels.discord.loop.MOST_WAITING", 20)
    async with open_bot(open_home, fake, access="public", groups={FAMILY: {}}) as bot:
        fake.write(f"<@{fake.me['id']}> hello", channel=FAMILY)
        await bot.sees("hello", FAMILY)
        for number in range(120):
            fake.write(f"talk {number}", channel=FAMILY, sender=BEN)
        await fake.until(lambda: fake.identifies() >= 2 and fake.is_connected())
        with anyio.fail_after(60):
            fake.write(f"<@{fake.me['id']}> and now", channel=FAMILY)
            await bot.sees("and now", FAMILY)
        await bot.settles()
        talk = [text for text in await bot.heard(key_of(FAMILY)) if "talk" in text]
        assert talk == [f"talk {number}" for number in range(120)]
