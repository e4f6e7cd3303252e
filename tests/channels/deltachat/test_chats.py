"""Chats of Delta Chat: groups, files, answers, keys, and a core that ends."""

import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from anyio import to_thread
from deltachat_rpc_client import DeltaChat

from antiphon.domain.message import UserMessage, Whose
from tests.channels.deltachat.deltachat_platform import DeltaChatPlatform
from tests.channels.email.post_office import PostOffice
from tests.channels.telegram.bots import until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import read_log
from tests.gateway.served import Served, serve

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def opened(
    open_home: OpenHome, office: PostOffice, people: DeltaChat, home: Path, **more: Any
) -> AsyncGenerator[tuple[Served, DeltaChatPlatform]]:
    platform = await to_thread.run_sync(lambda: DeltaChatPlatform(office, people, home))
    try:
        async with serve(open_home, {"channels": {"deltachat": platform.section("", **more)}}) as served:
            yield served, platform
    finally:
        await to_thread.run_sync(platform.leave)


async def until_sees(platform: DeltaChatPlatform, person: str, is_so: Callable[[list[str]], bool]) -> None:
    seen = list[str]()

    async def look() -> bool:
        seen[:] = await platform.shown(person)
        return is_so(seen)

    try:
        await until(look)
    except TimeoutError:
        raise AssertionError(f"{person} sees {seen}") from None


async def log_of(served: Served) -> list[UserMessage]:
    (key,) = [each["key"] for each in (await served.client.get("/sessions")).json()["sessions"]]
    return [e.message for e in await read_log(served.app, key) if isinstance(e.message, UserMessage)]


@requirement("channels:1", "keys:5")
async def test_a_person_is_their_key(open_home: OpenHome, office: PostOffice, people: DeltaChat, home: Path) -> None:
    async with opened(open_home, office, people, home) as (served, platform):
        await platform.write("ann", "hello")
        await until_sees(platform, "ann", lambda seen: seen == ["echo: hello"])
        (key,) = [each["key"] for each in (await served.client.get("/sessions")).json()["sessions"]]
        fingerprint = await to_thread.run_sync(lambda: platform.id_of("ann"))
        assert key == f"agent:main:deltachat:direct:{fingerprint}"
        assert fingerprint[:40] in fingerprint and platform.address_of("ann") not in key


@requirement("channels:1", "groups:5")
async def test_answers_and_files_come_in(
    open_home: OpenHome, office: PostOffice, people: DeltaChat, home: Path, tmp_path: Path
) -> None:
    async with opened(open_home, office, people, home) as (served, platform):
        await platform.write("ann", "hello")
        await until_sees(platform, "ann", lambda seen: seen == ["echo: hello"])
        (tmp_path / "list.csv").write_bytes(b"a,b\n" * 1000)

        def answer() -> None:
            chat = platform.chat("ann")
            chat.send_message(text="what is this?", file=str(tmp_path / "list.csv"), quoted_msg=chat.get_messages()[-1])

        await to_thread.run_sync(answer)
        await until_sees(platform, "ann", lambda seen: any("what is this?" in each for each in seen))
        said = (await log_of(served))[-1]
        assert [(each.whose, each.text) for each in said.cites] == [(Whose.AGENT, "echo: hello")]
        files = [each.read_bytes() for each in (Path(served.app.home) / "workspaces").rglob("*.csv")]
        assert files == [b"a,b\n" * 1000]


@requirement("groups:1")
async def test_a_group_is_answered_where_the_account_is_mentioned(
    open_home: OpenHome, office: PostOffice, people: DeltaChat, home: Path
) -> None:
    number = [f"group-{each}" for each in range(10, 20)]
    async with opened(open_home, office, people, home, groups={each: {} for each in number}) as (_, platform):
        await platform.write("ann", "hello")
        await until_sees(platform, "ann", lambda seen: seen == ["echo: hello"])

        def begin() -> Any:
            ann = platform.person("ann")
            group = ann.create_group("Family")
            group.add_contact(*platform.chat("ann").get_contacts())
            group.send_text("good morning, all")
            group.send_text("Antiphon, what is new?")
            return group

        group = await to_thread.run_sync(begin)

        async def is_answered() -> bool:
            return len(await to_thread.run_sync(lambda: platform.texts(group))) == 1

        await until(is_answered)
        (answer,) = platform.texts(group)
        assert answer.startswith("echo: ") and answer.endswith("Antiphon, what is new?")


