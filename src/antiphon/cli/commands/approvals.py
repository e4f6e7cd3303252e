"""`antiphon approvals`: calls of tools that wait for a yes."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, present, said, since
from antiphon.cli.commands.options import LimitOption
from antiphon.domain.message import JsonObject
from antiphon.domain.request_text import MOST_CALLS
from antiphon.domain.text import exact, shown_name

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client


app = NounCommands(no_args_is_help=True, help="List, show, approve and deny calls that wait for approval.")
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


def _show(approval: JsonObject) -> None:
    from antiphon.cli.rendering.output import clock_time, show, show_fields
    from antiphon.cli.rendering.rows import rows_of

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


@app.asks(
    "list",
    listed(
        "approvals",
        {
            "Request": "approvalId",
            "Session": "sessionKey",
            "For": lambda each: shown_name(str(each.get("principalName") or each["principal"])),
            "Asked": since("createdAt"),
            "Status": "status",
            "Calls": _calls_of,
        },
        none="Nothing waits for approval.",
        is_last_cut_within=True,
    ),
)
def list_approvals(
    client: "Client",
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="Only requests of this session.")
    ] = None,
    every: Annotated[bool, typer.Option("--all", help="Also requests that are not open any more.")] = False,
    limit: LimitOption = 20,
    before: Annotated[
        str | None,
        typer.Option("--before", metavar="APPROVAL", help="Only older ones; give the last request of a page."),
    ] = None,
) -> JsonObject:
    """List open requests, newest first."""
    status = None if every else "pending"
    return client.get("/approvals", session=session, status=status, limit=limit, before=before)


@app.asks("show", _show)
def show_approval(client: "Client", approval: ApprovalArgument) -> JsonObject:
    """Show a request: the asker, the reasons and the exact calls."""
    return client.get(f"/approvals/{approval}")


def _check_field(*, field: list[str] | None, always: bool, **_: object) -> None:
    if field and not always:
        raise typer.BadParameter("goes with --always.", param_hint="--field")


@app.asks("approve", _show, _check_field)
def approve(
    client: "Client",
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
) -> JsonObject:
    """Let the calls of a request run once, exactly as they are shown."""
    words = ("always" if always else "once", "deny")
    return _decide(client, approval, words, calls=call, note=note, fields=field)


@app.asks("deny", _show)
def deny(client: "Client", approval: ApprovalArgument, call: CallOption = None, note: NoteOption = None) -> JsonObject:
    """Deny the calls of a request. They do not run; the agent reads the note and goes on."""
    return _decide(client, approval, ("deny", "once"), calls=call, note=note, fields=None)


def _decide(
    client: "Client",
    approval: str,
    words: tuple[str, str],
    *,
    calls: list[str] | None,
    note: str | None,
    fields: list[str] | None,
) -> JsonObject:
    """`words` are the decision for the named calls, or for all, and the one for the others."""
    from antiphon.cli.rendering.rows import rows_of

    word, other = words
    yes: JsonObject = {"decision": word, **({"fields": [*fields]} if fields else {})}
    body: JsonObject = yes
    if calls:
        asked = [str(each["callId"]) for each in rows_of(client.get(f"/approvals/{approval}"), "calls")]
        # A call that the request does not have is sent too, so that the gateway refuses it.
        every = dict.fromkeys([*asked, *calls])
        body = {"decisions": [{"callId": each, **(yes if each in calls else {"decision": other})} for each in every]}
    return client.post(f"/approvals/{approval}", {**body, **present({"note": note})})


@app.asks(
    "standing",
    listed(
        "standingApprovals",
        {
            "Standing": "standingId",
            "Agent": "agentId",
            "For": lambda each: str(each.get("principalName") or each["principal"]),
            "Calls": _covered,
            "By": lambda each: str(each.get("createdByName") or each["createdBy"]),
        },
        none="Nothing is allowed always.",
    ),
)
def list_standing(
    client: "Client",
    limit: LimitOption = 20,
    before: Annotated[
        str | None, typer.Option("--before", metavar="STANDING", help="Only older ones; give the last one of a page.")
    ] = None,
) -> JsonObject:
    """List what is allowed always, newest first."""
    return client.get("/standing-approvals", limit=limit, before=before)


@app.asks("revoke", said)
def revoke(
    client: "Client",
    standing: Annotated[str, typer.Argument(metavar="STANDING", help="Its id, as `standing` shows it.")],
) -> Printed:
    """Stop allowing calls always; they ask again."""
    revoked = client.delete(f"/standing-approvals/{standing}")
    return Printed(revoked, f"Revoked: {_covered(revoked)}")
