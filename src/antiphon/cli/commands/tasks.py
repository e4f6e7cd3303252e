"""`antiphon tasks`: what agents do at set times. Contract: tasks 1, 2."""

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, hinted, listed, present, said, session_key
from antiphon.cli.commands.listing import ListingGroup
from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption, LimitOption
from antiphon.cli.exits import command, exit_code_of_run
from antiphon.domain.message import JsonObject
from antiphon.domain.text import one_line

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

PAGE = 200
EXAMPLE = "every weekday at 8 fetch https://example.org/news and tell me what is new"
LISTED_NAME = 20
"""How many characters of a name the table shows on a terminal."""
LIMIT_WORDS = {
    "runsAnHour": "runs an hour",
    "tokensADay": "tokens a day",
    "usdADay": "dollars a day",
    "totalRuns": "runs in all",
    "stopText": "ends with",
}

app = NounCommands(cls=ListingGroup, help="Create, list, show, edit, run, pause and cancel tasks.")
TaskArgument = Annotated[str, typer.Argument(metavar="TASK", help="A task's id or name, as `list` shows them.")]
EveryOption = Annotated[
    str | None,
    typer.Option("--every", metavar="INTERVAL", help="An interval, '1h30m', or days with a time, 'weekday at 8:00'."),
]
AtOption = Annotated[
    str | None, typer.Option("--at", metavar="TIME", help="Once: '2027-01-31 08:00', 'friday at 10', '08:00'.")
]
CronOption = Annotated[str | None, typer.Option("--cron", metavar="FIELDS", help="Five fields, or '@daily'.")]
ZoneOption = Annotated[str | None, typer.Option("--zone", metavar="ZONE", help="The time zone, such as Europe/Berlin.")]
NameOption = Annotated[str | None, typer.Option("--name", metavar="NAME", help="A name of your own.")]
MissedOption = Annotated[
    Literal["run", "skip"] | None,
    typer.Option(
        "--missed", help="For times that were missed: 'run' (one run for all) or 'skip' (no run after --grace)."
    ),
]
GraceOption = Annotated[
    float | None, typer.Option("--grace", metavar="MINUTES", min=0, help="How late a time may still run with 'skip'.")
]
ContextOption = Annotated[
    Literal["fresh", "keep"] | None,
    typer.Option("--context", help="'fresh': each run begins a new conversation. 'keep': all share one."),
]
SendToOption = Annotated[
    str | None,
    typer.Option(
        "--send-to",
        metavar="PLACE",
        help="Where results go: 'chat', 'chat:<session key>', 'me', 'log', or a group as '<channel>/<id>'.",
    ),
]
RunsAnHourOption = Annotated[int | None, typer.Option("--runs-an-hour", metavar="N", min=1, help="Most runs an hour.")]
TokensADayOption = Annotated[int | None, typer.Option("--tokens-a-day", metavar="N", min=1, help="Most tokens a day.")]
UsdADayOption = Annotated[float | None, typer.Option("--usd-a-day", metavar="USD", help="Most dollars a day.")]
TotalRunsOption = Annotated[
    int | None, typer.Option("--total-runs", metavar="N", min=1, help="End the task after N runs.")
]
StopTextOption = Annotated[
    str | None, typer.Option("--stop-text", metavar="TEXT", help="End the task once a reply contains this.")
]


def find_task(client: "Client", text: str) -> str:
    """The id of the task that has it, or that has it as its name. Raises `NotFound` and `Invalid` with a remedy."""
    from antiphon.cli.rendering.rows import rows_of
    from antiphon.domain.errors import Invalid, NotFound
    from antiphon.domain.words import folded

    after: str | None = None
    named: list[str] = []
    while True:
        rows = rows_of(client.get("/tasks", limit=PAGE, after=after), "tasks")
        if any(text == row["taskId"] for row in rows):
            return text
        named += [str(row["taskId"]) for row in rows if folded(text) == folded(str(row["name"]))]
        if len(rows) < PAGE:
            break
        after = str(rows[-1]["taskId"])
    if not named:
        raise NotFound(f"Task not found: {text!r}. `antiphon tasks list` shows all tasks.")
    if len(named) > 1:
        raise Invalid(f"Several tasks have this name: {text!r}. Name one by its id: {', '.join(named)}.", code="usage")
    return named[0]


def _limits(
    runs_an_hour: int | None,
    tokens_a_day: int | None,
    usd_a_day: float | None,
    total_runs: int | None,
    stop_text: str | None,
) -> JsonObject | None:
    """The limits that are named; None without any."""
    named = present(
        {
            "runsAnHour": runs_an_hour,
            "tokensADay": tokens_a_day,
            "usdADay": usd_a_day,
            "totalRuns": total_runs,
            "stopText": stop_text,
        }
    )
    return named or None


def _part(row: JsonObject, name: str) -> JsonObject:
    part = row[name]
    assert isinstance(part, dict)
    return part


