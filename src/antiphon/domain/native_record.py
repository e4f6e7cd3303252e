"""The session that an external harness keeps by itself, behind an incarnation of ours. Contract: foreign_agents 2."""

from msgspec import Struct

from antiphon.domain.ids import AgentId, RunId, SessionId


class NativeRecord(Struct, frozen=True, kw_only=True):
    incarnation: SessionId
    agent_id: AgentId
    native_id: str
    """Its id in the harness."""
    seen_seq: int
    """The newest entry of our log that it was prompted with."""
    run: RunId
    """The run whose turn began there last."""
