"""Failures that last are logged once when they begin and once when they are over, at every place that tries again."""

import ast
import errno
import logging
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path

import psycopg
import pytest
from anyio import to_thread
from pydantic import SecretStr

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.errors import Unavailable
from antiphon.trouble import Setbacks, Trouble
from tests.gateway.served import serve
from tests.postgres import fresh_database
from tests.store.faulty_disk import FaultyDisk
from tests.test_doors import sources
from tests.waiting import until

logger = logging.getLogger("antiphon.test")

FULL = Unavailable("Disk is full", code="disk_full")
BUSY = Unavailable("Store is busy", code="store_busy")

LOGGED_EACH_TIME = {
    (
        "channels/telegram/intake.py",
        "Press was not answered",
    ): "one line for each press, and only where details are logged",
    ("channels/deltachat/account.py", "Invited person was not admitted"): "one line for each invitation, which is over",
    ("channels/discord/loop.py", "Event cannot be read"): "one line for each event, which is passed over",
    ("channels/discord/loop.py", "Press was not answered"): "one line for each press, which counts all the same",
    ("channels/matrix/client.py", "Keys could not be taken in"): "one line for each answer of the server",
    ("channels/matrix/loop.py", "Homeserver does not know where the account was"): "once; then all is asked for anew",
    ("channels/matrix/loop.py", "No citation"): "one line for each message, and only where details are logged",
    (
        "engine/chats/accounts.py",
        "Account is served elsewhere",
    ): "one line for each lost lease; a trouble has one of its own",
    ("engine/chats/accounts.py", "Lease was not released"): "once, at the end",
    ("engine/deliveries/acknowledgements.py", "Reactions were not looked at"): "once, at the start",
    ("engine/deliveries/deliverer.py", "Adapter failed"): "one line for each text, which is given up after a few",
    (
        "engine/chats/uploads.py",
        "Files of a message were not stored",
    ): "one line for each message, which says so itself",
    ("engine/sessions/deletion.py", "Workspace was not deleted"): "one line for each deleted session",
    ("engine/work/checkpointer.py", "Checkpoint failed"): "one line for each checkpoint, which ends by it",
    (
        "engine/work/checkpointer.py",
        "Checkpoint was taken over",
    ): "one line for each checkpoint, whose fence was raised",
    ("engine/work/worker.py", "Runner failed"): "one line for each run, which ends by it",
    ("store/postgres/schema.py", "Database not reached yet"): "once, at the start",
    ("store/sqlite.py", "Database was not closed cleanly"): "once for each connection, at the end",
}
"""Handlers that write a line each time, and why that does not repeat for as long as a failure lasts."""

SILENT = {
    ("channels/intake.py", "take"): "the loop's next statement says it; a bug has lines of its own",
    ("channels/account_loop.py", "_until_it_works"): "the trouble is noted, and logged once when it begins and ends",
    ("channels/discord/gateway.py", "_follow"): "the account's loop is handed the error",
    (
        "channels/account_loop.py",
        "_fetch",
    ): "what cannot be tried again is raised; the rest is the account's trouble",
    ("channels/account_loop.py", "store_name"): "every other statement of the process fails with it, and says so",
    ("engine/chats/held.py", "serve"): "every other statement of the process fails with it, and says so",
    (
        "engine/deliveries/acknowledgements.py",
        "_accompany",
    ): "every other statement of the process fails with it, and says so",
    ("engine/work/health.py", "run"): "the store says itself what it cannot do; a bug has a line of its own",
    ("feed/postgres.py", "_send_deltas"): "the stored message will contain all of it; a bug has a line of its own",
    ("engine/work/worker.py", "_finish"): "the worker has said it when it claimed, or will when it claims next",
    ("engine/work/worker.py", "_run_to_end"): "a bug of a runner has a line of its own, and ends the run",
    ("store/postgres/lane.py", "serve"): "every waiter gets the error",
    ("store/postgres/database.py", "_write"): "tries again for a while, then the waiter gets the error",
    ("store/postgres/database.py", "_read"): "tries again for a while, then the waiter gets the error",
    ("store/postgres/database.py", "_has_committed"): "tries again for a while, then the waiter gets the error",
}
"""Loops that try again without a line of their own, and why."""


