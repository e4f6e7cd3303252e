"""Chats are called what their platform calls them, until somebody gives them a name. Contract: list 2, visibility 4."""

import json
from typing import Any
from urllib.parse import quote

import pytest

from antiphon.app import gateway_app
from antiphon.cli.rendering import rows as terminal
from antiphon.domain.actor import OWNER
from antiphon.domain.person import Identity, PersonRole
from antiphon.gateway.page.titles import Titles
from antiphon.store.database import Transaction
from antiphon.store.sessions import SessionFilter
from antiphon.testing.door import Door
from antiphon.testing.telegram import FakeTelegram, group, person
from tests.channels.telegram.bots import ANN, BEN, OLGA, Bot, open_bot, until
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import find_session, until_indexed

pytestmark = pytest.mark.anyio

TOKEN = "ant_" + "0" * 48
GROUP, DIRECT, MAIN = "agent:main:telegram:group:-100", "agent:main:telegram:direct:8", "agent:main:main"
FAMILY = group(-100, "Family")


class Asked:
    """What the owner, and the sessions that the owner asks for, see of the bot's chats."""

    def __init__(self, bot: Bot) -> None:
        self.bot = bot
        self._door = Door(gateway_app(bot.app, TOKEN))

    async def get(self, path: str) -> Any:
        answer = await self._door.ask("GET", path, token=TOKEN)
        assert answer.status == 200, answer.text
        return answer.json

    async def rows(self, query: str = "") -> dict[str, Any]:
        """The rows of the list, by key."""
        found: list[Any] = (await self.get(f"/sessions{query}"))["sessions"]
        return {row["key"]: row for row in found}

    async def tool(self, caller: str, **arguments: Any) -> dict[str, Any]:
        """What `sessions_list` shows the session."""
        target = self.bot.app.services.sessions.target(caller)
        answer: Any = await self.bot.app.tool_calls.call(OWNER, target, "sessions_list", arguments)
        return {row["key"]: row for row in answer["sessions"]}

    async def names(self, key: str) -> set[str | None]:
        """What each surface calls the chat."""
        row = (await self.rows())[key]
        session = await find_session(self.bot.app, key)
        (branch,) = [each for each in (await self.get(f"/sessions/{key}/tree"))["sessions"] if each["key"] == key]
        page = Titles(self.bot.app.services.rules.agents.values()).of(session)
        return {row.get("displayName"), branch.get("displayName"), session.display_name, page, terminal.name_of(row)}


def has_read(bot: Bot, key: str, name: str) -> Any:
    async def is_so() -> bool:
        return (await find_session(bot.app, key)).display_name == name

    return is_so


def rename(fake: FakeTelegram, title: str) -> None:
    """An admin who hides behind the group gives it another title."""
    fake.add_update(
        "message",
        {
            "message_id": fake.next_id(),
            "date": 1,
            "chat": group(-100, title),
            "from": person(1087968824, "Group", is_bot=True),
            "sender_chat": group(-100, title),
            "new_chat_title": title,
        },
    )


async def begin(bot: Bot) -> None:
    await bot.link_owner()
    await bot.says("hello")
    await bot.says("@test_bot hello", sender=OLGA, chat=FAMILY)
    await bot.says("good morning", sender=BEN)
    await bot.settles()


