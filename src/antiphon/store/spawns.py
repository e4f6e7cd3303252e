"""Rows of children: their spawns, their attachments, and the results that they owe."""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

from antiphon.domain.attachments import Attachment
from antiphon.domain.ids import MessageId, RunId, SessionRow
from antiphon.domain.message import JsonObject
from antiphon.domain.report import Report, ReportState
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext
from antiphon.domain.spawn import Cleanup, Mode, Spawn
from antiphon.store import approvals, codec
from antiphon.store.database import Query, Row, SqlValue, Transaction
from antiphon.store.scopes import MAX_DEPTH
from antiphon.store.select_list import SelectList

AT_ONCE = 500
"""Ids in one statement."""
DUE = SessionRow(-1)
"""Not a session's row; woken when something gets a time at which it is due."""

_SPAWN = SelectList(
    Spawn,
    "p.child, p.origin, p.run, p.task, p.mode, p.cleanup, p.time_limit, p.archive_after, p.attach_as, p.receipt, "
    "p.due_at, p.kept_until, p.request, p.returns",
    mode=codec.member_of(Mode),
    cleanup=codec.member_of(Cleanup),
    time_limit=codec.duration,
    archive_after=codec.duration,
    attach_as=codec.json_object,
    receipt=codec.json_object,
    returns=codec.json_object,
    due_at=codec.moment,
    kept_until=codec.moment,
)
_REPORT = SelectList(
    Report,
    "t.id, t.run, t.child, t.requester, t.requester_incarnation, t.origin_run, t.is_from_outside, t.waiter, t.place, "
    "t.principal, t.stage, t.is_taken, t.is_sandboxed, t.task",
    is_from_outside=bool,
    place=codec.place,
    principal=codec.stored_principal,
    stage=codec.member_of(ReportState),
    is_taken=bool,
    is_sandboxed=bool,
)

_CHILDREN = (
    "SELECT id FROM sessions WHERE parent = ? UNION SELECT t.child FROM reports t JOIN spawns q ON q.child = t.child "
    "WHERE t.requester = ? AND (t.stage = 'open' OR q.mode = 'session')"
)
"""The children of a session, including inherited ones."""
_IS_FOR = (
    "t.requester = ? AND t.requester_incarnation = ? AND t.stage = 'open' AND t.waiter IS NULL "
    "AND (t.origin_run = ? OR t.is_from_outside = 1 OR (COALESCE(t.place, '') = ? AND "
    "COALESCE((SELECT COALESCE(r.exchange, r.announces) FROM runs r WHERE r.id = t.origin_run), '') = ?))"
)
"""The results that a yielding run waits for; see `list_open`."""
_IS_WITHOUT_THREAD = " AND NOT EXISTS (SELECT 1 FROM thread_bindings b WHERE b.child = t.child)"
"""Results of children in threads of their own, which answer there, are left out."""
_BELOW = (
    "WITH RECURSIVE below(run) AS (SELECT t.run FROM reports t WHERE t.origin_run = ? AND t.stage = 'open' "
    "UNION SELECT t.run FROM below b JOIN reports t ON t.origin_run = b.run WHERE t.stage = 'open')"
)
"""The runs that bring the results that a run's children owe, at any depth."""
_IS_EXACT = "(s.key = ? OR s.incarnation = ? OR s.id IN (SELECT child FROM reports WHERE id = ?))"
_IS_AT_WORK = (
    "EXISTS (SELECT 1 FROM reports t WHERE t.child = p.child AND t.stage = 'open') "
    "OR EXISTS (SELECT 1 FROM runs r WHERE r.session = p.child AND r.announces IS NULL "
    "AND r.status IN ('running', 'awaiting_approval')) "
    "OR EXISTS (SELECT 1 FROM runs r WHERE r.session = p.child AND r.announces IS NULL AND r.status = 'queued') "
    "OR EXISTS (SELECT 1 FROM runs r WHERE r.session = p.child AND r.is_parked = 1)"
)


