"""Reads chains of processes and seals for a check of their hashes. Contract: flow 12."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from antiphon.domain.audit import ChainFault, ChainFinding
from antiphon.domain.errors import AntiphonError
from antiphon.domain.hash_chain import SEALS, first_hash, name_of_process, next_hash
from antiphon.store import audit, codec
from antiphon.store.database import Query

ROWS_AT_ONCE = 2_000


class ChainPosition(NamedTuple):
    """How far a chain was checked."""

    hash: bytes
    """The hash in the last row that was read, else the one before the first."""
    number: int = 0
    findings: tuple[ChainFinding, ...] = ()
    is_end: bool = False


class SealedPoint(NamedTuple):
    """The hash that a row of a chain had when it was sealed."""

    chain: str
    number: int
    hash: bytes


class SealsPosition(NamedTuple):
    """How far the seals were checked, and what the last ones that were read say."""

    position: ChainPosition
    points: tuple[SealedPoint, ...] = ()
    hashes: tuple[tuple[int, bytes], ...] = ()
    """The numbers and hashes of the seals."""


async def list_processes(query: Query, after: str, limit: int) -> list[str]:
    """Those that have a chain, by id."""
    rows = await query.fetch_all(
        "SELECT process FROM audit_chains WHERE process > ? ORDER BY process LIMIT ?", (after, limit)
    )
    return [process for (process,) in rows]


async def list_lost_rows(query: Query, limit: int) -> list[ChainFinding]:
    """The first row of each process without a chain."""
    rows = await query.fetch_all(
        "SELECT process, MIN(n) FROM audit_rows WHERE process NOT IN (SELECT process FROM audit_chains) "
        "GROUP BY process LIMIT ?",
        (limit,),
    )
    return [ChainFinding(fault=ChainFault.UNKNOWN, chain=name_of_process(process), number=n) for process, n in rows]


async def check_process(
    query: Query, process: str, before: ChainPosition | None, sealed: Mapping[int, bytes]
) -> ChainPosition:
    """Checks the rows that follow the position, as many as one page.

    `sealed` are the hashes that rows had when they were sealed, by their numbers.
    """
    chain = name_of_process(process)
    end = await query.fetch_one("SELECT last_n, head FROM audit_chains WHERE process = ?", (process,))
    before = before or ChainPosition(first_hash(await audit.find_secret(query), chain))
    rows = await query.fetch_all(
        f"SELECT {audit.HASHED_ROW}, hash FROM audit_rows WHERE process = ? AND n > ? ORDER BY n LIMIT {ROWS_AT_ONCE}",
        (process, before.number),
    )
    position = _follow(chain, before, ((row[1], row[:-1], row[-1]) for row in rows))
    rewritten = [row[1] for row in rows if sealed.get(row[1], row[-1]) != row[-1]]
    found = (ChainFinding(fault=ChainFault.REWRITTEN, chain=chain, number=n) for n in rewritten)
    position = position._replace(findings=(*position.findings, *found))
    if len(rows) == ROWS_AT_ONCE:
        return position
    if max(sealed, default=0) > position.number:
        cut = ChainFinding(fault=ChainFault.CUT_OFF, chain=chain, number=position.number + 1)
        return position._replace(findings=(*position.findings, cut), is_end=True)
    return _end(chain, position, (0, None) if end is None else (end[0], end[1]))


async def check_seals(query: Query, before: ChainPosition | None) -> SealsPosition:
    """The same of the seals, with what they say."""
    end = await query.fetch_one("SELECT number, hash FROM audit_sealed WHERE chain = ?", (SEALS,))
    before = before or ChainPosition(first_hash(await audit.find_secret(query), SEALS))
    rows = await query.fetch_all(
        f"SELECT n, created_at, heads, hash FROM audit_seals WHERE n > ? ORDER BY n LIMIT {ROWS_AT_ONCE}",
        (before.number,),
    )
    position = _follow(SEALS, before, ((row[0], row[:-1], row[-1]) for row in rows))
    points = tuple(point for row in rows for point in _points(row[2]))
    hashes = tuple((row[0], row[-1]) for row in rows)
    if len(rows) < ROWS_AT_ONCE:
        is_begun = position.number or end is not None
        position = _end(SEALS, position, (0, None) if end is None else (end[0], end[1])) if is_begun else position
        position = position._replace(is_end=True)
    return SealsPosition(position, points, hashes)


def _points(heads: str) -> Iterable[SealedPoint]:
    """None of damaged heads, whose seal is found by its hash."""
    try:
        return [SealedPoint(chain, int(number), bytes.fromhex(hash)) for chain, number, hash in codec.json_list(heads)]
    except (AntiphonError, TypeError, ValueError):
        return []


def _follow(chain: str, before: ChainPosition, rows: Iterable[tuple[int, tuple[object, ...], bytes]]) -> ChainPosition:
    """Checks rows, each with its number, the values that its hash is made over, and that hash."""
    hash, last, findings = before.hash, before.number, list(before.findings)
    for number, values, stored in rows:
        if number != last + 1:
            fault = ChainFault.MISSING if last else ChainFault.BEGINNING
            findings.append(ChainFinding(fault=fault, chain=chain, number=last + 1))
        if next_hash(hash, values) != stored:
            findings.append(ChainFinding(fault=ChainFault.CHANGED, chain=chain, number=number))
        hash, last = stored, number
    return ChainPosition(hash, last, tuple(findings))


def _end(chain: str, position: ChainPosition, end: tuple[int, bytes | None]) -> ChainPosition:
    if end == (position.number, position.hash):
        return position._replace(is_end=True)
    found = ChainFinding(fault=ChainFault.CUT_OFF, chain=chain, number=position.number + 1)
    return position._replace(findings=(*position.findings, found), is_end=True)
