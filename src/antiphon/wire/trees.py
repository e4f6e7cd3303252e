"""Sessions with their descendants, and work in progress."""

from collections.abc import Callable, Sequence

from antiphon.domain.ids import AgentId
from antiphon.domain.session import SessionStatus
from antiphon.engine.views.activities import Activity, Work
from antiphon.engine.views.trees import Member, Tree
from antiphon.wire.encoding import Shape, dollars, milliseconds, optional_milliseconds
from antiphon.wire.sessions import LastRunShape, last_run


class CurrentRun(Shape, frozen=True, kw_only=True):
    """The run that a session works on, or will begin next."""

    run_id: str
    status: str
    """The run's status, or `parked`."""
    since: int
    waits_for: Sequence[str] | None = None
    """Session keys."""
    waits_until: int | None = None


class MemberShape(Shape, frozen=True, kw_only=True):
    """A session in a tree."""

    key: str
    level: int
    """How many sessions of this answer are above it."""
    depth: int
    spawned_by: str | None = None
    agent_id: str
    label: str | None = None
    display_name: str | None = None
    description: str | None = None
    preview: str | None = None
    status: SessionStatus
    model: str
    created_at: int
    updated_at: int
    run: CurrentRun | None = None
    last_run: LastRunShape | None = None
    total_tokens: int
    cost_usd: float | None = None
    tree_tokens: int
    tree_cost_usd: float | None = None
    child_sessions: int
    descendants: int
    busy_descendants: int


class TreeShape(Shape, frozen=True, kw_only=True):
    """Sessions, each after its parent."""

    count: int
    sessions: Sequence[MemberShape]
    omitted: int
    has_more: bool


class BusySession(Shape, frozen=True, kw_only=True):
    key: str
    agent_id: str
    label: str | None = None
    request: str | None = None
    run: CurrentRun
    unfinished_runs: int
    pending_approvals: int | None = None
    process_id: str | None = None


class ProcessShape(Shape, frozen=True, kw_only=True):
    """A running process of the database."""

    process_id: str
    role: str
    host: str
    pid: int
    version: str
    agents: Sequence[str]


class WorkShape(Shape, frozen=True, kw_only=True):
    """The busy sessions and the processes."""

    count: int
    total: int
    sessions: Sequence[BusySession]
    processes: Sequence[ProcessShape]


def member(member: Member, *, default_model: str) -> MemberShape:
    session, below, last = member.session, member.below, member.last_run
    own_cost = session.usage.cost_microusd
    costs = [cost for cost in (own_cost, below.cost_microusd) if cost is not None]
    return MemberShape(
        key=session.key.value,
        level=member.level,
        depth=session.depth,
        spawned_by=session.parent_key,
        agent_id=session.agent_id,
        label=session.label,
        display_name=session.display_name,
        description=session.description,
        preview=session.preview,
        status=session.status,
        model=session.model or default_model,
        created_at=milliseconds(session.created_at),
        updated_at=milliseconds(session.updated_at),
        run=None if member.activity is None else _current_run(member.activity),
        last_run=None if last is None else last_run(last),
        total_tokens=session.usage.total_tokens,
        cost_usd=dollars(own_cost),
        tree_tokens=session.usage.total_tokens + below.tokens,
        tree_cost_usd=dollars(sum(costs)) if costs else None,
        child_sessions=member.children,
        descendants=below.listed,
        busy_descendants=below.busy,
    )


def tree(tree: Tree, default_models: Callable[[AgentId], str]) -> TreeShape:
    sessions = [member(each, default_model=default_models(each.session.agent_id)) for each in tree.members]
    return TreeShape(count=len(sessions), sessions=sessions, omitted=tree.omitted, has_more=tree.has_more)


def work(work: Work) -> WorkShape:
    return WorkShape(
        count=len(work.activities),
        total=work.total,
        sessions=[
            BusySession(
                key=activity.session_key,
                agent_id=activity.agent_id,
                label=activity.label,
                request=work.requests.get(activity.run) or activity.preview,
                run=_current_run(activity),
                unfinished_runs=activity.unfinished,
                pending_approvals=activity.pending_approvals or None,
                process_id=activity.process if activity.process in work.processes else None,
            )
            for activity in work.activities
        ],
        processes=[
            ProcessShape(
                process_id=process.id,
                role=process.role,
                host=process.host,
                pid=process.pid,
                version=process.version,
                agents=process.agents,
            )
            for process in work.processes.values()
        ],
    )


def _current_run(activity: Activity) -> CurrentRun:
    return CurrentRun(
        run_id=activity.run,
        status="parked" if activity.is_parked else activity.status.value,
        since=milliseconds(activity.since),
        waits_for=[awaited.key for awaited in activity.waits_for] or None,
        waits_until=optional_milliseconds(activity.waits_until),
    )
