"""All that a home stores, to see that something leaves nothing behind."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from antiphon.building import App
from antiphon.store.database import Query

SOURCE = Path(__file__).parent.parent / "src" / "antiphon"
AUDIT = frozenset({"audit_denials", "audit_rows", "audit_chains", "audit_seals", "audit_sealed"})
BESIDE = AUDIT | {"message_paces", "processes", "index_turns", "indexed_logs", "indexed_messages", "runs"}
"""What is written beside a refused act: its audit row, how many messages came, and what workers and the search do
meanwhile."""


async def stored_rows(app: App) -> Mapping[str, list[tuple[Any, ...]]]:
    """The rows of every table of the home, but for those of `BESIDE`."""
    tables = sorted(set(json.loads((SOURCE / "store/schema/newest.json").read_text())) - BESIDE)

    async def read(query: Query) -> dict[str, list[tuple[Any, ...]]]:
        found = {table: await query.fetch_all(f"SELECT * FROM {table}") for table in tables}
        return {table: sorted(rows, key=repr) for table, rows in found.items()}

    return await app.database.read(read)


@asynccontextmanager
async def nothing_stored(app: App) -> AsyncGenerator[None]:
    """Fails if what is done meanwhile leaves anything behind."""
    before = await stored_rows(app)
    yield
    after = await stored_rows(app)
    changed = {table: [row for row in rows if row not in before[table]] for table, rows in after.items()}
    gone = {table: [row for row in rows if row not in after[table]] for table, rows in before.items()}
    differing = [*((name, rows) for name, rows in (*changed.items(), *gone.items()) if rows)]
    assert not differing, differing
