"""Acts: the operations that policy tells apart."""

from enum import StrEnum


class Act(StrEnum):
    """The first four are acts of sessions too, which `agents.list[].tools.sessions` narrows. Contract: visibility 5."""

    LIST = "list"
    """List sessions."""
    READ = "read"
    SEND = "send"
    STATUS = "status"
    CALL = "call"
    """Call tools as a session."""
    CHANGE = "change"
    """Change a session: its fields, its runs, its incarnation, its end."""
    OPEN = "open"
    """Open a session under a key that the principal chose."""
    SET_MODEL = "set_model"
    SET_SEND_POLICY = "set_send_policy"
    LIST_RUNS = "list_runs"
    LIST_TREES = "list_trees"
    LIST_WORK = "list_work"
    """List the work of all sessions."""
    DELIVER = "deliver"
    """List deliveries and send them again."""
    TOKENS = "tokens"
    """Manage bound tokens, browsers and the owner's token."""
    APPROVE = "approve"
    """List and decide requests for approval."""
    LINK = "link"
    """Create sign-in links."""
