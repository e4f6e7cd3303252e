"""`doctor --deep` finds each kind of damage, and says what to do."""

import re
import shutil
import sqlite3
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

import antiphon as antiphon_library
from antiphon.backends import DATABASE_NAME, inspect_database
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.ids import ApprovalId
from antiphon.store.inspection import JSON_COLUMNS
from antiphon.store.migrations import StoreUnusable, newest_schema
from antiphon.store.schema_origin import expected_columns
from antiphon.testing.ports import free_port
from tests.cli.program import antiphon, antiphon_json
from tests.conftest import OpenHome
from tests.gateway.served import serve
from tests.store.test_damage import WORD, change, damage_payload, zero_root
from tests.waiting import SECONDS

KEY = "agent:main:cli:damaged"
PROCESS = "INSERT INTO processes VALUES ('proc_old', 'all', 'here', 1, '0', '', '[]', 0, 0)"


@pytest.fixture(scope="module")
def left_home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A home with two messages, which nobody works on."""
    home = tmp_path_factory.mktemp("left") / "home"
    for text in ("first", WORD * 1_000):
        antiphon_json("chat", "-m", text, home=home)
    return home


@pytest.fixture
def written_home(left_home: Path, home: Path) -> Path:
    return shutil.copytree(left_home, home)


def test_a_sound_home_is_read_to_its_last_row(written_home: Path) -> None:
    env = {"ANTIPHON_PORT": str(free_port())}  # the usual port may belong to a gateway of somebody else
    checks = {check["name"]: check for check in antiphon_json("doctor", "--deep", home=written_home, env=env)["checks"]}
    assert checks["rows"]["status"] == "ok" and "can be read" in checks["rows"]["detail"]
    assert "rows" not in {check["name"] for check in antiphon_json("doctor", home=written_home, env=env)["checks"]}


def test_a_table_of_another_program_is_read_whatever_its_name(written_home: Path) -> None:
    change(written_home, 'CREATE TABLE "a ""name"" (x)" (x)')
    assert anyio.run(inspect_database, written_home, None).found == ()


def test_what_is_damaged_is_named_with_what_to_do(written_home: Path) -> None:
    change(written_home, "UPDATE events SET payload = '{' WHERE seq = 2")
    zero_root(written_home, "deliveries")
    read = antiphon("doctor", "--deep", home=written_home)
    text = " ".join(read.stdout.split())
    assert read.returncode == 1
    assert "rows of events 1 row holds values that cannot be read: session 1 seq 2 (payload)" in text
    assert "rows of deliveries cannot be read after 0 rows" in text
    assert "restore a backup" in text and "sessions history KEY" in text


def test_an_index_alone_is_told_from_damaged_rows(written_home: Path) -> None:
    zero_root(written_home, "participants_by_principal")
    (damage,) = anyio.run(inspect_database, written_home, None).found
    assert damage.part == "file" and "all rows can be read" in damage.detail


def test_an_index_that_lacks_entries_can_be_made_again(written_home: Path) -> None:
    named = "WHERE name = 'runs_newest'"
    path = written_home / DATABASE_NAME
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        kept = connection.execute(f"SELECT * FROM sqlite_master {named}").fetchone()
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute(f"DELETE FROM sqlite_master {named}")
    change(written_home, "DELETE FROM runs WHERE id = (SELECT min(id) FROM runs)")
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA writable_schema = ON")
        connection.execute("INSERT INTO sqlite_master VALUES (?, ?, ?, ?, ?)", kept)
    (damage,) = anyio.run(inspect_database, written_home, None).found
    assert damage.part == "indexes" and "REINDEX" in damage.remedy
    change(written_home, "REINDEX")
    assert anyio.run(inspect_database, written_home, None).found == ()


@pytest.mark.parametrize("table", sorted(expected_columns(newest_schema())))
def test_a_damaged_root_of_any_table_is_found(written_home: Path, table: str) -> None:
    zero_root(written_home, table)
    try:
        found = anyio.run(inspect_database, written_home, None).found
    except StoreUnusable as error:
        assert error.code == "store_corrupt"  # without it, the database cannot be known to be ours
    else:
        assert {table, "file"} <= {damage.part for damage in found}


def test_every_column_of_json_is_among_those_that_are_read() -> None:
    columns = expected_columns(newest_schema())
    assert all(set(readers) <= columns[table] for table, readers in JSON_COLUMNS.items())


def wipe() -> str:
    """Deletes."""
    return "wiped"


@pytest.mark.anyio
@pytest.mark.parametrize(
    ("table", "column"), [(table, name) for table, names in JSON_COLUMNS.items() for name in names if table != "events"]
)
async def test_the_remedy_for_a_damaged_value_mends_it(home: Path, table: str, column: str) -> None:
    async with antiphon_library.open(home, tools=[antiphon_library.tool(wipe, effects=["deletes"])]) as app:
        session = await app.sessions.open("one")
        asked = ApprovalId(str((await app.tools.call("wipe", session=session))["approvalId"]))
        await app.app.services.approvals.resolve(OWNER, asked, Verdict.ALWAYS)
        await app.app.services.approvals.wait(OWNER, asked, timedelta(seconds=SECONDS))
        child = await app.tools.call("sessions_spawn", {"task": "hello"}, session=session)
        await app.run(str(child["runId"])).wait()
    change(home, PROCESS, f"UPDATE {table} SET {column} = '{{'")
    (damage,) = (await inspect_database(home, None)).found
    assert damage.part == table and f" ({column})" in damage.detail
    mended = re.search(r"run (?:there|in the database): (.*?) WHERE (\w+) = ", damage.remedy)
    assert mended is not None and f"{mended[2]} " in damage.detail
    change(home, mended[1].replace("COLUMN", column))
    assert (await inspect_database(home, None)).found == ()
    async with antiphon_library.open(home) as app:
        assert len(await app.sessions.list()) == 2 and len(await app.runs.list()) == 1
        assert (await (await (await app.sessions.get("one")).post("hello")).wait()).status == "ok"


@pytest.mark.anyio
async def test_a_damaged_payload_is_found_in_either_database(
    home: Path, open_home: OpenHome, database_section: DatabaseSection
) -> None:
    url = None if database_section.url is None else database_section.url.get_secret_value()
    async with serve(open_home) as gateway:
        await gateway.open(KEY)
        await gateway.append(KEY, WORD)
        assert (await inspect_database(home, url)).found == ()
        await gateway.app.database.run(damage_payload, WORD)
        (damage,) = (await inspect_database(home, url)).found
    assert damage.part == "events" and "session 1 seq 2" in damage.detail
