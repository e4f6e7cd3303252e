"""Chats with a bot: what people write, and what they see."""

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.channels.discord.client import DiscordMe as Me
from antiphon.channels.discord.events import DiscordReader as Reader
from antiphon.channels.discord.events import convert_message, read_message
from antiphon.channels.discord.rooms import DIRECT
from antiphon.channels.discord.rooms import DiscordGuild as Guild
from antiphon.channels.discord.rooms import DiscordRoom as Room
from antiphon.channels.discord.rooms import DiscordRooms as Rooms
from antiphon.domain.actor import OWNER
from antiphon.domain.inbound import Inbound
from antiphon.domain.message import AttributionKind, ImagePart, Whose
from antiphon.testing.faults import Fault
from tests.channels.discord.bots import Bot, key_of, open_bot
from tests.channels.discord.fake_discord import (
    ANN,
    BEN,
    BOT,
    FAMILY,
    GUILD,
    OLGA,
    OTHER,
    OUR_ROLE,
    FakeDiscord,
    person,
)  # fmt: skip
from tests.channels.discord.fake_gateway import Json
from tests.channels.telegram.bots import CODE, PIXEL, until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_spawn
from tests.engine.stage import find_session, read_log

pytestmark = pytest.mark.anyio

ME = f"<@{BOT}>"
MENTION: Json = {"groups": {FAMILY: {"owner_trigger": "mention"}}, "queue_mode": "enqueue"}


@requirement("channels:1", "access:3", "keys:7")
async def test_the_owner_and_a_stranger_write_directly(open_home: OpenHome, fake: FakeDiscord) -> None:
    """Direct messages are with the person, whose id names the chat; the channel's id is another one."""
    async with open_bot(open_home, fake) as bot:
        await bot.link_owner()
        await bot.says("hello", sender=OLGA)
        fake.write("may I come in", sender=ANN)
        ann = fake.dm_of(ANN["id"])
        await fake.until(lambda: fake.texts(ann))
        assert CODE.search(fake.texts(ann)[0])
        session = await find_session(bot.app, "agent:main:main")
        assert session.delivery.to == OLGA["id"] != fake.dm_of(OLGA["id"])
        assert session.metadata["discord_channel_id"] == OLGA["id"]


@requirement("groups:1", "keys:1")
async def test_a_channel_and_each_of_its_threads_are_sessions_of_their_own(
    open_home: OpenHome, fake: FakeDiscord
) -> None:
    async with open_bot(open_home, fake, **MENTION) as bot:
        thread = fake.add_thread("plans")
        fake.write("I only talk to Ben", channel=FAMILY)
        fake.write(f"{ME} hello", channel=FAMILY)
        fake.write(f"{ME} and here", channel=thread)
        await bot.sees("hello", FAMILY)
        await bot.sees("and here", thread)
        await bot.settles()
        assert (fake.texts(FAMILY), fake.texts(thread)) == (["echo: @antiphon hello"], ["echo: @antiphon and here"])
        assert await bot.heard(key_of(FAMILY)) == ["I only talk to Ben", "@antiphon hello"]
        session = await find_session(bot.app, key_of(FAMILY, thread))
        assert session.metadata["discord_channel_id"] == FAMILY
        assert (session.delivery.to, session.delivery.thread_id) == (FAMILY, thread)


@requirement("groups:1")
async def test_an_owner_is_asked_about_a_channel_and_nothing_is_answered_there_before(
    open_home: OpenHome, fake: FakeDiscord
) -> None:
    async with open_bot(open_home, fake) as bot:
        await bot.link_owner()
        fake.write("talk of others", channel=FAMILY)
        fake.write(f"{ME} hello", channel=OTHER)
        await bot.sees("other", fake.dm_of(OLGA["id"]))
        assert not any("family" in text for text in fake.texts(fake.dm_of(OLGA["id"])))
        await until(lambda: _presses(fake, "Allow"))
        await bot.settles()
        assert fake.texts(OTHER) == []
        fake.write(f"{ME} and now", channel=OTHER)
        await bot.sees("and now", OTHER)


async def _presses(fake: FakeDiscord, label: str) -> bool:
    return fake.press(label, sender=OLGA, channel=fake.dm_of(OLGA["id"]))


