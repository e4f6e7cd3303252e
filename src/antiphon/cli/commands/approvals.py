"""`antiphon approvals`: calls of tools that wait for a yes."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, present, said, since
from antiphon.cli.commands.options import LimitOption
from antiphon.domain.message import JsonObject
from antiphon.domain.release import shown_words
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
RELEASE_OR_ACCEPT = "Release it once, or let the session hold such data with --accept?"
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
    release = standing.get("release")
    if isinstance(release, dict):
        return f"{exact(str(release['whose']))} → {shown_name(str(release['to']))}, in any words"
    fields = standing.get("fields")
    with_ = "with" if fields is None else "if they have"
    what = "with any arguments" if fields == [] else f"{with_} {exact(str(standing['arguments']))}"
    until = f", until {standing['runId']} ends" if standing.get("runId") else ""
    return f"{shown_name(str(standing['tool']))} {what}{until}"


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
    if approval.get("wasRead"):
        show()
        show(f"{approval['wasRead']} It now wants to:")
    for call in rows_of(approval, "calls"):
        decision = f"  ({call['decision']})" if call.get("decision") else ""
        show()
        show(f"Call {call['callId']}: {shown_name(str(call['tool']))}{decision}", "bold")
        release = call.get("release")
        if isinstance(release, dict):
            show(f"{exact(str(release['whose']))} → {shown_name(str(release['to']))}. Exact text:")
            show(exact(shown_words(str(release["text"]))))
            show("Send once?" if "resultOf" not in approval else RELEASE_OR_ACCEPT, "dim")
            continue
        show(exact(str(call["arguments"])))
        if call.get("files"):
            show(exact(str(call["files"])))
        show(str(call["reason"]), "dim")
    if approval.get("wasRead"):
        _show_sources(approval)


def _show_sources(approval: JsonObject) -> None:
    """What was read, each with its first words: others chose them, so nothing in them hides."""
    from antiphon.cli.rendering.output import show
    from antiphon.cli.rendering.rows import rows_of, source_line

    show()
    show("What was read:", "bold")
    sources = rows_of(approval, "sources")
    for source in sources:
        show(f"  {source_line(source)}")
    if (hidden := int(str(approval["sourceCount"])) - len(sources)) > 0:
        show(f"  and {hidden} more", "dim")


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


def _check_field(*, field: list[str] | None, any_: bool, always: bool, **_: object) -> None:
    if (field or any_) and not always:
        raise typer.BadParameter("goes with --always.", param_hint="--field" if field else "--any")
    if field and any_:
        raise typer.BadParameter("goes without --field.", param_hint="--any")


def _hashes_of(approval: JsonObject) -> list[str]:
    """What may be trusted of what the request says was read."""
    from antiphon.cli.rendering.rows import rows_of

    sources = rows_of(approval, "sources") if "sources" in approval else []
    hashes = [str(each["sha256"]) for each in sources if each["sha256"]]
    if not hashes:
        raise typer.BadParameter("Request names nothing that can be trusted.", param_hint="--trust")
    return hashes


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
    any_: Annotated[
        bool,
        typer.Option(
            "--any",
            help="With --always: later calls may have any arguments, if the tool declares that none says where to.",
        ),
    ] = False,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust",
            help="Also trust what was read, as `show` lists it: it is no reason to ask again in its session.",
        ),
    ] = False,
    accept: Annotated[
        bool,
        typer.Option("--accept", help="Let the session hold such data as the result, instead of releasing this one."),
    ] = False,
    note: NoteOption = None,
) -> JsonObject:
    """Let the calls of a request run once, exactly as they are shown."""
    words = ("always" if always else "once", "deny")
    hashes = _hashes_of(client.get(f"/approvals/{approval}")) if trust else None
    fields = [] if any_ else field or None
    more: JsonObject = {"accept": True} if accept else {}
    if hashes is not None:
        more["trust"] = [*hashes]
    return _decide(client, approval, words, calls=call, note=note, fields=fields, more=more)


@app.asks("deny", _show)
def deny(client: "Client", approval: ApprovalArgument, call: CallOption = None, note: NoteOption = None) -> JsonObject:
    """Deny the calls of a request. They do not run; the agent reads the note and goes on."""
    return _decide(client, approval, ("deny", "once"), calls=call, note=note)


def _decide(
    client: "Client",
    approval: str,
    words: tuple[str, str],
    *,
    calls: list[str] | None,
    note: str | None,
    fields: list[str] | None = None,
    more: JsonObject | None = None,
) -> JsonObject:
    """`words` are the decision for the named calls, or for all, and the one for the others."""
    from antiphon.cli.rendering.rows import rows_of

    word, other = words
    yes: JsonObject = {"decision": word, **({} if fields is None else {"fields": [*fields]})}
    body: JsonObject = yes
    if calls:
        asked = [str(each["callId"]) for each in rows_of(client.get(f"/approvals/{approval}"), "calls")]
        # A call that the request does not have is sent too, so that the gateway refuses it.
        every = dict.fromkeys([*asked, *calls])
        body = {"decisions": [{"callId": each, **(yes if each in calls else {"decision": other})} for each in every]}
    return client.post(f"/approvals/{approval}", {**body, **(more or {}), **present({"note": note})})


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
