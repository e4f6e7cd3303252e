"""`sessions_wait`: waits for runs of children and of requests, any or all. Contract: spawn 8."""

from datetime import timedelta
from typing import Any, Literal

from pydantic import Field

from antiphon.domain.agent import Effect
from antiphon.domain.classification import OF_INTEGRITY
from antiphon.domain.ids import RunId
from antiphon.domain.run import RunStatus
from antiphon.engine.access.caller import Caller
from antiphon.engine.children.wait import AwaitedRun, ChildWaits, Joined
from antiphon.policy.session_tools import WAIT_TOOL
from antiphon.tools.session_tool import Arguments, ClassifiedAnswer, SessionTool

DESCRIPTION = (
    "Waits for runs that this session started: of sub-agents (sessions_spawn), or of sessions that it sent a message "
    "to (sessions_send). Returns each run's status, and its reply if it has ended. Use it if this turn needs the "
    "results to continue. A result that this session may not read yet is 'withheld'; with accept it is returned as far "
    "as this session may hold it, and from then on this session is as classified as the result."
)

CODES = ("not_found", "wait_cycle", "timeout", "no_run")
MAX_RUNS = 1_000


class WaitArguments(Arguments):
    run_ids: list[str] = Field(
        min_length=1, max_length=MAX_RUNS, description="The runId values from sessions_spawn or sessions_send."
    )
    mode: Literal["any", "all"] = Field("all", description="Wait for the first run ('any') or for every run ('all').")
    timeout_seconds: float = Field(30, ge=0, le=600, description="How long to wait, 0 to 600.")
    accept: bool = Field(False, description="Whether to read results that are withheld otherwise.")


def sessions_wait(waits: ChildWaits) -> SessionTool[WaitArguments]:
    async def carry_out(caller: Caller, arguments: WaitArguments) -> ClassifiedAnswer:
        run_ids = [RunId(run_id) for run_id in arguments.run_ids]
        timeout = timedelta(seconds=arguments.timeout_seconds)
        joined = await waits.wait(caller, run_ids, timeout, for_all=arguments.mode == "all", accepts=arguments.accept)
        return ClassifiedAnswer(_shown(joined), joined.accepted.join(OF_INTEGRITY[joined.integrity]))

    return SessionTool(
        WAIT_TOOL,
        DESCRIPTION,
        WaitArguments,
        carry_out,
        codes=CODES,
        effects=frozenset({Effect.WRITES}),  # takes results; of two calls in one step, the first comes first
    )


def _shown(joined: Joined) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "status": "ok" if joined.is_complete else "timeout",
        "runs": [_run(awaited) for awaited in joined.runs],
    }
    if not joined.is_complete:
        shown |= {
            "code": "timeout",
            "error": "The runs did not end in time. They continue, and their results arrive in this session's log.",
        }
    return shown


def _run(awaited: AwaitedRun) -> dict[str, Any]:
    run = awaited.run
    if not run.is_over:
        status = "running" if run.status.is_terminal else run.status.value
        return {"runId": awaited.run_id, "status": status}
    if awaited.is_withheld:
        return {"runId": awaited.run_id, "status": "ok", "withheld": True}  # its real status would say something of it
    shown: dict[str, Any] = {"runId": awaited.run_id, "status": run.status.value}
    if run.reply is not None and (run.reply or run.status is RunStatus.OK):
        shown["reply"] = run.reply
    told = {"error": run.error, "code": run.code if run.status is not RunStatus.OK else None}
    return shown | {name: value for name, value in told.items() if value is not None}
