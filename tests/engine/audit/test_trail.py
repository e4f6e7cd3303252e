"""What writes no event is a row of its process's chain. Contract: flow 12, answers 2, 6."""

import random
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from antiphon.app import open_app
from antiphon.backends import DATABASE_NAME
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.agent import Effect
from antiphon.domain.audit import AuditKind, AuditRow, ChainFault
from antiphon.domain.classification import Classification, Level
from antiphon.domain.errors import Denied, NotFound
from antiphon.domain.person import Person, PersonId, PersonRole, person_principal
from antiphon.domain.targets import NamedTarget
from antiphon.domain.tool_review import ConfirmedTool
from antiphon.engine.audit import trail
from antiphon.engine.audit.check import check_home
from antiphon.feed.follow import Permit
from antiphon.gateway.sse import message_view
from antiphon.policy.system import system_grant
from antiphon.store import people
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.audit.tampering import Tamperer, check
from tests.engine.stage import ManualClock, config
from tests.story import Story, telling
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

SECRET = Classification(Level.INTERNAL)
CHAINS = {"events": ("session", "seq"), "audit_rows": ("process", "n"), "audit_seals": ("1", "n")}


async def a_guest(app: App, name: str = "anna") -> Principal:
    person = Person(id=PersonId(name), name=name, role=PersonRole.GUEST, created_at=app.services.clock.now())
    await app.database.run(people.insert, person)
    return person_principal(PersonId(name))


async def rows(app: App, kind: AuditKind | None = None) -> Sequence[AuditRow]:
    return await app.services.audits.list(OWNER, kind, limit=200, after=None)


async def look(app: App, who: Principal, name: str) -> None:
    with pytest.raises(NotFound):
        await app.services.sessions.get(who, app.services.sessions.target(f"api:{name}"))


