"""A run: one turn of an agent in a session, from its being queued to its one end."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

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


class Purpose(StrEnum):
    """What a run is for. A continuation has the purpose of the run that it goes on with."""

    MESSAGE = "message"
    """It answers what a person or a program posted."""
    REQUEST = "request"
    """It answers another session's message, the first of an exchange."""
    EXCHANGE_TURN = "exchange_turn"
    EXCHANGE_ANNOUNCE = "exchange_announce"
    """It words what the target's own channel is told of an exchange."""
    CHILD = "child"
    """It works on what its session's requester gave it, and owes the result."""
    RESULTS = "results"
    """It goes on with results of its session's children."""
    ANNOUNCE = "announce"
    """It words what its requester's channel is told of a result."""

    @property
    def is_of_exchange(self) -> bool:
        return self in (Purpose.REQUEST, Purpose.EXCHANGE_TURN, Purpose.EXCHANGE_ANNOUNCE)

    @property
    def speaks_for_itself(self) -> bool:
        """Whether its reply is its session's own, which goes where the session's answers go."""
        return self is not Purpose.ANNOUNCE and not self.is_of_exchange


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
    purpose: Purpose
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
    is_sandboxed: bool = False
    """Whether a sandboxed session is among those that caused it; then it runs no command outside of a sandbox."""
    has_sent: bool = False
    """Whether it sent messages to other sessions itself."""
    report: str | None = None
    """The result that it owes to the session which spawned its own."""
    announces: str | None = None
    """The result that it words for the requester's channel."""
    has_spawned: bool = False
    """Whether it spawned children itself, or continues a run that did."""
    has_attachments: bool = False
    """Whether files are still to be written into its workspace, before its first step."""
    time_limit: timedelta | None = None
    """How long it may take, beside what its agent's runs may."""
    waiting_for: tuple[RunId, ...] = ()
    """Runs of others that it waits for."""
    wait_until: datetime | None = None
    wait_call: str | None = None
    """Names the call that waits for several; the same call again finds its deadline."""
    is_yielding: bool = False
    """Whether it asked to end and to be continued when its children have ended."""
    is_parked: bool = False
    """Whether it has ended and waits for its children; another run then continues it. Contract: spawn 8."""
    continues: RunId | None = None
    """The parked run that it goes on with."""
    continued_by: RunId | None = None
    """The run that went on with its work, and whose result is its own."""
    is_cancel_requested: bool = False
    reply: str | None = None
    error: str | None = None
    code: str | None = None
    usage: Usage = NO_USAGE

    @property
    def is_over(self) -> bool:
        """Whether it has ended and is not to be continued."""
        return self.status.is_terminal and not self.is_parked


YIELDED = "yielded"
"""The code of a run that ended to be continued: its result is that of the run which continues it."""


def followed(run: Run, last: Run) -> Run:
    """The run with the end of the last one that continued it. Contract: spawn 8."""
    if run.id == last.id:
        return run
    return replace(
        run,
        status=last.status,
        ended_at=last.ended_at,
        reply=last.reply,
        error=last.error,
        code=last.code,
        is_parked=last.is_parked,
    )


class Outcome(Struct, frozen=True, kw_only=True):
    """How a run ended, as its runner tells it."""

    status: RunStatus
    reply: str = ""
    error: str | None = None
    code: str | None = None
