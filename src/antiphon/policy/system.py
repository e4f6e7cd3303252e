"""The reach of the engine's own work, which nobody asks for: folding logs, indexing, following, cleaning up.

Whoever imports this reads without asking; `tests/test_doors.py` lists the modules that may.
"""

from antiphon.domain.ids import SessionId, SessionRow
from antiphon.policy.acts import Act
from antiphon.policy.reach import Grant, Reach

SYSTEM_REACH = Reach(act=Act.READ)
"""Every session."""


def system_grant(session: SessionRow, incarnation: SessionId | None = None) -> Grant:
    return Grant(act=Act.READ, session=session, incarnation=incarnation)
