"""A run comes into being here, with the words that it answers. Contract: runs 1, 2, 4."""

from antiphon.domain.ids import RunId
from antiphon.engine.ledger.append import Recipient, Words, append_words
from antiphon.policy.rights import is_favoured
from antiphon.store import runs as ledger
from antiphon.store.database import Transaction
from antiphon.store.runs import NewRun


async def queue_run(tx: Transaction, session: Recipient, words: Words, run: NewRun, at_ms: int) -> int:
    """Stores the words and queues the run that answers them; returns the `seq` of both.

    Dispatched unless the session is busy: whoever works off the run before this one works off this one too; but a
    guest's may wait for a place.
    """
    seq = await append_words(tx, session, words, at_ms, run_id=run.id)
    is_delivered = await ledger.is_busy(tx, session.row, favoured=is_favoured(run.principal))
    await ledger.insert(tx, session.row, run, seq, at_ms)
    if not is_delivered:
        await tx.dispatch(session.row, run.principal)
    return seq


async def join_run(tx: Transaction, session: Recipient, words: Words, run_id: RunId, at_ms: int) -> int:
    """Stores the words for a run that is queued or at work, which reads them before its next step; their `seq`."""
    seq = await append_words(tx, session, words, at_ms, run_id=run_id)
    await ledger.change(tx, run_id, {"newest_seq": seq})
    return seq
