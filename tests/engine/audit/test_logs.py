"""The chain of each log: what may happen to a log leaves it whole, and nothing else does. Contract: flow 12."""

import gzip
import random
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from antiphon.app import open_app
from antiphon.backends import DATABASE_NAME
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.audit import ChainFault
from antiphon.domain.classification import Classification, Level
from antiphon.domain.ids import RunId
from antiphon.domain.message import text_content
from antiphon.domain.person import Person, PersonId, PersonRole
from antiphon.engine.audit.check import check_home
from antiphon.engine.sessions import forks
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.store.database import Query, Row, Transaction
from antiphon.store.people import insert
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.audit.tampering import Tamperer, check
from tests.engine.stage import START, ManualClock, config, open_session
from tests.story import Story, telling

pytestmark = pytest.mark.anyio

TAMPERINGS = 500
HOMES = sorted((Path(__file__).parents[2] / "store" / "homes").glob("*.db.gz"))
LOGS = {"events": ("session", "seq")}


def person(name: str) -> Person:
    return Person(id=PersonId(name), name=name, role=PersonRole.USER, created_at=START)


async def is_whole(app: App) -> int:
    """How many events have their place in the chains of all logs."""
    checked = await check_home(app.database)
    assert checked.findings == ()
    return checked.events


@requirement("flow:12")
async def test_what_happens_to_logs_leaves_their_chains_whole(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        app, services = story.app, story.app.services
        kept, gone = await story.opens("kept"), await story.opens("gone")
        for text in ("one", "!call sessions_list {}", "three"):
            await kept.answers(text)
        await gone.answers("secret")
        assert await is_whole(app) > 20
        await services.forks.fork(OWNER, kept.target, None)
        monkeypatch.setattr(forks, "PAGE_BYTES", 300)
        in_pages = await services.forks.fork(OWNER, kept.target, None)
        await Story(app).session(str(in_pages.key).removeprefix("agent:main:")).answers("goes on")
        await is_whole(app)
        await kept.spawns_in_a_run("work")
        await story.settles()
        await story.resets(kept)
        await kept.answers("in another life")
        await story.deletes(gone)
        await is_whole(app)
        await (await story.opens("gone")).answers("anew")
        await is_whole(app)
        clock.pass_time(timedelta(days=31))
        await kept.answers("late")
        upkeep = Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=timedelta(days=30))
        assert await upkeep.prune() > 10
        await kept.answers("later")
        assert await is_whole(app) > 10