def trouble() -> Trouble:
    return Trouble(logger, "Sweep", action="sweep_failed", means="Work waits.")


def told(log: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in log.records if record.name == logger.name]


def test_a_failure_that_lasts_is_said_once_with_what_it_means_and_once_when_it_is_over(
    caplog: pytest.LogCaptureFixture,
) -> None:
    sweep = trouble()
    sweep.worked()
    assert told(caplog) == []
    for _ in range(300):
        sweep.failed(FULL)
    assert told(caplog) == ["Sweep failed"]
    first = caplog.records[0].__dict__
    assert (first["action"], first["code"], first["means"]) == ("sweep_failed", "disk_full", "Work waits.")
    sweep.failed(BUSY)
    assert told(caplog) == ["Sweep failed", "Sweep failed"]  # another kind of failure
    sweep.worked()
    sweep.worked()
    assert told(caplog) == ["Sweep failed", "Sweep failed", "Sweep works again"]
    assert caplog.records[-1].__dict__["failures"] == 301


def test_a_failure_that_comes_and_goes_does_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sweep = trouble()
    for _ in range(100):
        sweep.failed(FULL)
        sweep.worked()
    assert told(caplog) == ["Sweep failed", "Sweep works again"]


def test_a_bug_is_shown_with_where_it_happened(caplog: pytest.LogCaptureFixture) -> None:
    sweep = trouble()
    try:
        raise LookupError("here")
    except LookupError as error:
        sweep.failed(error, session=7)
    assert caplog.records[0].exc_info is not None and caplog.records[0].__dict__["session"] == 7


def test_an_item_that_fails_is_said_once_with_its_ids_and_rests_while_others_go_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    setbacks = Setbacks(logger, "Task", action="task_failed", means="It waits.")
    for _ in range(3):
        for number in (1, 2):
            with setbacks.attempt(number, task_id=number):
                raise LookupError("planted")
        with setbacks.attempt(3, task_id=3):
            pass
    assert [setbacks.rests(number) for number in (1, 2, 3)] == [True, True, False] and len(setbacks) == 2
    assert told(caplog) == ["Task failed"] * 2
    assert [record.__dict__["task_id"] for record in caplog.records] == [1, 2]
    with setbacks.attempt(1, task_id=1):
        pass
    assert not setbacks.rests(1) and told(caplog)[-1] == "Task works again"


def test_what_the_store_refuses_to_all_is_no_items_own() -> None:
    setbacks = Setbacks(logger, "Task", action="task_failed", means="It waits.")
    with pytest.raises(Unavailable), setbacks.attempt(1):
        raise FULL
    with setbacks.attempt(1):
        raise Unavailable("A row cannot be read", code="store_corrupt")
    assert setbacks.rests(1) and len(setbacks) == 1


def inner_rooms() -> Iterator[tuple[str, ast.Module]]:
    for file, tree in sources():
        if file.startswith(("engine/", "feed/", "store/", "channels/")):
            yield file, tree


def test_no_handler_of_a_lasting_failure_writes_a_line_each_time() -> None:
    found = {
        (file, text)
        for file, tree in inner_rooms()
        for handler in ast.walk(tree)
        if isinstance(handler, ast.ExceptHandler)
        for text in logged_in(handler)
    }
    assert found == set(LOGGED_EACH_TIME)


def logged_in(handler: ast.ExceptHandler) -> Iterator[str]:
    for node in ast.walk(handler):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="logger")), args=[ast.Constant(value=str() as text), *_]
            ):
                yield text
            case _:
                pass


def test_every_loop_that_tries_again_says_when_it_fails_and_when_it_works_again() -> None:
    silent, says, unsaid = set[tuple[str, str]](), 0, list[str]()
    for file, tree in inner_rooms():
        for function in (node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)):
            for handler in handlers_in_loops(function):
                if calls(handler, "failed"):
                    says += 1
                    if not calls(tree, "worked"):
                        unsaid.append(f"{file}: {function.name}")
                else:
                    silent.add((file, function.name))
    assert silent == set(SILENT)
    assert unsaid == [] and says >= 14


