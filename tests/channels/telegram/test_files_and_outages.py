"""What a person's files and their backlog may cost: bytes, places in line, and nobody else's time."""

import pytest

from antiphon.store.database import Query
from antiphon.testing.faults import Fault
from antiphon.testing.telegram import FakeTelegram, Json
from tests.channels.telegram.bots import ANN, BEN, FAMILY, Bot, open_bot, until
from tests.claims import requirement
from tests.conftest import OpenHome

pytestmark = pytest.mark.anyio


def document(fake: FakeTelegram, name: str, size: int = 1000) -> Json:
    return fake.add_file(b"x" * size, file_name=name)


async def nothing_waits(bot: Bot) -> bool:
    async def count(query: Query) -> int:
        row = await query.fetch_one("SELECT count(*) FROM held_messages")
        assert row is not None
        return int(row[0])

    return await bot.app.database.read(count) == 0


@requirement("channels:1")
async def test_the_owner_is_answered_while_files_of_guests_do_not_come(open_home: OpenHome, fake: FakeTelegram) -> None:
    async with open_bot(open_home, fake, access="public", access__messages_per_minute=1000) as bot:
        await bot.link_owner()
        fake.will("getFile", *[Fault.HANG] * 100)
        for number in range(100):
            fake.write(None, sender=ANN, caption=f"take {number}", document=document(fake, f"{number}.pdf"))
        for number in range(10):
            await bot.says(f"owner {number}")
        await bot.says("of another guest", sender=BEN)
        assert fake.sent_bytes == 0 and fake.texts(7) == []


@requirement("access:4")
async def test_a_flood_of_documents_fetches_no_more_than_the_guests_share(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    limits = {"stored_bytes": 50_000}
    async with open_bot(
        open_home, fake, access="public", access__messages_per_minute=1000, limits__guest=limits
    ) as bot:
        for number in range(100):
            fake.write(None, sender=ANN, caption=f"take {number}", document=document(fake, f"{number}.pdf", 4000))
        await bot.settles()
        await until(lambda: nothing_waits(bot))
        received = bot.app.home / "workspaces" / "main" / "received"
        assert 0 < sum(path.stat().st_size for path in received.rglob("*.pdf")) == fake.sent_bytes <= 50_000


@requirement("access:4", "groups:2")
async def test_members_who_do_not_address_the_bot_make_it_fetch_nothing(
    open_home: OpenHome, fake: FakeTelegram
) -> None:
    async with open_bot(open_home, fake, access="public", groups={"-100": {}}) as bot:
        for number in range(10):
            fake.write(
                None, sender=ANN, chat=FAMILY, caption=f"aside {number}", document=document(fake, f"{number}.pdf")
            )
        await bot.settles()
        assert fake.sent_bytes == 0 and "getFile" not in [method for method, _ in fake.requests]


@requirement("channels:1", "access:4")
async def test_what_was_written_while_no_process_ran_is_taken_in_whole(open_home: OpenHome, fake: FakeTelegram) -> None:
    now = fake.now()
    for number in range(100):
        fake.now = lambda number=number: now - 3600 + 10 * number
        fake.write(f"number {number}", sender=ANN)
    fake.now = lambda: now
    async with open_bot(open_home, fake, access="public") as bot:
        await fake.until(lambda: not fake.updates)
        await fake.until(lambda: "number 99" in "".join(fake.texts(7)))
        await bot.settles()
        assert not any("not taken in" in text for text in fake.texts(7))
