"""A run: one turn of an agent in a session, from queued to its end."""

from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Asker, Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.delay import Delay
from antiphon.domain.ids import AgentId, ApprovalId, ProcessId, RunId, SessionId, SessionRow, TaskId
from antiphon.domain.message import NO_USAGE, Cut, Usage
from antiphon.domain.queue_mode import QueueMode
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
        """Whether it is at work, or waits for an approval."""
        return self in ACTIVE


ACTIVE = frozenset({RunStatus.RUNNING, RunStatus.AWAITING_APPROVAL})
TERMINAL = frozenset({RunStatus.OK, RunStatus.ERROR, RunStatus.TIMEOUT, RunStatus.CANCELLED})

_NEXT = {
    RunStatus.QUEUED: {RunStatus.RUNNING, RunStatus.CANCELLED, RunStatus.ERROR, RunStatus.TIMEOUT},
    RunStatus.RUNNING: TERMINAL | {RunStatus.AWAITING_APPROVAL},
    RunStatus.AWAITING_APPROVAL: TERMINAL | {RunStatus.RUNNING},
}


def can_become(before: RunStatus, after: RunStatus) -> bool:
    """Whether the ledger allows this change; a run never leaves a terminal status. Contract: runs 1, 8."""
    return after in _NEXT.get(before, frozenset())


class Purpose(StrEnum):
    """What a run is for. A continuation has the purpose of the run that it continues."""

    MESSAGE = "message"
    """Answers a message that a person or a program posted."""
    REQUEST = "request"
    """Answers another session's message, the first of an exchange."""
    EXCHANGE_TURN = "exchange_turn"
    EXCHANGE_ANNOUNCE = "exchange_announce"
    """Words the text about an exchange for the target's own channel."""
    CHILD = "child"
    """Works on the requester's task and owes the result."""
    RESULTS = "results"
    """Continues with results of its session's children."""
    ANNOUNCE = "announce"
    """Words the text about a result for the requester's channel."""
    TASK = "task"
    """Does at its time what a task asks for."""
    CHECKPOINT = "checkpoint"
    """Not a turn: what a checkpoint used, noted when it has ended."""

    @property
    def is_of_exchange(self) -> bool:
        return self in (Purpose.REQUEST, Purpose.EXCHANGE_TURN, Purpose.EXCHANGE_ANNOUNCE)

    @property
    def speaks_for_itself(self) -> bool:
        """Whether its reply belongs to its session, and goes where the session's answers go."""
        return self is not Purpose.ANNOUNCE and not self.is_of_exchange


class PlaceGot(StrEnum):
    """What the place of an ended run got from it: one for each run with a place."""

    SENT = "sent"
    """Its words."""
    TOLD = "told"
    """A sentence that says why there are none."""
    TOLD_BEFORE = "told_before"
    """Nothing more: it was told of the same cause, and no turn has succeeded there since."""
    MARKER = "marker"
    """Nothing: the agent chose silence."""
    DENIED = "denied"
    """Nothing: policy or a setting forbids it, or the platform refuses all texts for the place."""
    FLOW = "flow"
    """Nothing: the words were made of data that may not go there."""
    WITHDRAWN = "withdrawn"
    """Nothing: somebody called the work off, nobody there asked for it, or another run goes on with it."""


MAX_ATTEMPTS = 3
"""Crashed attempts after which a run ends with code `crashed`. Contract: runs 8."""