async def insert(tx: Transaction, spawn: Spawn, at_ms: int) -> None:
    await tx.execute(
        "INSERT INTO spawns (child, origin, run, request, task, mode, cleanup, time_limit, archive_after, attach_as, "
        "receipt, returns, created_at) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            spawn.child,
            spawn.origin,
            spawn.run,
            spawn.request,
            spawn.task,
            spawn.mode.value,
            spawn.cleanup.value,
            codec.optional_milliseconds(spawn.time_limit),
            codec.optional_milliseconds(spawn.archive_after),
            None if spawn.attach_as is None else codec.json_text(spawn.attach_as),
            None if spawn.receipt is None else codec.json_text(spawn.receipt),
            None if spawn.returns is None else codec.json_text(spawn.returns),
            at_ms,
        ),
    )


async def find(query: Query, child: SessionRow) -> Spawn | None:
    row = await query.fetch_one(f"SELECT {_SPAWN.text} FROM spawns p WHERE p.child = ?", (child,))
    return None if row is None else _SPAWN.read(row)


async def find_returns(query: Query, child: SessionRow) -> JsonObject | None:
    """The JSON Schema of what a child in quarantine returns; None for any other session."""
    row = await query.fetch_one("SELECT returns FROM spawns WHERE child = ?", (child,))
    return None if row is None or row[0] is None else codec.json_object(row[0])


async def find_by_origin(query: Query, origin: str) -> Spawn | None:
    row = await query.fetch_one(f"SELECT {_SPAWN.text} FROM spawns p WHERE p.origin = ?", (origin,))
    return None if row is None else _SPAWN.read(row)


class Governed(NamedTuple):
    """A child and its state."""

    spawn: Spawn
    report: RunId | None
    """The newest result that it owes, else the newest that it owed."""
    is_at_work: bool
    """Whether it owes a result or has a run that has not ended or waits; wording a result does not count."""


async def list_children(
    query: Query, requester: SessionRow, *, limit: int | None, name: str | None = None, at_work: bool = False
) -> list[Governed]:
    """The session's children, including inherited ones: first those at work, then other listed ones, then hidden ones.

    Each group is newest first. `name` matches a key, a session id or the id of a result, and only if it is none of
    these a label; `at_work` restricts the list to children at work.
    """
    conditions, values = [f"p.child IN ({_CHILDREN})", "s.deleted_at IS NULL"], list[SqlValue]([requester, requester])
    is_exact = "0"
    if name is not None:
        is_exact = f"CASE WHEN {_IS_EXACT} THEN 1 ELSE 0 END"
        conditions.append(f"({_IS_EXACT} OR s.label = ?)")
        values = [*[name] * 3, *values, *[name] * 4]
    rows = await query.fetch_all(
        f"SELECT * FROM (SELECT {_SPAWN.text}, (SELECT COALESCE(MAX(CASE WHEN t.stage = 'open' THEN t.id END), "
        "MAX(t.id)) FROM reports t WHERE t.child = p.child) AS report, "
        f"CASE WHEN {_IS_AT_WORK} THEN 1 ELSE 0 END AS at_work, s.status AS status, "
        f"{is_exact} AS is_exact "
        f"FROM spawns p JOIN sessions s ON s.id = p.child WHERE {' AND '.join(conditions)}) found "
        f"{'WHERE at_work = 1 ' if at_work else ''}"
        "ORDER BY is_exact DESC, at_work DESC, CASE status WHEN 'inactive' THEN 1 ELSE 0 END, run DESC"
        f"{'' if limit is None else ' LIMIT ?'}",
        (*values, *(() if limit is None else (limit,))),
    )
    children = [
        (is_exact, Governed(_SPAWN.read(spawn), report, bool(is_at_work)))
        for *spawn, report, is_at_work, _, is_exact in rows
    ]
    return [child for is_exact, child in children if is_exact] or [child for _, child in children]


