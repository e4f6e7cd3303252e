"""Asking for a checkpoint: by people, and by what ends a conversation. Contract: checkpoints 1."""

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.checkpoint import CheckpointAnswer, CheckpointReason, has_checkpoints, on_asked, on_left
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Denied
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Rights, find_session
from antiphon.engine.ledger.append import derived_id
from antiphon.engine.ledger.queue import new_run_id
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.rights import may_checkpoint
from antiphon.store import checkpoints
from antiphon.store.checkpoints import CHECKPOINT_DUE
from antiphon.store.database import SqlValue, Transaction
from antiphon.store.people import find_standing


class AskedCheckpoint(Struct, frozen=True):
    session: Session
    answer: CheckpointAnswer
    run_id: RunId | None = None
    """The run that the checkpoint leaves when it has ended; None unless one was asked for."""
    clearance: Classification = PUBLIC
    """What the asker may read of how it ended."""


async def ask_checkpoint(tx: Transaction, rights: Rights, target: NamedTarget) -> AskedCheckpoint:
    """Asks for a checkpoint of the session's present conversation."""
    found = await find_session(tx, rights, Act.CHANGE, target)
    session, rules = found.session, rights.rules
    standing = await find_standing(tx, rights.principal)
    if not may_checkpoint(standing, session.source.type):
        raise Denied("Only owners may ask for a checkpoint of this session", code="forbidden")
    if not covers(session, rules):
        return AskedCheckpoint(session, CheckpointAnswer.OFF)
    asked, run_id = CheckpointReason.MANUAL, new_run_id(tx)
    answer = await _ask(tx, session, asked, run_id, by=standing.principal)
    left = run_id if answer is CheckpointAnswer.ASKED else None
    return AskedCheckpoint(session, answer, left, found.grant.clearance)


async def queue_checkpoint(tx: Transaction, session: Session, rules: Rules) -> None:
    """Queues a checkpoint of the session's incarnation, which ends or is left behind, if it is worth one."""
    if covers(session, rules):
        run_id = RunId(derived_id("run", tx.now_ms, session.id, "checkpoint"))
        await _ask(tx, session, CheckpointReason.NEW_SESSION, run_id, by=None)


def covers(session: Session, rules: Rules) -> bool:
    """Whether the session ever looks back: people write there, and it has a model that can."""
    agent = rules.agents.get(session.agent_id)
    own = session.model or (None if agent is None else agent.model)
    return own is not None and has_checkpoints(session.source.kind, own, rules.checkpoints)


async def _ask(
    tx: Transaction, session: Session, reason: CheckpointReason, run_id: RunId, *, by: Principal | None
) -> CheckpointAnswer:
    row, incarnation = SessionRow(session.row), SessionId(session.id)
    stored = await checkpoints.find(tx, incarnation)
    cursor = session.incarnation_seq if stored is None else stored.through_seq
    is_asked = stored is not None and stored.asked is not None
    is_at_work = stored is not None and stored.run is not None
    has_news = await checkpoints.has_news(tx, row, incarnation, cursor)
    if reason is CheckpointReason.MANUAL:
        answer = on_asked(has_news=has_news, is_asked=is_asked, is_at_work=is_at_work)
    else:
        answer = on_left(has_news=has_news, is_asked=is_asked)
    if answer is CheckpointAnswer.ASKED:
        columns: dict[str, SqlValue] = {
            "asked": reason.value,
            "asked_run": run_id,
            "asked_by": None if by is None else str(by),
            "look_at": tx.now_ms,
            **({} if stored is not None else {"through_seq": cursor}),
        }
        await checkpoints.set_columns(tx, row, incarnation, columns)
        tx.wake(CHECKPOINT_DUE)
    return answer
