"""What people wrote while no gateway listened, and connections that break at any byte."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.channels.matrix.settings import WRONG_SECRET
from antiphon.testing.channels import TWICE, Mishap
from tests.channels.matrix.matrix_platform import MatrixPlatform
from tests.channels.matrix.synapse import Json, User
from tests.channels.matrix.test_encryption import new_room, sealed
from tests.channels.matrix.test_rooms import until_said
from tests.channels.telegram.bots import until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import serve

pytestmark = pytest.mark.anyio

MANY = 60
"""More than the server gives at once."""


def answers(*texts: str) -> list[str]:
    return [f"echo: {text}" for text in texts]


def is_change(event: Json) -> bool:
    return event["content"].get("m.relates_to", {}).get("rel_type") == "m.replace"


async def say_many(user: User, room: str, texts: Sequence[str]) -> None:
    for text in texts:
        await user.say(room, text)


def settings_of(platform: MatrixPlatform, **section: Any) -> Json:
    """Ann is the owner, whose messages are not limited."""
    owner = {"identity_links": {"owner": [f"matrix:{platform.id_of('ann')}"]}}
    return {"channels": {"matrix": platform.section(**section)}, "session": owner}


@requirement("channels:1")
async def test_an_outage_is_caught_up_with(open_home: OpenHome, platform: MatrixPlatform) -> None:
    settings = settings_of(platform)
    ann, room = await platform.person("ann"), await platform.room("ann")
    async with serve(open_home, settings):
        await ann.say(room, "before")
        await until_said(ann, room, platform.bot.id, *answers("before"))
    texts = [f"number {number}" for number in range(MANY)]
    await say_many(ann, room, texts)
    async with serve(open_home, settings):
        await until_said(ann, room, platform.bot.id, *answers("before", *texts))


@requirement("channels:1")
async def test_of_a_long_outage_the_newest_are_taken_in_and_the_rest_told(
    open_home: OpenHome, platform: MatrixPlatform
) -> None:
    settings = settings_of(platform, catch_up={"messages": 10})
    settings["session"] = {"identity_links": {"owner": [f"matrix:{platform.id_of('olga')}"]}}
    ann, room = await platform.person("ann"), await platform.room("ann")
    olga, office = await platform.person("olga"), await platform.room("olga")
    async with serve(open_home, settings):
        for person, where in ((olga, office), (ann, room)):
            await person.say(where, "before")
            await until_said(person, where, platform.bot.id, *answers("before"))
    texts = [f"number {number}" for number in range(MANY)]
    await say_many(ann, room, texts)
    for _ in range(2):
        async with serve(open_home, settings):

            async def is_told() -> bool:
                told = await olga.texts(office, platform.bot.id)
                shown = await ann.texts(room, platform.bot.id)
                return any("not taken in" in each for each in told) and f"echo: {texts[-1]}" in shown

            await until(is_told)
    told = await olga.texts(office, platform.bot.id)
    assert len([each for each in told if "not taken in" in each]) == 1
    shown = await ann.texts(room, platform.bot.id)
    newest = [each for each in shown if each.startswith("echo: number")]
    # The server may give the first one to the question that the earlier process left.
    assert newest[-10:] == answers(*texts)[-10:] and len(newest) in (10, 11)


@requirement("channels:1")
@pytest.mark.parametrize("seed", range(2))
async def test_cuts_lose_and_double_nothing(open_home: OpenHome, platform: MatrixPlatform, seed: int) -> None:
    ann, room = await platform.person("ann"), await platform.room("ann")
    async with serve(open_home, settings_of(platform)):
        await ann.say(room, "whole")
        await until_said(ann, room, platform.bot.id, "echo: whole")
        platform.network.cut_some(seed, 8)
        texts = [f"{number} through it" for number in range(6)]
        for text in texts:
            await ann.say(room, text)

        async def is_answered() -> bool:
            return f"echo: {texts[-1]}" in await ann.texts(room, platform.bot.id)

        with anyio.fail_after(120):
            await until(is_answered)
        assert await ann.texts(room, platform.bot.id) == answers("whole", *texts)
        assert platform.network.cuts >= 4


@requirement("channels:1")
@pytest.mark.parametrize("is_encrypted", [False, True], ids=["plain", "encrypted"])
async def test_a_beginning_whose_answer_is_lost_becomes_the_reply(
    open_home: OpenHome, platform: MatrixPlatform, tmp_path: Path, *, is_encrypted: bool
) -> None:
    """The transaction of the reply is the beginning's, so that it is seen once, and whole."""
    async with serve(open_home, settings_of(platform)), sealed(platform, "ann", tmp_path / "ann") as ann:
        room = await new_room(platform, ann, is_encrypted=is_encrypted)
        await ann.say(room, "hello")
        await ann.until_read("echo: hello")
        platform.network.befall(Mishap.UNANSWERED)
        await ann.say(room, "!sleep 0.5\n!stream 20\n!sleep 3\n!stream 20")
        await ann.until_read(TWICE)
        events = await (await platform.person("ann")).events(room)
        sent = [each for each in events if each["sender"] == platform.bot.id and each["type"].startswith("m.room.")]
        texts = [each for each in sent if each["type"] in ("m.room.message", "m.room.encrypted")]
        assert len([each for each in texts if not is_change(each)]) == 2, texts


@requirement("channels:1")
async def test_a_server_that_hangs_is_told_and_works_again(open_home: OpenHome, platform: MatrixPlatform) -> None:
    settings = {"channels": {"matrix": platform.section()}}
    async with serve(open_home, settings) as served:
        await platform.write("ann", "hello")
        ann, room = await platform.person("ann"), await platform.room("ann")
        await until_said(ann, room, platform.bot.id, "echo: hello")
        platform.network.is_cut = True
        await ann.say(room, "anybody?")

        async def is_troubled() -> bool:
            return [each.trouble for each in await served.app.inside.accounts.list()] == [
                "The homeserver cannot be reached."
            ]

        await until(is_troubled)
        platform.network.is_cut = False
        with anyio.fail_after(60):
            await until_said(ann, room, platform.bot.id, "echo: hello", "echo: anybody?")


@requirement("channels:1")
@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"token": "of-nobody"}, WRONG_SECRET),
        ({"token": None, "password": "wrong"}, WRONG_SECRET),
        ({"user": "@somebody:home"}, "The access token is another account's than channels.matrix.user."),
        ({"homeserver": "http://127.0.0.1:9"}, "The homeserver cannot be reached."),
    ],
)  # fmt: skip
async def test_wrong_settings_are_told(open_home: OpenHome, platform: MatrixPlatform, wrong: Json, told: str) -> None:
    async with serve(open_home, {"channels": {"matrix": platform.section(**wrong)}}) as served:

        async def is_told() -> bool:
            return [each.trouble for each in await served.app.inside.accounts.list()] == [told]

        await until(is_told)


@requirement("channels:1")
async def test_a_password_makes_one_device(open_home: OpenHome, platform: MatrixPlatform, tmp_path: Path) -> None:
    section = platform.section(token=None, password="correct horse battery")
    settings = {"channels": {"matrix": section}}
    ann, room = await platform.person("ann"), await platform.room("ann")
    before = len((await platform.bot.ask("GET", "/devices"))["devices"])
    for texts in (("one",), ("one", "two")):
        async with serve(open_home, settings):
            await ann.say(room, texts[-1])
            await until_said(ann, room, platform.bot.id, *answers(*texts))
    devices = (await platform.bot.ask("GET", "/devices"))["devices"]
    assert len(devices) == before + 1 and "Antiphon" in str(devices)
