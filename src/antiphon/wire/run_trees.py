"""One request as a tree of runs."""

from collections.abc import Sequence

from antiphon.domain.approval import ApprovalState
from antiphon.domain.run import Purpose
from antiphon.engine.views.run_trees import AskedApproval, CausedBelow, RunTree, TreeRun
from antiphon.wire.encoding import Shape, dollars, milliseconds, optional_milliseconds
from antiphon.wire.runs import RunShape, run


class CausedShape(Shape, frozen=True, kw_only=True):
    """All runs that a run caused, directly or through others."""

    runs: int
    unfinished: int
    tokens: int
    cost_usd: float | None = None
    unpriced_tokens: int = 0
    """The tokens of runs whose cost is not known."""


class AskedShape(Shape, frozen=True, kw_only=True):
    """A request for approval."""

    approval_id: str
    state: ApprovalState
    asked_at: int
    decided_at: int | None = None
    decided_by: str | None = None


class TreeRunShape(Shape, frozen=True, kw_only=True):
    """A run in the tree of a request."""

    run: RunShape
    purpose: Purpose
    agent_id: str
    label: str | None = None
    """Of its session."""
    request: str | None = None
    """The beginning of the message that it answers."""
    waits_for: Sequence[str] | None = None
    """Session keys."""
    approvals: Sequence[AskedShape] | None = None
    caused: int
    """How many runs it caused directly."""
    below: CausedShape | None = None
    """Missing in the chain above."""


class RunTreeShape(Shape, frozen=True, kw_only=True):
    """A run, the chain that led to it, and runs that it caused directly, oldest first."""

    above: Sequence[TreeRunShape]
    """From the run with which the request began."""
    top: TreeRunShape
    caused: Sequence[TreeRunShape]
    next: str | None = None
    """`after` for the next part; missing at the end."""


def run_tree(tree: RunTree) -> RunTreeShape:
    return RunTreeShape(
        above=[_member(each) for each in tree.above],
        top=_member(tree.top),
        caused=[_member(each) for each in tree.caused],
        next=tree.next,
    )


def _member(each: TreeRun) -> TreeRunShape:
    return TreeRunShape(
        run=run(each.run),
        purpose=each.run.purpose,
        agent_id=each.run.agent_id,
        label=each.session.label,
        request=each.request or None,
        waits_for=[str(session.key) for session in each.waits_for] or None,
        approvals=[_asked(asked) for asked in each.approvals] or None,
        caused=each.caused,
        below=None if each.below is None else _caused(each.below),
    )


def _asked(asked: AskedApproval) -> AskedShape:
    return AskedShape(
        approval_id=asked.id,
        state=asked.state,
        asked_at=milliseconds(asked.asked_at),
        decided_at=optional_milliseconds(asked.decided_at),
        decided_by=None if asked.decided_by is None else str(asked.decided_by),
    )


def _caused(below: CausedBelow) -> CausedShape:
    return CausedShape(
        runs=below.runs,
        unfinished=below.unfinished,
        tokens=below.tokens,
        cost_usd=dollars(below.cost_microusd),
        unpriced_tokens=below.unpriced_tokens,
    )
