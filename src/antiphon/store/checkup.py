"""Checks a database file without changing it."""

import sqlite3
from contextlib import closing
from datetime import datetime
from pathlib import Path

from msgspec import Struct

from antiphon.domain.chat_state import NO_CHATS, ChatState
from antiphon.domain.task_survey import NO_TASKS, TaskSurvey, survey
from antiphon.domain.telling import ToldText
from antiphon.store.chat_state import CHATS_SCHEMA, COUNT_ALLOWED, COUNT_ASKED, COUNT_OWNERS, LIST_TROUBLES
from antiphon.store.code_agents import COUNT_WAITING
from antiphon.store.database import Transaction
from antiphon.store.migrations import PROBE, StoreUnusable, newest_schema
from antiphon.store.search import LAG, SCHEMA
from antiphon.store.task_survey import LIST_SCHEDULES, NEWEST_CHANGE, TASKS_SCHEMA

COUNT_DELIVERIES = "SELECT status, count(*) FROM deliveries GROUP BY status"

LIST_TOLD = (
    "SELECT created_at, channel, recipient, text FROM deliveries WHERE cause IS NOT NULL ORDER BY id DESC LIMIT 5"
)
TOLD_SCHEMA = 45
"""From here on, texts that stand in the place of a reply say so."""

LIST_REVIEWED = "SELECT sha256 FROM tool_reviews"
LIST_SKILLS = "SELECT name, sha256 FROM skill_reviews"

COUNT_KEPT = "SELECT count(*) FROM reports WHERE stage = 'kept'"


class DatabaseState(Struct, frozen=True, kw_only=True):
    """The state of a readable database."""

    schema: int
    """The newest applied migration; 0 for none."""
    known_schema: int
    """The newest migration of this program."""
    problems: tuple[str, ...]
    """Problems reported by SQLite's quick check; empty if there are none."""
    outbox: dict[str, int]
    """The number of deliveries by status."""
    kept: int
    """Results of sub-agents without a recipient."""
    unindexed: int
    """Messages that cannot be searched yet."""
    told: tuple[ToldText, ...] = ()
    """What people were told last in place of a reply, newest first."""
    chats: ChatState = NO_CHATS
    tasks: TaskSurvey = NO_TASKS
    reviewed: frozenset[str] = frozenset()
    """Hashes of the tools that owners have reviewed."""
    skills: dict[str, str] = {}
    """The hashes of the skills that owners have reviewed, by name."""
    code_agents: dict[str, int] = {}
    """How many runs wait, by the agents that programs gave in code."""
    newest_change_ms: int = 0
    """When a session changed last, by the clock of the process that changed it."""


async def probe(tx: Transaction) -> None:
    """Stores nothing new; raises `Unavailable` if nothing can be stored."""
    for statement in PROBE:
        await tx.execute(statement)


def check_database(path: Path, now: datetime) -> DatabaseState:
    """The state of the file, which another process may be using. Raises `StoreUnusable` if it is not a database."""
    known = newest_schema()
    try:
        with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            found = [str(row[0]) for row in connection.execute("PRAGMA quick_check(5)").fetchall()]
            has_table = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'schema_migrations'").fetchone()
            schema = connection.execute("SELECT max(version) FROM schema_migrations").fetchone()[0] if has_table else 0
            has_outbox = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'deliveries'").fetchone()
            outbox = dict[str, int](connection.execute(COUNT_DELIVERIES).fetchall()) if has_outbox else {}
            has_reports = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'reports'").fetchone()
            is_told = found == ["ok"] and (schema or 0) >= TOLD_SCHEMA
            told = tuple(ToldText(*row) for row in connection.execute(LIST_TOLD)) if is_told else ()
            kept = connection.execute(COUNT_KEPT).fetchone()[0] if has_reports else 0
            unindexed = connection.execute(LAG).fetchone()[0] if found == ["ok"] and (schema or 0) >= SCHEMA else 0
            chats = _chats_in(connection) if found == ["ok"] and (schema or 0) >= CHATS_SCHEMA else NO_CHATS
            has_tasks = found == ["ok"] and (schema or 0) >= TASKS_SCHEMA
            tasks = survey(connection.execute(LIST_SCHEDULES), now) if has_tasks else NO_TASKS
            has_reviews = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tool_reviews'").fetchone()
            rows = connection.execute(LIST_REVIEWED).fetchall() if has_reviews else []
            reviewed = frozenset(str(row[0]) for row in rows)
            has_skills = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'skill_reviews'").fetchone()
            skills = dict[str, str](connection.execute(LIST_SKILLS).fetchall()) if has_skills else {}
            has_agents = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'code_agents'").fetchone()
            agents = dict[str, int](connection.execute(COUNT_WAITING).fetchall()) if has_agents else {}
            newest = connection.execute(NEWEST_CHANGE).fetchone()[0] if has_tasks else 0
    except sqlite3.DatabaseError as error:
        raise StoreUnusable(f"Database cannot be read: {str(path)!r} ({error})", code="store_corrupt") from error
    return DatabaseState(
        schema=schema or 0,
        known_schema=known,
        problems=tuple(line for line in found if line != "ok"),
        outbox=outbox,
        kept=kept,
        unindexed=unindexed,
        told=told,
        chats=chats,
        tasks=tasks,
        reviewed=reviewed,
        skills=skills,
        code_agents=agents,
        newest_change_ms=newest or 0,
    )


def _chats_in(connection: sqlite3.Connection) -> ChatState:
    return ChatState(
        troubles={(channel, account): said for channel, account, said in connection.execute(LIST_TROUBLES).fetchall()},
        owners=dict[str, int](connection.execute(COUNT_OWNERS).fetchall()),
        asked=dict[str, int](connection.execute(COUNT_ASKED).fetchall()),
        allowed=dict[str, int](connection.execute(COUNT_ALLOWED).fetchall()),
    )
