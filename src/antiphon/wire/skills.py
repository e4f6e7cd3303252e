"""The JSON of skills, and of what an owner decided about them. Contract: foreign_agents 5."""

from collections.abc import Mapping, Sequence

from antiphon.domain.skill import SkillState
from antiphon.wire.encoding import Shape


class SkillFileShape(Shape, frozen=True, kw_only=True):
    path: str
    size: int
    executable: bool
    sha256: str


class SkillShape(Shape, frozen=True, kw_only=True):
    name: str
    state: SkillState
    """`trusted` and `untrusted` ones are offered to the agents that name them."""
    agents: Sequence[str]
    """The agents that name it."""
    description: str | None = None
    sha256: str | None = None
    """Of the names, modes and contents of its files now."""
    file_count: int = 0
    bytes: int = 0
    problem: str | None = None
    """Why its folder is no skill."""
    reviewed_sha256: str | None = None
    """Of the one that an owner reviewed."""
    reviewed_by: str | None = None
    reviewed_at: int | None = None


class ShownSkillShape(SkillShape, frozen=True, kw_only=True):
    license: str | None = None
    compatibility: str | None = None
    metadata: Mapping[str, str] = {}
    allowed_tools: Sequence[str] = ()
    """The tools that it wants. They are only shown."""
    files: Sequence[SkillFileShape] = ()
    body: str | None = None
    """Its instructions."""


class SkillList(Shape, frozen=True, kw_only=True):
    count: int
    skills: Sequence[SkillShape]


class RemovedSkill(Shape, frozen=True, kw_only=True):
    name: str
