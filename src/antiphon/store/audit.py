"""Rows of the chains of processes, the denials that become such rows, and seals over all heads. Contract: flow 12."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from antiphon.domain.audit import AuditKind, AuditRow, SealedHead
from antiphon.domain.hash_chain import SEALS, first_hash, name_of_log, name_of_process, next_hash
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import JsonObject
from antiphon.store import codec
from antiphon.store.claims import is_left
from antiphon.store.database import Query, Row, Transaction

ROWS_AT_ONCE = 500
HASHED_ROW = "process, n, created_at, kind, content, count"
"""The columns over which the hash of a row is made, in this order."""
_SECRET = "SELECT secret FROM home_keys WHERE id = 1"


async def append(
    tx: Transaction, kind: AuditKind, content: Mapping[str, object], *, count: int = 1, at_ms: int | None = None
) -> None:
    """Adds a row to the chain of the process that runs the unit.

    Other units of the process that add rows wait until this one commits.
    """
    process = tx.process
    row = await tx.fetch_one(
        "UPDATE audit_chains SET last_n = last_n + 1 WHERE process = ? RETURNING last_n, head", (process,)
    )
    if row is None:
        start = first_hash(await find_secret(tx), name_of_process(process))
        row = await tx.fetch_one(
            "INSERT INTO audit_chains (process, last_n, head) VALUES (?, 1, ?) "
            "ON CONFLICT (process) DO UPDATE SET last_n = audit_chains.last_n + 1 RETURNING last_n, head",
            (process, start),
        )
    assert row is not None
    n, head = row
    values = (process, n, tx.now_ms if at_ms is None else at_ms, kind.value, codec.json_text(content), count)
    hash = next_hash(head, values)
    await tx.execute(f"INSERT INTO audit_rows ({HASHED_ROW}, hash) VALUES (?, ?, ?, ?, ?, ?, ?)", (*values, hash))
    await tx.execute("UPDATE audit_chains SET head = ? WHERE process = ?", (hash, process))


async def find_secret(query: Query) -> str:
    """What first hashes are made of."""
    row = await query.fetch_one(_SECRET)
    return "" if row is None else row[0]


async def list_rows(
    query: Query, *, kind: AuditKind | None = None, before: tuple[int, str, int] | None = None, limit: int
) -> list[AuditRow]:
    """Of all processes, newest first; `before` is the time, process and number of the last row of the page before."""
    conditions, values = ["1 = 1"], list[str | int]()
    if kind is not None:
        conditions.append("kind = ?")
        values.append(kind.value)
    if before is not None:
        conditions.append("(created_at, process, n) < (?, ?, ?)")
        values += before
    rows = await query.fetch_all(
        f"SELECT {HASHED_ROW} FROM audit_rows WHERE {' AND '.join(conditions)} "
        "ORDER BY created_at DESC, process DESC, n DESC LIMIT ?",
        (*values, limit),
    )
    return [_row(row) for row in rows]


def _row(row: Row) -> AuditRow:
    process, n, created_at, kind, content, count = row
    return AuditRow(
        process=process, n=n, at=codec.moment(created_at), kind=kind, content=codec.json_object(content), count=count
    )


async def count_denial(tx: Transaction, caller: str, digest: str, content: JsonObject) -> None:
    """Counts one more denial like it."""
    await tx.execute(
        "INSERT INTO audit_denials (process, caller, digest, content, first_at, count) VALUES (?, ?, ?, ?, ?, 1) "
        "ON CONFLICT (process, caller, digest) DO UPDATE SET count = audit_denials.count + 1",
        (tx.process, caller, digest, codec.json_text(content), tx.now_ms),
    )


async def has_denials(query: Query) -> bool:
    """Whether any denial is being counted."""
    return await query.fetch_one("SELECT 1 FROM audit_denials LIMIT 1", ()) is not None


async def settle_denials(tx: Transaction, before_ms: int) -> int:
    """Makes rows of denials that were first counted before then, and of those of processes that are gone.

    Also of those that a clock which was set back since left in the future.
    """
    found = await tx.fetch_all(
        "SELECT process, caller, digest, content, first_at, count FROM audit_denials "
        f"WHERE (process = ? AND (first_at <= ? OR first_at > ?)) OR (process <> ? AND {is_left('process')}) "
        f"ORDER BY first_at LIMIT {ROWS_AT_ONCE}",
        (tx.process, before_ms, tx.now_ms, tx.process),
    )
    for process, caller, digest, content, first_at, count in found:
        values = (process, caller, digest)
        deleted = await tx.change("DELETE FROM audit_denials WHERE process = ? AND caller = ? AND digest = ?", values)
        if deleted:
            await append(tx, AuditKind.DENIED, codec.json_object(content), count=count, at_ms=first_at)
    return len(found)


class Sealed(Struct, frozen=True, kw_only=True):
    """A seal: the hash over the one before it and the heads that changed since."""

    n: int
    at: datetime
    heads: tuple[SealedHead, ...]
    hash: bytes


async def seal(tx: Transaction, sessions: Sequence[SessionRow] | None) -> Sealed | None:
    """Seals the heads of these logs, or of all, and of all processes, as far as they changed; None if none has.

    No two units seal at once.
    """
    end = await tx.fetch_one(
        "UPDATE audit_sealed SET number = number + 1 WHERE chain = ? RETURNING number, hash", (SEALS,)
    )
    if end is None:
        start = first_hash(await find_secret(tx), SEALS)
        end = await tx.fetch_one(
            "INSERT INTO audit_sealed (chain, number, hash) VALUES (?, 1, ?) "
            "ON CONFLICT (chain) DO UPDATE SET number = audit_sealed.number + 1 RETURNING number, hash",
            (SEALS, start),
        )
    assert end is not None
    n, before = end
    heads = [*await _changed_logs(tx, sessions), *await _changed_processes(tx)]
    if not heads:
        await tx.execute("UPDATE audit_sealed SET number = number - 1 WHERE chain = ?", (SEALS,))
        return None
    text = codec.json_text([[head.chain, head.number, head.hash.hex()] for head in heads])
    hash = next_hash(before, (n, tx.now_ms, text))
    await tx.execute(
        "INSERT INTO audit_seals (n, created_at, heads, hash) VALUES (?, ?, ?, ?)", (n, tx.now_ms, text, hash)
    )
    for head in (*heads, SealedHead(SEALS, n, hash)):
        await tx.execute(
            "INSERT INTO audit_sealed (chain, number, hash) VALUES (?, ?, ?) "
            "ON CONFLICT (chain) DO UPDATE SET number = excluded.number, hash = excluded.hash",
            (head.chain, head.number, head.hash),
        )
    return Sealed(n=n, at=tx.now, heads=tuple(heads), hash=hash)


async def _changed_logs(query: Query, sessions: Sequence[SessionRow] | None) -> list[SealedHead]:
    found: list[SealedHead] = []
    select = (
        "SELECT s.id, s.last_seq, s.head FROM sessions s LEFT JOIN audit_sealed e ON e.chain = 'session:' || s.id "
        "WHERE s.last_seq > 0 AND s.head IS NOT NULL AND (e.hash IS NULL OR e.hash <> s.head)"
    )
    parts = [()] if sessions is None else [sessions[at : at + 500] for at in range(0, len(sessions), 500)]
    for part in parts:
        among = f" AND s.id IN ({', '.join('?' * len(part))})" if part else ""
        found += (
            SealedHead(name_of_log(session), last_seq, head)
            for session, last_seq, head in await query.fetch_all(f"{select}{among} ORDER BY s.id", part)
        )
    return found


async def _changed_processes(query: Query) -> list[SealedHead]:
    rows = await query.fetch_all(
        "SELECT c.process, c.last_n, c.head FROM audit_chains c LEFT JOIN audit_sealed e "
        "ON e.chain = 'process:' || c.process WHERE e.hash IS NULL OR e.hash <> c.head ORDER BY c.process"
    )
    return [SealedHead(name_of_process(process), last_n, head) for process, last_n, head in rows]


async def find_newest_seal(query: Query) -> tuple[int, bytes] | None:
    """Its number and hash."""
    row = await query.fetch_one("SELECT n, hash FROM audit_seals ORDER BY n DESC LIMIT 1")
    return None if row is None else (row[0], row[1])


async def is_sealed(query: Query, n: int, hash: bytes) -> bool:
    """Whether the home has that seal."""
    row = await query.fetch_one("SELECT hash FROM audit_seals WHERE n = ?", (n,))
    return row is not None and row[0] == hash
