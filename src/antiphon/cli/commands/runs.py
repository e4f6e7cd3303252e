"""`antiphon runs`: the work that sessions do."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, session_key, since
from antiphon.cli.commands.options import LimitOption
from antiphon.cli.exits import exit_code_of_run
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client


app = NounCommands(no_args_is_help=True, help="List, show and cancel runs.")
RunArgument = Annotated[str, typer.Argument(metavar="RUN", help="A run's id.")]


def _tokens_of(run: JsonObject) -> str:
    usage = run.get("usage")
    return str(int(str(usage["inputTokens"])) + int(str(usage["outputTokens"]))) if isinstance(usage, dict) else ""


def _member(each: JsonObject, level: int) -> list[str]:
    from antiphon.cli.rendering.output import ago
    from antiphon.cli.rendering.trees import dollars, short_key

    run, below = each["run"], each.get("below")
    assert isinstance(run, dict)
    usage = run.get("usage")
    tokens = int(str(usage["inputTokens"])) + int(str(usage["outputTokens"])) if isinstance(usage, dict) else 0
    sums = ""
    if isinstance(below, dict) and below["runs"]:
        spent = dollars(below.get("costUsd")) or f"{below['tokens']} tokens"
        sums = f"{below['runs']} runs, {spent}"
    return [
        "  " * level + str(run["runId"]),
        str(each["purpose"]).replace("_", " "),
        _status_of(run),
        ago(run["createdAt"]),
        str(tokens),
        sums,
        str(each.get("label") or short_key(str(run["sessionKey"]))),
        str(each.get("request") or ""),
    ]


def _status_of(run: JsonObject) -> str:
    if run.get("isParked"):
        return f"{_end_of(run)}, waits for its children"
    status, code = str(run["status"]), run.get("code")
    return status if code in (None, status) else f"{status} ({code})"


def _delay_of(run: JsonObject) -> str:
    """Why the run waits for its model's provider."""
    delay = run.get("delay")
    return str(delay["text"]) if isinstance(delay, dict) else ""


def _end_of(run: JsonObject) -> str:
    """How a run ended whose work goes on."""
    return str(run.get("code") if run["status"] == "ok" else run["status"])


def _show(found: tuple[JsonObject, JsonObject]) -> None:
    """A run, and an answer with what became of its work, without `endedAt` where that goes on."""
    from antiphon.cli.rendering.output import clock_time, show, show_fields

    run, end = found
    goes_on = "continuedBy" in run and "endedAt" not in end
    is_over = not goes_on and not run.get("isParked")
    usage = run.get("usage")
    show_fields(
        {
            "Run": str(run["runId"]),
            "Session": str(run["sessionKey"]),
            "Status": f"{_end_of(run)}, continues in another run" if goes_on else _status_of(end),
            "Continued": None if "continuedBy" not in run else f"by {run['continuedBy']}",
            "Created": clock_time(run.get("createdAt")),
            "Started": clock_time(run.get("startedAt")),
            "Ended": clock_time(end.get("endedAt")) if is_over else None,
            "Error": str(end.get("error") or ""),
            "Tokens": f"{usage.get('inputTokens')} in, {usage.get('outputTokens')} out"
            if isinstance(usage, dict)
            else None,
        }
    )
    if reply := end.get("reply"):
        show()
        show(str(reply))


@app.asks(
    "list",
    listed(
        "runs",
        {
            "Run": "runId",
            "Session": "sessionKey",
            "For": lambda run: str(run.get("purpose", "turn")),
            "Status": _status_of,
            "Created": since("createdAt"),
            "Tokens": _tokens_of,
            "Reply or error": lambda run: " ".join(
                str(run.get("error") or _delay_of(run) or run.get("reply") or "").split()
            ),
        },
        none="There are no runs.",
    ),
)
def list_runs(
    client: "Client",
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="Only runs of this session.")
    ] = None,
    status: Annotated[
        list[str] | None,
        typer.Option("--status", metavar="STATUS", help="Only runs with this status; may be repeated."),
    ] = None,
    kept: Annotated[bool, typer.Option("--kept", help="Only runs of sub-agents whose requester is gone.")] = False,
    limit: LimitOption = 20,
) -> JsonObject:
    """List runs, newest first."""
    key = None if session is None else session_key(client, session)
    return client.get("/runs", session=key, status=status, kept=kept or None, limit=limit)


@app.asks("show", _show)
def show_run(
    client: "Client",
    run: RunArgument,
    wait: Annotated[
        float | None, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for the run to end.")
    ] = None,
) -> Printed:
    """Show a run; with --wait the exit code says how it ended.

    A run that yielded ends with the last run that continues it, and shows the end of that run.
    """
    if wait is None:
        found = client.find_run(run)
        return Printed(found, (found, client.find_run(run, 0.0) if "continuedBy" in found else found))
    found = client.wait_run(run, wait)
    return Printed(found, (found, found), exit_code_of_run(str(found["status"])))


def _show_cancelled(found: tuple[JsonObject, JsonObject]) -> None:
    from antiphon.cli.rendering.output import show

    if not found[0]["cancelled"]:
        show("The run had already ended: nothing was cancelled.", "yellow")
    _show(found)


@app.asks("cancel", _show_cancelled)
def cancel_run(client: "Client", run: RunArgument) -> Printed:
    """Cancel a run and keep the text streamed so far. A run that has ended stays as it is."""
    had_ended = "endedAt" in client.find_run(run, 0.0)
    client.post(f"/runs/{run}/cancel")
    found = client.wait_posted(run, 60, stored="The run was told to stop")
    answer = {**found, "cancelled": not had_ended and found["status"] == "cancelled"}
    return Printed(answer, (answer, found))


def _show_tree(answer: JsonObject) -> None:
    from antiphon.cli.rendering.output import show, show_table
    from antiphon.cli.rendering.rows import rows_of

    above, caused = rows_of(answer, "above"), rows_of(answer, "caused")
    top = answer["top"]
    assert isinstance(top, dict)
    lines = [_member(each, level) for level, each in enumerate([*above, top])]
    lines += [_member(each, len(above) + 1) for each in caused]
    show_table(["Run", "For", "Status", "Created", "Tokens", "Below", "Session", "Request"], lines)
    if "next" in answer:
        show("There are more: --limit shows them.", "dim")


@app.asks("tree", _show_tree)
def show_tree(client: "Client", run: RunArgument, limit: LimitOption = 50) -> JsonObject:
    """Show what led to a run and what it caused: sends, spawns and continuations, each with all below it.

    For what one of these caused, show its tree.
    """
    return client.get(f"/runs/{run}/tree", limit=limit)
