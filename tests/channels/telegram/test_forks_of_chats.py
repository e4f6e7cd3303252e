"""Children that begin with a copy of a chat: the copy counts for whoever let it be made. Contract: access 4."""

from typing import Any

import pytest

from antiphon.store.database import Query
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import BEN, OLGA, Bot, open_bot
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call

pytestmark = pytest.mark.anyio

SHARE = 24_000
WORDS = "x" * 3_000


async def rows(bot: Bot, statement: str) -> list[tuple[Any, ...]]:
    async def read(query: Query) -> list[tuple[Any, ...]]:
        return await query.fetch_all(statement)

    return await bot.app.database.read(read)


async def copies(bot: Bot) -> list[int]:
    """What each child counts for the person who let it be made."""
    found = await rows(
        bot,
        "SELECT SUM(t.stored_bytes) FROM sessions s LEFT JOIN participants t ON t.session = s.id "
        "WHERE s.source_kind = 'spawn' GROUP BY s.id ORDER BY s.id",
    )
    return [int(size or 0) for (size,) in found]


async def spawn(bot: Bot, fake: FakeTelegram, sender: Json, **more: Any) -> str:
    """Lets the chat's agent make a child with the conversation; what the chat is told of it."""
    count = len(fake.texts(sender["id"]))
    fake.write(to_call("sessions_spawn", task="!say done", context="fork", **more), sender=sender)
    await bot.settles()
    return "\n".join(fake.texts(sender["id"])[count:])


@requirement("access:4", "sessions:8")
async def test_the_copy_counts_for_the_guest_who_lets_it_be_made_and_is_refused_before_a_row_is_written(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    more: Json = {
        "access__roles": {"guest": {"tools": ["sessions_spawn"]}},
        "agents__defaults": {"subagents": {"max_children_per_agent": 100}},
        "limits__guest": {"stored_bytes": SHARE},
        "tools__approval": {"require": [], "people": []},
    }
    async with open_bot(open_home, fake, access="public", **more) as bot:
        await bot.link_owner()
        await bot.says("hello")
        await bot.says(WORDS, sender=BEN)
        assert '"accepted"' in await spawn(bot, fake, BEN)
        (copied,) = await copies(bot)
        assert copied > len(WORDS)
        told, before = "", list[list[tuple[Any, ...]]]()
        while "guest_bytes" not in told:
            assert len(await copies(bot)) < 5
            before = [await rows(bot, f"SELECT COUNT(*) FROM {table}") for table in ("sessions", "spawns")]
            told = await spawn(bot, fake, BEN)
        assert [await rows(bot, f"SELECT COUNT(*) FROM {table}") for table in ("sessions", "spawns")] == before
        assert sum(await copies(bot)) < SHARE
        assert '"accepted"' in await spawn(bot, fake, OLGA), "an owner has no share"