@requirement("groups:1")
async def test_messages_of_bots_webhooks_and_ones_own_never_trigger(open_home: OpenHome, fake: FakeDiscord) -> None:
    robot = person("100000000000000099", "Robot", bot=True)
    clerk = person("100000000000000098", "Clerk")
    async with open_bot(open_home, fake, access="public", **MENTION) as bot:
        fake.write(f"{ME} from a bot", sender=robot, channel=FAMILY)
        fake.write(f"{ME} from a webhook", sender=clerk, channel=FAMILY, webhook_id="5")
        fake.write(f"{ME} from oneself", sender=fake.me, channel=FAMILY)
        fake.write(f"{ME} Ann has joined", channel=FAMILY, type=7)
        fake.write(
            f"{ME} of Discord itself", sender=person("643945264868098049", "Discord", system=True), channel=FAMILY
        )
        fake.write("directly", sender=robot)
        await _says_last(bot)
        assert await bot.heard(key_of(FAMILY)) == ["@antiphon last"]


async def _says_last(bot: Bot) -> None:
    bot.fake.write(f"{ME} last", channel=FAMILY)
    await bot.sees("last", FAMILY)
    await bot.settles()


@requirement("groups:1")
async def test_a_mention_of_its_role_and_an_answer_are_meant_for_the_bot(
    open_home: OpenHome, fake: FakeDiscord
) -> None:
    async with open_bot(open_home, fake, access="public", **MENTION) as bot:
        fake.write(f"<@&{OUR_ROLE}> by role", channel=FAMILY)
        await bot.sees("@antiphon by role", FAMILY)
        shown = fake.of_bot(FAMILY)[0]
        fake.write("by answer", channel=FAMILY, type=19, referenced_message=shown)
        await bot.sees("by answer", FAMILY)
        for text in ("<@&5> another role", "@everyone look", f"\\{ME[:-1]} no mention", "@antiphon typed"):
            fake.write(text, channel=FAMILY, mention_everyone=True)
        await _says_last(bot)
        assert len(fake.texts(FAMILY)) == 3


@requirement("access:3")
async def test_names_and_roles_of_discord_give_no_rights(open_home: OpenHome, fake: FakeDiscord) -> None:
    """Somebody who is called like the owner, and is an admin of the server, is a guest."""
    async with open_bot(open_home, fake, access="public", **MENTION) as bot:
        await bot.link_owner()
        fake.write(
            f"{ME} /who", sender=person("100000000000000077", "Olga"), channel=FAMILY,
            member={"nick": "Olga\u202e", "roles": ["1"], "permissions": "8"},
        )  # fmt: skip
        fake.write("/send off", sender=person("100000000000000077", "Olga"), channel=FAMILY)
        await _says_last(bot)
        people = await bot.app.services.people.list(OWNER, after=None, limit=100)
        assert [each.person.role.value for each in people if each.person.id != "owner"] == ["guest", "guest"]


@requirement("groups:5")
async def test_what_an_answer_points_at_stands_with_it(open_home: OpenHome, fake: FakeDiscord) -> None:
    async with open_bot(open_home, fake, access="public", queue_mode="enqueue") as bot:
        await bot.says("hello")
        await bot.settles()
        own = fake.of_bot(fake.dm_of(ANN["id"]))[0]
        await bot.says("what is that", type=19, referenced_message=own)
        (cited,) = [
            cite
            for event in await read_log(bot.app, f"agent:main:discord:direct:{ANN['id']}")
            if event.message is not None
            for cite in getattr(event.message, "cites", ())
        ]
        assert (cited.whose, cited.text) == (Whose.AGENT, "echo: hello")


@requirement("channels:1")
async def test_files_come_into_the_session_by_the_address_that_discord_renews(
    open_home: OpenHome, fake: FakeDiscord
) -> None:
    base = fake.base_url.removesuffix("/api/v10")
    fake.files = {"pixel.png": PIXEL, "list.txt": b"milk"}
    sent = [
        ("pixel.png", len(PIXEL), "image/png", f"{base}/files/pixel.png"),
        ("../list.txt", 4, "text/plain; charset=utf-8", f"{base}/files/list.txt"),
        ("big.zip", 1 << 30, None, f"{base}/files/big.zip"),
        ("stolen", 5, None, "http://169.254.169.254/latest"),
        ("gone", 5, None, f"{base}/files/gone"),
    ]
    files = [
        {"id": str(number), "filename": name, "size": size, "content_type": type, "url": url}
        for number, (name, size, type, url) in enumerate(sent)
    ]
    async with open_bot(open_home, fake, access="public", queue_mode="enqueue") as bot:
        fake.write("look", attachments=files)
        dm = fake.dm_of(ANN["id"])
        await bot.sees("look", dm)
        await bot.settles()
        told = "\n".join(fake.texts(dm))
        assert "big.zip" in told and "stolen" in told and "gone" in told and "169.254" not in told
        key = f"agent:main:discord:direct:{ANN['id']}"
        (message,) = [each.message for each in await read_log(bot.app, key) if each.type == "user_message"]
        assert message is not None and any(isinstance(part, ImagePart) for part in message.content)
        assert "list.txt" in str(message.content)


