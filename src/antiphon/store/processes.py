"""Rows of the processes that share a database, and whether they live."""

from msgspec import Struct

from antiphon.domain.ids import AgentId, ProcessId
from antiphon.store import codec
from antiphon.store.database import Query, Transaction
from antiphon.store.select_list import SelectList


class Process(Struct, frozen=True, kw_only=True):
    """A program at work on the database."""

    id: ProcessId
    role: str
    host: str
    pid: int
    version: str
    fingerprint: str
    """The fingerprint of its rules; equal for equal configurations."""
    agents: tuple[AgentId, ...]
    """The agents whose runs it can work on; empty if it works on none."""
    beats: int = 0
    """Increases while it lives."""


def _agents(text: str) -> tuple[AgentId, ...]:
    return tuple(map(AgentId, codec.json_list(text)))


_PROCESS = SelectList(Process, "id, role, host, pid, version, fingerprint, agents, beats", agents=_agents)


async def insert(tx: Transaction, process: Process, at_ms: int) -> None:
    """Stores its row, which may have been removed meanwhile or may still exist."""
    await tx.execute(
        "INSERT INTO processes (id, role, host, pid, version, fingerprint, agents, beats, started_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
        (
            process.id,
            process.role,
            process.host,
            process.pid,
            process.version,
            process.fingerprint,
            codec.json_text(process.agents),
            process.beats,
            at_ms,
        ),
    )


async def beat(tx: Transaction, process: ProcessId) -> bool:
    """Shows that it lives; False if its row was removed as dead."""
    return await tx.change("UPDATE processes SET beats = beats + 1 WHERE id = ?", (process,)) == 1


async def set_fingerprint(tx: Transaction, process: ProcessId, fingerprint: str) -> None:
    await tx.execute("UPDATE processes SET fingerprint = ? WHERE id = ?", (fingerprint, process))


async def delete_unchanged(tx: Transaction, process: ProcessId, beats: int) -> bool:
    """Removes a process as dead unless it has beaten meanwhile; returns whether it did."""
    return await tx.change("DELETE FROM processes WHERE id = ? AND beats = ?", (process, beats)) == 1


async def delete(tx: Transaction, process: ProcessId) -> None:
    await tx.execute("DELETE FROM processes WHERE id = ?", (process,))


async def list_all(query: Query) -> list[Process]:
    """By start time."""
    found = await query.fetch_all(f"SELECT {_PROCESS.text} FROM processes ORDER BY started_at, id")
    return [_PROCESS.read(row) for row in found]


async def is_alive(query: Query, process: ProcessId | None) -> bool:
    """Whether it has not been removed as dead; False for None."""
    return await query.fetch_one("SELECT 1 FROM processes WHERE id = ?", (process,)) is not None
