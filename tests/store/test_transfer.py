"""A home that moves from its file to PostgreSQL goes on there as it would have done in place."""

import shutil
import sqlite3
from collections.abc import Generator
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import psycopg
import pytest

from antiphon.app import open_app
from antiphon.backends import DATABASE_NAME, MOVED_SUFFIX, move_database
from antiphon.backups import restore_backup, write_backup
from antiphon.building import App, Parts
from antiphon.clock import SystemClock
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC
from antiphon.domain.errors import AntiphonError, Conflict
from antiphon.domain.ids import AgentId, RunId, SessionId, SessionRow
from antiphon.domain.message import AssistantMessage, text_content, text_of
from antiphon.domain.note import MemoryScope, ReadableNotes
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.session import DeliveryContext, Session, SessionSummary
from antiphon.domain.task import SlotOutcome
from antiphon.engine.memory.notes import find_notes
from antiphon.engine.memory.people import NoteSearch
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.store import checkpoints
from antiphon.store.database import SqlValue, Transaction
from antiphon.store.migrations import StoreUnusable
from antiphon.store.runs import RunFilter
from tests.engine.stage import HeldRunner, ManualClock, ask, config, open_session, post, read_log, wait_end
from tests.engine.tasks_bench import HOUR, Bench
from tests.postgres import fresh_database
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

SESSIONS = ("main", "api:queue", "api:asker", "api:asked")
ASK = "ask the other"


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as address:
        yield address


class AskingRunner(HeldRunner):
    """Holds runs like its parent, and lets one wait for the run of another session."""

    def __init__(self, asked: RunId | None = None) -> None:
        super().__init__()
        self.asked = asked
        self.is_asking = anyio.Event()

    async def run(self, context: RunContext) -> RunEnding:
        transcript = await context.read_log()
        newest = transcript.newest_input(context.run.id)
        if newest is None or text_of(newest.message.content) != ASK:
            return await super().run(context)
        assert self.asked is not None
        self.is_asking.set()
        ended = await context.wait_run(self.asked, timedelta(minutes=5))
        assert ended is not None
        reply = f"they said {ended.reply}"
        message = AssistantMessage(message_id="asker-1", content=text_content(reply), saw=transcript.last_seq)
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply=reply), message=message)


class Told(NamedTuple):
    """What a log tells that does not depend on when it happened."""

    seq: int
    type: str
    run_id: str | None
    text: str | None


async def begin(drained: Path, killed: Path) -> RunId:
    """Leaves two homes with the same running, queued and waiting work; returns the run that is waited for.

    The one was left in good order, the other is as a process leaves it that is killed.
    """
    runner = AskingRunner()
    async with open_app(drained, config(gateway__drain_seconds=0), Parts(runner=runner)) as app:
        for name in SESSIONS:
            await open_session(app, name)
        await post(app, "main", "m-1")
        for number in range(3):
            await post(app, "api:queue", f"q-{number}")
        runner.asked = (await post(app, "api:asked", "a-1")).run_id
        await runner.until_begun(3)
        await post(app, "api:asker", ASK)
        with anyio.fail_after(SECONDS):
            await runner.is_asking.wait()
            while not (await active(app))["agent:main:api:asker"].waiting_for:
                await anyio.lowlevel.checkpoint()
        shutil.copytree(drained, killed)
    assert runner.asked is not None
    return runner.asked


async def active(app: App) -> dict[str, Any]:
    runs = await app.services.runs.list(OWNER, RunFilter(statuses=frozenset({RunStatus.RUNNING})), limit=100)
    return {run.session_key: run for run in runs}


async def end(home: Path, settings: Config, asked: RunId) -> dict[str, Any]:
    """What becomes of the home's work once nothing holds it, and of a message that comes then."""
    runner = AskingRunner(asked)
    runner.release_all()
    async with open_app(home, settings, Parts(runner=runner)) as app:
        for run in await app.services.runs.list(OWNER, RunFilter(), limit=100):
            await wait_end(app, run.id)
        for name in SESSIONS:
            await ask(app, name, f"{name} again")
        assert not runner.overlapped
        runs = await app.services.runs.list(OWNER, RunFilter(), limit=100)
        return {
            "runs": {
                (run.session_key, run.seq): (run.status, run.reply, run.attempt, run.fence, run.mode) for run in runs
            },
            "logs": {name: [await told(app, event) for event in await read_log(app, name)] for name in SESSIONS},
        }


