"""Deleting a session: the results it owes are reported as failed, and those owed to it go to its own requester.

Contract: spawn 7, sessions 7.
"""

from collections.abc import Sequence

from msgspec.structs import replace

from antiphon.domain.report import (
    AnswerRequest,
    Heir,
    PutAway,
    Report,
    ReportState,
    Situation,
    on_child_deleted,
    on_requester_deleted,
)
from antiphon.domain.run import RunStatus
from antiphon.domain.session import Session
from antiphon.engine.reports import messages
from antiphon.engine.reports.follow import answer, record
from antiphon.engine.reports.parking import CancelledContinuation
from antiphon.engine.reports.settle import archive
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store import spawns
from antiphon.store.database import Query, Transaction


async def abandon_reports(tx: Transaction, session: Session) -> list[CancelledContinuation]:
    """Ends all waits for the session, and all its own; returns the runs that are to end at once."""
    own = await spawns.list_of_child(tx, session.row)
    unanswered = {report.id for report in await spawns.list_unanswered(tx, session.row)}
    unanswered |= await _find_queued_answers(tx, session)
    for run in await ledger.find_parked(tx, session.row):
        await ledger.change(tx, run.id, {"is_parked": 0})
    called_off = await _tell_as_failed(tx, own)
    heir = await _find_heir(tx, own)
    inherited: list[Report] = []
    newest = await spawns.list_newest_of_those_that_stay(tx, session.row)
    of_requester = await spawns.list_of_requester(tx, session.row, {*unanswered, *newest})
    tx.hold(*(report.child for report in of_requester))
    for report in of_requester:
        consequences = on_requester_deleted(
            report, heir, is_answered=report.id not in unanswered, is_newest=report.id in newest
        )
        await spawns.change_report(tx, report, consequences.report, tx.now_ms)
        if report.stage is ReportState.ANNOUNCING:
            await ledger.call_off_announcement(tx, report.child, report.id)
        for action in consequences.actions:
            assert isinstance(action, PutAway)
            await archive(tx, report.child, may_delete=action.may_delete)
        if report.id in unanswered:
            inherited.append(consequences.report)
    await spawns.leave_alone(tx, session.row)
    for report in inherited:
        run = await ledger.find(tx, report.run)
        if run is not None:
            called_off += await record(tx, report, run)
    await spawns.delete_all(tx, session.row)
    return called_off


async def _find_queued_answers(query: Query, session: Session) -> set[str]:
    """Results of existing children that a run of the session was to answer or continue with, and has not begun to."""
    found: set[str] = set()
    for run in await ledger.find_queued(query, session.row):
        for report in await messages.find_answered(query, run):
            is_seen = report.is_taken and report.waiter is None  # a wait has brought it to a run that worked
            is_own = report.requester == session.row  # not one that it was to word as a child
            if is_own and not is_seen and await rows.find_by_row(query, report.child) is not None:
                found.add(report.id)
    return found


async def _tell_as_failed(tx: Transaction, own: Sequence[Report]) -> list[CancelledContinuation]:
    """Reports the results that the session still owes, or was about to word, as failed."""
    called_off: list[CancelledContinuation] = []
    tx.hold(*(report.requester for report in own if report.requester is not None))
    for report in own:
        if report.stage is ReportState.ANNOUNCING:
            requester = None if report.requester is None else await rows.find_by_row(tx, report.requester)
            is_present = requester is not None and requester.id == report.requester_incarnation
            consequences = on_child_deleted(
                report, Situation(has_requester=requester is not None, is_present=is_present)
            )
            await spawns.change_report(tx, report, consequences.report, tx.now_ms)
            if AnswerRequest() in consequences.actions:
                assert requester is not None
                await answer(tx, requester, [report], origin=None)
        elif report.stage is ReportState.OPEN and (run := await ledger.find(tx, report.run)) is not None:
            gone = replace(run, status=RunStatus.ERROR, error="The session was deleted.", code="session_deleted")
            called_off += await record(tx, report, gone, may_word=False)
    return called_off


async def _find_heir(tx: Transaction, own: Sequence[Report]) -> Heir:
    """The requester of the newest of these reports, read after they were reported as failed."""
    newest = None if not own else await spawns.find_report(tx, own[-1].id)
    if newest is None or newest.requester is None:
        return Heir()
    tx.hold(newest.requester)  # its run may be about to continue, and it may be about to be deleted
    run = None if newest.origin_run is None else await ledger.find(tx, newest.origin_run)
    while run is not None and run.continued_by is not None:
        run = await ledger.find(tx, run.continued_by)
    return Heir(
        requester=newest.requester,
        incarnation=newest.requester_incarnation,
        run=None if run is None else run.id,
        place=newest.place,
        is_from_outside=newest.is_from_outside,
    )