async def find_told(query: Query, requester: SessionRow, message_id: MessageId) -> SessionRow | None:
    """The session's child whose log contains that message."""
    row = await query.fetch_one(
        f"SELECT session FROM events WHERE message_id = ? AND session IN ({_CHILDREN})",
        (message_id, requester, requester),
    )
    return None if row is None else SessionRow(row[0])


async def set_due(tx: Transaction, child: SessionRow, due_at_ms: int | None) -> None:
    """Sets when the child is to be archived or deleted; None for never."""
    await tx.execute("UPDATE spawns SET due_at = ? WHERE child = ?", (due_at_ms, child))
    if due_at_ms is not None:
        tx.wake(DUE)


async def archive_again(tx: Transaction, child: SessionRow, at_ms: int) -> None:
    """Sets a new time for an archived child that is in use again; does nothing for other sessions."""
    due = await tx.change(
        "UPDATE spawns SET due_at = ? + archive_after WHERE child = ? AND mode = ? AND cleanup = ? "
        "AND archive_after IS NOT NULL AND due_at IS NULL",
        (at_ms, child, Mode.RUN.value, Cleanup.KEEP.value),
    )
    if due:
        tx.wake(DUE)


async def delete_awaited(tx: Transaction, waiter: RunId, at_ms: int) -> None:
    """A run continues with its awaited results: children to be deleted are no longer needed. Contract: spawn 4."""
    due = await tx.change(
        "UPDATE spawns SET due_at = ? WHERE mode = ? AND cleanup = ? AND child IN "
        "(SELECT child FROM reports WHERE waiter = ? AND stage = 'done')",
        (at_ms, Mode.RUN.value, Cleanup.DELETE.value, waiter),
    )
    if due:
        tx.wake(DUE)


async def keep_until(tx: Transaction, children: Sequence[SessionRow], until_ms: int) -> None:
    """Postpones the deletion of the children; the latest of several times counts."""
    await tx.execute(
        f"UPDATE spawns SET kept_until = ? WHERE child IN ({', '.join('?' * len(children))}) AND cleanup = ? "
        "AND COALESCE(kept_until, 0) < ?",
        (until_ms, *children, Cleanup.DELETE.value, until_ms),
    )


async def list_due(query: Query, at_ms: int, limit: int) -> list[SessionRow]:
    """Children that are due, the earliest first."""
    rows = await query.fetch_all(
        "SELECT child FROM spawns WHERE due_at IS NOT NULL AND due_at <= ? ORDER BY due_at LIMIT ?", (at_ms, limit)
    )
    return [row[0] for row in rows]


class Parked(NamedTuple):
    """A run that has ended and waits for its children."""

    run: RunId
    session: SessionRow


async def list_overdue(query: Query, at_ms: int, limit: int) -> list[Parked]:
    """Parked runs whose deadline has passed."""
    rows = await query.fetch_all(
        "SELECT id, session FROM runs WHERE is_parked = 1 AND deadline <= ? ORDER BY deadline LIMIT ?", (at_ms, limit)
    )
    return [Parked(*row) for row in rows]


async def next_due(query: Query) -> int | None:
    """The time in milliseconds at which something is due next; None if nothing is."""
    row = await query.fetch_one(
        "SELECT (SELECT MIN(due_at) FROM spawns WHERE due_at IS NOT NULL), "
        "(SELECT MIN(deadline) FROM runs WHERE is_parked = 1 AND deadline IS NOT NULL)"
    )
    assert row is not None
    return min((value for value in row if value is not None), default=None)


async def add_attachments(tx: Transaction, child: SessionRow, attachments: Sequence[Attachment]) -> None:
    for attachment in attachments:
        await tx.execute(
            "INSERT INTO attachments (child, name, mime_type, sha256, data) VALUES (?, ?, ?, ?, ?)",
            (child, attachment.name, attachment.mime_type, attachment.sha256, attachment.data),
        )


