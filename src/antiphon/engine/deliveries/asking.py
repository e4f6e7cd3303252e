"""A request as it is stored and told: for all who ask for an approval. Contract: approvals 1, 5, flow 11."""

from typing import Final

from msgspec.structs import replace

from antiphon.domain.approval import Approval, Executor
from antiphon.domain.classification import Classification, Integrity
from antiphon.domain.distrust import asked_sources
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.message import JsonValue
from antiphon.domain.session import Session, SessionStatus
from antiphon.engine.deliveries.requests import ask_deciders
from antiphon.engine.ledger.append import AGENT_ACTOR, append_events
from antiphon.engine.rules import Rules
from antiphon.metrics import APPROVALS_ASKED, TRUSTED, UNTRUSTED
from antiphon.store import approvals
from antiphon.store.codec import milliseconds
from antiphon.store.database import SqlValue, Transaction
from antiphon.store.events import Addition
from antiphon.store.spawns import DUE

WAITS: Final = "A result waits that this session may not read."
MAX_OPEN: Final = 50
"""Open requests of one session, beyond which nothing is asked besides the calls of its run."""


async def store_request(
    tx: Transaction, session: Session, approval: Approval, *, made_of: Classification, rules: Rules
) -> None:
    """Stores a request that no run waits for, with its event, and asks those who may decide it.

    `made_of` is what it shows was made of. The session must have fewer than `MAX_OPEN`.
    """
    await approvals.insert(tx, approval)
    set: dict[str, SqlValue] = {}
    if session.status is SessionStatus.IDLE:
        set["status"] = SessionStatus.AWAITING_APPROVAL.value
    addition = Addition(
        incarnation=approval.session_id,
        events=[requested_event(approval, made_of) if approval.result is None else _waiting_event(approval, session)],
        at_ms=tx.now_ms,
        set=set,
        add={"pending_approvals": 1},
    )
    await append_events(tx, session.row, addition)
    await ask_deciders(tx, approval.id, made_of, rules)
    tx.wake(DUE)
    count_asked(approval)


def _waiting_event(approval: Approval, session: Session) -> NewEvent:
    """The fact that was asked, without the result, which the session may not read."""
    calls = [replace(call, arguments="{}", sha256="", reason=WAITS, release=None) for call in approval.calls]
    asked = requested_event(replace(approval, calls=tuple(calls)), session.taint.with_integrity(Integrity.TRUSTED))
    return replace(asked, data={**(asked.data or {}), "isWithheld": True})


def count_asked(approval: Approval) -> None:
    APPROVALS_ASKED.add(UNTRUSTED if approval.is_untrusted else TRUSTED)


def requested_event(approval: Approval, made_of: Classification) -> NewEvent:
    """The fact that was asked, with the exact calls; `made_of` is what these were made of."""
    calls: list[JsonValue] = [
        {
            "callId": call.id,
            "tool": call.tool,
            "arguments": call.arguments,
            "reason": call.reason,
            "sha256": call.sha256,
            "messageSeq": call.message_seq,
            "index": call.index,
            **({"files": call.files} if call.files else {}),
            **({} if call.release is None else {"release": call.release.data()}),
            **({} if call.executor is Executor.RUNTIME else {"executor": call.executor.value}),
        }
        for call in approval.calls
    ]
    return NewEvent(
        type=EventType.APPROVAL_REQUESTED,
        actor=AGENT_ACTOR,
        classification=made_of,
        run_id=approval.run,
        data={
            "approvalId": approval.id,
            "principal": str(approval.principal),
            "calls": calls,
            **({"sources": asked_sources(approval.sources)} if approval.sources else {}),
            "expiresAt": milliseconds(approval.expires_at),
        },
    )
