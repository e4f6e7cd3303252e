"""Updates a report's row, and disposes of a child that owes nothing more. Contract: spawn 4, 5."""

from antiphon.domain.ids import SessionRow
from antiphon.domain.report import PutAway, Report, ReportState, on_waited
from antiphon.domain.spawn import Cleanup, Mode
from antiphon.store import runs as ledger
from antiphon.store import spawns
from antiphon.store.database import Transaction


async def take(tx: Transaction, report: Report) -> None:
    """Records that a wait of the requester took the result, so that it is not announced. Contract: spawn 7."""
    tx.hold(report.child)
    is_off = report.stage is ReportState.ANNOUNCING and await ledger.call_off_announcement(tx, report.child, report.id)
    consequences = on_waited(report, is_wording_called_off=is_off)
    await spawns.change_report(tx, report, consequences.report, tx.now_ms)
    for action in consequences.actions:
        assert isinstance(action, PutAway)
        await archive(tx, report.child, may_delete=action.may_delete)


async def archive(tx: Transaction, child: SessionRow, *, may_delete: bool) -> None:
    """Deletes the attachments of a finished task; the child is archived or deleted in its time.

    `may_delete` says that nobody needs the result that the child holds any more.
    """
    spawn = await spawns.find(tx, child)
    if spawn is None:
        return
    if spawn.receipt is not None:
        task = await spawns.find_report(tx, spawn.run)
        if task is None or task.stage is not ReportState.OPEN:
            await spawns.drop_attachments(tx, child)
    if spawn.mode is not Mode.RUN:
        return
    if spawn.cleanup is Cleanup.DELETE:
        if may_delete:
            await spawns.set_due(tx, child, tx.now_ms)
    elif spawn.archive_after is not None:
        await spawns.set_due(tx, child, tx.now_ms + round(spawn.archive_after.total_seconds() * 1000))
