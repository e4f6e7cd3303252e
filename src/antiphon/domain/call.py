"""A call from outside a run that runs once: for its `Idempotency-Key`, or after a yes. Contract: tools 1, approvals 5.

A call with a key is due as it begins, one that asked from the yes on; one whose request got no yes never is. A process
takes a due call, and its answer ends it. If the process dies before, what became of the call is unknown.
"""

from datetime import datetime
from enum import Enum, auto

from msgspec import Struct

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.ids import ApprovalId, ProcessId, SessionRow


class OutsideCall(Struct, frozen=True, kw_only=True):
    id: str
    """That of its request if it asked; another one if it joined the request of the same call."""
    session: SessionRow
    approval: ApprovalId | None = None
    """The request that it asked with or joined."""
    sha256: str = ""
    """Of the tool and its arguments. A request has them itself."""
    is_due: bool = False
    """Whether it may run, or runs, and has no outcome yet."""
    begun_at: datetime | None = None
    begun_by: ProcessId | None = None
    outcome: str | None = None
    """The answer as JSON, once there is one."""
    made_of: Classification = PUBLIC
    """What the answer is made of."""

    @property
    def claim(self) -> tuple[str, str]:
        return self.id, self.begun_by or ""


class Taking(Enum):
    """What a process does with a call that it finds."""

    LEAVE = auto()
    """It is over, waits for a yes, or another process carries it out."""
    BEGIN = auto()
    GIVE_UP = auto()
    """Its process died, and it may have taken effect."""


def on_taken(call: OutsideCall, *, is_left: bool, may_repeat: bool) -> Taking:
    """`is_left` says that no living process has begun it, `may_repeat` that it may have its effect twice."""
    if not call.is_due or not is_left:
        return Taking.LEAVE
    return Taking.BEGIN if call.begun_by is None or may_repeat else Taking.GIVE_UP
