"""A run: one turn of an agent in a session, from its being queued to its one end."""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.ids import AgentId, ProcessId, RunId, SessionId, SessionRow
from antiphon.domain.message import NO_USAGE, Usage
from antiphon.domain.session import DeliveryContext


class RunStatus(StrEnum):
    QUEUED = "queued"
    RUNNING = "running"
    AWAITING_APPROVAL = "awaiting_approval"
    OK = "ok"
    ERROR = "error"
    TIMEOUT = "timeout"
    CANCELLED = "cancelled"

    @property
    def is_terminal(self) -> bool:
        return self in TERMINAL

    @property
    def is_active(self) -> bool:
        """Whether it holds its session, so that no other run of the session may begin."""
        return self in ACTIVE


ACTIVE = frozenset({RunStatus.RUNNING, RunStatus.AWAITING_APPROVAL})
TERMINAL = frozenset({RunStatus.OK, RunStatus.ERROR, RunStatus.TIMEOUT, RunStatus.CANCELLED})

_NEXT = {
    RunStatus.QUEUED: {RunStatus.RUNNING, RunStatus.CANCELLED, RunStatus.ERROR, RunStatus.TIMEOUT},
    RunStatus.RUNNING: TERMINAL | {RunStatus.AWAITING_APPROVAL},
    RunStatus.AWAITING_APPROVAL: TERMINAL | {RunStatus.RUNNING},
}


def can_become(before: RunStatus, after: RunStatus) -> bool:
    """Whether the ledger allows this step; a terminal status is never left. Contract: runs 1, 8."""
    return after in _NEXT.get(before, frozenset())


class QueueMode(StrEnum):
    """What a message does that finds its session busy. Contract: runs 4."""

    ENQUEUE = "enqueue"
    COLLECT = "collect"
    STEER = "steer"
    INTERRUPT = "interrupt"
    REJECT = "reject"


MAX_ATTEMPTS = 3
"""Crashed attempts after which a run ends with code `crashed`. Contract: runs 8."""


class Run(Struct, frozen=True, kw_only=True):
    """One row of the ledger."""

    id: RunId
    session: SessionRow
    session_key: str
    session_id: SessionId
    """The incarnation that it belongs to; results go there even after a reset."""
    agent_id: AgentId
    seq: int
    """Of the event that queued it; the order of a session's runs."""
    newest_seq: int
    """Of the newest message that it answers; above `seq` where others joined it."""
    status: RunStatus
    mode: QueueMode
    principal: Principal
    attempt: int = 0
    fence: int = 0
    """Raised by each claim; a write with an older one changes nothing."""
    process: ProcessId | None = None
    """That claimed it last; None before, and after it was handed back."""
    created_at: datetime
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deadline: datetime | None = None
    place: DeliveryContext | None = None
    """Where its message came from and its reply goes; None for wherever its session's answers go."""
    exchange: str | None = None
    """The exchange between sessions that it is a part of."""
    partner: SessionRow | None = None
    """The other session of that exchange."""
    chain: str | None = None
    """Names the request that it comes from, over sends from session to session; None where there was no send."""
    hops: int = 0
    """How many sends lie between that request and this run."""
    has_sent: bool = False
    """Whether it sent messages to other sessions itself."""
    waiting_for: RunId | None = None
    wait_until: datetime | None = None
    is_cancel_requested: bool = False
    reply: str | None = None
    error: str | None = None
    code: str | None = None
    usage: Usage = NO_USAGE


class Outcome(Struct, frozen=True, kw_only=True):
    """How a run ended, as its runner tells it."""

    status: RunStatus
    reply: str = ""
    error: str | None = None
    code: str | None = None
