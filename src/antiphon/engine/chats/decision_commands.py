"""`/approve` and `/deny`: deciding a request for approval in a chat. Contract: approvals 3, channels 3."""

from collections.abc import Mapping
from typing import Final

from antiphon.domain.approval import Approval, Verdict
from antiphon.domain.commands import ChatCommand
from antiphon.domain.errors import Conflict
from antiphon.domain.ids import ApprovalId
from antiphon.engine.chats.chat import Chat
from antiphon.engine.rules import Rules
from antiphon.engine.runs.decisions import MAX_NOTE_BYTES, DecideApproval, decide_approval
from antiphon.policy.flow import is_public
from antiphon.store import approvals
from antiphon.store.database import Transaction

SOME: Final = "Approved those calls; the others are denied."


async def decide(tx: Transaction, chat: Chat, command: ChatCommand, rules: Rules) -> str:
    """Answers the calls of the request as the sender; the first decision stands.

    Calls that the sender does not name, where they name some, are denied.
    """
    assert command.argument is not None and command.verdict is not None
    if command.note is not None and len(command.note.encode("utf-8", "surrogatepass")) > MAX_NOTE_BYTES:
        return f"Note is larger than {MAX_NOTE_BYTES} bytes. Shorten it."
    id = ApprovalId(command.argument)
    found = await approvals.find(tx, id)
    decision = DecideApproval(
        rights=chat.rights(rules),
        id=id,
        verdicts=_verdicts(command, found),
        fields={},
        note=command.note,
    )
    try:
        await decide_approval(tx, decision)
    except Conflict:
        if found is not None and not is_public(found.made_of):
            return "The request is not open any more. The page shows what became of it."
        raise
    return SOME if command.calls else command.verdict.means.answer


def _verdicts(command: ChatCommand, found: Approval | None) -> Mapping[str, Verdict] | Verdict:
    """A call that the request does not have is named too, so that nothing is decided."""
    assert command.verdict is not None
    if not command.calls:
        return command.verdict
    asked = () if found is None else [call.id for call in found.calls]
    named = dict.fromkeys(command.calls, command.verdict)
    return {**dict.fromkeys(asked, Verdict.DENY), **named}
