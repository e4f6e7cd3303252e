"""What owners see of the audit, and its check. Contract: flow 12."""

from collections.abc import Sequence
from datetime import timedelta

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.audit import AuditKind, AuditRow, Checked, KeptSeal
from antiphon.domain.errors import Conflict
from antiphon.engine.access.reach import refuse_act
from antiphon.engine.audit.check import check_home
from antiphon.engine.audit.trail import Trail
from antiphon.policy.acts import Act
from antiphon.store import audit
from antiphon.store.codec import milliseconds
from antiphon.store.database import Database, Query
from antiphon.store.people import find_standing


class AuditPlace(Struct, frozen=True):
    """The last row of a page; the next page begins after it."""

    at_ms: int
    process: str
    n: int


class Audits:
    """All raise `Denied` for anyone but owners."""

    def __init__(self, database: Database, trail: Trail, home: str) -> None:
        """`home` is its name in seals."""
        self._database = database
        self._trail = trail
        self._home = home

    async def list(
        self, principal: Principal, kind: AuditKind | None, *, limit: int, after: AuditPlace | None
    ) -> list[AuditRow]:
        """Newest first; refusals of the last minute are among them."""
        await self._database.read(_admit, principal)
        await self._trail.settle(timedelta(0))
        before = None if after is None else (after.at_ms, after.process, after.n)
        return await self._database.read(_list, kind, before, limit)

    async def check(self, principal: Principal, kept: Sequence[KeptSeal]) -> Checked:
        """Reads every row of every chain. Raises `Conflict` (`audit_other_home`) for seals of another home alone."""
        await self._database.read(_admit, principal)
        ours = [seal for seal in kept if seal.home == self._home]
        if kept and not ours:
            raise Conflict(
                f"Seals are of another home: {kept[-1].home!r}, not {self._home!r}. Name the file that this home "
                "seals to, or verify the other home.",
                code="audit_other_home",
            )
        return await check_home(self._database, ours)


async def _admit(query: Query, principal: Principal) -> None:
    refuse_act(await find_standing(query, principal), Act.AUDIT)


async def _list(
    query: Query, kind: AuditKind | None, before: tuple[int, str, int] | None, limit: int
) -> list[AuditRow]:
    return await audit.list_rows(query, kind=kind, before=before, limit=limit)


def place_of(row: AuditRow) -> AuditPlace:
    return AuditPlace(milliseconds(row.at), row.process, row.n)
