"""What a principal is at the moment of a decision. Contract: access 1."""

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.ids import AgentId
from antiphon.domain.person import PersonRole


class Standing(Struct, frozen=True, kw_only=True, gc=False):
    """A principal with its present role. Read in the unit that decides, and used in no other."""

    principal: Principal
    """The person whose rights count: for a merged person, the one they were merged into."""
    role: PersonRole | None
    """None for sessions and the system, which are no persons."""
    agents: frozenset[AgentId] = frozenset()
    """Agents with which this person may open sessions, besides those that the settings name for the role."""
    is_suspended: bool = False
    clearance: Classification = PUBLIC
    """What this person may read, and what may be sent to them: everything for owners. Contract: flow 3, 7."""
