"""Deleting sessions, with all that belongs to them. Contract: sessions 7."""

import logging

from anyio import to_thread

from antiphon.domain.errors import Conflict, Unavailable
from antiphon.domain.keys import SessionKind, main_key
from antiphon.domain.session import Session, SessionType
from antiphon.domain.targets import NamedTarget
from antiphon.domain.thread_bindings import said_of_deleted
from antiphon.engine.access.bindings import release_thread
from antiphon.engine.access.reach import Rights, find_session
from antiphon.engine.deliveries.outbox import enqueue_notice
from antiphon.engine.exchanges.turns import fail_requests_to
from antiphon.engine.firings.ends import follow_deleted
from antiphon.engine.reports.inherit import abandon_reports
from antiphon.engine.runs.ends import end_queued_run
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.acts import Act
from antiphon.policy.memory import session_holder
from antiphon.store import (
    approvals,
    calls,
    checkpoints,
    deliveries,
    exchanges,
    native_sessions,
    notes,
    quarantine,
    runner_states,
    tasks,
    tokens,
    trusted_content,
)
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction

logger = logging.getLogger(__name__)


async def remove_workspace(workspaces: Workspaces, session: Session | rows.Deleted) -> None:
    """Deletes the files of a deleted session, as far as they are in this home."""
    try:
        of_session = (session.agent_id, session.row, session.created_at)
        for each in await to_thread.run_sync(workspaces.list_of, *of_session):
            await to_thread.run_sync(each.remove)
    except (Conflict, Unavailable) as error:
        logger.warning("Workspace was not deleted", extra={"action": "workspace_left", "code": error.code})


async def delete_session(tx: Transaction, rights: Rights, target: NamedTarget) -> Session:
    found = await find_session(tx, rights, Act.DELETE, target)
    session = found.session
    if refusal := _undeletable(session, is_busy=await ledger.is_active(tx, session.row)):
        raise refusal
    await bury_session(tx, session)
    return session


async def bury_session(tx: Transaction, session: Session) -> None:
    """Deletes everything of the session but its number; its children stay.

    Results and replies that it owes are reported as failed.
    """
    for run, outcome, made_of in await abandon_reports(tx, session):
        await end_queued_run(tx, run, outcome, made_of=made_of)
    await fail_requests_to(tx, session)
    await exchanges.delete_all(tx, session.row)
    await deliveries.delete_all(tx, session.row)
    await approvals.delete_all(tx, session.row)
    await trusted_content.delete_of_session(tx, session.row)
    await quarantine.delete_of_session(tx, session.row)
    await runner_states.delete_of_session(tx, session.row)
    await calls.delete_of_session(tx, session.row)
    await native_sessions.delete_of_session(tx, session.row)
    await log.delete_all(tx, session.row)
    await tasks.delete_all_of_session(tx, session.row)
    await follow_deleted(tx, session.row)
    await ledger.delete_all(tx, session.row)
    await tokens.delete_of_session(tx, session.row)
    await checkpoints.delete_all(tx, session.row)
    await notes.delete_of(tx, session_holder(session.row))
    if (released := await release_thread(tx, session.row)) is not None:
        name = f"unbound {' '.join(released.name)} {released.bound_ms}"
        await enqueue_notice(tx, released.place, said_of_deleted(), name=name)
    await rows.bury(tx, session.row, taint=session.taint, at_ms=tx.now_ms)
    tx.wake(session.row)
    tx.wake(ledger.ends_of(session.row))


def _undeletable(session: Session, *, is_busy: bool) -> Conflict | None:
    name = repr(str(session.key))
    is_groups = session.source.type is SessionType.GROUP and not session.key.subagent_depth
    if is_groups or session.key.kind is SessionKind.GROUP:
        return Conflict(
            f"Session of a group cannot be deleted: {name}. Its history belongs to the group.", code="group_session"
        )
    if session.key == main_key(session.agent_id):
        return Conflict(
            f"Main session of an agent cannot be deleted: {name}. Reset it to start over.",
            code="main_session",
        )
    if session.pending_approvals:
        return Conflict(
            f"Session waits for an approval: {name}. Decide its requests first, or cancel its run.",
            code="awaiting_approval",
        )
    if is_busy:
        return Conflict(f"Session is busy: {name}. Cancel its run first, or wait.", code="session_busy")
    return None
