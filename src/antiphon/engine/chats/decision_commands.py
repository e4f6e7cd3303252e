"""`/approve` and `/deny`: deciding a request for approval in a chat. Contract: approvals 3, channels 3."""

import hashlib

from antiphon.domain.classification import PUBLIC
from antiphon.domain.commands import ChatCommand
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import ApprovalId, StandingApprovalId
from antiphon.engine.chats.chat import Chat
from antiphon.engine.chats.occasion import Occasion
from antiphon.engine.runs.decisions import MAX_NOTE_BYTES, DecideApproval, decide_approval
from antiphon.policy.flow import may_enter
from antiphon.store import approvals
from antiphon.store.database import Transaction


async def decide(tx: Transaction, chat: Chat, command: ChatCommand, occasion: Occasion) -> str:
    """Answers all calls of the request as the sender; the first decision stands."""
    assert command.argument is not None and command.verdict is not None
    if command.note is not None and len(command.note.encode("utf-8", "surrogatepass")) > MAX_NOTE_BYTES:
        return f"Note is larger than {MAX_NOTE_BYTES} bytes. Shorten it."
    id = ApprovalId(command.argument)
    found = await approvals.find(tx, id)
    calls = () if found is None else found.calls
    decision = DecideApproval(
        rights=occasion.rights(chat),
        id=id,
        verdicts=command.verdict,
        fields={},
        note=command.note,
        standing_ids={call.id: _standing_id(call.id, occasion) for call in calls},
        at_ms=occasion.at_ms,
    )
    try:
        await decide_approval(tx, decision)
    except Conflict:
        if found is not None and not may_enter(found.made_of, PUBLIC):
            return "The request is not open any more. The page shows what became of it."
        raise
    return command.verdict.means.answer


def _standing_id(call: str, occasion: Occasion) -> StandingApprovalId:
    """An id like those that are drawn, the same if the unit runs again."""
    digits = hashlib.sha256(f"{occasion.drawn} {call}".encode()).hexdigest()[:20]
    return StandingApprovalId(f"always_{occasion.at_ms:011x}{digits}")
