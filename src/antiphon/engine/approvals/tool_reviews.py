"""Reviews of tools that others wrote: what owners confirmed of their words and effects. Contract: flow 10."""

from collections.abc import Collection, Sequence

from antiphon.domain.actor import Principal
from antiphon.domain.audit import AuditKind
from antiphon.domain.errors import NotFound
from antiphon.domain.tool_review import ConfirmedTool, ToolReview
from antiphon.engine.access.reach import refuse_act
from antiphon.policy.acts import Act
from antiphon.store import audit
from antiphon.store import tool_reviews as rows
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing


class ToolReviews:
    """All but `of_sources` raise `Denied` for anyone but owners."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def of_sources(self, sources: Collection[str]) -> Sequence[ConfirmedTool]:
        """All that was confirmed of tools of these sources."""
        return await self._database.read(rows.list_of, sources)

    async def list(self, principal: Principal) -> list[ToolReview]:
        """All, also of tools that are not offered any more; of one tool the newest last."""
        return await self._database.read(_list, principal)

    async def confirm(self, principal: Principal, tools: Sequence[ConfirmedTool]) -> None:
        """From now on, runs that begin or go on take the tools for what was confirmed."""
        await self._database.run(_confirm, principal, tools)

    async def withdraw(self, principal: Principal, source: str) -> int:
        """How many tools are unreviewed again. Raises `NotFound` for a source without a reviewed tool."""
        return await self._database.run(_withdraw, principal, source)


async def _list(query: Query, principal: Principal) -> list[ToolReview]:
    refuse_act(await find_standing(query, principal), Act.REVIEW_TOOLS)
    return await rows.list_all(query)


async def _confirm(tx: Transaction, principal: Principal, tools: Sequence[ConfirmedTool]) -> None:
    refuse_act(await find_standing(tx, principal), Act.REVIEW_TOOLS)
    for each in tools:
        await rows.put(tx, each, principal)
        content = {"by": str(principal), "source": each.source, "tool": each.tool, "sha256": each.sha256}
        await audit.append(tx, AuditKind.TRUSTED, {**content, "trusted": True})


async def _withdraw(tx: Transaction, principal: Principal, source: str) -> int:
    refuse_act(await find_standing(tx, principal), Act.REVIEW_TOOLS)
    deleted = await rows.delete_of(tx, source)
    if not deleted:
        raise NotFound(f"Reviewed tools not found: {source[:80]!r}. `antiphon tools list` shows them.")
    await audit.append(tx, AuditKind.TRUSTED, {"by": str(principal), "source": source, "trusted": False})
    return deleted