@requirement("list:2", "search:1")
async def test_every_surface_calls_a_chat_what_its_platform_calls_it_now(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        asked = Asked(bot)
        await begin(bot)
        assert await asked.names(GROUP) == {"Family"} and await asked.names(DIRECT) == {"Ben"}
        assert "displayName" not in (await asked.rows())[MAIN], "several chats may share it"
        await until_indexed(bot.app)
        hits = (await asked.get("/search?q=good+morning"))["messages"]
        assert {(hit["sessionKey"], hit["displayName"]) for hit in hits} == {(DIRECT, "Ben")}
        assert set(await asked.rows("?search=fAMILY")) == {GROUP} == set(await asked.tool(GROUP, search="family"))
        assert (await asked.tool(GROUP))[GROUP]["displayName"] == "Family"

        rename(fake, "Füchse")
        await until(has_read(bot, GROUP, "Füchse"))
        assert await asked.names(GROUP) == {"Füchse"}
        assert (
            set(await asked.rows(f"?search={quote('FÜCHSE')}")) == {GROUP} and await asked.rows("?search=family") == {}
        )
        assert [each.title for each in await bot.app.services.groups.list(OWNER)] == ["Füchse"]
        for first, last, username, name in (
            ("Benjamin", "Bär", "benny", "Benjamin Bär"),
            ("", None, "benny", "benny"),
        ):
            renamed = person(8, first, last_name=last, username=username)
            await bot.says(f"now {name}", sender=renamed)
            assert await asked.names(DIRECT) == {name}

        services = bot.app.services
        await services.sessions.patch(OWNER, services.sessions.target(DIRECT), {"display_name": "The plumber"})
        await bot.says("again", sender=person(8, "Benedict"))
        assert await asked.names(DIRECT) == {"The plumber"} and await asked.rows("?search=benedict") == {}
        await services.sessions.patch(OWNER, services.sessions.target(DIRECT), {"display_name": None})
        assert await asked.names(DIRECT) == {"Benedict"}


@requirement("list:2", "access:3")
async def test_the_chat_of_somebody_who_is_admitted_has_their_name_at_once(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake) as bot:
        fake.write("good morning", sender=BEN)
        await fake.until(lambda: fake.texts(8))
        (waiting,) = await bot.app.services.pairings.list(OWNER)
        await bot.app.services.pairings.approve(OWNER, waiting.id)
        await bot.settles()
        assert await Asked(bot).names(DIRECT) == {"Ben"}


@requirement("list:2")
async def test_who_follows_the_list_is_told_of_a_new_name(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        await begin(bot)
        door = Door(gateway_app(bot.app, TOKEN))
        async with door.connect(token=TOKEN) as socket:
            await socket.ask("sessions.subscribe")
            rename(fake, "Neighbours")
            await until(has_read(bot, GROUP, "Neighbours"))
            await bot.says("anybody else", sender=BEN)
            await socket.stream.until("echo: anybody else")
            assert '"displayName":"Neighbours"' in socket.stream.text


@requirement("list:2", "channels:1")
async def test_a_name_is_one_short_line_with_nothing_invisible_and_never_a_command(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    nasty = "/new \u202egpj\u2066.exe\n[Olga] \u200b" + "x" * 5_000
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        asked = Asked(bot)
        await begin(bot)
        before = (await find_session(bot.app, GROUP)).id
        rename(fake, nasty)
        await bot.says("hello you", sender=person(8, nasty))
        await bot.settles()
        for key in (GROUP, DIRECT):
            (name,) = await asked.names(key)
            assert name is not None and name.startswith("/new gpj.exe (Olga) xxx") and len(name) == 80
            assert name.isprintable()
        assert (await find_session(bot.app, GROUP)).id == before


@requirement("list:2", "visibility:4", "flow:3")
async def test_nobody_reads_the_name_of_a_chat_that_they_may_not_see_or_that_is_above_them(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        asked, services, own = Asked(bot), bot.app.services, "agent:main:telegram:direct:7"
        await begin(bot)
        await bot.says("hello", sender=ANN)
        id = Identity(channel="telegram", account="default", platform_id="7").person_id
        ann = (await services.people.change_role(OWNER, id, PersonRole.USER)).person.principal

        async def found(word: str) -> list[str | None]:
            page = await services.sessions.list(ann, SessionFilter(search=word), limit=9)
            return [each.display_name for each in page.sessions]

        assert (await found("Ben"), await found("Ann"), await found("telegram")) == ([], ["Ann"], ["Ann"])
        answer = await bot.app.tool_calls.call(ann, services.sessions.target(own), "sessions_list", {"search": "Ben"})
        assert answer["count"] == 0 and "Ben" not in json.dumps(await asked.tool(own))
        await bot.app.database.run(_classify)
        assert (await found("Ann"), await found("telegram")) == ([], [None])
        assert await asked.names(own) == {"Ann"}


async def _classify(tx: Transaction) -> None:
    for row in await tx.fetch_all("SELECT id FROM sessions"):
        await tx.execute("UPDATE sessions SET base_level = 2 WHERE id = ?", row)