async def list_attachments(query: Query, child: SessionRow) -> list[Attachment]:
    """In no order; the receipt has the order."""
    rows = await query.fetch_all("SELECT name, data, sha256, mime_type FROM attachments WHERE child = ?", (child,))
    return [
        Attachment(name=name, data=bytes(data), sha256=sha256, mime_type=mime_type)
        for name, data, sha256, mime_type in rows
    ]


async def drop_attachments(tx: Transaction, child: SessionRow) -> None:
    await tx.execute("DELETE FROM attachments WHERE child = ?", (child,))


async def insert_report(tx: Transaction, report: Report, at_ms: int) -> None:
    values = _report_values(report) | {"created_at": at_ms}
    await tx.execute(
        f"INSERT INTO reports ({', '.join(values)}) VALUES ({', '.join('?' * len(values))})", tuple(values.values())
    )


async def change_report(tx: Transaction, before: Report, after: Report, at_ms: int) -> None:
    """Stores the fields that differ; other units may change other columns at the same time."""
    old, new = _report_values(before), _report_values(after)
    changes = {column: value for column, value in new.items() if value != old[column]}
    if "stage" in changes and after.stage is not ReportState.OPEN:
        changes["ended_at"] = at_ms
    if not changes:
        return
    changed = ", ".join(f"{column} = ?" for column in changes)
    await tx.execute(f"UPDATE reports SET {changed} WHERE id = ?", (*changes.values(), before.id))


async def set_run(tx: Transaction, report_id: str, run: RunId) -> None:
    """Stores the run whose end now brings the result: the continuation of the first."""
    await tx.execute("UPDATE reports SET run = ? WHERE id = ?", (run, report_id))


async def take_open(tx: Transaction, child: SessionRow) -> None:
    """Marks what the child owes now as taken, so that nothing follows from it."""
    await tx.execute("UPDATE reports SET is_taken = 1 WHERE child = ? AND stage = 'open'", (child,))


async def find_report(query: Query, report_id: str) -> Report | None:
    return _one(await query.fetch_one(f"SELECT {_REPORT.text} FROM reports t WHERE t.id = ?", (report_id,)))


async def list_reports(query: Query, report_ids: Sequence[str]) -> list[Report]:
    """The reports that exist among those named, in the order of their ids."""
    if not report_ids:
        return []
    marks = ", ".join("?" * len(report_ids))
    return await _list(query, f"t.id IN ({marks})", *report_ids)


async def list_open(
    query: Query, run: Run, place: DeliveryContext | None, *, with_threads: bool = True
) -> list[Report]:
    """Results that children of the run's session owe and that the run may continue with, oldest first.

    No run waits for them yet, they belong to the run's incarnation, and they would be announced where the run's answer
    goes: to `place` if that is outside, else to the session or request that asked. Contract: spawn 7, 8.

    Without `with_threads`, children in threads of their own are left out: they answer there. Contract: spawn 4.
    """
    return await _list(query, _IS_FOR + _besides(with_threads=with_threads), *_for(run, place))


async def count_active_children(query: Query, requester: SessionRow) -> int:
    """Children at work, or with children at work; each counts once. Contract: spawn 2."""
    row = await query.fetch_one(
        "SELECT COUNT(DISTINCT child) FROM reports WHERE requester = ? AND stage = 'open'", (requester,)
    )
    return 0 if row is None else int(row[0])


async def is_expecting(query: Query, requester: SessionRow) -> bool:
    """Whether children owe the session a result, or will word one for its channel."""
    row = await query.fetch_one(
        "SELECT 1 FROM reports WHERE requester = ? AND stage IN ('open', 'announcing') LIMIT 1", (requester,)
    )
    return row is not None


async def is_owing(query: Query, child: SessionRow) -> bool:
    """Whether the child owes a result."""
    row = await query.fetch_one("SELECT 1 FROM reports WHERE child = ? AND stage = 'open' LIMIT 1", (child,))
    return row is not None


async def list_recorded(query: Query, origin_run: RunId, *, with_threads: bool = True) -> list[Report]:
    """Results that have arrived and from which something follows now that the run has ended; see `list_open`."""
    condition = "t.origin_run = ? AND t.stage = 'recorded'" + _besides(with_threads=with_threads)
    return await _list(query, condition, origin_run)


