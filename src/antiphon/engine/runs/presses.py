"""Buttons under requests for approval: pressing one decides as the person who pressed it. Contract: approvals 3, 4."""

from antiphon.domain.approval import ACCEPT, TRUST, verdict_of
from antiphon.domain.errors import REFUSALS, Conflict, Denied, NotFound
from antiphon.domain.ids import ApprovalId
from antiphon.engine.access.reach import Rights
from antiphon.engine.runs.decisions import DecideApproval, decide_approval
from antiphon.store import approvals
from antiphon.store.database import Transaction

UNKNOWN = "This button belongs to nothing that can be decided any more."


async def press(tx: Transaction, rights: Rights, data: str) -> str:
    """Decides the request as the person to whom the pressing account is linked; returns the sentence to show them.

    `data` is what the button carries: `<approval id>:<verdict>`, or `<approval id>:trust`.
    """
    id, _, said = data.partition(":")
    verdict, approval_id = verdict_of(said), ApprovalId(id)
    found = None if verdict is None else await approvals.find(tx, approval_id)
    if verdict is None or found is None:
        return UNKNOWN
    trust = found.trustable if said == TRUST else ()
    if (said == TRUST and not trust) or (said == ACCEPT and found.result is None):
        return UNKNOWN
    decision = DecideApproval(
        rights=rights,
        id=approval_id,
        verdicts=verdict,
        fields={},
        trust=trust,
        accepts=said == ACCEPT,
        note=None,
    )
    try:
        async with tx.attempt():
            await decide_approval(tx, decision)
    except REFUSALS as error:
        return _told(error)
    return f"{verdict.means.outcome}.{' What was read is trusted.' if trust else ''}"


def _told(error: Exception) -> str:
    match error:
        case NotFound():
            return UNKNOWN
        case Conflict(code="approval_expired"):
            return "Too late: the request has expired and was denied."
        case Conflict(code="approval_withdrawn"):
            return "The request was withdrawn: the work that asked for it has ended."
        case Denied() | Conflict():
            return error.message
        case _:
            return "This cannot be decided by a button. Look at the page."
