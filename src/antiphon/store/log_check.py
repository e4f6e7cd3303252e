"""Reads logs for a check of their hashes, and checks them row by row. Contract: flow 12."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.audit import AuditKind, ChainFault, ChainFinding
from antiphon.domain.errors import Unavailable
from antiphon.domain.hash_chain import first_hash, name_of_log, next_hash
from antiphon.domain.ids import SessionRow
from antiphon.store import codec
from antiphon.store.database import Query
from antiphon.store.log_hashes import HASHED, values_of

ROWS_AT_ONCE = 2_000
_COLUMNS = (
    "s.id, s.key, s.last_seq, s.first_seq, s.head, s.chain_from, s.unchained_seq, s.covered, s.fork_source, "
    "s.fork_seq, EXISTS (SELECT 1 FROM copies_under_way c WHERE c.session = s.id)"
)


class LogToCheck(Struct, frozen=True):
    """What a session's row says of its log."""

    session: SessionRow
    key: str
    last_seq: int
    first_seq: int
    head: bytes | None
    chain_from: bytes | None
    unchained_seq: int
    covered: bytes | None
    fork_source: SessionRow | None
    fork_seq: int | None
    is_under_way: int
    """Whether the log is a copy that is not at its end yet."""

    def finding(self, fault: ChainFault, seq: int) -> ChainFinding:
        return ChainFinding(fault=fault, chain=name_of_log(self.session), number=seq, name=self.key)


Merged = Mapping[str, frozenset[str]]
"""Whom each person may have become."""


class KnownOfLog(NamedTuple):
    """What the rows of a log are held against."""

    sealed: Mapping[int, bytes]
    """The hashes that its events had when they were sealed, by their numbers."""
    merged: Merged


class LogPosition(Struct, frozen=True):
    """How far a log was checked."""

    log: LogToCheck
    hash: bytes
    """The hash in the last row that was read, else the one before the first."""
    seq: int = 0
    """The last event that was read; 0 for none."""
    count: int = 0
    covered: int = 0
    findings: tuple[ChainFinding, ...] = ()
    is_end: bool = False