async def told(app: App, event: Any) -> Told:
    text = None if event.message is None else text_of(event.message.content)
    return Told(event.seq, event.type, None if event.run_id is None else await place_of(app, event.run_id), text)


async def place_of(app: App, run_id: RunId) -> str:
    """A run's session and number, which do not depend on chance as its id does."""
    run = await app.services.runs.get(OWNER, run_id)
    return f"{run.session_key} {run.seq}"


async def move(home: Path, url: str) -> dict[str, int]:
    with anyio.fail_after(SECONDS):
        return await move_database(home, url, SystemClock(), lambda table, done, total: None)


def on(url: str, **settings: Any) -> Config:
    return config(database={"url": url, "connections": 4}, **settings)


def rows_of_file(path: Path, table: str) -> list[tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        names = ", ".join(sorted(columns))
        return sorted(connection.execute(f"SELECT {names} FROM {table}").fetchall(), key=repr)


def rows_of_server(url: str, table: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url) as connection:
        cursor = connection.execute(
            "SELECT column_name FROM information_schema.columns WHERE table_schema = 'public' AND table_name = %s",
            (table,),
        )
        names = ", ".join(sorted(row[0] for row in cursor.fetchall()))
        return sorted(connection.execute(f"SELECT {names} FROM {table}".encode()).fetchall(), key=repr)


@pytest.mark.parametrize("left", ["drained", "killed"])
async def test_queued_running_and_waiting_work_ends_the_same_as_if_the_home_had_stayed(
    tmp_path: Path, url: str, left: str
) -> None:
    asked = await begin(tmp_path / "drained", tmp_path / "killed")
    home, stayed = tmp_path / left, tmp_path / "stayed"
    shutil.copytree(home, stayed)
    await move(home, url)
    there = await end(home, on(url), asked)
    here = await end(stayed, Config(), asked)
    assert there == here
    assert replies(there, "api:asker") == ["they said answer to a-1", "answer to api:asker again"]
    assert replies(there, "api:queue") == [f"answer to {text}" for text in ("q-0", "q-1", "q-2", "api:queue again")]


def replies(outcome: dict[str, Any], name: str) -> list[str]:
    """Of a session's runs, in their order."""
    runs = sorted((seq, run) for (key, seq), run in outcome["runs"].items() if key == f"agent:main:{name}")
    assert [run[0] for _, run in runs] == [RunStatus.OK] * len(runs)
    return [run[1] for _, run in runs]


async def test_every_row_arrives_and_runs_belong_to_nobody(tmp_path: Path, home: Path, url: str) -> None:
    await begin(tmp_path / "drained", home)
    counts = await move(home, url)
    old = home / (DATABASE_NAME + MOVED_SUFFIX)
    assert set(counts) == {
        "sessions",
        "incarnations",
        "participants",
        "events",
        "runs",
        "daily_usage",
        "people_usage",
        "message_paces",
        "tokens",
        "exchanges",
        "deliveries",
        "spawns",
        "reports",
        "attachments",
        "home_keys",
        "compartments",
        "people",
        "identities",
        "approvals",
        "calls",
        "standing_approvals",
        "tool_reviews",
        "skill_reviews",
        "trusted_content",
        "quarantined_results",
        "quarantined_values",
        "runner_states",
        "code_agents",
        "checkpoints",
        "unnoticed_events",
        "arrivals",
        "chat_names",
        "copies_under_way",
        "channel_accounts",
        "channel_positions",
        "thread_bindings",
        "native_sessions",
        "delivery_files",
        "groups_of_channels",
        "met_in_groups",
        "link_codes",
        "link_undos",
        "held_messages",
        "link_undo_rows",
        "pairings",
        "routes",
        "wrong_codes",
        "notes",
        "note_words",
        "tasks",
        "task_slots",
        "audit_chains",
        "audit_rows",
        "audit_denials",
        "audit_seals",
        "audit_sealed",
    }
    for table in counts:
        here, there = rows_of_file(old, table), rows_of_server(url, table)
        assert len(here) == counts[table]
        if table != "runs":
            assert there == here
    with closing(sqlite3.connect(old)) as connection, psycopg.connect(url) as server:
        statement = "SELECT id, status, fence, attempt, waiting_for, wait_until FROM runs ORDER BY id"
        assert server.execute(statement).fetchall() == connection.execute(statement).fetchall()
        assert {row[0] for row in connection.execute("SELECT process FROM runs")} != {None}
        assert server.execute("SELECT DISTINCT process FROM runs").fetchall() == [(None,)]


async def test_children_that_have_not_begun_move_with_what_they_were_given(home: Path, url: str) -> None:
    async with open_app(home, Config(), Parts(runner=HeldRunner())) as app:
        boss = await Story(app).opens("api:boss")
        files = [{"name": "raw", "content": "AAH/", "encoding": "base64"}]
        child = await boss.spawns("task", attachments=files)
    counts = await move(home, url)
    old = home / (DATABASE_NAME + MOVED_SUFFIX)
    assert (counts["spawns"], counts["reports"], counts["attachments"]) == (1, 1, 1)
    for table in ("spawns", "reports", "attachments"):
        assert rows_of_server(url, table) == rows_of_file(old, table)
    async with open_app(home, on(url)) as app:
        story = Story(app)
        await story.end_of(child.run_id)
        (place,) = (home / "workspaces").glob(f"*/*/{child.answer['attachments']['relDir']}")
        assert (place / "raw").read_bytes() == b"\0\1\xff"
        (record,) = await story.session("api:boss").records()
        assert record.result == "echo: task"


@pytest.mark.parametrize("how", ["moved", "restored"])
async def test_tasks_notes_and_checkpoints_go_on_in_another_place(
    tmp_path: Path, home: Path, url: str, how: str
) -> None:
    clock = ManualClock()
    async with open_app(home, Config(), Parts(clock=clock)) as app:
        b = Bench(app, clock)
        task = await b.make(name="Post", prompt="look \0 at it", place=DeliveryContext(channel="gone", to="42"))
        await b.passes(HOUR)
        await b.tasks.run(OWNER, task.id)
        await b.rests()
        shared = await app.services.notes.add(OWNER, AgentId("main"), "Mum is allergic to nuts.", is_shared=True)
        session = (await app.services.sessions.get(OWNER, b.target())).session
        await app.database.run(_covered, session)
        before = (await b.slots(task), await app.services.notes.list(OWNER, NoteSearch(), limit=10))
    if how == "moved":
        counts = await move(home, url)
        assert [counts[table] for table in ("tasks", "task_slots", "notes", "checkpoints")] == [1, 2, 1, 1]
        assert counts["note_words"] >= 3
        settings = on(url)
    else:
        write_backup(home, tmp_path / "home.backup", SystemClock(), replaces=False)
        home, settings = tmp_path / "restored", Config()
        restore_backup(tmp_path / "home.backup", home)
    async with open_app(home, settings, Parts(clock=clock)) as app:
        b = Bench(app, clock)
        there = await b.tasks.get(OWNER, task.id)
        assert (there.name, there.schedule, there.place) == (task.name, task.schedule, task.place)
        assert (await b.slots(task), await app.services.notes.list(OWNER, NoteSearch(), limit=10)) == before
        stored = await app.database.read(checkpoints.find, session.id)
        assert stored is not None and stored.through_seq == session.last_seq
        await b.passes(HOUR)
        assert [(slot.is_manual, slot.outcome) for slot in await b.slots(task)] == [
            (False, SlotOutcome.OK),
            (True, SlotOutcome.OK),
            (False, SlotOutcome.OK),
        ]
        readable = ReadableNotes(MemoryScope(AgentId("main"), "person:nobody"), PUBLIC)
        assert await app.database.read(find_notes, readable, ("nuts",), 5) == [shared]
        await app.services.notes.delete(OWNER, shared.id)
        await b.tasks.cancel(OWNER, task.id)


async def _covered(tx: Transaction, session: Session) -> None:
    columns: dict[str, SqlValue] = {"through_seq": session.last_seq}
    await checkpoints.set_columns(tx, SessionRow(session.row), SessionId(session.id), columns)


async def test_the_server_knows_at_once_how_many_rows_have_come(home: Path, url: str) -> None:
    async with open_app(home, Config()) as app:
        for number in range(3):
            await open_session(app, f"api:{number}")
    await move(home, url)
    with psycopg.connect(url) as server:
        assert server.execute("SELECT reltuples FROM pg_class WHERE relname = 'sessions'").fetchall() == [(3.0,)]


async def test_sessions_that_are_made_afterwards_get_rows_of_their_own(home: Path, url: str) -> None:
    async with open_app(home, Config()) as app:
        rows = [(await open_session(app, f"api:{number}")).row for number in range(3)]
    await move(home, url)
    async with open_app(home, on(url)) as app:
        assert (await open_session(app, "api:new")).row > max(rows)


async def test_what_postgresql_cannot_hold_is_replaced_where_it_is_shown_and_kept_in_the_log(
    home: Path, url: str
) -> None:
    async with open_app(home, Config()) as app:
        await open_session(app, "main")
        await ask(app, "main", "a\0b")
        before = (await read_log(app, "main"), await post(app, "main", "later \0", message_id="m-2"))
        await wait_end(app, before[1].run_id)
        before = await read_log(app, "main")
    await move(home, url)
    async with open_app(home, on(url)) as app:
        assert await read_log(app, "main") == before
    with psycopg.connect(url) as server:
        previews = server.execute("SELECT preview FROM sessions").fetchall()
    assert previews == [("echo: later \ufffd",)]


async def test_a_moved_home_is_not_begun_anew_by_accident(home: Path, url: str) -> None:
    async with open_app(home, Config()) as app:
        await open_session(app, "main")
    await move(home, url)
    with pytest.raises(StoreUnusable) as caught:
        async with open_app(home, Config()):
            pass
    assert caught.value.code == "store_moved" and "database.url" in caught.value.message
    old = home / (DATABASE_NAME + MOVED_SUFFIX)
    old.rename(home / DATABASE_NAME)
    async with open_app(home, Config()) as app:
        assert [str(session.key) for session in await listed(app)] == ["agent:main:main"]


async def listed(app: App) -> list[SessionSummary]:
    return (await app.services.sessions.list(OWNER, SessionFilter(), limit=10)).sessions


class TestWhatIsRefused:
    async def refused(self, home: Path, url: str, kind: type[AntiphonError] = StoreUnusable) -> AntiphonError:
        """What is said; the home's file and the target must stay as they were."""
        path = home / DATABASE_NAME
        before = path.read_bytes() if path.exists() else None
        with pytest.raises(kind) as caught:
            await move(home, url)
        assert (path.read_bytes() if path.exists() else None) == before
        return caught.value

    async def make(self, home: Path) -> None:
        async with open_app(home, Config()) as app:
            await open_session(app, "main")
            await ask(app, "main", "hello")

    async def test_a_home_without_a_database(self, home: Path, url: str) -> None:
        home.mkdir()
        assert (await self.refused(home, url)).code == "store_missing"

    async def test_a_home_that_is_in_use(self, home: Path, url: str) -> None:
        async with open_app(home, Config()) as app:
            await open_session(app, "main")
            assert (await self.refused(home, url)).code == "home_in_use"
            assert (await ask(app, "main", "hello")).reply == "echo: hello"
        assert rows_of_server(url, "sessions") == []

    async def test_a_target_that_has_sessions(self, tmp_path: Path, home: Path, url: str) -> None:
        await self.make(home)
        async with open_app(tmp_path / "other", on(url)) as app:
            await open_session(app, "api:other")
        error = await self.refused(home, url, Conflict)
        assert error.code == "target_not_empty"
        assert len(rows_of_server(url, "sessions")) == 1

    async def test_a_target_of_another_program(self, home: Path) -> None:
        await self.make(home)
        with fresh_database(is_empty=True) as foreign:
            with psycopg.connect(foreign, autocommit=True) as connection:
                connection.execute("CREATE TABLE notes (text TEXT)")
            assert (await self.refused(home, foreign)).code == "store_foreign"

    async def test_a_target_that_loses_rows(self, home: Path, url: str) -> None:
        await self.make(home)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(
                "CREATE FUNCTION lose() RETURNS trigger LANGUAGE plpgsql AS "
                "'BEGIN IF NEW.seq = 2 THEN RETURN NULL; END IF; RETURN NEW; END'"
            )
            connection.execute("CREATE TRIGGER lose BEFORE INSERT ON events FOR EACH ROW EXECUTE FUNCTION lose()")
        error = await self.refused(home, url)
        assert error.code == "move_failed" and "'events'" in error.message
        assert rows_of_server(url, "sessions") == rows_of_server(url, "runs") == []

    async def test_a_target_that_refuses_a_row(self, home: Path, url: str) -> None:
        await self.make(home)
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute("ALTER TABLE runs ADD CHECK (status <> 'ok')")
        error = await self.refused(home, url)
        assert error.code == "move_failed" and "The home was not changed" in error.message
        assert rows_of_server(url, "sessions") == []

    async def test_the_file_of_an_earlier_move(self, home: Path, url: str) -> None:
        await self.make(home)
        old = home / (DATABASE_NAME + MOVED_SUFFIX)
        old.write_text("of an earlier move")
        assert (await self.refused(home, url, Conflict)).code == "moved_before"
        assert old.read_text() == "of an earlier move"
