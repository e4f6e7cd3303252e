"""A PostgreSQL database that a test has changed is not used again; one that only got rows is, without the rows."""

import psycopg
import pytest

from tests.postgres import fresh_database

CHANGES = (
    "ALTER TABLE runs ADD CHECK (status <> 'ok')",
    "ALTER TABLE runs DROP CONSTRAINT runs_pkey CASCADE",
    "ALTER TABLE runs ALTER COLUMN status SET DEFAULT 'ok'",
    "ALTER TABLE runs ADD COLUMN later TEXT",
    "ALTER TABLE runs DISABLE TRIGGER ALL",
    "ALTER TABLE runs ENABLE ROW LEVEL SECURITY",
    "ALTER TABLE runs SET (fillfactor = 50)",
    "ALTER INDEX runs_newest RENAME TO runs_oldest",
    "CREATE INDEX other ON runs (status)",
    "DROP INDEX runs_newest",
    "CREATE TABLE other (text TEXT)",
    "CREATE VIEW other AS SELECT 1",
    "CREATE SCHEMA other",
    "CREATE SEQUENCE other",
    "CREATE FUNCTION other() RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE RULE other AS ON DELETE TO runs DO INSTEAD NOTHING",
    "CREATE POLICY other ON runs",
    "CREATE STATISTICS other ON status, session FROM runs",
    "ANALYZE schema_hashes",
    "REVOKE ALL ON runs FROM CURRENT_USER",
    "ALTER DATABASE {name} SET work_mem = '1MB'",
    "ALTER DATABASE {name} CONNECTION LIMIT 3",
)


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_the_database_ends_with_the_test(change: str) -> None:
    with fresh_database() as url, psycopg.connect(url, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(change.format(name=name).encode())
    with fresh_database() as url, psycopg.connect(url) as connection:
        assert connection.info.dbname != name


def test_rows_end_with_the_test_and_the_database_is_used_again() -> None:
    """Unless the server has counted its rows for plans meanwhile: then it is dropped."""
    names: list[str] = []
    hashes: list[list[tuple[object, ...]]] = []
    while len(names) < 10 and len(set(names)) == len(names):
        with fresh_database() as url, psycopg.connect(url, autocommit=True) as connection:
            names.append(connection.info.dbname)
            hashes.append(connection.execute("SELECT * FROM schema_hashes ORDER BY 1").fetchall())
            connection.execute("UPDATE schema_hashes SET hash = 'other'")
    assert len(set(names)) < len(names), "none was used again"
    assert all(each == hashes[0] for each in hashes)
