"""Reads every row of a PostgreSQL database, to find what is damaged. Changes nothing."""

import psycopg
from psycopg import AsyncConnection

from antiphon.store.database import Row
from antiphon.store.inspection import BATCH, Damage, Inspection, TableReading
from antiphon.store.migrations import newest_schema
from antiphon.store.postgres.link import connect
from antiphon.store.postgres.schema import unreachable
from antiphon.store.schema_origin import expected_columns

REMEDY = (
    "Stop Antiphon and restore a backup. Without one, see the server's log and the chapter of PostgreSQL's manual on "
    "damaged data before anything is changed."
)


async def inspect_server(url: str) -> Inspection:
    """What is damaged in the database, which may be in use. Raises `StoreUnusable` if it cannot be reached."""
    rows, found = 0, list[Damage]()
    try:
        connection = await connect(url)
    except psycopg.OperationalError as error:
        raise unreachable(url, error) from error
    try:
        for table in sorted(expected_columns(newest_schema())):
            reading, damage = await _read_table(connection, table)
            rows += reading
            found += damage
    except psycopg.OperationalError as error:
        raise unreachable(url, error) from error
    finally:
        await connection.close()
    return Inspection(rows=rows, found=tuple(found))


async def _read_table(connection: AsyncConnection[Row], table: str) -> tuple[int, list[Damage]]:
    reading: TableReading | None = None
    try:
        async with connection.transaction(), connection.cursor(name="inspection") as cursor:
            await cursor.execute(f'SELECT * FROM "{table}"'.encode())
            assert cursor.description is not None
            reading = TableReading(table, [column.name for column in cursor.description])
            while rows := await cursor.fetchmany(BATCH):
                reading.add(rows)
    except psycopg.OperationalError:
        raise
    except psycopg.Error as error:
        count = 0 if reading is None else reading.rows
        broken = Damage(part=table, detail=f"cannot be read after {count} rows ({str(error).strip()})", remedy=REMEDY)
        return count, [broken, *(() if reading is None else reading.damage())]
    return reading.rows, list(reading.damage())
