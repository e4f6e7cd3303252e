"""A session that was deleted and made anew has neither the place nor the classification of the deleted one."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.app import open_app
from antiphon.backends import DATABASE_NAME
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC, Classification, Level
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import config, open_session
from tests.story import telling

pytestmark = pytest.mark.anyio


@requirement("sessions:7")
async def test_a_session_made_anew_announces_nothing_where_the_deleted_one_spoke(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        asker, expert = await story.opens("asker"), await story.opens("expert")
        await expert.speaks_at("the old room")
        await story.deletes(expert)
        await story.opens("expert")
        await asker.sends_in_a_run("!say first\n!announce the new secret", label="expert")
        await story.settles()
        assert [(sent.place.to, sent.text) for sent in await story.deliveries()] == []


@requirement("sessions:7")
async def test_a_session_made_anew_begins_at_its_own_base(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        work = await story.opens("work", taint=Classification(Level.CONFIDENTIAL))
        await story.deletes(work)
        anew = await (await story.opens("work")).session()
        assert (anew.base, anew.taint) == (PUBLIC, PUBLIC)


OWN = {
    *("id", "key", "folded_key", "agent_id", "kind", "incarnation", "status", "type"),
    *("first_seq", "last_seq", "head", "chain_from"),
}
"""Columns that a session made anew has from its key, from its making, or from the log that goes on."""
OTHERS = {"description_source": "ai", "send_policy": "deny", "queue_mode": "collect", "metadata": "{}"}


@requirement("sessions:7")
async def test_nothing_of_the_deleted_row_is_left_in_that_of_the_session_made_anew(tmp_path: Path) -> None:
    home = tmp_path / "home"
    async with open_app(home, config()) as app:
        await open_session(app, "api:work")
    with closing(sqlite3.connect(home / DATABASE_NAME)) as connection, connection:
        found = connection.execute("SELECT name, type FROM pragma_table_info('sessions')").fetchall()
        old = {
            name: OTHERS.get(name, "old" if kind == "TEXT" else 1)
            for name, kind in found
            if name not in OWN and not name.startswith(("source_", "ancestor_", "parent")) and not name.endswith("d_at")
        }
        sets = ", ".join(f"{name} = ?" for name in old)
        connection.execute(f"UPDATE sessions SET {sets} WHERE key LIKE '%:work'", [*old.values()])
        connection.execute("UPDATE sessions SET pending_approvals = 0")  # none is deleted with open requests
    async with open_app(home, config()) as app:
        await app.services.sessions.delete(OWNER, app.services.sessions.target("api:work"))
        await open_session(app, "api:work")
        await open_session(app, "api:other")
    with closing(sqlite3.connect(home / DATABASE_NAME)) as connection:
        rows = connection.execute(f"SELECT {', '.join(old)} FROM sessions ORDER BY id").fetchall()
    anew, fresh = (dict(zip(old, row, strict=True)) for row in rows)
    assert anew == fresh
