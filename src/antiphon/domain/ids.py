"""Ids as distinct types, and the port that draws new ones."""

from typing import NewType, Protocol

AgentId = NewType("AgentId", str)
"""Matches `[a-z0-9][a-z0-9_-]{0,63}`."""

SessionId = NewType("SessionId", str)
"""One incarnation of a session, `<namespace>:<rest>`; the wire's `sessionId`."""

UNBORN = SessionId("")
"""Of a session that does not exist yet; an id is drawn when it is opened."""

SessionRow = NewType("SessionRow", int)
"""The row of a key; runs, wakes and readers use it. Never leaves the process."""

ProcessId = NewType("ProcessId", str)
"""A running program that works on a database, perhaps with others."""

RunId = NewType("RunId", str)
MessageId = NewType("MessageId", str)
ApprovalId = NewType("ApprovalId", str)
StandingApprovalId = NewType("StandingApprovalId", str)
NoteId = NewType("NoteId", str)
TaskId = NewType("TaskId", str)


class Ids(Protocol):
    """Draws ids and random numbers.

    - `new(prefix)` is `<prefix>_<31 hexadecimal digits>`, unique, and sorts by the time it was drawn.
    - `random_hex(n)` has n hexadecimal digits and cannot be guessed.
    - Under a seed both repeat.
    """

    def new(self, prefix: str) -> str: ...

    def random_hex(self, digits: int) -> str: ...