async def list_awaited(query: Query, waiter: RunId) -> list[Report]:
    """Results that the parked run waits for, including those that have arrived."""
    return await _list(query, "t.waiter = ?", waiter)


async def wait_for_all(tx: Transaction, run: Run, place: DeliveryContext | None, *, with_threads: bool) -> bool:
    """Makes the run wait for every result of `list_open`; returns whether there is one."""
    condition = _IS_FOR + _besides(with_threads=with_threads)
    return await tx.change(f"UPDATE reports AS t SET waiter = ? WHERE {condition}", (run.id, *_for(run, place))) > 0


def _besides(*, with_threads: bool) -> str:
    return "" if with_threads else _IS_WITHOUT_THREAD


def _for(run: Run, place: DeliveryContext | None) -> tuple[SqlValue, ...]:
    asked_by = run.exchange or run.announces or ""
    return (run.session, run.session_id, run.id, "" if place is None else codec.place_text(place), asked_by)


async def move_origin(tx: Transaction, origin_run: RunId, to: RunId) -> None:
    """Actions that wait for the end of a run now wait for the end of its continuation."""
    await tx.execute(
        "UPDATE reports SET origin_run = ? WHERE origin_run = ? AND stage IN ('open', 'recorded')", (to, origin_run)
    )


async def list_of_child(query: Query, child: SessionRow) -> list[Report]:
    """All reports of the child, done and open, oldest first."""
    return await _list(query, "t.child = ?", child)


async def find_newest_of_child(query: Query, child: SessionRow) -> Report | None:
    return _one(
        await query.fetch_one(
            f"SELECT {_REPORT.text} FROM reports t WHERE t.child = ? ORDER BY t.id DESC LIMIT 1", (child,)
        )
    )


async def list_unanswered(query: Query, requester: SessionRow) -> list[Report]:
    """Results that reached the session from existing children, and that none of its runs has continued with yet."""
    return await _list(
        query,
        "t.requester = ? AND t.child IN (SELECT s.id FROM sessions s WHERE s.deleted_at IS NULL) AND "
        "(t.stage IN ('recorded', 'announcing') OR (t.stage = 'done' AND t.waiter IN "
        "(SELECT r.id FROM runs r WHERE r.session = ? AND r.is_parked = 1)))",
        *(requester, requester),
    )


async def list_newest_of_those_that_stay(query: Query, requester: SessionRow) -> list[str]:
    """For each child of mode `session`, the session's newest report, which records the next requester."""
    rows = await query.fetch_all(
        "SELECT MAX(t.id) FROM reports t JOIN spawns p ON p.child = t.child "
        "WHERE t.requester = ? AND p.mode = 'session' GROUP BY t.child",
        (requester,),
    )
    return [row[0] for row in rows]


async def list_of_requester(query: Query, requester: SessionRow, also: Collection[str]) -> list[Report]:
    """Unfinished reports of the session's children, and those with the ids in `also`, oldest first."""
    reports = await _list(query, "t.requester = ? AND t.stage IN ('open', 'recorded', 'announcing')", requester)
    found = {report.id: report for report in reports}
    missing = [id for id in also if id not in found]
    for start in range(0, len(missing), AT_ONCE):
        for report in await list_reports(query, missing[start : start + AT_ONCE]):
            found[report.id] = report
    return [found[id] for id in sorted(found)]


async def leave_alone(tx: Transaction, requester: SessionRow) -> None:
    """Removes the deleted session from its remaining reports, which were done long ago."""
    await tx.execute(
        "UPDATE reports SET requester = NULL, origin_run = NULL, waiter = NULL WHERE requester = ?", (requester,)
    )


class CancelledTree(NamedTuple):
    """The cancelled work below a session."""

    at_work: list[SessionRow]
    """Sessions whose run is under way."""
    runs: int
    """The number of runs: under way, queued and parked."""