def handlers_in_loops(function: ast.AsyncFunctionDef) -> Iterator[ast.ExceptHandler]:
    """Handlers of `Unavailable`, or of anything, in a `while` loop, after which the loop goes on."""
    for loop in (node for node in ast.walk(function) if isinstance(node, ast.While)):
        for handler in (node for node in ast.walk(loop) if isinstance(node, ast.ExceptHandler)):
            names = ast.unparse(handler.type) if handler.type is not None else "BaseException"
            is_broad = any(word in names for word in ("Unavailable", "Exception", "psycopg.Error", "OSError"))
            ends = isinstance(handler.body[-1], ast.Raise | ast.Return)
            if is_broad and not ends:
                yield handler


def calls(tree: ast.AST, name: str) -> bool:
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
        for node in ast.walk(tree)
    )


@pytest.mark.anyio
async def test_a_full_disk_is_shown_said_once_and_over_by_itself(home: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()

    def open_home(config: Config | None = None, parts: Parts | None = None) -> AbstractAsyncContextManager[App]:
        return open_app(home, config or Config(), Parts(connect=disk.connect))

    async with serve(open_home) as gateway:
        for number in range(3):
            await gateway.open(f"agent:main:cli:full-{number}")
        disk.error = errno.ENOSPC
        for _ in range(20):
            for number in range(3):
                posted = await gateway.client.post(
                    f"/sessions/agent:main:cli:full-{number}/messages", json={"text": "?"}
                )
                assert (posted.status_code, posted.json()["error"]["code"]) == (503, "disk_full")
        for _ in range(3):
            ready = await gateway.client.get("/ready")
            assert (ready.status_code, ready.json()["error"]["code"]) == (503, "disk_full")
        disk.error = None
        # Nothing but the question itself is sent, and the answer is right at once.
        assert (await gateway.client.get("/ready")).status_code == 200
        assert (await gateway.post("agent:main:cli:full-0", "stored"))["status"] == "ok"
    lines = Counter(record.message for record in caplog.records if record.name.startswith("antiphon"))
    assert lines["Storing failed"] == 1 and lines["Storing works again"] == 1
    assert max(lines.values()) == 1, lines


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as url:
        yield url


@pytest.mark.anyio
async def test_a_job_that_another_process_finished_in_the_same_moment_is_no_failure(
    home: Path, url: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_app(home, Config(database=DatabaseSection(url=SecretStr(url), connections=4))):
        await to_thread.run_sync(finish_under_the_sweep, url)
    assert [record.message for record in caplog.records if "failed" in record.message] == []


INSERT_JOB = (
    "INSERT INTO procrastinate_jobs (queue_name, task_name, args, status, worker_id) "
    "VALUES ('sessions', 'drive', '{\"session\": 99}', 'doing', %s) RETURNING id"
)
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
COUNT_JOB = "SELECT count(*) FROM procrastinate_jobs WHERE id = %s"
LET_DIE = "UPDATE procrastinate_workers SET last_heartbeat = now() - interval '1 hour' WHERE id = %s"


def finish_under_the_sweep(url: str) -> None:
    """Finishes the job of a dead worker while the gateway's sweep waits to do the same."""
    with psycopg.connect(url, autocommit=True) as other, psycopg.connect(url) as holder:
        worker = one(other, "INSERT INTO procrastinate_workers DEFAULT VALUES RETURNING id")
        first, second = one(other, INSERT_JOB, worker), one(other, INSERT_JOB, worker)
        holder.execute("SELECT id FROM procrastinate_jobs WHERE id = %s FOR UPDATE", (first,))
        other.execute(LET_DIE, (worker,))
        until(lambda: one(other, WAITING) > 0)
        holder.execute("DELETE FROM procrastinate_jobs WHERE id = %s", (first,))
        holder.commit()
        until(lambda: one(other, COUNT_JOB, second) == 0)


def one(connection: psycopg.Connection[tuple[int, ...]], statement: str, *values: object) -> int:
    row = connection.execute(statement.encode(), values).fetchone()
    assert row is not None
    return row[0]