@requirement("channels:1")
async def test_a_core_that_ends_is_started_again(
    open_home: OpenHome, office: PostOffice, people: DeltaChat, home: Path
) -> None:
    async with opened(open_home, office, people, home) as (_, platform):
        await platform.write("ann", "hello")
        await until_sees(platform, "ann", lambda seen: seen == ["echo: hello"])
        for process in Path("/proc").iterdir():
            if process.name.isdecimal() and is_core_of(process, home):
                os.kill(int(process.name), signal.SIGKILL)
        await platform.write("ann", "still there?")
        await until_sees(platform, "ann", lambda seen: seen == ["echo: hello", "echo: still there?"])


def is_core_of(process: Path, home: Path) -> bool:
    try:
        environment = (process / "environ").read_bytes()
        return f"DC_ACCOUNTS_PATH={home}/".encode() in environment
    except OSError:
        return False


@requirement("channels:1")
async def test_a_wrong_password_is_told(open_home: OpenHome, office: PostOffice, people: DeltaChat, home: Path) -> None:
    async with opened(open_home, office, people, home, password="something-else") as (served, platform):

        async def is_told() -> bool:
            rows = await served.app.inside.accounts.list()
            return any(f"does not serve {platform.account}" in (row.trouble or "") for row in rows)

        await until(is_told)
        assert (await served.post("main", "hello"))["reply"] == "echo: hello", "the others run"


@requirement("access:3")
async def test_an_invitation_admits_one_person_and_is_withdrawn(
    open_home: OpenHome, office: PostOffice, people: DeltaChat, home: Path
) -> None:
    async with opened(open_home, office, people, home, access="pairing") as (served, platform):

        async def invite(**more: str) -> str:
            answer = await served.client.post("/join-links", json={"channel": "deltachat", **more})
            assert answer.status_code == 201, answer.text
            assert 590_000 < answer.json()["expiresAt"] - time.time() * 1000 < 610_000
            return answer.json()["link"]

        ann = (await served.client.post("/people", json={"name": "Ann", "role": "user"})).json()["person"]["personId"]
        withdrawn, link = await invite(), await invite(into=ann)
        await to_thread.run_sync(platform.join, "ann", link)
        await until_sees(platform, "ann", lambda seen: any("You are admitted" in each for each in seen))
        await platform.write("ann", "hello")
        await until_sees(platform, "ann", lambda seen: seen[-1] == "echo: hello")
        found = (await served.client.get(f"/people/{ann}")).json()
        assert await to_thread.run_sync(lambda: platform.id_of("ann")) in str(found), found
        for number, old in enumerate((withdrawn, link)):
            person = f"mallory{number}"
            await to_thread.run_sync(platform.join, person, old)
        await platform.write("ann", "again")
        await until_sees(platform, "ann", lambda seen: seen[-1] == "echo: again")
        for number in range(2):
            assert not await platform.shown(f"mallory{number}")


@requirement("access:3")
@pytest.mark.parametrize(
    ("asked", "status"),
    [
        ({"channel": "deltachat", "account": "other"}, 400),
        ({"channel": "webhook"}, 400),
        ({"channel": "deltachat", "into": "nobody"}, 404),
    ],
    ids=["account", "channel", "person"],
)
async def test_an_invitation_that_cannot_be(
    open_home: OpenHome,
    office: PostOffice,
    people: DeltaChat,
    home: Path,
    asked: dict[str, str],
    status: int,
) -> None:
    async with opened(open_home, office, people, home) as (served, _):
        assert (await served.client.post("/join-links", json=asked)).status_code == status


@requirement("channels:1")
async def test_a_home_without_the_keys_of_the_account_says_so_and_sends_nothing(
    open_home: OpenHome, office: PostOffice, people: DeltaChat, home: Path
) -> None:
    async with opened(open_home, office, people, home) as (served, platform):
        await platform.write("ann", "hello")
        await until_sees(platform, "ann", lambda seen: seen == ["echo: hello"])
        (key,) = [each["key"] for each in (await served.client.get("/sessions")).json()["sessions"]]
        section = platform.section("")
    (home / "channels" / "deltachat").rename(home / "elsewhere")
    async with serve(open_home, {"channels": {"deltachat": section}}) as served:

        async def is_told() -> bool:
            rows = await served.app.inside.accounts.list()
            return any("copy `channels/deltachat/default`" in (row.trouble or "") for row in rows)

        await until(is_told)
        await served.client.post(
            f"/sessions/{quote(key, safe='')}/messages?wait=20", json={"text": "x", "deliver": True}
        )
        waiting = (await served.client.get("/deliveries")).json()["deliveries"]
        assert {(each["status"], each["attempts"]) for each in waiting if each["status"] != "sent"} == {("queued", 0)}
