"""Rows of what children in quarantine told their requesters, and of the values that tools alone see."""

from collections.abc import Collection
from datetime import timedelta

from antiphon.domain.ids import SessionRow
from antiphon.domain.quarantine import QuarantinedResult, QuarantinedValue, ValueScope
from antiphon.store import codec
from antiphon.store.database import Query, Transaction
from antiphon.store.select_list import SelectList

KEPT = timedelta(days=30)
"""How long values can be used, and count."""
_VALUE = SelectList(
    QuarantinedValue,
    "v.id, v.value, v.session AS scope_session, v.incarnation AS scope_incarnation, v.chain AS scope_chain, "
    "v.level AS made_of_level, v.compartments AS made_of_compartments, v.integrity AS made_of_integrity, "
    "v.person AS made_of_person",
    scope=codec.Combined(ValueScope, session="scope_session", incarnation="scope_incarnation", chain="scope_chain"),
    made_of=codec.combined_classification("made_of"),
)


async def insert_result(tx: Transaction, result: QuarantinedResult) -> None:
    await tx.execute(
        "INSERT INTO quarantined_results (report, requester, chain, millibits, returned, created_at) "
        "VALUES (?, ?, ?, ?, ?, ?)",
        (result.report, result.requester, result.chain, result.millibits, result.returned, tx.now_ms),
    )


async def find_result(query: Query, report: str) -> QuarantinedResult | None:
    row = await query.fetch_one(
        "SELECT report, requester, chain, millibits, returned FROM quarantined_results WHERE report = ?", (report,)
    )
    if row is None:
        return None
    name, requester, chain, millibits, returned = row
    return QuarantinedResult(
        report=name, requester=SessionRow(requester), chain=chain, millibits=millibits, returned=returned
    )


async def count_millibits(query: Query, chain: str) -> int:
    """What all children of the chain's runs have told so far."""
    row = await query.fetch_one("SELECT COALESCE(SUM(millibits), 0) FROM quarantined_results WHERE chain = ?", (chain,))
    assert row is not None
    return int(row[0])


async def insert_values(tx: Transaction, values: Collection[QuarantinedValue]) -> None:
    for value in values:
        await tx.execute(
            "INSERT INTO quarantined_values (id, session, incarnation, chain, value, level, compartments, integrity, "
            "person, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                value.id,
                *value.scope,
                value.value,
                *codec.classification_values(value.made_of),
                tx.now_ms,
            ),
        )


async def find_values(query: Query, scope: ValueScope, names: Collection[str]) -> dict[str, QuarantinedValue]:
    """Those of the values that may be used there, by their ids."""
    marks = ", ".join("?" * len(names))
    rows = await query.fetch_all(
        f"SELECT {_VALUE.text} FROM quarantined_values v "
        f"WHERE v.session = ? AND v.incarnation = ? AND v.chain = ? AND v.id IN ({marks})",
        (*scope, *names),
    )
    found = [_VALUE.read(row) for row in rows]
    return {value.id: value for value in found}


async def delete_of_session(tx: Transaction, session: SessionRow) -> None:
    """What the session was told, and may use. How much that was still counts in runs of others that it was told for."""
    await tx.execute("DELETE FROM quarantined_values WHERE session = ?", (session,))
    await tx.execute(
        "DELETE FROM quarantined_results WHERE requester = ? AND NOT EXISTS "
        "(SELECT 1 FROM runs r WHERE r.id = quarantined_results.chain AND r.session <> ?)",
        (session, session),
    )
    # Whoever inherits the report is told again.
    await tx.execute(
        "UPDATE quarantined_results SET returned = NULL, report = 'gone:' || requester || ':' || report "
        "WHERE requester = ? AND report NOT LIKE 'gone:%'",
        (session,),
    )


async def delete_before(tx: Transaction, before_ms: int) -> None:
    """What nobody can use any more."""
    await tx.execute("DELETE FROM quarantined_values WHERE created_at < ?", (before_ms,))
    await tx.execute("DELETE FROM quarantined_results WHERE created_at < ?", (before_ms,))
