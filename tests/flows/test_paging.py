"""Pages that are read while others write: what stood still is on exactly one of them."""

from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
import pytest

from antiphon.building import Parts
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, until_indexed
from tests.gateway.served import Json, Served, serve
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

STILL, MOVING, WRITERS = 20, 12, 3


class Load:
    """Writers that never rest; a reader waits at the gate until they have written since its last page."""

    def __init__(self, served: Served, clock: ManualClock) -> None:
        self._served = served
        self._clock = clock
        self._written = anyio.Event()
        self._count = 0

    async def write(self, writer: int) -> None:
        number = 0
        while True:
            number += 1
            self._clock.pass_time(timedelta(milliseconds=1))
            await self._served.append(f"api:moving{(writer + number) % MOVING}", f"needle of writer {writer} {number}")
            await self._served.open(f"api:new{writer}-{number}")
            self._count += 1
            self._written.set()

    async def gate(self) -> None:
        """Returns once every writer has had time to write since the last call."""
        wanted = self._count + WRITERS
        with anyio.fail_after(SECONDS):
            while self._count < wanted:
                await self._written.wait()
                self._written = anyio.Event()


@asynccontextmanager
async def under_load(open_home: OpenHome) -> AsyncGenerator[tuple[Served, Load]]:
    """Sessions that stand still since one moment lie between others, to which all writers write."""
    clock = ManualClock()
    async with serve(open_home, {"tools": {"sessions": {"visibility": "all"}}}, Parts(clock=clock)) as served:
        for number in range(STILL):
            await served.append((await served.open(f"api:still{number}"))["key"], f"needle that stands still {number}")
            if number < MOVING:
                await served.open(f"api:moving{number}")
        await until_indexed(served.app)
        load = Load(served, clock)
        async with anyio.create_task_group() as tasks:
            for writer in range(WRITERS):
                tasks.start_soon(load.write, writer)
            yield served, load
            tasks.cancel_scope.cancel()


async def read_all(load: Load, read: Callable[[Json], Awaitable[Json]], rows: str, name: str) -> list[str]:
    """The names of all pages' rows, each page read after more was written."""
    seen: list[str] = []
    page: Json = await read({})
    while True:
        seen += [str(row[name]) for row in page[rows]]
        if "nextCursor" not in page:
            return seen
        await load.gate()
        page = await read({"cursor": page["nextCursor"]})


def check(seen: list[str]) -> None:
    still = Counter(key for key in seen if ":still" in key)
    assert still == {f"agent:main:api:still{number}": 1 for number in range(STILL)}


@requirement("list:5", "gateway:4")
@pytest.mark.parametrize("path", ["/sessions", "/search?q=needle"])
async def test_what_stood_still_is_on_one_page_over_http(open_home: OpenHome, path: str) -> None:
    async with under_load(open_home) as (served, load):

        async def read(cursor: Json) -> Json:
            answer = await served.client.get(
                path, params={"limit": 3, **cursor} | ({"q": "needle"} if "q=" in path else {})
            )
            assert answer.status_code == 200, answer.text
            return answer.json()

        rows, name = ("sessions", "key") if path == "/sessions" else ("messages", "sessionKey")
        check(await read_all(load, read, rows, name))


@requirement("list:5")
async def test_what_stood_still_is_on_one_page_of_the_tool(open_home: OpenHome) -> None:
    async with under_load(open_home) as (served, load):
        reader = await Story(served.app).opens("reader")

        async def read(cursor: Json) -> Json:
            return await reader.calls("sessions_list", limit=3, messageLimit=1, **cursor)

        check(await read_all(load, read, "sessions", "key"))


@requirement("history:2")
async def test_a_history_that_grows_is_read_once_to_its_beginning(open_home: OpenHome) -> None:
    async with under_load(open_home) as (served, load):
        key = "agent:main:api:moving0"
        for number in range(9):
            await served.append(key, f"earlier {number}")
        before = [str(message["seq"]) for message in await served.messages(key)]

        async def read(cursor: Json) -> Json:
            return (await served.client.get(f"/sessions/{key}/history", params={"limit": 2, **cursor})).json()

        seen = Counter(await read_all(load, read, "messages", "seq"))
        assert len(before) >= 9 and all(seen[seq] == 1 for seq in before) and set(seen.values()) == {1}
