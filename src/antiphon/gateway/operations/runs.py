"""Operations on runs. Contract: runs 3, 5, gateway 4."""

from antiphon.domain.ids import RunId
from antiphon.domain.run import RunStatus
from antiphon.domain.tokens import TokenScope
from antiphon.engine.runs.cancel import RunFilter
from antiphon.gateway.operations.following import Seconds, wait_for_run
from antiphon.gateway.operations.operation import Http, OperationRequest, Params, TargetKind, operation
from antiphon.gateway.operations.sessions import Limit
from antiphon.wire import run_trees
from antiphon.wire import runs as wire

MAX_LIMIT = 200


class ListRuns(Params, frozen=True, kw_only=True):
    session: str | None = None
    status: list[RunStatus] | None = None
    kept: bool = False
    limit: Limit = 50
    before: str | None = None


class NamedRun(Params, frozen=True, kw_only=True):
    run_id: str


class ReadRunTree(NamedRun, frozen=True, kw_only=True):
    limit: Limit = 50
    after: str | None = None


class WaitForRun(NamedRun, frozen=True, kw_only=True):
    wait: Seconds


@operation("runs.list", "GET /runs", scope=TokenScope.READ)
async def list_runs(request: OperationRequest, params: ListRuns) -> wire.RunList:
    """Lists runs, newest first; `before` is the last `runId` of the previous page.

    With `kept`, only the runs of sub-agents whose result has no requester left to receive it.
    """
    row = None
    if params.session is not None:
        row = (await request.services.sessions.get(request.principal, request.target(params.session))).session.row
    where = RunFilter(
        session=row,
        statuses=None if params.status is None else frozenset(params.status),
        is_kept=params.kept,
        before=None if params.before is None else RunId(params.before),
    )
    runs = await request.services.runs.list(request.principal, where, limit=min(max(params.limit, 1), MAX_LIMIT))
    return wire.RunList(count=len(runs), runs=[wire.run(run) for run in runs])


@operation("runs.get", "GET /runs/{run_id}", scope=TokenScope.READ, target=TargetKind.RUN)
async def get_run(request: OperationRequest, params: NamedRun) -> wire.RunShape:
    """Returns the run."""
    return wire.run(await request.services.runs.get(request.principal, RunId(params.run_id)))


@operation("runs.wait", Http("GET /runs/{run_id}", when="wait"), scope=TokenScope.READ, target=TargetKind.RUN)
async def wait_for_end(request: OperationRequest, params: WaitForRun) -> wire.RunShape:
    """With `wait`, returns the run once its work is over, or as `timeout` without `endedAt`.

    The work of a run that yielded is over when the run that continues it ends; the answer is that end.
    """
    run = await request.services.runs.get(request.principal, RunId(params.run_id))
    ended = await wait_for_run(request, run.id, params.wait)
    return wire.run(ended) if ended is not None else wire.unfinished_run(run)


@operation("runs.cancel", "POST /runs/{run_id}/cancel", scope=TokenScope.WRITE, target=TargetKind.RUN)
async def cancel_run(request: OperationRequest, params: NamedRun) -> wire.RunShape:
    """Cancels the run. The answer may still say `running` while the work stops."""
    return wire.run(await request.services.runs.cancel(request.principal, RunId(params.run_id)))


@operation("runs.tree", "GET /runs/{run_id}/tree", scope=TokenScope.READ, target=TargetKind.RUN)
async def read_run_tree(request: OperationRequest, params: ReadRunTree) -> run_trees.RunTreeShape:
    """Returns the run with the chain that led to it and the runs that it caused, oldest first.

    To see what one of these caused, ask for its tree. `after` is `next` of the previous answer.
    """
    tree = await request.services.run_trees.tree(
        request.principal,
        RunId(params.run_id),
        after=None if params.after is None else RunId(params.after),
        limit=min(max(params.limit, 1), MAX_LIMIT),
    )
    return run_trees.run_tree(tree)