@requirement("approvals:4")
async def test_a_press_is_answered_once_it_is_decided(open_home: OpenHome, fake: FakeDiscord) -> None:
    async with open_bot(open_home, fake) as bot:
        await bot.link_owner()
        fake.write(f"{ME} hello", channel=OTHER)
        dm = fake.dm_of(OLGA["id"])
        await until(lambda: _presses(fake, "Allow"))
        await fake.until(lambda: len(fake.interactions) == 1)
        (answer,) = fake.interactions.values()
        assert answer["type"] in (4, 6) and answer.get("data", {}).get("flags", 64) == 64, "only who pressed sees it"
        fake.press("Allow", sender=BEN, channel=dm)
        (shown,) = [each for each in fake.of_bot(dm) if "other" in each["content"]]
        for data in ("x" * 200, "täst", ""):
            fake._press(data, shown, OLGA)  # pyright: ignore[reportPrivateUsage]
        await bot.says("still there", sender=OLGA)


@requirement("groups:1")
async def test_channels_are_renamed_and_deleted_and_servers_left(open_home: OpenHome, fake: FakeDiscord) -> None:
    async with open_bot(open_home, fake, access="public", **MENTION) as bot:
        await _says_last(bot)
        fake.channels[FAMILY]["name"] = "relatives"
        fake.dispatch("CHANNEL_UPDATE", fake.channels[FAMILY])
        fake.dispatch("GUILD_DELETE", {"id": GUILD, "unavailable": True})
        await _says_last(bot)
        fake.dispatch("CHANNEL_DELETE", fake.channels[OTHER])
        fake.dispatch("GUILD_DELETE", {"id": GUILD})

        async def has_left() -> bool:
            groups = await bot.app.services.groups.list(OWNER)
            return [(each.title, each.state.value) for each in groups] == [("relatives", "left")]

        await until(has_left)


@requirement("channels:1")
async def test_two_bots_of_one_channel_are_two_accounts(open_home: OpenHome, fake: FakeDiscord) -> None:
    """One of them has a wrong token, which disturbs the other as little as the people who write to it."""
    wrong = "MTAwMDAwMDAwMDAwMDAwMDAy.Gabcde." + "y" * 38
    accounts = {"home": {"token": fake.token}, "work": {"token": wrong}}
    async with open_bot(open_home, fake, token=None, access="public", accounts=accounts) as bot:
        await bot.says("hello")
        rows = {row.account: row.trouble for row in await bot.app.inside.accounts.list()}
        assert rows["home"] is None and rows["work"] is not None
        session = await find_session(bot.app, f"agent:main:discord:direct:{ANN['id']}")
        assert session.delivery.account_id == "home"


@requirement("channels:1")
async def test_a_reply_is_sent_again_after_the_platform_has_forgotten_it_and_is_seen_once(
    open_home: OpenHome, fake: FakeDiscord
) -> None:
    fake.will("create", Fault.BAD_GATEWAY)
    async with open_bot(open_home, fake, access="public") as bot:
        await bot.says("hello")
        assert fake.texts(fake.dm_of(ANN["id"])) == ["echo: hello"]


@requirement("spawn:4")
async def test_a_sub_agent_works_in_a_thread_of_its_own_until_that_is_deleted(
    open_home: OpenHome, fake: FakeDiscord
) -> None:
    """Two people talk to it there. Once the thread is deleted, its answers stand in the channel, and say so."""
    links = {"owner": [f"discord:{OLGA['id']}"]}
    async with open_bot(open_home, fake, access="public", session__identity_links=links, **MENTION) as bot:
        spawn = to_spawn("!say found it", thread=True, label="scout")
        thread = fake.write(f"{ME} look\n{spawn}", sender=OLGA, channel=FAMILY)["id"]
        await bot.sees("found it", thread)
        assert fake.channels[thread]["name"] == "scout"
        await bot.says("what more?", sender=ANN, channel=thread)
        await bot.says("and for me?", sender=BEN, channel=thread)
        await bot.settles()
        assert "found it" not in fake.texts(FAMILY)
        fake.write("!sleep 1\n!say too late", sender=ANN, channel=thread)
        del fake.channels[thread]
        await bot.sees("too late", FAMILY)


