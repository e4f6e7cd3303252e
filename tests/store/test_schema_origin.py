"""A database that other migrations made is told from ours, and a merged migration stays as it is."""

import gzip
import json
import shutil
import sqlite3
from importlib import resources
from pathlib import Path

import anyio
import psycopg
import pytest

from antiphon.app import open_app
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content
from antiphon.store.migrations import StoreUnusable, migrations, newest_schema
from antiphon.store.postgres.schema import prepare
from antiphon.store.schema_origin import columns_made, expected_columns, hash_of
from tests.claims import requirement
from tests.postgres import fresh_database

pytestmark = pytest.mark.anyio

HERE = Path(__file__).parent
HASHES: dict[str, str] = json.loads((HERE / "schema_hashes.json").read_text("utf-8"))
"""Of each migration that was merged, for each database. Add those of a new one; never change one that stands here."""
HOMES = sorted((HERE / "homes").glob("*.db.gz"))
"""A home's database of each schema, as a gateway of its time left it."""


@pytest.mark.parametrize("dialect", ["sqlite", "postgres"])
def test_a_merged_migration_is_never_changed(dialect: str) -> None:
    assert dialect in ("sqlite", "postgres")
    found = {f"{number:04d}.{dialect}": hash_of(text) for number, _, text in migrations(dialect)}
    assert found == {name: hash for name, hash in HASHES.items() if name.endswith(dialect)}


@requirement("sessions:1")
@pytest.mark.parametrize("stored", HOMES, ids=lambda path: path.name)
async def test_a_home_of_every_schema_opens_and_works(stored: Path, home: Path) -> None:
    home.mkdir(mode=0o700)
    with gzip.open(stored) as source, (home / "antiphon.db").open("wb") as target:
        shutil.copyfileobj(source, target)
    async with open_app(home, Config()) as app:
        target = app.services.sessions.target("main")
        posted = await app.services.inbox.post(OWNER, target, text_content("again"))
        assert posted.run_id is not None
        page = await app.services.history.page(OWNER, target, limit=50)
        assert len(page.events) >= 3


def test_the_newest_schema_has_a_home() -> None:
    newest = max(number for number, _, _ in migrations())
    assert any(path.name.startswith(f"{newest:04d}") for path in HOMES)


@requirement("first_start:1")
@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE schema_hashes SET hash = 'other' WHERE version = 3",
        "DROP TABLE schema_hashes",
    ],
    ids=["other text", "other tables"],
)
async def test_a_database_of_another_build_is_refused_and_left_alone(home: Path, statement: str) -> None:
    async with open_app(home, Config()):
        pass
    path = home / "antiphon.db"
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
        connection.execute("ALTER TABLE runs ADD COLUMN of_another_build TEXT")
    before = path.read_bytes()
    with pytest.raises(StoreUnusable) as refused:
        async with open_app(home, Config()):
            pass
    assert refused.value.code == "store_other" and "another build" in refused.value.message
    assert path.read_bytes() == before


@pytest.mark.parametrize("statement", ["UPDATE schema_hashes SET hash = 'other'", "DROP TABLE schema_hashes"])
def test_so_is_one_on_a_server(statement: str) -> None:
    with fresh_database() as url:
        with psycopg.connect(url, autocommit=True) as connection:
            connection.execute(statement.encode())
            connection.execute("ALTER TABLE runs ADD COLUMN of_another_build TEXT")
        with pytest.raises(StoreUnusable) as refused:
            anyio.run(prepare, url, 0)
        assert refused.value.code == "store_other"


def test_what_tables_hold_is_known_for_every_schema() -> None:
    newest = max(number for number, _, _ in migrations())
    assert "purpose" in expected_columns(newest)["runs"] and "purpose" not in expected_columns(6)["runs"]


def test_the_stored_tables_are_those_that_the_migrations_make() -> None:
    """Write what is found into the file if a migration was added."""
    made = columns_made(newest_schema())
    found = json.dumps({table: sorted(names) for table, names in sorted(made.items())}, indent=1) + "\n"
    assert resources.files("antiphon.store").joinpath("schema", "newest.json").read_text("utf-8") == found
