"""Channels that a bridge brings: tried with an application service that plays the bridge on a real homeserver."""

from typing import Any

import pytest

from antiphon.adapters import ready_channels
from antiphon.config.config import Config
from antiphon.domain.errors import Invalid
from tests.channels.matrix.conftest import Opened
from tests.channels.matrix.matrix_platform import MatrixPlatform
from tests.channels.matrix.synapse import BRIDGE_BOT, NUMBERS, Synapse, User
from tests.channels.matrix.test_rooms import groups_of, mention, until_said
from tests.channels.telegram.bots import until
from tests.claims import requirement
from tests.gateway.served import Json, Served

pytestmark = pytest.mark.anyio

WHATSAPP: Json = {"users": "@whatsapp_*:home", "bot": BRIDGE_BOT, "title": "WhatsApp", "access": "public"}


async def new_ghost(synapse: Synapse) -> User:
    return await synapse.ghost(f"whatsapp_49170{next(NUMBERS)}")


def bridge_bot(synapse: Synapse) -> User:
    return synapse.bridge()


async def keys_of(served: Served) -> list[str]:
    return [each["key"] for each in (await served.client.get("/sessions")).json()["sessions"]]


@requirement("channels:1", "keys:5")
async def test_a_private_chat_is_one_of_the_bridges_channel(
    opened: Opened, platform: MatrixPlatform, synapse: Synapse
) -> None:
    ghost = await new_ghost(synapse)
    room = await ghost.make_room(platform.bot.id, BRIDGE_BOT)
    await bridge_bot(synapse).join(room)
    await ghost.say(room, "hello from a phone")
    async with opened(bridges={"whatsapp": WHATSAPP}) as served:
        await until_said(ghost, room, platform.bot.id, "echo: hello from a phone")
        (key,) = await keys_of(served)
        assert key == "agent:main:main" or key.startswith("agent:main:whatsapp:direct:"), key
        (sent,) = (await served.client.get("/deliveries")).json()["deliveries"]
        assert sent["channel"] == "whatsapp" and sent["to"] == ghost.id, sent
        people = (await served.client.get("/people")).json()["people"]
        assert any("whatsapp" in str(each) and ghost.id in str(each) for each in people), people


@requirement("channels:1", "groups:1")
async def test_a_group_of_the_bridge_is_allowed_by_the_bridges_name(
    opened: Opened, platform: MatrixPlatform, synapse: Synapse
) -> None:
    ghost, bot = await new_ghost(synapse), bridge_bot(synapse)
    room = await bot.make_room(platform.bot.id, ghost.id, is_direct=False, name="Football")
    await ghost.join(room)
    bridge: Json = {**WHATSAPP, "groups": {room: {}}}
    async with opened(bridges={"whatsapp": bridge}) as served:
        await ghost.say(room, "who comes?", **mention(platform.bot.id))
        await until_said(ghost, room, platform.bot.id, "echo: who comes?")
        (key,) = await keys_of(served)
        assert key.startswith("agent:main:whatsapp:group:"), key


@requirement("channels:1")
async def test_a_bridges_user_is_not_heard_in_a_room_of_matrix(
    opened: Opened, platform: MatrixPlatform, synapse: Synapse
) -> None:
    ghost, ann = await new_ghost(synapse), await platform.person("ann")
    room = await ann.make_room(platform.bot.id, ghost.id, is_direct=False, name="Kitchen")
    await ghost.join(room)
    async with opened(bridges={"whatsapp": WHATSAPP}, groups={room: {}}) as served:
        await ghost.say(room, "let me in", **mention(platform.bot.id))
        await ann.say(room, "hello", **mention(platform.bot.id))
        await until_said(ann, room, platform.bot.id, "echo: hello")
        (key,) = await keys_of(served)
        assert key.startswith("agent:main:matrix:group:"), key


@requirement("channels:1")
async def test_a_person_of_matrix_makes_no_room_a_bridges(
    opened: Opened, platform: MatrixPlatform, synapse: Synapse
) -> None:
    """One invites a bridge's user into a private room: that is a group of Matrix, and nobody is answered there."""
    ghost, ann = await new_ghost(synapse), await platform.person("ann")
    async with opened(bridges={"whatsapp": WHATSAPP}) as served:
        await platform.write("ann", "alone")
        room = await platform.room("ann")
        await until_said(ann, room, platform.bot.id, "echo: alone")
        await ann.invite(room, ghost.id)
        await ghost.join(room)
        await ghost.say(room, "me too", **mention(platform.bot.id))
        await ann.say(room, "both", **mention(platform.bot.id))

        async def is_asked() -> bool:
            return [(each["channel"], each["state"]) for each in await groups_of(served)] == [("matrix", "asked")]

        await until(is_asked)
        await until_said(ann, room, platform.bot.id, "echo: alone")