@requirement("flow:12")
async def test_a_person_who_becomes_another_leaves_the_chains_whole(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        app, people = story.app, story.app.services.people
        for name in ("anna", "ben", "carl"):
            await app.database.run(insert, person(name))
        theirs = Classification(Level.PUBLIC, person="person:anna")
        work = await story.opens("work", taint=theirs)
        await work.answers("hello")
        await people.merge(OWNER, PersonId("anna"), PersonId("ben"))
        await work.answers("after that")
        await people.merge(OWNER, PersonId("ben"), PersonId("carl"))
        await is_whole(app)
        session = (await work.session()).row

        async def owners(query: Query) -> list[Row]:
            return await query.fetch_all(
                "SELECT DISTINCT person, hashed_person FROM events WHERE session = ? AND person IS NOT NULL", (session,)
            )

        of = "person:carl"
        assert {(of, "person:anna"), (of, "person:ben")} <= set(await app.database.read(owners))

        async def steal(tx: Transaction) -> None:
            await tx.execute("UPDATE events SET person = 'person:dora' WHERE session = ? AND person = ?", (session, of))

        await app.database.run(steal)
        assert {each.fault for each in (await check_home(app.database)).findings} == {ChainFault.CHANGED}


@requirement("flow:12")
async def test_a_fork_begins_with_the_head_of_its_source(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        source = await story.opens("source")
        await source.answers("one")
        for seq in (None, 2):
            fork = await story.app.services.forks.fork(OWNER, source.target, seq)

            async def heads(query: Query, fork: int = fork.row) -> Row | None:
                return await query.fetch_one(
                    "SELECT s.chain_from, e.hash FROM sessions s JOIN events e ON e.session = s.fork_source "
                    "AND e.seq = s.fork_seq WHERE s.id = ?",
                    (fork,),
                )

            found = await story.app.database.read(heads)
            assert found is not None and found[0] == found[1] is not None


async def test_every_change_of_a_log_is_found(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with open_app(home, config()) as app:
        story = Story(app)
        for name in ("one", "other"):
            character = await story.opens(name)
            for text in ("first", "!call sessions_list {}", "third"):
                await character.answers(text)
        await app.services.forks.fork(OWNER, character.target, None)
    with closing(sqlite3.connect(home / DATABASE_NAME, isolation_level=None)) as connection:
        chance = random.Random(12)
        tamperer = Tamperer(connection, chance, LOGS)
        assert (await check(connection)).findings == ()
        unseen: list[str] = []
        for _ in range(TAMPERINGS):
            connection.execute("BEGIN")
            did = tamperer.tamper()
            found = (await check(connection)).findings
            connection.execute("ROLLBACK")
            if not found:
                unseen.append(did)
        assert unseen == []


@requirement("flow:12")
@pytest.mark.parametrize("schema", ["0006", "0047", "0062"])
async def test_events_from_before_are_covered_by_one_hash(home: Path, schema: str) -> None:
    home.mkdir(mode=0o700)
    (stored,) = [path for path in HOMES if path.name.startswith(schema)]
    (home / DATABASE_NAME).write_bytes(gzip.decompress(stored.read_bytes()))
    async with open_app(home, config()) as app:
        before = await check_home(app.database)
        assert before.findings == () and before.covered > 0
        posted = await app.services.inbox.post(OWNER, app.services.sessions.target("main"), text_content("again"))
        await Story(app).end_of(posted.run_id or RunId(""))
        await app.services.forks.fork(OWNER, app.services.sessions.target("main"), None)
        after = await check_home(app.database)
        assert after.findings == () and after.covered == before.covered and after.events > before.events
    with closing(sqlite3.connect(home / DATABASE_NAME, isolation_level=None)) as connection:
        tamperer = Tamperer(connection, random.Random(3), LOGS)
        for _ in range(40):
            connection.execute("BEGIN")
            did = tamperer.tamper()
            assert (await check(connection)).findings, did
            connection.execute("ROLLBACK")


@requirement("flow:12")
async def test_a_finding_names_the_place(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with open_app(home, config()) as app:
        session = await open_session(app, "api:work")
        for text in ("first", "second"):
            await Story(app).session("api:work").answers(text)
    with closing(sqlite3.connect(home / DATABASE_NAME, isolation_level=None)) as connection:

        async def faults(statement: str) -> list[tuple[ChainFault, int]]:
            connection.execute("BEGIN")
            connection.execute(statement)
            found = (await check(connection)).findings
            connection.execute("ROLLBACK")
            assert {each.chain for each in found} == {f"session:{session.row}"}
            assert {each.name for each in found} == {"agent:main:api:work"}
            return [(each.fault, each.number) for each in found]

        of_log = f"session = {session.row}"
        (last,) = connection.execute(f"SELECT MAX(seq) FROM events WHERE {of_log}").fetchone()
        assert await faults(f"UPDATE events SET payload = payload || ' ' WHERE {of_log} AND seq = 3") == [
            (ChainFault.CHANGED, 3)
        ]
        assert (ChainFault.MISSING, 3) in await faults(f"DELETE FROM events WHERE {of_log} AND seq = 3")
        assert await faults(f"DELETE FROM events WHERE {of_log} AND seq = {last}") == [(ChainFault.CUT_OFF, last)]
        assert (ChainFault.BEGINNING, 2) in await faults(f"DELETE FROM events WHERE {of_log} AND seq = 1")
