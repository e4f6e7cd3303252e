"""Checks every chain of the home. Contract: flow 12."""

from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import Any, Protocol, TypeVar, TypeVarTuple

from antiphon.domain.audit import ChainFault, ChainFinding, Checked, KeptSeal
from antiphon.domain.hash_chain import SEALS, name_of_log, name_of_process
from antiphon.domain.ids import SessionRow
from antiphon.store import audit_check, log_check
from antiphon.store.audit_check import ChainPosition
from antiphon.store.database import Query
from antiphon.store.log_check import KnownOfLog

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

CHAINS_AT_ONCE = 1_000
MAX_FINDINGS = 100
"""As many are listed; the first says enough."""


class Reads(Protocol):
    """The part of a database that a check needs."""

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R: ...


class _Check:
    """What one check has read and found."""

    def __init__(self, database: Reads) -> None:
        self._database = database
        self._findings: list[ChainFinding] = []
        self._has_more = False
        self._sealed: dict[str, dict[int, bytes]] = {}
        self._seals: dict[int, bytes] = {}
        self._logs = self._events = self._covered = self._processes = self._rows = 0

    async def run(self, kept: Sequence[KeptSeal]) -> Checked:
        await self._check_seals()
        for seal in kept:
            if self._seals.get(seal.n) != seal.hash:
                self._add(ChainFinding(fault=ChainFault.ROLLED_BACK, chain=SEALS, number=seal.n))
        await self._check_logs()
        await self._check_processes()
        for chain, points in self._sealed.items():  # those that were looked at are not among them any more
            self._add(ChainFinding(fault=ChainFault.CUT_OFF, chain=chain, number=min(points)))
        return Checked(
            logs=self._logs,
            events=self._events,
            covered=self._covered,
            processes=self._processes,
            rows=self._rows,
            seals=len(self._seals),
            newest_seal=max(self._seals, default=None),
            kept=len(kept),
            findings=tuple(self._findings),
            has_more=self._has_more,
        )

    def _add(self, *findings: ChainFinding) -> None:
        room = MAX_FINDINGS - len(self._findings)
        self._findings += findings[:room]
        self._has_more |= len(findings) > room

    def _take_sealed(self, chain: str) -> Mapping[int, bytes]:
        return self._sealed.pop(chain, {})

    async def _check_seals(self) -> None:
        position: ChainPosition | None = None
        while position is None or not position.is_end:
            read = await self._database.read(audit_check.check_seals, position)
            position = read.position
            self._seals.update(read.hashes)
            for point in read.points:
                self._sealed.setdefault(point.chain, {})[point.number] = point.hash
        self._add(*position.findings)

    async def _check_logs(self) -> None:
        after, merged = SessionRow(0), await self._database.read(log_check.read_merged)
        while page := await self._database.read(log_check.list_logs, after, CHAINS_AT_ONCE):
            for session in page:
                known = KnownOfLog(self._take_sealed(name_of_log(session)), merged)
                position = await self._database.read(log_check.check_some, session, None, known)
                while not position.is_end:
                    position = await self._database.read(log_check.check_some, session, position, known)
                self._add(*position.findings)
                self._logs += 1
                self._events += position.count
                self._covered += position.covered
            after = page[-1]
        for session, seq in await self._database.read(log_check.list_lost_logs, MAX_FINDINGS):
            self._add(ChainFinding(fault=ChainFault.UNKNOWN, chain=name_of_log(session), number=seq))

    async def _check_processes(self) -> None:
        after = ""
        while page := await self._database.read(audit_check.list_processes, after, CHAINS_AT_ONCE):
            for process in page:
                sealed = self._take_sealed(name_of_process(process))
                position = await self._database.read(audit_check.check_process, process, None, sealed)
                while not position.is_end:
                    position = await self._database.read(audit_check.check_process, process, position, sealed)
                self._add(*position.findings)
                self._processes += 1
                self._rows += position.number
            after = page[-1]
        self._add(*await self._database.read(audit_check.list_lost_rows, MAX_FINDINGS))


async def check_home(database: Reads, kept: Sequence[KeptSeal] = ()) -> Checked:
    """Reads every row of every chain, in pages, while others write. What is stored meanwhile may be left out.

    `kept` are seals that were kept apart from the home.
    """
    return await _Check(database).run(kept)