@requirement("answers:2", "flow:12", "answers:6")
async def test_a_refusal_is_a_row_that_names_the_input(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        app = story.app
        await story.opens("api:hidden")
        guest = await a_guest(app)
        await look(app, guest, "hidden")
        await look(app, guest, "missing")
        with pytest.raises(Denied):
            await app.services.audits.list(guest, None, limit=5, after=None)
        denied = [(row.content["by"], row.content.get("input"), row.content["code"]) for row in await rows(app)]
        by = str(guest)
        assert sorted(denied, key=str) == sorted(
            [
                (by, "api:hidden", "not_found"),
                (by, "api:missing", "not_found"),
                (by, None, "forbidden"),
            ],
            key=str,
        )
        assert (await check_home(app.database)).findings == ()


@requirement("flow:12")
async def test_equal_refusals_of_a_minute_are_one_row_with_a_count(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        app = story.app
        guest, other = await a_guest(app), await a_guest(app, "ben")
        async with anyio.create_task_group() as tasks:
            for _ in range(5):
                tasks.start_soon(look, app, guest, "x")
        await look(app, other, "x")
        await app.services.trail.settle(trail.COUNTED)

        async def stored() -> int:
            return (await check_home(app.database)).rows

        assert await stored() == 0
        clock.pass_time(timedelta(minutes=2))
        await look(app, guest, "x")
        await app.services.trail.settle(trail.COUNTED)
        found = [(row.content["by"], row.count) for row in await rows(app, AuditKind.DENIED)]
        assert sorted(found) == [(str(guest), 6), (str(other), 1)]


async def test_nobody_fills_the_disk_with_names(open_home: OpenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trail, "MOST_INPUTS", 3)
    monkeypatch.setattr(trail, "MOST_CALLERS", 2)
    async with telling(open_home) as story:
        app = story.app
        for name in ("anna", "ben", "carl"):
            guest = await a_guest(app, name)
            for number in range(9):
                await look(app, guest, f"x-{number}")
        found = await rows(app, AuditKind.DENIED)
        assert sum(row.count for row in found) == 27
        assert len(found) == 4 + 4 + 1
        assert {str(row.content["by"]) for row in found} == {"person:anna", "person:ben", trail.OTHERS}


@requirement("flow:12")
async def test_what_a_person_reads_above_public_is_a_row_an_hour(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        app, services = story.app, story.app.services
        plain, private = await story.opens("plain"), await story.opens("private", taint=SECRET)
        for character in (plain, private):
            await character.answers("hello")
            for _ in range(3):
                await services.history.page(OWNER, character.target, limit=5)
        async for _ in services.history.events(OWNER, private.target):
            pass
        clock.pass_time(timedelta(hours=1))
        await services.history.page(OWNER, private.target, limit=5)
        session = (await private.session()).row
        found = [(row.content["by"], row.content["session"], row.content["level"]) for row in await rows(app)]
        assert found == [("person:owner", session, "INTERNAL")] * 2


@requirement("flow:12")
async def test_a_stream_of_what_is_above_public_is_a_row_at_its_beginning_and_its_end(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        app, services = story.app, story.app.services
        plain, private = await story.opens("plain"), await story.opens("private", taint=SECRET)
        view = message_view(services.names, include_tools=False)
        for character in (plain, private):
            await character.answers("hello")
            session = await character.session()
            watch = services.trail.watch(OWNER, session.row)
            permit = Permit(system_grant(session.row), watch=watch)
            async with services.hub.follow(permit, 0, view, on_stall=lambda: None) as reader:
                with anyio.fail_after(SECONDS):
                    while reader.cursor < session.last_seq:
                        await reader.next()
        private_row = (await private.session()).row
        await services.trail.settle()
        found = [(row.kind, row.content["session"]) for row in await rows(app)]
        assert found == [(AuditKind.STREAM_ENDED, private_row), (AuditKind.STREAM_OPENED, private_row)]


@requirement("flow:12")
async def test_what_an_owner_trusts_of_tools_is_a_row(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        services = story.app.services
        tool = ConfirmedTool(source="mcp:books", tool="read", sha256="0" * 64, effects=frozenset({Effect.READS}))
        await services.tool_reviews.confirm(OWNER, [tool])
        await services.tool_reviews.withdraw(OWNER, "mcp:books")
        found = [row.content["trusted"] for row in await rows(story.app, AuditKind.TRUSTED)]
        assert found == [False, True]


@requirement("flow:12")
async def test_what_stays_of_a_killed_process_is_a_row_of_the_next_one(tmp_path: Path) -> None:
    home, copy = tmp_path / "home", tmp_path / "copy"
    async with open_app(home, config()) as app:
        await look(app, await a_guest(app), "x")
        copy.mkdir(mode=0o700)
        with (
            closing(sqlite3.connect(home / DATABASE_NAME)) as source,
            closing(sqlite3.connect(copy / DATABASE_NAME)) as target,
        ):
            source.backup(target)
    async with open_app(copy, config()) as app:
        await app.services.trail.settle(trail.COUNTED)
        (row,) = await rows(app, AuditKind.DENIED)
        assert row.content["input"] == "api:x"
        assert (await check_home(app.database)).findings == ()


@requirement("flow:12")
async def test_every_change_of_both_kinds_of_chain_is_found(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with open_app(home, config(audit={"seal_to": str(tmp_path / "seals")})) as app:
        story = Story(app)
        guest = await a_guest(app)
        for name in ("one", "other"):
            character = await story.opens(name, taint=SECRET)
            for text in ("first", "!call sessions_list {}"):
                await character.answers(text)
                await look(app, guest, text[:5].strip("!"))
                await app.services.trail.settle()
                assert app.sealer is not None
                await app.sealer.seal()
            await app.services.history.page(OWNER, character.target, limit=5)
        await app.services.forks.fork(OWNER, NamedTarget(character.target.key, None), None)
    with closing(sqlite3.connect(home / DATABASE_NAME, isolation_level=None)) as connection:
        assert (await check(connection)).findings == ()
        tamperer = Tamperer(connection, random.Random(46), CHAINS)
        unseen: list[str] = []
        for _ in range(500):
            connection.execute("BEGIN")
            did = tamperer.tamper()
            found = (await check(connection)).findings
            connection.execute("ROLLBACK")
            if not found:
                unseen.append(did)
        assert unseen == []
        connection.execute("BEGIN")
        connection.execute("DELETE FROM audit_rows")
        connection.execute("DELETE FROM audit_chains")
        assert {each.fault for each in (await check(connection)).findings} == {ChainFault.CUT_OFF}
        connection.execute("ROLLBACK")
