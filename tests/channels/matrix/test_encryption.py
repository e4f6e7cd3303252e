"""Encrypted rooms, with people whose program encrypts."""

import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import anyio
import pytest
from nio import AsyncClient, AsyncClientConfig, Event, MegolmEvent, RoomEncryptedMedia, RoomMessageText, SyncResponse
from nio.crypto import decrypt_attachment, encrypt_attachment

from antiphon.channels.matrix.events import NO_KEY
from antiphon.channels.matrix.settings import OTHER_HOME
from antiphon.domain.attachments import Attachment
from antiphon.domain.channel_form import DeliveryPart
from antiphon.domain.classification import PUBLIC
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.ids import RunId
from antiphon.domain.session import DeliveryContext
from tests.channels.matrix.conftest import Opened
from tests.channels.matrix.matrix_platform import MatrixPlatform
from tests.channels.matrix.synapse import Json, User
from tests.channels.telegram.bots import until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import serve

pytestmark = pytest.mark.anyio

ENCRYPTED = {"type": "m.room.encryption", "state_key": "", "content": {"algorithm": "m.megolm.v1.aes-sha2"}}


class Sealed:
    """Somebody whose program encrypts, and remembers what it could read."""

    def __init__(self, user: User, url: str, store: Path) -> None:
        store.mkdir()
        config = AsyncClientConfig(encryption_enabled=True)
        self.client = AsyncClient(url, user.id, store_path=str(store), config=config)
        self.client.restore_login(user.id, user.device, user.token)
        self.read: list[str] = []
        self.files: list[RoomEncryptedMedia] = []
        self.unread = 0

    async def look(self) -> None:
        answer = await self.client.sync(timeout=0, full_state=self.client.next_batch == "")
        assert isinstance(answer, SyncResponse)
        for room in answer.rooms.join.values():
            for event in cast("list[Event]", room.timeline.events):  # pyright: ignore[reportUnknownMemberType]
                if isinstance(event, RoomMessageText) and event.sender != self.client.user_id:
                    content = event.source["content"]
                    self.read.append(content.get("m.new_content", content)["body"].strip())
                if isinstance(event, RoomEncryptedMedia) and event.sender != self.client.user_id:
                    self.files.append(event)
                self.unread += isinstance(event, MegolmEvent)
        if self.client.should_upload_keys:
            await self.client.keys_upload()
        if self.client.should_query_keys:
            await self.client.keys_query()
        await self.client.send_to_device_messages()

    async def say(self, room: str, text: str) -> None:
        await self.send(room, {"msgtype": "m.text", "body": text})

    async def send(self, room: str, content: Json) -> None:
        await self.client.room_send(room, "m.room.message", content, ignore_unverified_devices=True)

    async def until_read(self, text: str) -> None:
        async def is_read() -> bool:
            await self.look()
            return text in self.read

        try:
            await until(is_read)
        except TimeoutError:
            raise AssertionError(f"{self.read} instead of {text!r}") from None


@asynccontextmanager
async def sealed(platform: MatrixPlatform, name: str, store: Path) -> AsyncGenerator[Sealed]:
    person = Sealed(await platform.person(name), platform.url, store)
    try:
        await person.look()
        yield person
    finally:
        await person.client.close()


@requirement("channels:1")
async def test_an_encrypted_room_is_read_and_answered(opened: Opened, platform: MatrixPlatform, tmp_path: Path) -> None:
    async with opened() as served, sealed(platform, "ann", tmp_path / "ann") as ann:
        room = await new_room(platform, ann)
        await ann.say(room, "psst")
        await ann.until_read("echo: psst")
        events = await (await platform.person("ann")).events(room)
        assert not [each for each in events if each["type"] == "m.room.message"], "all of it is encrypted"
        folder = served.app.home / "channels" / "matrix" / "default"
        assert folder.stat().st_mode & 0o777 == 0o700 and [*folder.glob("*.db")]


@requirement("channels:1")
async def test_files_of_an_encrypted_room_come_into_the_workspace(
    opened: Opened, platform: MatrixPlatform, tmp_path: Path
) -> None:
    async with opened() as served, sealed(platform, "ann", tmp_path / "ann") as ann:
        room = await new_room(platform, ann)
        user, plan = await platform.person("ann"), b"a plan for Ann" * 1_000
        hidden, key = encrypt_attachment(plan)
        address = await user.upload(hidden, "application/octet-stream")
        content = {"msgtype": "m.file", "body": "plan.txt", "info": {"size": len(plan), "mimetype": "text/plain"}}
        await ann.send(room, {**content, "file": {**key, "url": address}})
        changed = {**key, "url": address, "hashes": {"sha256": "A" * 43}}
        await ann.send(room, {**content, "body": "forged.txt", "file": changed})
        await ann.send(room, {**content, "body": "bare.txt", "file": {"url": address}})

        def says(name: str) -> bool:
            return any(f"The file {name!r} could not be fetched" in text for text in ann.read)

        with anyio.fail_after(60):
            while not (says("forged.txt") and says("bare.txt")):
                await ann.look()
                await anyio.sleep(0.05)
        files = [each for each in served.app.home.rglob("*") if each.is_file() and each.name.endswith(".txt")]
        assert [each.read_bytes() for each in files] == [plan], "only the one that is as it was sent"


