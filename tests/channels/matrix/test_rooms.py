"""Rooms of Matrix: who is heard where, what belongs to what, and what is never answered."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

import pytest

from antiphon.domain.session import DeliveryContext
from tests.channels.matrix.conftest import Opened
from tests.channels.matrix.matrix_platform import MatrixPlatform
from tests.channels.matrix.synapse import Json, User, thread_of
from tests.channels.telegram.bots import until
from tests.claims import requirement
from tests.gateway.served import Served

pytestmark = pytest.mark.anyio


async def until_said(user: User, room: str, author: str, *texts: str) -> Sequence[Json]:
    """Returns the author's messages once there are just these texts, in any thread."""
    seen: Sequence[Json] = ()

    async def is_said() -> bool:
        nonlocal seen
        seen = await user.messages(room, author)
        return [each["content"]["body"] for each in seen] == [*texts]

    try:
        await until(is_said)
    except (AssertionError, TimeoutError):
        raise AssertionError(f"{[each['content']['body'] for each in seen]} instead of {texts}") from None
    return seen


async def group_of(platform: MatrixPlatform, *names: str, **more: Any) -> tuple[User, str]:
    """A room that the first of them made, with the others and the account."""
    users = [await platform.person(name) for name in names]
    room = await users[0].make_room(
        platform.bot.id, *(each.id for each in users[1:]), is_direct=False, name="Kitchen", **more
    )
    for each in users[1:]:
        await each.join(room)
    return users[0], room


def mention(user: str) -> Json:
    return {"m.mentions": {"user_ids": [user]}}


async def groups_of(served: Served) -> list[Json]:
    return (await served.client.get("/groups")).json()["groups"]


@requirement("groups:1", "channels:1")
async def test_it_joins_a_group_once_an_owner_allows_it(opened: Opened, platform: MatrixPlatform) -> None:
    async with opened() as served:
        await platform.write("olga", "hello")
        olga, private = await platform.person("olga"), await platform.room("olga")
        await until_said(olga, private, platform.bot.id, "echo: hello")
        ann, room = await group_of(platform, "ann", "ben")
        await ann.say(room, "anybody?", **mention(platform.bot.id))

        async def is_asked() -> bool:
            return [each["state"] for each in await groups_of(served)] == ["asked"]

        await until(is_asked)
        members = (await ann.ask("GET", f"/rooms/{room}/joined_members"))["joined"]
        assert platform.bot.id not in members
        asked = (await platform.shown("olga"))[-1]
        assert "Kitchen" in asked, asked
        answer = await served.client.post(f"/groups/{quote(room, safe='')}/allow", json={"channel": "matrix"})
        answer.raise_for_status()
        await until_said(ann, room, platform.bot.id, "echo: anybody?")
        await ann.say(room, "not for it")
        await ann.say(room, "and now?", **mention(platform.bot.id))

        async def is_answered() -> bool:
            return len(await ann.texts(room, platform.bot.id)) == 2

        await until(is_answered)
        assert (await ann.texts(room, platform.bot.id))[1].endswith("and now?")


@requirement("groups:1")
async def test_strangers_cannot_bring_it_into_a_private_room(opened: Opened, platform: MatrixPlatform) -> None:
    async with opened(access="private"):
        ann, room = await platform.person("ann"), await platform.room("ann")
        await ann.say(room, "hello?")
        await platform.write("olga", "hello")
        olga, private = await platform.person("olga"), await platform.room("olga")
        await until_said(olga, private, platform.bot.id, "echo: hello")
        assert platform.bot.id not in (await ann.ask("GET", f"/rooms/{room}/joined_members"))["joined"]


@requirement("access:3")
async def test_a_stranger_gets_a_code_in_their_room(opened: Opened, platform: MatrixPlatform) -> None:
    async with opened(access="pairing"):
        await platform.write("ann", "hello?")

        async def is_told() -> bool:
            return any("code" in text for text in await platform.shown("ann"))

        await until(is_told)


@requirement("groups:5")
async def test_replies_are_context_and_meant_for_it(opened: Opened, platform: MatrixPlatform) -> None:
    ann, room = await group_of(platform, "ann", "ben")
    ben = await platform.person("ben")
    async with opened(groups={room: {}}) as served:
        said = await ben.say(room, "Soup at six")
        await ann.say(room, "is that so?", **mention(platform.bot.id), **answering(said))

        async def is_answered() -> bool:
            return len(await ann.messages(room, platform.bot.id)) == 1

        await until(is_answered)
        (answer,) = await ann.messages(room, platform.bot.id)
        await ann.say(room, "are you sure?", **answering(answer["event_id"]))

        async def is_answered_again() -> bool:
            return len(await ann.messages(room, platform.bot.id)) == 2

        await until(is_answered_again)
        key = (await served.client.get("/sessions")).json()["sessions"][0]["key"]
        posted = [each for each in await served.messages(quote(key, safe="")) if each["role"] == "user"]
        assert "Soup at six" in str(posted), posted
        assert "sure?" in posted[-1]["text"] if "text" in posted[-1] else str(posted[-1])


def answering(event: str) -> Json:
    return {"m.relates_to": {"m.in_reply_to": {"event_id": event}}}


@requirement("channels:1")
async def test_what_is_no_persons_new_words_is_not_answered(opened: Opened, platform: MatrixPlatform) -> None:
    async with opened():
        ann, room = await platform.person("ann"), await platform.room("ann")
        first = await ann.say(room, "first")
        await until_said(ann, room, platform.bot.id, "echo: first")
        changed = {"m.new_content": {"msgtype": "m.text", "body": "second"}}
        await ann.say(room, "* second", **changed, **{"m.relates_to": {"rel_type": "m.replace", "event_id": first}})
        await ann.put(room, "m.room.message", {"msgtype": "m.notice", "body": "of a program"})
        for odd in ODD:
            await ann.put(room, "m.room.message", odd)
        await ann.put(room, "org.example.unknown", {"body": "?"})
        await ann.say(room, "third")
        await until_said(ann, room, platform.bot.id, "echo: first", "echo: odd", "echo: odd", "echo: third")