def _times(row: JsonObject) -> list[str]:
    from antiphon.cli.rendering.rows import rows_of

    return [str(each["shown"]) for each in rows_of(row, "upcoming")]


def _next(row: JsonObject) -> str:
    times = _times(row)
    return times[0] if times and row["state"] == "active" else ""


def _state(row: JsonObject) -> str:
    return f"{row['state']}: {row['reason']}" if row.get("reason") else str(row["state"])


def _outcome(slot: JsonObject) -> str:
    outcome = str(slot.get("outcome") or "running")
    return f"{outcome}: {slot['reason']}" if slot.get("reason") else outcome


def _show_preview(preview: JsonObject) -> None:
    from antiphon.cli.rendering.output import show_fields

    show_fields(
        {
            "Name": str(preview["name"]),
            "When": str(_part(preview, "trigger")["words"]),
            "Next": ", ".join(_times(preview)),
            "Results to": str(preview["sendTo"]),
            "Prompt": str(preview["prompt"]),
        }
    )


def _show(task: JsonObject) -> None:
    from antiphon.cli.rendering.output import clock_time, show, show_fields

    trigger, limits = _part(task, "trigger"), _part(task, "limits")
    show_fields(
        {
            "Task": str(task["taskId"]),
            "Name": str(task["name"]),
            "When": str(trigger["words"]),
            "Next": ", ".join(_times(task)) if task["state"] == "active" else "",
            "State": _state(task),
            "Agent": str(task["agentId"]),
            "Made in": str(task["sessionKey"]),
            "By": str(task.get("makerName") or task["maker"]),
            "Works in": str(task["key"]),
            "Results to": str(task["sendTo"]),
            "Missed": str(task["missed"]),
            "Context": str(task["context"]),
            "Limits": ", ".join(f"{LIMIT_WORDS[name]}: {value}" for name, value in limits.items()),
            "Asks other agents": "yes" if task["consults"] else "",
            "Runs": f"{task['runs']}, {task['skips']} skipped, {task['errors']} failed in a row",
            "Last": f"{clock_time(task.get('lastSlotAt'))} {task.get('lastOutcome') or 'running'}"
            if "lastSlotAt" in task
            else "",
            "Version": str(task["version"]),
        }
    )
    show()
    show(str(task["prompt"]))


