"""Session ids: one incarnation each, `<namespace>:<rest>`. Contract: keys 6, 7."""

import re
from functools import lru_cache
from urllib.parse import quote

from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId, SessionId
from antiphon.domain.keys import SessionKey, SessionKind, parse_key

_NAMESPACE = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
RESERVED_NAMESPACES = frozenset(
    {
        *("agent", "api", "chat", "cli", "cron", "current", "global", "group", "hook", "main", "node", "parent"),
        *("channel", "direct", "schedule", "spawn", "sub", "subagent", "system", "thread", "topic", "unknown", "web"),
        *("webchat", "webhook"),
        *("peer", "claude", "codex", "gemini", "mcp", "opencode"),
    }
)
"""Namespaces that belong to no channel or to a channel of Antiphon's own, words that keys use, and those of peers:
other people's agents, by their clients."""
PEER_NAMESPACE = "peer"
"""That of sessions of peers, which nobody opens by hand."""
TASK_NAMESPACE = "schedule"
_LONGEST_AGENT = AgentId("a" * 64)


@lru_cache(maxsize=4096)
def transcript_path(session_id: str) -> str:
    """Where the transcript of this incarnation is read, also once another one has its key."""
    return f"/sessions/{quote(session_id, safe=':')}/transcript"


def parse_session_id(text: str) -> SessionId:
    """The id of exactly that text, from which every agent can make a key; else `Invalid`, never repaired."""
    if not has_namespace(text):
        raise Invalid(
            f"Session id is not of the form '<namespace>:<rest>': {text[:80]!r}. "
            "Examples: 'cli:work', 'api:customer-42'.",
            code="invalid_session_id",
        )
    try:
        parse_key(f"agent:{_LONGEST_AGENT}:{text}")
    except Invalid as error:
        reason = error.message.partition(": ")[0].removeprefix("Session key ")
        raise Invalid(f"Session id {reason}: {text[:80]!r}.", code="invalid_session_id") from error
    return SessionId(text)


def has_namespace(text: str) -> bool:
    """Whether the text has the form `<namespace>:<rest>`, whatever the rest."""
    namespace, _, rest = text.partition(":")
    return bool(rest) and namespace != "agent" and _NAMESPACE.fullmatch(namespace) is not None


def is_of_task(key: SessionKey) -> bool:
    """Whether only a task may have the key. Contract: keys 7."""
    return key.kind is SessionKind.CRON or key.value.split(":")[2:3] == [TASK_NAMESPACE]


def is_of_peer(key: SessionKey, id: SessionId) -> bool:
    """Whether only a peer may have a session with this key, or with this id. Contract: keys 7."""
    return is_key_of_channel(key, PEER_NAMESPACE) or namespace_of(id) == PEER_NAMESPACE


def parse_namespace(text: str) -> str:
    """The namespace of a channel that a program serves. Raises `Invalid` (`invalid_namespace`)."""
    if _NAMESPACE.fullmatch(text) is None:
        raise Invalid(
            f"Namespace is not valid: {text[:80]!r}. Use 1 to 64 of a-z, 0-9, _ and -, without the colon.",
            code="invalid_namespace",
        )
    if text in RESERVED_NAMESPACES or text.startswith("node-"):
        raise Invalid(f"Namespace is reserved: {text!r}. Use the name of the channel itself.", code="invalid_namespace")
    return text


def parse_node_id(text: str) -> str:
    """The id of a node, whose session is `node-<id>`. Raises `Invalid` (`invalid_node`)."""
    if _NAMESPACE.fullmatch(text) is None:
        raise Invalid(f"Node id is not valid: {text[:80]!r}. Use 1 to 64 of a-z, 0-9, _ and -.", code="invalid_node")
    return text


def is_key_of_channel(key: SessionKey, namespace: str) -> bool:
    """Whether a session with this key belongs to the channel: `agent:<id>:<namespace>:…`."""
    parts = key.value.split(":", 3)
    return len(parts) == 4 and parts[0] == "agent" and parts[2] == namespace


def namespace_of(session_id: SessionId) -> str:
    """The namespace to which channel tokens are confined, without the colon. Contract: access 2."""
    return session_id.partition(":")[0]


def key_from_session_id(agent_id: AgentId, session_id: SessionId) -> SessionKey:
    """The key that is created when a session is opened by this id alone."""
    return parse_key(f"agent:{agent_id}:{session_id}")


def next_session_id(old: SessionId, random: str) -> SessionId:
    """The id after a reset: `random` (for channels `<yyyymmdd>-<random>`) in the same namespace."""
    return parse_session_id(f"{namespace_of(old)}:{random}")