class Run(Struct, frozen=True, gc=False):
    """One row of the ledger. Made of its row by position, like `SessionSummary`."""

    id: RunId
    session: SessionRow
    session_key: str
    session_id: SessionId
    """The incarnation that it belongs to; results go there even after a reset."""
    agent_id: AgentId
    seq: int
    """The `seq` of the event that queued it; gives the order of a session's runs."""
    newest_seq: int
    """The `seq` of the newest message that it answers; above `seq` if other messages joined it."""
    status: RunStatus
    mode: QueueMode
    purpose: Purpose
    principal: Principal
    created_at: datetime
    is_favoured: bool = False
    """Whether its principal was an owner when it was queued; only the order of work follows from it."""
    attempt: int = 0
    fence: int = 0
    """Each claim raises it; a write with an older fence changes nothing."""
    process: ProcessId | None = None
    """The process that claimed it last; None before, and after it was handed back."""
    started_at: datetime | None = None
    ended_at: datetime | None = None
    deadline: datetime | None = None
    place: DeliveryContext | None = None
    """Where its message came from and its reply goes; None for the place of its session's answers."""
    exchange: str | None = None
    """The exchange between sessions to which it belongs."""
    partner: SessionRow | None = None
    """The other session of that exchange."""
    chain: str | None = None
    """Identifies the request behind it, across sends between sessions; None if no send was involved."""
    hops: int = 0
    """The number of sends between that request and this run."""
    is_sandboxed: bool = False
    """Whether a sandboxed session is among its causes; then all its commands run in a sandbox."""
    has_sent: bool = False
    """Whether it sent messages to other sessions itself."""
    report: str | None = None
    """The result that it owes to its session's requester."""
    announces: str | None = None
    """The result that it words for the requester's channel."""
    has_spawned: bool = False
    """Whether it spawned children itself, or continues a run that did."""
    has_attachments: bool = False
    """Whether files must still be written into its workspace before its first step."""
    time_limit: timedelta | None = None
    """How long it may take by its spawn, or by what an approval left of its time; zero for no limit."""
    waiting_for: tuple[RunId, ...] = ()
    """Runs of other sessions that it waits for."""
    wait_until: datetime | None = None
    wait_call: str | None = None
    """Identifies the call that waits for several results; a repeated call finds its deadline."""
    approval: ApprovalId | None = None
    """The newest request to approve calls of it, or of the run that it continues."""
    delay: Delay | None = None
    """Why it waits for its model's provider at present."""
    is_yielding: bool = False
    """Whether it asked to end and to be continued when its children have ended."""
    is_parked: bool = False
    """Whether another run continues it: it has ended and waits for its children, or others work while it waits for an
    approval. Contract: spawn 8, approvals 2."""
    continues: RunId | None = None
    """The parked run that it continues."""
    continued_by: RunId | None = None
    """The run that continued its work, and whose result is its own."""
    cause: RunId | None = None
    """The run that caused it: the one that sent its message or spawned its session, or that it continues. None for
    what a person or a program began."""
    task: TaskId | None = None
    """The task that it works for, or that caused it through sends and spawns."""
    model: str | None = None
    """The model of its newest step, `provider:model`; None before its first step, and for runs of older versions."""
    is_cancel_requested: bool = False
    reply: str | None = None
    error: str | None = None
    code: str | None = None
    cut: Cut | None = None
    """What cut its reply short."""
    made_of: Classification = PUBLIC
    """What the reply, the error, the code, the times and the usage were made of, once it has ended. Until then, what
    it shows is as secret as its session's taint. Contract: flow 2, 4."""
    usage: Usage = NO_USAGE
    place_got: PlaceGot | None = None
    """What its place got of it; `sent` before its end if texts of its steps went there. None if it has no place
    outside, or ended under an older version. Contract: groups 4."""

    is_withheld: bool = False
    """Whether its reply, error, code, times and usage are left out, because they do not flow to the reader."""

    @property
    def asker(self) -> Asker:
        return Asker(self.principal, self.is_favoured)

    @property
    def is_over(self) -> bool:
        """Whether it has ended and will not be continued."""
        return self.status.is_terminal and not self.is_parked

    @property
    def is_waiting(self) -> bool:
        """Whether its row says that it waits, for other runs or for its model's provider."""
        return bool(self.waiting_for) or self.wait_until is not None or self.delay is not None

    @property
    def is_awaiting_approval(self) -> bool:
        return self.status is RunStatus.AWAITING_APPROVAL


YIELDED = "yielded"
"""The code of a run that ended to be continued: its result is that of its continuation."""
RESET = "reset"
"""The code of a run whose session was reset."""
PLACE_CLEARANCE = "place_clearance"
"""The code of a run that ended because its place may not have what its session holds."""
PERSON_CAP = "person_cap"
GUESTS_CAP = "guests_cap"
TOLD_CAPS = frozenset({PERSON_CAP, GUESTS_CAP})
"""The codes of caps of which a person is told once a day, in their chat."""


def followed(run: Run, last: Run) -> Run:
    """The run, with the end of its last continuation. Contract: spawn 8."""
    if run.id == last.id:
        return run
    return replace(
        run,
        status=last.status,
        ended_at=last.ended_at,
        reply=last.reply,
        error=last.error,
        code=last.code,
        cut=last.cut,
        made_of=run.made_of.join(last.made_of),
        is_parked=last.is_parked,
    )


class Outcome(Struct, frozen=True, kw_only=True, gc=False):
    """How a run ended, as reported by its runner."""

    status: RunStatus
    reply: str = ""
    error: str | None = None
    code: str | None = None
    cut: Cut | None = None
    """What cut the reply short."""
