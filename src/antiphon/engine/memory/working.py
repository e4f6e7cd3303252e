"""The working memory of an incarnation: replaced whole, empty after a reset. Contract: checkpoints 2, sessions 6."""

from antiphon.domain.classification import Classification
from antiphon.domain.ids import SessionId
from antiphon.domain.note import parse_working_memory
from antiphon.store import notes as rows
from antiphon.store.database import Transaction


async def set_working_memory(tx: Transaction, session_id: SessionId, text: str, made_of: Classification) -> None:
    """Replaces what the next turns of the incarnation are given, also of one that has ended; '' empties it."""
    text = parse_working_memory(text)
    await rows.set_working_memory(tx, session_id, text, made_of)