@app.command("new")
@command
def new_task(
    text: Annotated[
        str,
        typer.Argument(
            metavar="TEXT",
            help=f"When and what, such as '{EXAMPLE}'; only what, if an option says when.",
        ),
    ],
    every: EveryOption = None,
    at: AtOption = None,
    cron: CronOption = None,
    zone: ZoneOption = None,
    name: NameOption = None,
    session: Annotated[
        str, typer.Option("--session", metavar="SESSION", help="The session whose agent does the work.")
    ] = "main",
    send_to: SendToOption = None,
    missed: MissedOption = None,
    grace: GraceOption = None,
    context: ContextOption = None,
    runs_an_hour: RunsAnHourOption = None,
    tokens_a_day: TokensADayOption = None,
    usd_a_day: UsdADayOption = None,
    total_runs: TotalRunsOption = None,
    stop_text: StopTextOption = None,
    preview: Annotated[bool, typer.Option("--preview", help="Only show what it would be; save nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a task. On a terminal it shows the next three times first, and asks."""
    import sys

    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    has_time = (every, at, cron) != (None, None, None)
    limits = _limits(runs_an_hour, tokens_a_day, usd_a_day, total_runs, stop_text)
    body = present(
        {
            ("prompt" if has_time else "text"): text,
            "every": every,
            "at": at,
            "cron": cron,
            "zone": zone,
            "name": name,
            "sendTo": send_to,
            "missed": missed,
            "graceMinutes": grace,
            "context": context,
            "limits": limits,
        }
    )
    with connect(home, config) as client:
        if preview or not (yes or as_json or not sys.stdin.isatty()):
            shown = client.post("/tasks", body, preview=True)
            if as_json:
                show_json(shown)
                return
            _show_preview(shown)
            if preview or not typer.confirm("Save it?", default=True):
                show("Nothing was saved.", "dim")
                return
        created = client.post("/tasks", {**body, "sessionKey": session_key(client, session)})
    if as_json:
        show_json(created)
    else:
        _show(created)


def _name_of(task: JsonObject) -> str:
    from antiphon.cli.rendering.output import console

    return one_line(str(task["name"]), LISTED_NAME) if console().is_terminal else str(task["name"])


@app.asks(
    "list",
    listed(
        "tasks",
        {
            "Task": "taskId",
            "Name": _name_of,
            "State": _state,
            "Last": "lastOutcome",
            "Next": _next,
            "When": lambda row: str(_part(row, "trigger")["words"]),
        },
        none=f"There are no tasks.\nantiphon tasks new '{EXAMPLE}'",
    ),
)
def list_tasks(
    client: "Client",
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="Only tasks that were made in this session.")
    ] = None,
    limit: LimitOption = 50,
    after: Annotated[
        str | None, typer.Option("--after", metavar="TASK", help="Only later ones; give the last task of a page.")
    ] = None,
) -> JsonObject:
    """List tasks."""
    key = None if session is None else session_key(client, session)
    return client.get("/tasks", session=key, limit=limit, after=after)


@app.asks("show", _show)
def show_task(client: "Client", task: TaskArgument) -> JsonObject:
    """Show a task: when it fires, what it asks for, its limits, and how it went."""
    return client.get(f"/tasks/{find_task(client, task)}")


def _check_change(*, task: str, version: int | None, **named: object) -> None:
    if all(value is None or value is False for value in named.values()):
        raise typer.BadParameter("Name what to change, such as --every or --prompt.")


@app.asks("edit", _show, _check_change)
def edit_task(
    client: "Client",
    task: TaskArgument,
    prompt: Annotated[str | None, typer.Option("--prompt", metavar="TEXT", help="What to do each time.")] = None,
    every: EveryOption = None,
    at: AtOption = None,
    cron: CronOption = None,
    zone: ZoneOption = None,
    name: NameOption = None,
    send_to: SendToOption = None,
    missed: MissedOption = None,
    grace: GraceOption = None,
    context: ContextOption = None,
    runs_an_hour: RunsAnHourOption = None,
    tokens_a_day: TokensADayOption = None,
    usd_a_day: UsdADayOption = None,
    total_runs: TotalRunsOption = None,
    stop_text: StopTextOption = None,
    no_limits: Annotated[bool, typer.Option("--no-limits", help="Remove all limits of the task.")] = False,
    version: Annotated[
        int | None, typer.Option("--version", metavar="N", min=1, help="Change it only if it still has this version.")
    ] = None,
) -> JsonObject:
    """Change a task. The limits that are named replace all limits of the task."""
    limits = {} if no_limits else _limits(runs_an_hour, tokens_a_day, usd_a_day, total_runs, stop_text)
    body = present(
        {
            "prompt": prompt,
            "every": every,
            "at": at,
            "cron": cron,
            "zone": zone,
            "name": name,
            "sendTo": send_to,
            "missed": missed,
            "graceMinutes": grace,
            "context": context,
            "limits": limits,
            "version": version,
        }
    )
    return client.patch(f"/tasks/{find_task(client, task)}", body)


def _show_begun(begun: JsonObject) -> None:
    """The time of the task that begins now, or the run that ended."""
    if "taskId" in begun:
        said(f"It runs now: {begun['runId']}.")
        hinted(f"antiphon runs show {begun['runId']} --wait 60")
    else:
        said(begun.get("reply") or begun.get("error") or begun["status"])


@app.asks("run", _show_begun)
def run_task(
    client: "Client",
    task: TaskArgument,
    wait: Annotated[
        float | None, typer.Option("--wait", metavar="SECONDS", min=0, help="How long to wait for the run to end.")
    ] = None,
) -> JsonObject | Printed:
    """Run a task now, besides its times; with --wait the exit code says how the run ended."""
    slot = client.post(f"/tasks/{find_task(client, task)}/run")
    if wait is None:
        return slot
    run = client.wait_posted(str(slot["runId"]), wait, stored="The run is stored")
    return Printed(run, run, exit_code_of_run(str(run["status"])))


def _due(slot: JsonObject) -> str:
    from antiphon.cli.rendering.output import clock_time

    return f"{clock_time(slot['slotAt'])}{', by hand' if slot['byHand'] else ''}"


@app.asks(
    "runs",
    listed(
        "runs",
        {"Due": _due, "Outcome": _outcome, "Missed": lambda slot: str(slot["missed"] or ""), "Run": "runId"},
        none="It has not run yet.",
    ),
)
def list_task_runs(client: "Client", task: TaskArgument, limit: LimitOption = 20) -> JsonObject:
    """List the times at which a task was due or run by hand, newest first, and what became of each."""
    return client.get(f"/tasks/{find_task(client, task)}/runs", limit=limit)


@app.asks("pause", _show)
def pause_task(client: "Client", task: TaskArgument) -> JsonObject:
    """Stop a task from firing until it is resumed."""
    return client.post(f"/tasks/{find_task(client, task)}/pause")


@app.asks("resume", _show)
def resume_task(client: "Client", task: TaskArgument) -> JsonObject:
    """Let a paused task fire again, from its next time on."""
    return client.post(f"/tasks/{find_task(client, task)}/resume")


@app.asks("approve", _show)
def approve_task(client: "Client", task: TaskArgument) -> JsonObject:
    """Let a task ask other agents, as far as the settings let any session."""
    return client.post(f"/tasks/{find_task(client, task)}/approve")


@app.asks("cancel", said)
def cancel_task(client: "Client", task: TaskArgument) -> Printed:
    """Remove a task. A run in progress goes on."""
    removed = client.delete(f"/tasks/{find_task(client, task)}")
    return Printed(removed, f"Removed: {removed['name']} ({removed['taskId']})")
