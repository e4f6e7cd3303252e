"""The view of one request: the chain that led to a run, and the runs that it caused."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from markupsafe import Markup
from msgspec import Struct

from antiphon.domain.approval import ApprovalState
from antiphon.domain.ids import RunId
from antiphon.domain.run import YIELDED, Purpose, Run, RunStatus
from antiphon.domain.text import plain, short_age
from antiphon.engine.views.run_trees import AskedApproval, RunTree, TreeRun
from antiphon.gateway.operations.operation import OperationRequest, Params
from antiphon.gateway.page.page_view import page_view
from antiphon.gateway.page.rendering import dollars, render, sum_of
from antiphon.gateway.page.titles import Titles, titles_of

SHOWN = 50
"""How many of the runs that one caused are shown at once."""
_KINDS = {
    Purpose.MESSAGE: "Message",
    Purpose.REQUEST: "Sent",
    Purpose.EXCHANGE_TURN: "Turn",
    Purpose.EXCHANGE_ANNOUNCE: "Announces",
    Purpose.CHILD: "Spawned",
    Purpose.RESULTS: "Results",
    Purpose.ANNOUNCE: "Announces",
    Purpose.TASK: "Task",
}
_STATES = {
    RunStatus.QUEUED: "queued",
    RunStatus.RUNNING: "at work",
    RunStatus.AWAITING_APPROVAL: "waits for approval",
    RunStatus.OK: "done",
    RunStatus.ERROR: "failed",
    RunStatus.TIMEOUT: "took too long",
    RunStatus.CANCELLED: "cancelled",
}
_FAILED = {RunStatus.ERROR, RunStatus.TIMEOUT}
_ASKED = {
    ApprovalState.PENDING: "asks for approval",
    ApprovalState.DECIDED: "approval decided",
    ApprovalState.EXPIRED: "request for approval expired",
    ApprovalState.WITHDRAWN: "request for approval withdrawn",
}


class ShowTree(Params, frozen=True, kw_only=True):
    run: str
    after: str | None = None


class AskedLine(Struct, frozen=True, kw_only=True):
    """A request for approval on the timeline of a run."""

    at: datetime
    words: str


class Node(Struct, frozen=True, kw_only=True):
    """A run in the tree."""

    id: RunId
    key: str
    session_id: str
    seq: int
    title: str
    agent: str
    kind: str
    request: str
    state: str
    """`running | awaiting_approval | queued | failed`, or empty."""
    words: str
    """The state in words."""
    at: datetime
    took: str
    model: str
    spent: str
    below: str
    """How many runs are below it, and what they used; empty without any."""
    busy_below: int
    caused: int
    waits_for: str
    asked: Sequence[AskedLine]
    can_stop: bool
    error: str


@page_view("tree", "OperationRequest", is_listed=False)
async def show_tree(request: OperationRequest, params: ShowTree) -> Markup:
    """A run with what led to it, and a part of what it caused."""
    after = None if params.after is None else RunId(params.after)
    tree = await request.services.run_trees.tree(request.principal, RunId(params.run), after=after, limit=SHOWN)
    names = await request.services.names.read(_deciders(tree))
    shown = _TreeRows(titles_of(request.gateway), names, request.services.clock.now())
    values = {
        "above": [shown.node(each) for each in tree.above],
        "top": shown.node(tree.top),
        "caused": [shown.node(each) for each in tree.caused],
        "next": tree.next,
    }
    return render("tree.html", values)


def _deciders(tree: RunTree) -> list[str]:
    members = (*tree.above, tree.top, *tree.caused)
    return [str(asked.decided_by) for each in members for asked in each.approvals if asked.decided_by is not None]


class _TreeRows(Struct, frozen=True):
    titles: Titles
    names: Mapping[str, str]
    now: datetime

    def node(self, each: TreeRun) -> Node:
        run, below = each.run, each.below
        is_open = not run.status.is_terminal or run.is_parked
        return Node(
            id=run.id,
            key=run.session_key,
            session_id=run.session_id,
            seq=run.seq,
            title=self.titles.of(each.session),
            agent=plain(self.titles.agent(run.agent_id)),
            kind="Continues" if run.continues is not None else _KINDS[run.purpose],
            request=plain(each.request),
            state=state_of_run(run).sign,
            words=state_of_run(run).words,
            at=run.created_at,
            took=_took(run, self.now),
            model=plain(run.model or ""),
            spent=sum_of(run.usage.total_tokens, run.usage.cost_microusd),
            below=_below(each),
            busy_below=0 if below is None else below.unfinished,
            caused=each.caused,
            waits_for=", ".join(self.titles.of(session) for session in each.waits_for),
            asked=[self._asked(asked) for asked in each.approvals],
            can_stop=is_open,
            error=plain(run.error or ""),
        )

    def _asked(self, asked: AskedApproval) -> AskedLine:
        by = "" if asked.decided_by is None else self.names.get(str(asked.decided_by), str(asked.decided_by))
        words = _ASKED[asked.state]
        return AskedLine(at=asked.decided_at or asked.asked_at, words=plain(f"{words} by {by}" if by else words))


class RunState(NamedTuple):
    sign: str
    """`running | awaiting_approval | queued | failed`, or empty."""
    words: str


def state_of_run(run: Run) -> RunState:
    """What the run does, or how it ended."""
    if run.status in _FAILED:
        return RunState("failed", _state(run))
    return RunState(run.status.value if not run.status.is_terminal else "running" if run.is_parked else "", _state(run))


def _state(run: Run) -> str:
    if run.is_withheld and run.status.is_terminal:
        return "ended"
    if run.is_parked:
        return "waits for its sub-agents" if run.status.is_terminal else "waits for approval while other runs work"
    if run.code == YIELDED:
        return "paused for its sub-agents, continues below"
    return f"{_STATES[run.status]}" + (" (stopping)" if run.is_cancel_requested and not run.status.is_terminal else "")


def _took(run: Run, now: datetime) -> str:
    """How long it has worked; empty if that is not known."""
    if run.started_at is None or (run.ended_at is None and run.status.is_terminal):
        return ""
    return short_age(((run.ended_at or now) - run.started_at).total_seconds())


def _below(each: TreeRun) -> str:
    below = each.below
    if below is None or not below.runs:
        return ""
    words = [f"{below.runs:,} run{'' if below.runs == 1 else 's'} below"]
    if below.cost_microusd is not None:
        words.append(dollars(below.cost_microusd))
    if unpriced := below.unpriced_tokens if below.cost_microusd is not None else below.tokens:
        words.append(f"{unpriced:,} tokens{' without a price' if below.cost_microusd is not None else ''}")
    return ", ".join(words)