@requirement("channels:1")
async def test_a_file_of_the_agent_is_encrypted_where_its_room_is(
    opened: Opened, platform: MatrixPlatform, tmp_path: Path
) -> None:
    """Sent again, it is the same event; the server sees neither its bytes nor its name."""
    async with opened() as served, sealed(platform, "ann", tmp_path / "ann") as ann:
        room = await new_room(platform, ann)
        await ann.say(room, "psst")
        await ann.until_read("echo: psst")
        sender, plan = next(iter(served.app.channels.senders.values())), b"\x89PNG a plan for Ann"
        now = datetime.now(UTC)
        place = DeliveryContext(channel="matrix", account_id="default", to=room)
        delivery = Delivery(
            id="dlv_file", session=None, session_key=None, session_id=None, run_id=RunId("run_1"), place=place, text="",
            made_of=PUBLIC, status=DeliveryStatus.CLAIMED, due_at=now, created_at=now,
        )  # fmt: skip
        part = DeliveryPart(index=0, text="", file=Attachment(name="plan.png", data=plan, sha256=""))
        first = await sender.send(delivery, part)
        assert await sender.send(delivery, part) == first
        with anyio.fail_after(60):
            while not ann.files:
                await ann.look()
        (file,) = ann.files
        assert "" not in ann.read, "nothing was changed after it"
        assert (file.body, file.mimetype, file.source["content"]["msgtype"]) == ("plan.png", "image/png", "m.image")
        user = await platform.person("ann")
        hidden = await user.download(file.url)
        assert plan not in hidden
        assert decrypt_attachment(hidden, file.key["k"], file.hashes["sha256"], file.iv) == plan
        events = await user.events(room)
        assert not [each for each in events if each["type"] == "m.room.message"] and "plan.png" not in str(events)


@requirement("channels:1")
async def test_keys_outlive_the_process(open_home: OpenHome, platform: MatrixPlatform, tmp_path: Path) -> None:
    settings = {"channels": {"matrix": platform.section()}}
    async with sealed(platform, "ann", tmp_path / "ann") as ann:
        async with serve(open_home, settings):
            room = await new_room(platform, ann)
            await ann.say(room, "one")
            await ann.until_read("echo: one")
        await ann.say(room, "while nobody listens")
        async with serve(open_home, settings):
            await ann.until_read("echo: while nobody listens")
            await ann.say(room, "two")
            await ann.until_read("echo: two")
        assert ann.unread == 0


@requirement("channels:1")
async def test_a_home_without_the_keys_of_the_device_says_so(
    open_home: OpenHome, platform: MatrixPlatform, tmp_path: Path
) -> None:
    settings = {"channels": {"matrix": platform.section()}}
    async with sealed(platform, "ann", tmp_path / "ann") as ann:
        async with serve(open_home, settings) as served:
            await ann.say(await new_room(platform, ann), "one")
            await ann.until_read("echo: one")
            folder = served.app.home / "channels" / "matrix"
        kept = folder.rename(folder.with_name("elsewhere"))
        async with serve(open_home, settings) as served:

            async def is_told() -> bool:
                return [each.trouble for each in await served.app.inside.accounts.list()] == [OTHER_HOME]

            await until(is_told)
        shutil.rmtree(folder)
        kept.rename(folder)
        async with serve(open_home, settings) as served:

            async def is_over() -> bool:
                return [each.trouble for each in await served.app.inside.accounts.list()] == [None]

            await until(is_over)


@requirement("channels:1")
async def test_what_cannot_be_read_is_told_once(opened: Opened, platform: MatrixPlatform, tmp_path: Path) -> None:
    async with opened(), sealed(platform, "ann", tmp_path / "ann") as ann:
        user = await platform.person("ann")
        room = await new_room(platform, ann)
        for number in range(3):
            content = {"algorithm": "m.megolm.v1.aes-sha2", "ciphertext": f"AwgA{number}", "session_id": "none"}
            await user.put(room, "m.room.encrypted", {**content, "sender_key": "none", "device_id": user.device})
        with anyio.fail_after(60):
            await ann.until_read(NO_KEY)
        await ann.say(room, "now readable")
        await ann.until_read("echo: now readable")
        assert ann.read.count(NO_KEY) == 1


async def new_room(platform: MatrixPlatform, ann: Sealed, *, is_encrypted: bool = True) -> str:
    """A private room of Ann's, which the account has joined."""
    user = await platform.person("ann")
    room = await user.make_room(platform.bot.id, initial_state=[ENCRYPTED] if is_encrypted else [])

    async def is_member() -> bool:
        return platform.bot.id in (await user.ask("GET", f"/rooms/{room}/joined_members"))["joined"]

    await until(is_member)
    await ann.look()
    return room