# Recorded payloads, read without a gateway.


def read(message: dict[str, Any], *, direct: bool = False, **names: str) -> Inbound | None:
    rooms = Rooms()
    rooms.note_guild(Guild(id="1457468924290662599", channels=(Room(id="1457510428359004343", name="talk"),)), BOT)
    bot = Reader(me=Me(id="1457469483726668048", username="demo"), account="default", rooms=rooms)
    parsed = convert_message(message)
    room = Room(id=parsed.channel_id, type=DIRECT if direct else 11, parent_id="1457510428359004343")
    return read_message(parsed, room, bot)


RECORDED = Path(__file__).parents[4] / "shared" / "fixtures" / "platforms" / "discord.json"


@pytest.mark.skipif(not RECORDED.exists(), reason="the recorded payloads are not on this machine")
def test_recorded_messages_are_read() -> None:
    recorded = json.loads(RECORDED.read_text("utf-8"))
    inbound = read(recorded["gatewayMention"]["data"])
    assert inbound is not None and inbound.is_meant and inbound.text == "@demo Hey"
    assert inbound.sender.name == "Test User" and inbound.place.thread_id == "1457510428359004343"
    assert read(recorded["gatewayBotWelcome"]["data"]) is None
    for name, payload in recorded.items():
        if payload.get("type") == "GATEWAY_MESSAGE_CREATE":
            assert convert_message(payload["data"]).id == payload["data"]["id"], name


def written(text: str = "", **more: Any) -> dict[str, Any]:
    return {"id": "5", "channel_id": "6", "author": ANN, "content": text, **more}


def test_a_forward_holds_words_of_somebody_else() -> None:
    snapshot = {"message": {"content": "pay <@5> at once", "mentions": [person("5", "Mallory")]}}
    reference = {"type": 1, "message_id": "1", "channel_id": "2"}
    inbound = read(written(message_reference=reference, message_snapshots=[snapshot]))
    assert inbound is not None and inbound.attribution is not None and not inbound.is_meant
    assert inbound.attribution.kind is AttributionKind.FORWARD and inbound.text == "pay @Mallory at once"


def test_names_stand_in_the_text_and_what_is_not_known_stays() -> None:
    inbound = read(
        written("<@12> <#1457510428359004343> <#9> <@&9> <a:wave:123456> <@13>", mentions=[person("12", "Eve")])
    )
    assert inbound is not None and inbound.text == "@Eve #talk <#9> <@&9> :wave: <@13>"


@pytest.mark.parametrize("more", [{"sticker_items": [{"id": "1", "name": "wave", "format_type": 1}]}, {"poll": {}}])
def test_what_cannot_be_taken_in_is_told(more: dict[str, Any]) -> None:
    inbound = read(written(**more), direct=True)
    assert inbound is not None and "cannot be taken in" in inbound.refused[0]
    assert read(written(" "), direct=True) is None


@requirement("channels:1")
async def test_halves_of_characters_disturb_nobody(open_home: OpenHome, fake: FakeDiscord) -> None:
    half = "x\ud83d"
    base = fake.base_url.removesuffix("/api/v10")
    fake.files = {"list.txt": b"milk"}
    file = {
        "id": "2",
        "filename": f"{half}.txt",
        "size": 4,
        "content_type": "text/plain",
        "url": f"{base}/files/list.txt",
    }
    eve = person("100000000000000055", half)
    async with open_bot(open_home, fake, access="public", **MENTION) as bot:
        fake.channels[FAMILY]["name"] = half
        fake.dispatch("CHANNEL_UPDATE", fake.channels[FAMILY])
        answered = {"id": "1", "author": eve, "content": half}
        fake.write(
            f"{ME} <@{eve['id']}> <#{FAMILY}> {half}", sender=eve, channel=FAMILY, attachments=[file],
            referenced_message=answered, member={"nick": half}, mentions=[eve, fake.me],
        )  # fmt: skip
        await fake.until(lambda: fake.texts(FAMILY))
        await bot.settles()
        assert "could not" not in fake.texts(FAMILY)[0] and "\ufffd" in fake.texts(FAMILY)[0]
