"""What somebody does, as far as policy tells it apart."""

from enum import StrEnum


class Act(StrEnum):
    """The first four are acts of sessions too, which `agents.list[].tools.sessions` narrows. Contract: visibility 5."""

    LIST = "list"
    """Sessions."""
    READ = "read"
    SEND = "send"
    STATUS = "status"
    CALL = "call"
    """Tools, as a session."""
    CHANGE = "change"
    """A session: its fields, its runs, its incarnation, its end."""
    OPEN = "open"
    """A session under a key of one's own choice."""
    SET_MODEL = "set_model"
    SET_SEND_POLICY = "set_send_policy"
    LIST_RUNS = "list_runs"
    LIST_TREES = "list_trees"
    LIST_WORK = "list_work"
    """Who is at work, in all sessions."""
    DELIVER = "deliver"
    """See what leaves, and send it again."""
    TOKENS = "tokens"
    """Tokens bound to a session, browsers, and the owner's token."""
    LINK = "link"
    """Sign-in links."""
