"""The reach of the engine's own work: folding logs, indexing, following, cleaning up.

Modules that import this read without a check; `tests/test_doors.py` lists the modules that may.
"""

from antiphon.domain.ids import SessionId, SessionRow
from antiphon.policy.acts import Act
from antiphon.policy.reach import Grant, Reach

SYSTEM_REACH = Reach(act=Act.READ)
"""Every session."""


def system_grant(session: SessionRow, incarnation: SessionId | None = None) -> Grant:
    return Grant(act=Act.READ, session=session, incarnation=incarnation)