async def list_logs(query: Query, after: SessionRow, limit: int) -> list[SessionRow]:
    """Those of living and deleted sessions, in the order of their rows."""
    rows = await query.fetch_all("SELECT id FROM sessions WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return [SessionRow(session) for (session,) in rows]


async def read_merged(query: Query) -> Merged:
    """Whom persons have become, by all that says so."""
    rows = await query.fetch_all("SELECT content FROM audit_rows WHERE kind = ?", (AuditKind.MERGED.value,))
    merged: dict[str, set[str]] = {}
    for (content,) in rows:
        with suppress(Unavailable):  # damage is found with the chain of the process
            found = codec.json_object(content)
            merged.setdefault(str(found.get("person")), set()).add(str(found.get("into")))
    return {person: _reached(merged, person) for person in merged}


def _reached(merged: Mapping[str, set[str]], person: str) -> frozenset[str]:
    reached, due = set[str](), [person]
    while due:
        for into in merged.get(due.pop(), ()):
            if into not in reached:
                reached.add(into)
                due.append(into)
    return frozenset(reached)


async def check_some(query: Query, session: SessionRow, before: LogPosition | None, known: KnownOfLog) -> LogPosition:
    """Checks the events that follow the position, as many as one page; begins anew if the log was pruned meanwhile.

    `known` is what its rows are held against.
    """
    row = await query.fetch_one(f"SELECT {_COLUMNS} FROM sessions s WHERE s.id = ?", (session,))
    assert row is not None, "the row of a session is never deleted"
    log = LogToCheck(*row)
    if before is None or (before.log.first_seq, before.log.chain_from) != (log.first_seq, log.chain_from):
        before = await _begin(query, log)
    rows = await query.fetch_all(
        f"SELECT {HASHED}, person, hashed_person, hash FROM events WHERE session = ? AND seq > ? "
        f"ORDER BY seq LIMIT {ROWS_AT_ONCE}",
        (session, before.seq),
    )
    position = _check_rows(log, before, rows, known)
    return position if len(rows) == ROWS_AT_ONCE else _end(log, position, known.sealed)


async def list_lost_logs(query: Query, limit: int) -> list[tuple[SessionRow, int]]:
    """The first event of each log whose session does not exist."""
    rows = await query.fetch_all(
        "SELECT session, MIN(seq) FROM events WHERE session NOT IN (SELECT id FROM sessions) GROUP BY session LIMIT ?",
        (limit,),
    )
    return [(SessionRow(session), seq) for session, seq in rows]


async def _begin(query: Query, log: LogToCheck) -> LogPosition:
    row = await query.fetch_one("SELECT secret FROM home_keys WHERE id = 1")
    start = first_hash("" if row is None else row[0], name_of_log(log.session))
    findings: list[ChainFinding] = []
    if log.first_seq == 1 and log.chain_from != await _fork_hash(query, log):
        findings.append(log.finding(ChainFault.BEGINNING, 1))
    return LogPosition(log, log.chain_from or start, findings=tuple(findings))


async def _fork_hash(query: Query, log: LogToCheck) -> bytes | None:
    """The hash of the event with which the log of a fork begins; the log's own word if that event was pruned."""
    if log.fork_source is None:
        return None
    row = await query.fetch_one(
        "SELECT s.first_seq, s.unchained_seq, s.covered, "
        "(SELECT e.hash FROM events e WHERE e.session = s.id AND e.seq = ?) FROM sessions s WHERE s.id = ?",
        (log.fork_seq, log.fork_source),
    )
    if row is None or log.fork_seq is None:
        return None
    first_seq, unchained_seq, covered, hash = row
    if log.fork_seq == unchained_seq:
        return covered
    return hash if log.fork_seq >= first_seq else log.chain_from


def _check_rows(
    log: LogToCheck, position: LogPosition, rows: Sequence[tuple[object, ...]], known: KnownOfLog
) -> LogPosition:
    before, last, covered = position.hash, position.seq, position.covered
    findings = list(position.findings)
    for row in rows:
        *values, person, hashed_person, stored = row
        seq = values[1]
        assert isinstance(seq, int)
        if last and seq != last + 1 and seq > log.unchained_seq + 1:
            findings.append(log.finding(ChainFault.MISSING, last + 1))
        elif not last and seq != log.first_seq and not (log.first_seq <= seq <= log.unchained_seq):
            findings.append(log.finding(ChainFault.BEGINNING, seq))
        made = next_hash(before, values_of(values))  # pyright: ignore[reportArgumentType] of a row
        if seq <= log.unchained_seq:
            covered += 1
            if stored is not None or (seq == log.unchained_seq and made != log.covered):
                findings.append(log.finding(ChainFault.CHANGED, seq))
            before = made
        else:
            if made != stored:
                findings.append(log.finding(ChainFault.CHANGED, seq))
            before = stored if isinstance(stored, bytes) else made
        if hashed_person is not None and not _has_become(known.merged, hashed_person, person):
            findings.append(log.finding(ChainFault.CHANGED, seq))
        if seq in known.sealed and known.sealed[seq] != before:
            findings.append(log.finding(ChainFault.REWRITTEN, seq))
        last = seq
    return LogPosition(log, before, last, position.count + len(rows), covered, tuple(findings))


def _has_become(merged: Merged, before: object, person: object) -> bool:
    return before == person or person in merged.get(str(before), ())


def _end(log: LogToCheck, position: LogPosition, sealed: Mapping[int, bytes]) -> LogPosition:
    """With what is wrong with the log's end."""
    expected = log.chain_from if position.seq == 0 else position.hash
    last = position.seq or log.first_seq - 1
    has_sealed = max(sealed, default=0) <= max(last, log.last_seq)
    is_whole = has_sealed and log.head == expected and (log.is_under_way or last == log.last_seq)
    found = () if is_whole else (log.finding(ChainFault.CUT_OFF, last + 1),)
    return replace(position, log=log, findings=(*position.findings, *found), is_end=True)
