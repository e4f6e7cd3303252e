"""What an owner trusts of what a session has read. Contract: flow 10."""

from datetime import datetime

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.ids import ApprovalId, SessionRow


class TrustedContent(Struct, frozen=True, kw_only=True):
    """Content by its hash, in one session. It survives a reset, and does not go along with a fork."""

    session: SessionRow
    session_key: str = ""
    """Read with it."""
    sha256: str
    actor: str
    """Who said it."""
    tool: str | None = None
    """The tool whose result it was."""
    first_words: str
    made_of: Classification = PUBLIC
    """What the session held that asked; the first words are of that."""
    approval: ApprovalId
    """The request on which it was decided."""
    trusted_at: datetime
    trusted_by: Principal
    """The owner; it counts while they are one."""