ODD: list[Json] = [
    {"msgtype": "m.unknown", "body": "of no kind"},
    {"msgtype": "m.text", "body": "odd", "m.relates_to": "nothing"},
    {"msgtype": "m.text", "body": "odd", "m.relates_to": {"m.in_reply_to": []}},
    {"msgtype": "m.image", "body": "odd", "url": 7},
    {"msgtype": "m.file", "body": "odd", "file": {}, "info": {"size": "large"}},
]


@requirement("channels:1")
async def test_a_thread_that_is_opened_under_a_message(opened: Opened, platform: MatrixPlatform) -> None:
    ann, elsewhere = await group_of(platform, "ann", "ben")
    async with opened(groups={elsewhere: {}}) as served:
        room = await platform.room("ann")
        said = await ann.say(room, "hello")
        await until_said(ann, room, platform.bot.id, "echo: hello")
        sender = next(iter(served.app.channels.senders.values()))
        place = DeliveryContext(channel="matrix", to=platform.id_of("ann"), account_id="default")
        thread = await sender.open_thread(place, f"{room}/{said}", "a thread")  # type: ignore[attr-defined]
        assert thread == said
        other = await ann.say(elsewhere, "hello there", **mention(platform.bot.id))
        await until_said(ann, elsewhere, platform.bot.id, "echo: hello there")
        own = await sender.open_thread(place, f"{elsewhere}/{other}", "a thread")  # type: ignore[attr-defined]
        assert (await ann.messages(room, platform.bot.id))[-1]["event_id"] == own, "in the chat that was asked for"
        related: Json = {"m.relates_to": {"rel_type": "m.thread", "event_id": thread}}
        await ann.say(room, "in it", **related)
        shown = await until_said(ann, room, platform.bot.id, "echo: hello", "a thread", "echo: in it")
        assert [thread_of(each) for each in shown] == [None, None, thread]


@requirement("channels:1")
async def test_files_are_taken_in(opened: Opened, platform: MatrixPlatform) -> None:
    async with opened() as served:
        ann, room = await platform.person("ann"), await platform.room("ann")
        address = await ann.upload(b"a plan for Ann", "text/plain")
        content = {"msgtype": "m.file", "body": "plan.txt", "url": address, "info": {"size": 14}}
        await ann.put(room, "m.room.message", content)

        async def is_answered() -> bool:
            return any("plan.txt" in text for text in await platform.shown("ann"))

        await until(is_answered)
        missing = {**content, "body": "gone.txt", "url": "mxc://home/doesnotexist"}
        await ann.put(room, "m.room.message", missing)

        async def is_told() -> bool:
            return any("could not be fetched from Matrix" in text for text in await platform.shown("ann"))

        await until(is_told)
        assert served


@requirement("channels:1")
async def test_marks_are_shown_and_html_of_others_is_not(opened: Opened, platform: MatrixPlatform) -> None:
    async with opened():
        ann, room = await platform.person("ann"), await platform.room("ann")
        await ann.say(room, "**bold** <script>alert(1)</script> ![x](https://evil.example/x.png)")

        async def is_answered() -> bool:
            return len(await ann.messages(room, platform.bot.id)) == 1

        await until(is_answered)
        (answer,) = await ann.messages(room, platform.bot.id)
        html = answer["content"]["formatted_body"]
        assert "<strong>bold</strong>" in html and "&lt;script&gt;" in html and "<img" not in html
        assert answer["content"]["body"].startswith("echo: **bold** <script>")


@requirement("channels:1")
async def test_a_room_that_is_upgraded_keeps_its_session(opened: Opened, platform: MatrixPlatform) -> None:
    ann, room = await group_of(platform, "ann", "ben", room_version="10")
    async with opened(groups={room: {}}) as served:
        await ann.say(room, "one", **mention(platform.bot.id))
        await until_said(ann, room, platform.bot.id, "echo: one")
        made = await ann.ask("POST", f"/rooms/{room}/upgrade", {"new_version": "11"})
        moved = made["replacement_room"]
        await ann.invite(moved, platform.bot.id)
        await ann.invite(moved, platform.id_of("ben"))
        await (await platform.person("ben")).join(moved)
        await ann.say(moved, "two", **mention(platform.bot.id))

        async def is_answered() -> bool:
            return len(await ann.texts(moved, platform.bot.id)) == 1

        await until(is_answered)
        assert len((await served.client.get("/sessions")).json()["sessions"]) == 1


@requirement("groups:1")
async def test_a_room_that_is_said_to_be_replaced_by_anothers_stays_what_it_was(
    opened: Opened, platform: MatrixPlatform
) -> None:
    ann, room = await group_of(platform, "ann", "ben")
    async with opened(groups={room: {}}) as served:
        await ann.say(room, "one", **mention(platform.bot.id))
        await until_said(ann, room, platform.bot.id, "echo: one")
        other = await ann.make_room(platform.bot.id, is_direct=False, name="Other")
        await ann.set_state(room, "m.room.tombstone", {"body": "moved", "replacement_room": other})
        await ann.say(other, "two", **mention(platform.bot.id))

        async def is_asked() -> bool:
            return (other, "asked") in [(each["address"], each["state"]) for each in await groups_of(served)]

        await until(is_asked)
        await ann.say(room, "three", **mention(platform.bot.id))
        await until_said(ann, room, platform.bot.id, "echo: one", "echo: three")
        assert not await ann.texts(other, platform.bot.id)
