"""A review: an owner read what others say of their tool, and confirmed what it does. Contract: flow 10."""

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.agent import Effect

UNREVIEWED = frozenset({Effect.WRITES, Effect.LEAVES})
"""What a tool counts as while nobody declared or confirmed its effects."""


class ConfirmedTool(Struct, frozen=True, kw_only=True):
    """A tool as an owner saw and confirmed it."""

    sha256: str
    """Of its source, name, description, schema and hints; what changes is unreviewed again."""
    source: str
    """`mcp:<server>` or `package:<package>`."""
    tool: str
    """Its name there."""
    effects: frozenset[Effect]


class ToolReview(Struct, frozen=True, kw_only=True):
    """A confirmation, as it is stored."""

    confirmed: ConfirmedTool
    reviewed_at: datetime
    reviewed_by: Principal


class Reviewed(Struct, frozen=True, kw_only=True):
    """What reviews say of a tool as it is offered now."""

    effects: frozenset[Effect]
    is_confirmed: bool
    """Whether an owner saw it as it is; False for one that has changed since."""


def review_of(confirmed: Sequence[ConfirmedTool], source: str, tool: str, sha256: str) -> Reviewed | None:
    """None for a tool that nobody ever reviewed.

    One that has changed keeps what it was confirmed to do, so that by a change it cannot get around a question.
    """
    of_name = [each for each in confirmed if (each.source, each.tool) == (source, tool)]
    exact = next((each for each in of_name if each.sha256 == sha256), None)
    if exact is not None:
        return Reviewed(effects=exact.effects, is_confirmed=True)
    before = frozenset(effect for each in of_name for effect in each.effects)
    return Reviewed(effects=UNREVIEWED | before, is_confirmed=False) if of_name else None
