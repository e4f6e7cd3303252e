"""What goes wrong between the example of a channel and its server; and rooms."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from tests.channels.telegram.bots import until
from tests.channels.xmpp.prosody import MISSING, PROGRAM, ROOM, Prosody
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import Json, Served, serve

if TYPE_CHECKING:
    from tests.channels.xmpp.xmpp_platform import XmppPlatform

pytestmark = [pytest.mark.anyio, pytest.mark.usefixtures("package")]

SECRET = "s3cret-of-the-door-bell"
ODD = (
    b"<message from='x@localhost' to='y@localhost'><body>to somebody else, of no type</body></message>",
    b"<message type='chat'><body>of nobody</body></message><message/>",
    b"<unknown xmlns='jabber:client'/><message from='@' type='chat'><body>?</body></message>",
    b"<message from='ann@localhost' type='chat'><body>\xff\xfe\x00</body></message>",
    b"</message></stream:stream>",
)


@asynccontextmanager
async def opened(open_home: OpenHome, prosody: Prosody, **more: Any) -> AsyncGenerator[tuple[Served, "XmppPlatform"]]:
    """A gateway with the example, and a webhook beside it."""
    from tests.channels.xmpp.xmpp_platform import xmpp_platform

    async with xmpp_platform(prosody) as platform:
        channels = {"xmpp": platform.section("", **more), "webhook": {"door": {"secret": SECRET}}}
        async with serve(open_home, {"channels": channels}) as served:
            yield served, platform


async def note_of(served: Served) -> str:
    return (await served.client.get("/ready")).json().get("note", "")


async def until_told(served: Served, words: str) -> None:
    async def is_told() -> bool:
        return words in await note_of(served)

    await until(is_told)
    assert (await served.post("main", "hello"))["reply"] == "echo: hello", "the others run"


async def until_answered(platform: "XmppPlatform", text: str) -> None:
    async def is_answered() -> bool:
        return f"echo: {text}" in await platform.shown("ann")

    await until(is_answered)


@requirement("channels:1")
async def test_a_wrong_password_is_told(open_home: OpenHome, prosody: Prosody) -> None:
    async with opened(open_home, prosody, password="something else") as (served, platform):
        await until_told(
            served, f"Channel 'xmpp' is broken: 127.0.0.1 does not take the password of {platform.account}."
        )
        (row,) = await served.app.inside.accounts.list()
        assert (row.channel, "password" in (row.trouble or "")) == ("xmpp", True)


@requirement("channels:1")
async def test_a_server_may_be_away_at_the_start_and_later(open_home: OpenHome, tmp_path: Path) -> None:
    if PROGRAM is None:
        pytest.skip(MISSING)
    folder = tmp_path / "prosody"
    folder.mkdir()
    prosody = Prosody(folder)
    async with opened(open_home, prosody) as (served, platform):
        await until_told(served, "Channel 'xmpp' is broken: ConnectionError: 127.0.0.1")
        for text in ("at last", "back again"):
            with prosody.running():
                await platform.write("ann", text)
                await until_answered(platform, text)
            await until_told(served, "Channel 'xmpp' is broken: ConnectionError: ")
            await platform.aclose()


@requirement("channels:1")
@pytest.mark.parametrize("stanza", ODD, ids=range(len(ODD)))
async def test_odd_stanzas_end_nothing(open_home: OpenHome, prosody: Prosody, stanza: bytes) -> None:
    async with opened(open_home, prosody) as (_, platform):
        await platform.write("ann", "hello")
        await until_answered(platform, "hello")
        await platform.network.inject(stanza)
        await platform.write("ann", "still there?")
        await until_answered(platform, "still there?")


@requirement("channels:1")
async def test_what_xml_cannot_hold_is_left_out(open_home: OpenHome, prosody: Prosody) -> None:
    async with opened(open_home, prosody) as (served, platform):
        await platform.write("ann", "hello")
        await until_answered(platform, "hello")
        await served.open("agent:main:api:desk")
        sent = {"channel": "xmpp", "recipient": platform.id_of("ann"), "text": "odd:\u0001\ufffe <b>&"}
        asked = {"sessionKey": "agent:main:api:desk", "arguments": sent}
        answer = (await served.client.post("/tools/message", json=asked)).json()
        assert answer.get("status") == "accepted", answer

        async def is_seen() -> bool:
            return "odd:\ufffd\ufffd <b>&" in await platform.shown("ann")

        await until(is_seen)


@requirement("channels:1", "groups:1")
async def test_a_room_is_answered_when_it_names_the_bot(open_home: OpenHome, prosody: Prosody) -> None:
    groups: Json = {"groups": {ROOM: {}}, "nick": "robin"}
    async with opened(open_home, prosody, **groups) as (_, platform):
        ann = await platform.person("ann")
        await ann.join(ROOM)
        for text in ("good morning, all", "robins sing", "Robin, what is new?"):
            ann.say(ROOM, text, is_room=True)

        def answers() -> list[str]:
            return [text for text in ann.seen[ROOM].values() if text.startswith("echo")]

        async def is_answered() -> bool:
            return len(answers()) == 1

        with anyio.fail_after(60):
            await until(is_answered)
        (answer,) = answers()
        assert answer.endswith("Robin, what is new?"), answer
