"""A unit that runs again draws what it drew before: the moment, ids, random digits."""

from datetime import datetime

import anyio
import pytest

from antiphon.domain.errors import Conflict
from antiphon.domain.ids import SessionRow
from antiphon.request_ids import ServingRequest
from antiphon.store.codec import moment
from antiphon.store.database import Query, Transaction
from tests.conftest import OpenHome
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

ONE = SessionRow(1)
"""Units that name one session share commits, on either database."""

Drawn = tuple[int, datetime, str | None, str, str, str, str]


async def make_table(tx: Transaction) -> None:
    await tx.execute("CREATE TABLE kept (word TEXT)")


async def draw(tx: Transaction, runs: list[Drawn]) -> Drawn:
    drawn = (tx.now_ms, tx.now, tx.request_id, tx.new_id("run"), tx.new_id("msg"), tx.new_id("run"), tx.random_hex(12))
    runs.append(drawn)
    await tx.execute("INSERT INTO kept (word) VALUES (?)", (str(drawn),))
    return drawn


async def refuse(tx: Transaction) -> None:
    await tx.change("INSERT INTO kept (word) VALUES ('refused')")
    raise Conflict("refused")


async def words(query: Query) -> list[str]:
    return [row[0] for row in await query.fetch_all("SELECT word FROM kept")]


async def test_a_unit_that_runs_again_draws_the_same(open_home: OpenHome) -> None:
    runs: dict[str, list[Drawn]] = {name: [] for name in "abc"}
    results = dict[str, Drawn]()
    async with open_home() as app:
        await app.database.run(make_table)

        async def keep(name: str) -> None:
            with ServingRequest(f"req_{name}"):
                results[name] = await app.database.run(draw, runs[name], sessions=(ONE,))

        async def be_refused() -> None:
            with pytest.raises(Conflict):
                await app.database.run(refuse, sessions=(ONE,))

        with anyio.fail_after(SECONDS):
            while all(len(each) < 2 for each in runs.values()):  # until a refused one made another run again
                for each in runs.values():
                    each.clear()
                async with anyio.create_task_group() as tasks:
                    for name in runs:
                        tasks.start_soon(keep, name)
                        tasks.start_soon(be_refused)
        stored = await app.database.read(words)
    for name, drawn in runs.items():
        now_ms, now, request, first, message, second, digits = results[name]
        assert set(drawn) == {results[name]}, "each run drew the same"
        assert str(results[name]) in stored
        assert request == f"req_{name}"
        assert first < second, "and within the unit, each id is a new one"
        assert message.startswith("msg_")
        assert len(digits) == 12
        assert now == moment(now_ms)
    assert len({each for result in results.values() for each in result[3:]}) == 12, "no two units draw the same"