@requirement("message:1")
async def test_an_agent_writes_first_to_somebody_behind_the_bridge(
    opened: Opened, platform: MatrixPlatform, synapse: Synapse
) -> None:
    ghost = await new_ghost(synapse)
    links = {
        "session": {"identity_links": {"owner": [f"matrix:{platform.id_of('olga')}"], "ann": [f"whatsapp:{ghost.id}"]}}
    }
    room = await ghost.make_room(platform.bot.id)
    await ghost.say(room, "hello")
    async with opened(links, bridges={"whatsapp": WHATSAPP}) as served:
        await until_said(ghost, room, platform.bot.id, "echo: hello")
        await served.open("agent:main:api:desk")
        asked = {"channel": "whatsapp", "recipient": "ann", "text": "at six"}
        answer = (
            await served.client.post("/tools/message", json={"sessionKey": "agent:main:api:desk", "arguments": asked})
        ).json()
        assert answer.get("status") == "accepted", answer
        await until_said(ghost, room, platform.bot.id, "echo: hello", "at six")
        wrong = {**asked, "channel": "matrix"}
        answer = (
            await served.client.post("/tools/message", json={"sessionKey": "agent:main:api:desk", "arguments": wrong})
        ).json()
        assert answer.get("status") != "accepted", answer


def settings_with(bridges: Json, **more: Any) -> Config:
    account = {"homeserver": "http://localhost:8008", "user": "@agents:home", "password": "a password"}
    return Config.model_validate({"channels": {"matrix": {**account, "bridges": bridges}, **more}})


@requirement("channels:1")
@pytest.mark.parametrize(
    ("bridges", "said"),
    [
        ({"whatsapp": {"users": "@whatsapp_*:elsewhere"}}, "must name users of the account's own server"),
        ({"whatsapp": {"users": "@*:home"}}, "must name users of the account's own server"),
        ({"whatsapp": {"users": "@whatsapp_*:home.evil"}}, "must name users of the account's own server"),
        ({"whatsapp": {"users": ""}}, "must name users of the account's own server"),
        ({"whatsapp": {"users": "@a*:home"}}, "also name the account itself"),
        ({"whatsapp": {"users": "@w_*:home", "bot": "@wbot:elsewhere"}}, "must be an account of the server home"),
        ({"whatsapp": {"users": "@w_*:home"}, "signal": {"users": "@w_s*:home"}}, "also name the bridge 'whatsapp'"),
        ({"whatsapp": {"users": "@w_*:home"}, "signal": {"users": "@s_*:home", "bot": "@w_x:home"}}, "also name"),
        ({"webchat": {"users": "@w_*:home"}}, "the channel 'webchat' exists already"),
        ({"matrix": {"users": "@w_*:home"}}, "the channel 'matrix' exists already"),
    ],
)  # fmt: skip
def test_names_that_could_be_others_are_refused(bridges: Json, said: str) -> None:
    config = settings_with(bridges)
    with pytest.raises(Invalid, match=said):
        config.rules()
        ready_channels(config)


@requirement("channels:1")
def test_a_bridge_may_not_have_the_name_of_a_channel_that_is_set() -> None:
    config = settings_with({"webhook": {"users": "@w_*:home"}}, webhook={"door": {"secret": "s" * 32}})
    with pytest.raises(Invalid, match="the channel 'webhook' exists already"):
        config.rules()


@requirement("channels:1")
async def test_a_file_from_behind_the_bridge_is_taken_in(
    opened: Opened, platform: MatrixPlatform, synapse: Synapse
) -> None:
    """It waits for its file as a message of the bridge's channel."""
    ghost = await new_ghost(synapse)
    room = await ghost.make_room(platform.bot.id)
    async with opened(bridges={"whatsapp": WHATSAPP}):
        address = await ghost.upload(b"a plan", "text/plain")
        content = {"msgtype": "m.file", "body": "plan.txt", "url": address, "info": {"size": 6}}
        await ghost.put(room, "m.room.message", content)

        async def is_answered() -> bool:
            return any("plan.txt" in text for text in await ghost.texts(room, platform.bot.id))

        await until(is_answered)


@requirement("channels:1")
async def test_several_accounts_have_bridges_of_their_own(platform: MatrixPlatform, synapse: Synapse) -> None:
    account = {"homeserver": "http://localhost:8008", "password": "a password"}
    accounts = {
        "home": {"user": "@agents:home", "bridges": {"whatsapp": WHATSAPP}},
        "work": {"user": "@agents:work", "bridges": {"signal": {"users": "@signal_*:work"}}},
    }
    config = Config.model_validate({"channels": {"matrix": {**account, "accounts": accounts}}})
    config.rules()
    named = {(each.channel, each.account): ".".join(each.place) for each in config.accounts()}
    assert named == {
        ("matrix", "home"): "channels.matrix.accounts.home",
        ("matrix", "work"): "channels.matrix.accounts.work",
        ("whatsapp", "matrix"): "channels.matrix.accounts.home.bridges.whatsapp",
        ("signal", "matrix"): "channels.matrix.accounts.work.bridges.signal",
    }
    (ready,) = ready_channels(config)
    assert ready.further == {"whatsapp", "signal"}
    twice = {name: {**each, "bridges": {"whatsapp": {"users": f"@w_*:{name}"}}} for name, each in accounts.items()}
    with pytest.raises(Invalid, match="the channel 'whatsapp' exists already"):
        Config.model_validate({"channels": {"matrix": {**account, "accounts": twice}}}).rules()
