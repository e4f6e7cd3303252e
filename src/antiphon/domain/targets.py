"""Targets: addresses of sessions in tool calls and requests. Contract: keys 6."""

from enum import StrEnum
from typing import TypeAlias

from msgspec import Struct

from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId, SessionId
from antiphon.domain.keys import RESERVED, UNKNOWN_FORM, SessionKey, main_key, parse_key
from antiphon.domain.session_ids import has_namespace, parse_session_id


class RelativeTarget(StrEnum):
    """A session named by its relation to the caller's session."""

    CURRENT = "current"
    PARENT = "parent"


class NamedTarget(Struct, frozen=True):
    """A session named by its key, by the id of an incarnation, or by a text that can be either.

    If both are set, as for `hook:x`, both are looked up, and a session found by the key wins.
    """

    key: SessionKey | None
    session_id: SessionId | None

    def __post_init__(self) -> None:
        assert self.key is not None or self.session_id is not None


Target: TypeAlias = RelativeTarget | NamedTarget


class WrittenTarget(Struct, frozen=True):
    """A target, and the text by which a caller gave it."""

    target: Target
    text: str


def parse_target(text: str, *, agent_id: AgentId) -> Target:
    """The target that the text names; `main` and short keys belong to `agent_id`, the caller's agent.

    Raises `Invalid` for text that can be neither key nor id; the error does not reveal which sessions exist.
    """
    if text in tuple(RelativeTarget):
        return RelativeTarget(text)
    if text == "main":
        return NamedTarget(main_key(agent_id), None)
    session_id, refused = None, None
    try:
        session_id = parse_session_id(text)
    except Invalid as error:
        refused = error
    try:
        key = parse_key(text, default_agent=agent_id)
    except Invalid as error:
        if refused is not None:
            raise _unreadable(text, error, refused) from error
        key = None
    return NamedTarget(key, session_id)


def _unreadable(text: str, as_key: Invalid, as_id: Invalid) -> Invalid:
    if has_namespace(text) and UNKNOWN_FORM in as_key.message:
        return Invalid(as_id.message, code="invalid_key")
    if ":" in text or text in RESERVED:
        return as_key
    return Invalid(
        f"Session name is not a key or id: {text[:80]!r}. Use 'main', 'current', 'parent', a key as listed "
        "('agent:<agentId>:…') or a session id ('<namespace>:<rest>').",
        code="invalid_key",
    )
