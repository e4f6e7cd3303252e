"""Routes of runs. Contract: runs 3, 5, gateway 4."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from antiphon import wire
from antiphon.domain.ids import RunId
from antiphon.domain.run import Run, RunStatus
from antiphon.engine.runs.cancel import RunFilter
from antiphon.gateway.context import gateway_of, principal_of

router = APIRouter(tags=["runs"])


@router.get("/runs")
async def list_runs(
    request: Request,
    session: str | None = None,
    status: Annotated[list[RunStatus] | None, Query()] = None,
    kept: bool = False,
    limit: int = 50,
    before: str | None = None,
) -> dict[str, Any]:
    """Runs, newest first; `before` takes the last `runId` of the page before.

    With `kept` those of sub-agents whose result nobody is left for.
    """
    services = gateway_of(request).services
    principal = principal_of(request)
    row = None
    if session is not None:
        row = (await services.sessions.get(principal, services.sessions.target(session))).session.row
    where = RunFilter(
        session=row,
        statuses=None if status is None else frozenset(status),
        is_kept=kept,
        before=None if before is None else RunId(before),
    )
    runs = await services.runs.list(principal, where, limit=min(max(limit, 1), 200))
    return {"count": len(runs), "runs": [wire.run(run) for run in runs]}


@router.get("/runs/{run_id}")
async def get_run(
    request: Request, run_id: str, wait: Annotated[float | None, Query(ge=0, le=600)] = None
) -> dict[str, Any]:
    """The run; with `wait`, once its work is over, or as `timeout` without `endedAt`.

    The work of a run that yielded is over with the run that continues it, whose end is answered then.
    """
    services = gateway_of(request).services
    run = await services.runs.get(principal_of(request), RunId(run_id))
    if wait is None:
        return wire.run(run)
    ended = await services.waits.wait(run.id, timedelta(seconds=wait))
    return wire.run(ended) if ended is not None else _unfinished(run)


def _unfinished(run: Run) -> dict[str, Any]:
    shown = {**wire.run(run), "status": "timeout"}
    shown.pop("endedAt", None)
    return shown


@router.post("/runs/{run_id}/cancel")
async def cancel_run(request: Request, run_id: str) -> dict[str, Any]:
    """Cancels the run; the answer shows it as it stands, which may still be `running` while its work unwinds."""
    services = gateway_of(request).services
    return wire.run(await services.runs.cancel(principal_of(request), RunId(run_id)))