async def cancel_tree(tx: Transaction, root: SessionRow, depth: int) -> CancelledTree:
    """Cancels all work of the sessions under the root. Contract: spawn 8."""
    if depth >= MAX_DEPTH:
        return CancelledTree([], 0)
    below = f"SELECT id FROM sessions WHERE ancestor_{depth} = ?"
    # Runs before their reports, as when a run ends: in the other order the two could deadlock.
    rows = await tx.fetch_all(
        "UPDATE runs SET cancel_requested = 1 WHERE status IN ('queued', 'running', 'awaiting_approval') "
        f"AND session IN ({below}) RETURNING session, status, id",
        (root,),
    )
    await _withdraw(tx, [run for _, status, run in rows if status == "awaiting_approval"])
    parked = await tx.change(
        "UPDATE runs SET cancel_requested = 1 WHERE is_parked = 1 AND status <> 'awaiting_approval' "
        f"AND session IN ({below})",
        (root,),
    )
    await tx.execute(f"UPDATE reports SET is_taken = 1 WHERE stage = 'open' AND child IN ({below})", (root,))
    return CancelledTree([session for session, status, _ in rows if status == "running"], len(rows) + parked)


async def cancel_below(tx: Transaction, run: RunId) -> list[SessionRow]:
    """Cancels the work that the run, or a run it continues, gave to children; returns sessions with a run under way.

    Work from other runs, for the same children or for others of the session, continues. Contract: runs 5, spawn 8.
    """
    at_work: list[SessionRow] = []
    # Repeats until nothing is left: a continuation may be queued in between.
    while rows := await tx.fetch_all(
        f"{_BELOW} UPDATE runs SET cancel_requested = 1 WHERE id IN (SELECT run FROM below) AND cancel_requested = 0 "
        "AND (status IN ('queued', 'running', 'awaiting_approval') OR is_parked = 1) RETURNING session, status, id",
        (run,),
    ):
        at_work += [session for session, status, _ in rows if status == "running"]
        await _withdraw(tx, [run for _, status, run in rows if status == "awaiting_approval"])
    await tx.execute(
        f"{_BELOW} UPDATE reports SET is_taken = 1 WHERE stage = 'open' AND run IN (SELECT run FROM below)", (run,)
    )
    return at_work


async def _withdraw(tx: Transaction, cancelled: Sequence[RunId]) -> None:
    """Makes the requests of cancelled runs due: each run is then ended in its own session's unit."""
    if cancelled:
        await approvals.make_due(tx, cancelled)
        tx.wake(DUE)


async def delete_all(tx: Transaction, child: SessionRow) -> None:
    """Deletes the attachments and reports of a deleted child, but not its spawn, so that no call repeats the spawn.

    A result that is already in its requester's log still has its consequences.
    """
    await tx.execute("UPDATE spawns SET task = '', returns = NULL, due_at = NULL WHERE child = ?", (child,))
    await drop_attachments(tx, child)
    await tx.execute("DELETE FROM reports WHERE child = ? AND stage <> 'recorded'", (child,))


async def _list(query: Query, condition: str, *values: SqlValue) -> list[Report]:
    rows = await query.fetch_all(f"SELECT {_REPORT.text} FROM reports t WHERE {condition} ORDER BY t.id", values)
    return [_REPORT.read(row) for row in rows]


def _one(row: Row | None) -> Report | None:
    return None if row is None else _REPORT.read(row)


def _report_values(report: Report) -> dict[str, Any]:
    return {
        "id": report.id,
        "run": report.run,
        "child": report.child,
        "requester": report.requester,
        "requester_incarnation": report.requester_incarnation,
        "origin_run": report.origin_run,
        "is_from_outside": int(report.is_from_outside),
        "waiter": report.waiter,
        "place": None if report.place is None else codec.place_text(report.place),
        "principal": str(report.principal),
        "stage": report.stage.value,
        "is_taken": int(report.is_taken),
        "is_sandboxed": int(report.is_sandboxed),
        "task": report.task,
    }
