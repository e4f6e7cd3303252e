"""Creates runs, with the messages that they answer. Contract: runs 1, 2, 4."""

from msgspec.structs import replace

from antiphon.domain.actor import Asker
from antiphon.domain.ids import RunId, SessionRow
from antiphon.engine.ledger.append import NewMessage, Recipient, append_words
from antiphon.request_ids import note_run
from antiphon.store import runs as ledger
from antiphon.store.database import Transaction
from antiphon.store.runs import EndedRun, NewRun


def new_run_id(tx: Transaction) -> RunId:
    """The id of a new run, which the unit's request asks for."""
    run_id = RunId(tx.new_id("run"))
    note_run(run_id, tx.request_id)
    return run_id


async def queue_run(tx: Transaction, session: Recipient, words: NewMessage, run: NewRun) -> int:
    """Stores the message and queues the run that answers it; returns the `seq` of both.

    The run is that of the person as whom its principal acts now: whoever asks may have been merged meanwhile.
    Does not dispatch if the session has a worker: it also works on this run. For an owner's run
    only runs of owners count, because a guest's may wait for a place.
    """
    rank = await ledger.find_rank(tx, session.row, run.principal)
    seq = await append_words(tx, session, words, run_id=run.id)
    run = replace(run, principal=rank.principal)
    await ledger.insert(tx, session.row, run, is_favoured=rank.is_favoured, seq=seq, at_ms=tx.now_ms)
    if not rank.is_delivered:
        await tx.dispatch(session.row, Asker(run.principal, rank.is_favoured))
    return seq


async def join_run(tx: Transaction, session: Recipient, words: NewMessage, run_id: RunId) -> int:
    """Stores the message for a queued or active run, which reads it before its next step; returns its `seq`."""
    seq = await append_words(tx, session, words, run_id=run_id)
    await ledger.change(tx, run_id, {"newest_seq": seq})
    return seq


async def note_ended_run(tx: Transaction, session: SessionRow, run: EndedRun) -> None:
    """Notes work that never stood in the session's line, for the sums of costs and the list of runs."""
    await ledger.insert_ended(tx, session, run, tx.now_ms)
