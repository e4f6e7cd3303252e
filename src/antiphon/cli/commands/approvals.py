"""`antiphon approvals`: calls of tools that wait for a yes."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption, LimitOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject
from antiphon.domain.request_text import MOST_CALLS
from antiphon.domain.text import exact, shown_name

app = typer.Typer(no_args_is_help=True, help="List, show, approve and deny calls that wait for approval.")
ApprovalArgument = Annotated[str, typer.Argument(metavar="APPROVAL", help="A request's id, as `list` shows it.")]
CallOption = Annotated[
    list[str] | None,
    typer.Option(
        "--call", metavar="CALL", help="Only this call of the request; the others get the opposite. May be repeated."
    ),
]
LONGEST_CALL = 400
"""Characters of a call in a list; `show` has all of it."""
NoteOption = Annotated[str | None, typer.Option("--note", metavar="TEXT", help="Words for the agent.")]


@app.command("list")
@command
def list_approvals(
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="Only requests of this session.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also requests that are not open any more.")] = False,
    limit: LimitOption = 20,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="APPROVAL", help="Only older ones; give the last request of a page."),
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List open requests, newest first."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import ago, show, show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    status = None if every else "pending"
    with connect(home, config) as client:
        answer = client.get("/approvals", session=session, status=status, limit=limit, before=before)
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "approvals")
    if not rows:
        show("Nothing waits for approval.", "dim")
        return
    show_table(
        ["Request", "Session", "For", "Asked", "Status", "Calls"],
        [
            [
                str(row["approvalId"]),
                str(row["sessionKey"]),
                shown_name(str(row.get("principalName") or row["principal"])),
                ago(row["createdAt"]),
                str(row["status"]),
                _calls_of(row),
            ]
            for row in rows
        ],
        is_last_cut_within=True,
    )


@app.command("show")
@command
def show_approval(
    approval: ApprovalArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show a request: the asker, the reasons and the exact calls."""
    from antiphon.cli.connection.connect import connect

    with connect(home, config) as client:
        found = client.get(f"/approvals/{approval}")
    _show(found, as_json=as_json)


@app.command("approve")
@command
def approve(
    approval: ApprovalArgument,
    call: CallOption = None,
    always: Annotated[
        bool, typer.Option("--always", help="Also allow such calls from now on, for the principal and the agent shown.")
    ] = False,
    field: Annotated[
        list[str] | None,
        typer.Option(
            "--field",
            metavar="NAME",
            help="With --always: later calls need only this argument as it is now, instead of all. May be repeated.",
        ),
    ] = None,
    note: NoteOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let the calls of a request run once, exactly as they are shown."""
    if field and not always:
        raise typer.BadParameter("goes with --always.", param_hint="--field")
    words = ("always" if always else "once", "deny")
    _decide(approval, words, call, note, field, home=home, config=config, as_json=as_json)


@app.command("deny")
@command
def deny(
    approval: ApprovalArgument,
    call: CallOption = None,
    note: NoteOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Deny the calls of a request. They do not run; the agent reads the note and goes on."""
    _decide(approval, ("deny", "once"), call, note, None, home=home, config=config, as_json=as_json)


@app.command("standing")
@command
def list_standing(
    limit: LimitOption = 20,
    before: Annotated[
        str | None, typer.Option("--before", metavar="STANDING", help="Only older ones; give the last one of a page.")
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List what is allowed always, newest first."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    with connect(home, config) as client:
        answer = client.get("/standing-approvals", limit=limit, before=before)
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "standingApprovals")
    if not rows:
        show("Nothing is allowed always.", "dim")
        return
    show_table(
        ["Standing", "Agent", "For", "Calls", "By"],
        [
            [
                str(row["standingId"]),
                str(row["agentId"]),
                str(row.get("principalName") or row["principal"]),
                _covered(row),
                str(row.get("createdByName") or row["createdBy"]),
            ]
            for row in rows
        ],
    )


def _calls_of(row: JsonObject) -> str:
    """The calls of a request in a table, where there is room for the beginning and the end of a long one."""
    from antiphon.cli.rendering.rows import call_line, rows_of

    calls = rows_of(row, "calls")
    shown = "; ".join(call_line(call, LONGEST_CALL) for call in calls[:MOST_CALLS])
    hidden = len(calls) - MOST_CALLS
    return f"{shown}; and {hidden} more" if hidden > 0 else shown


def _covered(standing: JsonObject) -> str:
    """Which calls it allows, for people."""
    with_ = "with" if standing.get("fields") is None else "if they have"
    until = f", until {standing['runId']} ends" if standing.get("runId") else ""
    return f"{standing['tool']} {with_} {exact(str(standing['arguments']))}{until}"


@app.command("revoke")
@command
def revoke(
    standing: Annotated[str, typer.Argument(metavar="STANDING", help="Its id, as `standing` shows it.")],
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Stop allowing calls always; they ask again."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        revoked = client.delete(f"/standing-approvals/{standing}")
    if as_json:
        show_json(revoked)
    else:
        show(f"Revoked: {_covered(revoked)}")


def _decide(
    approval: str,
    words: tuple[str, str],
    calls: list[str] | None,
    note: str | None,
    fields: list[str] | None,
    *,
    home: HomeOption,
    config: ConfigOption,
    as_json: bool,
) -> None:
    """`words` are the decision for the named calls, or for all, and the one for the others."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.rows import rows_of

    word, other = words
    with connect(home, config) as client:
        named: JsonObject = {"fields": [*fields]} if fields else {}
        body: JsonObject = {"decision": word, **named}
        if calls:
            asked = [str(each["callId"]) for each in rows_of(client.get(f"/approvals/{approval}"), "calls")]
            # A call that the request does not have is sent too, so that the gateway refuses it.
            every = dict.fromkeys([*asked, *calls])
            yes: JsonObject = {"decision": word, **named}
            body = {
                "decisions": [{"callId": each, **(yes if each in calls else {"decision": other})} for each in every],
            }
        if note is not None:
            body["note"] = note
        found = client.post(f"/approvals/{approval}", body)
    _show(found, as_json=as_json)


def _show(approval: JsonObject, *, as_json: bool) -> None:
    from antiphon.cli.rendering.output import clock_time, show, show_fields, show_json
    from antiphon.cli.rendering.rows import rows_of

    if as_json:
        show_json(approval)
        return
    show_fields(
        {
            "Request": str(approval["approvalId"]),
            "Session": str(approval["sessionKey"]),
            "Agent": str(approval["agentId"]),
            "Run": str(approval.get("runId") or ""),
            "Asked by": shown_name(str(approval.get("principalName") or approval["principal"])),
            "Status": str(approval["status"]),
            "Asked": clock_time(approval.get("createdAt")),
            "Expires": clock_time(approval["expiresAt"]) if approval["status"] == "pending" else "",
            "Decided": clock_time(approval.get("decidedAt")),
            "Decided by": str(approval.get("decidedByName") or approval.get("decidedBy") or ""),
            "Note": str(approval.get("note") or ""),
        }
    )
    for call in rows_of(approval, "calls"):
        decision = f"  ({call['decision']})" if call.get("decision") else ""
        show()
        show(f"Call {call['callId']}: {shown_name(str(call['tool']))}{decision}", "bold")
        show(exact(str(call["arguments"])))
        show(str(call["reason"]), "dim")
