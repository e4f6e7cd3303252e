"""Reads logs for a check of their hashes, and checks them row by row. Contract: flow 12."""

from collections.abc import Sequence

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.audit import Fault, Finding
from antiphon.domain.hash_chain import first_hash, name_of_log, next_hash
from antiphon.domain.ids import SessionRow
from antiphon.store.database import Query
from antiphon.store.log_hashes import HASHED, values_of

ROWS_AT_ONCE = 2_000
_COLUMNS = (
    "s.id, s.key, s.last_seq, s.first_seq, s.head, s.chain_from, s.unchained_until, s.covered, s.fork_source, "
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
    unchained_until: int
    covered: bytes | None
    fork_source: SessionRow | None
    fork_seq: int | None
    is_under_way: int
    """Whether the log is a copy that is not at its end yet."""

    def finding(self, fault: Fault, seq: int) -> Finding:
        return Finding(fault=fault, chain=name_of_log(self.session), number=seq, name=self.key)


class LogPosition(Struct, frozen=True):
    """How far a log was checked."""

    log: LogToCheck
    hash: bytes
    """The hash in the last row that was read, else the one before the first."""
    seq: int = 0
    """The last event that was read; 0 for none."""
    count: int = 0
    covered: int = 0
    findings: tuple[Finding, ...] = ()
    is_end: bool = False


async def list_logs(query: Query, after: SessionRow, limit: int) -> list[SessionRow]:
    """Those of living and deleted sessions, in the order of their rows."""
    rows = await query.fetch_all("SELECT id FROM sessions WHERE id > ? ORDER BY id LIMIT ?", (after, limit))
    return [SessionRow(session) for (session,) in rows]


async def check_some(query: Query, session: SessionRow, before: LogPosition | None) -> LogPosition:
    """Checks the events that follow the position, as many as one page; begins anew if the log was pruned meanwhile."""
    row = await query.fetch_one(f"SELECT {_COLUMNS} FROM sessions s WHERE s.id = ?", (session,))
    assert row is not None, "the row of a session is never deleted"
    log = LogToCheck(*row)
    if before is None or (before.log.first_seq, before.log.chain_from) != (log.first_seq, log.chain_from):
        before = await _begin(query, log)
    rows = await query.fetch_all(
        f"SELECT {HASHED}, hash FROM events WHERE session = ? AND seq > ? ORDER BY seq LIMIT {ROWS_AT_ONCE}",
        (session, before.seq),
    )
    position = _check_rows(log, before, rows)
    return position if len(rows) == ROWS_AT_ONCE else _end(log, position)


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
    findings: list[Finding] = []
    if log.first_seq == 1 and log.chain_from != await _fork_hash(query, log):
        findings.append(log.finding(Fault.BEGINNING, 1))
    return LogPosition(log, log.chain_from or start, findings=tuple(findings))


async def _fork_hash(query: Query, log: LogToCheck) -> bytes | None:
    """The hash of the event with which the log of a fork begins; the log's own word if that event was pruned."""
    if log.fork_source is None:
        return None
    row = await query.fetch_one(
        "SELECT s.first_seq, s.unchained_until, s.covered, "
        "(SELECT e.hash FROM events e WHERE e.session = s.id AND e.seq = ?) FROM sessions s WHERE s.id = ?",
        (log.fork_seq, log.fork_source),
    )
    if row is None or log.fork_seq is None:
        return None
    first_seq, unchained_until, covered, hash = row
    if log.fork_seq == unchained_until:
        return covered
    return hash if log.fork_seq >= first_seq else log.chain_from


def _check_rows(log: LogToCheck, position: LogPosition, rows: Sequence[tuple[object, ...]]) -> LogPosition:
    before, last, covered = position.hash, position.seq, position.covered
    findings = list(position.findings)
    for row in rows:
        *values, stored = row
        seq = values[1]
        assert isinstance(seq, int)
        if last and seq != last + 1 and seq > log.unchained_until + 1:
            findings.append(log.finding(Fault.MISSING, last + 1))
        elif not last and seq != log.first_seq and not (log.first_seq <= seq <= log.unchained_until):
            findings.append(log.finding(Fault.BEGINNING, seq))
        made = next_hash(before, values_of(values))  # pyright: ignore[reportArgumentType] of a row
        if seq <= log.unchained_until:
            covered += 1
            if stored is not None or (seq == log.unchained_until and made != log.covered):
                findings.append(log.finding(Fault.CHANGED, seq))
            before = made
        else:
            if made != stored:
                findings.append(log.finding(Fault.CHANGED, seq))
            before = stored if isinstance(stored, bytes) else made
        last = seq
    return LogPosition(log, before, last, position.count + len(rows), covered, tuple(findings))


def _end(log: LogToCheck, position: LogPosition) -> LogPosition:
    """With what is wrong with the log's end."""
    expected = log.chain_from if position.seq == 0 else position.hash
    last = position.seq or log.first_seq - 1
    is_whole = log.head == expected and (log.is_under_way or last == log.last_seq)
    found = () if is_whole else (log.finding(Fault.CUT_OFF, last + 1),)
    return replace(position, log=log, findings=(*position.findings, *found), is_end=True)
