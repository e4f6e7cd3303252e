"""`antiphon tokens`: tokens of people and programs, browsers, the owner's token. Contract: access 2."""

import re
from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.commands.people import read_by
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject
from antiphon.program import with_path

app = typer.Typer(
    no_args_is_help=True,
    help="Manage tokens of persons, channels, nodes and sessions, signed-in browsers, and the owner's token.",
)


@app.command("create")
@command
def create_token(
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="The session to call tools as, and nothing else.")
    ] = None,
    person: Annotated[str | None, typer.Option("--person", metavar="PERSON", help="The person to act as.")] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAMESPACE", help="The channel to serve, such as telegram."),
    ] = None,
    node: Annotated[
        str | None,
        typer.Option("--node", metavar="ID", help="The node that posts to the session node-ID, and does nothing else."),
    ] = None,
    agent: Annotated[
        str | None, typer.Option("--agent", metavar="AGENT", help="The agent of a new node's session.")
    ] = None,
    scopes: Annotated[
        str | None,
        typer.Option(
            "--scopes",
            metavar="SCOPES",
            help="What it may do: sessions.read, sessions.write, approvals, admin; default: the first two.",
        ),
    ] = None,
    clearance: Annotated[
        str | None,
        typer.Option(
            "--clearance",
            metavar="LEVEL[,COMPARTMENT…]",
            help="The most that it may read; default: what its person may, and public data for a channel.",
        ),
    ] = None,
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="A name of your choice.")] = None,
    expires: Annotated[
        str | None, typer.Option("--expires", metavar="TIME", help="How long it is valid: 30d, 12h; default: for ever.")
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token that acts as a person, serves a channel or a node, or calls tools as a session; print it once."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show, show_json

    if [session, person, namespace, node].count(None) != 3:
        raise typer.BadParameter("Give one of --session, --person, --namespace and --node.")
    if scopes is not None and person is None and namespace is None:
        raise typer.BadParameter("--scopes is only for --person and --namespace.")
    if agent is not None and node is None:
        raise typer.BadParameter("--agent is only for --node.")
    body: JsonObject = {} if name is None else {"name": name}
    if expires is not None:
        body["days"] = _days(expires)
    if scopes is not None:
        body["scopes"] = [scope.strip() for scope in scopes.split(",")]
    if clearance is not None:
        level, *compartments = (word.strip() for word in clearance.split(","))
        body["clearance"] = {"level": level, "compartments": [*compartments]}
    with connect(home, config) as client:
        if person is not None:
            body["personId"] = person
        elif namespace is not None:
            body["namespace"] = namespace
        elif node is not None:
            body |= {"nodeId": node} if agent is None else {"nodeId": node, "agentId": agent}
        elif session is not None:
            body["sessionKey"] = find_session(client, session)["key"]
        token = client.post("/tokens", body)
    if as_json:
        show_json(token)
    else:
        show(str(token["token"]), "bold green")
        acting = token.get("sessionKey") or _served(token) or f"the person {token['personId']}"
        does = "posts to" if token["kind"] == "node" else "acts as"
        show(f"It {does} {acting} and is not shown again. Revoke it: antiphon tokens revoke {token['id']}")


@app.command("list")
@command
def list_tokens(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List valid tokens and signed-in browsers."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import ago, clock_time, show, show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    with connect(home, config) as client:
        answer = client.get("/tokens")
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "tokens")
    if not rows:
        show("There are no tokens and no signed-in browsers.", "dim")
        return
    show_table(
        ["Token", "Kind", "Name", "Created", "Last used", "Expires", "Acts as", "Scopes", "Reads"],
        [
            [
                str(token["id"]),
                str(token["kind"]),
                str(token.get("name") or ""),
                ago(token["createdAt"]),
                _last_use(token),
                clock_time(token.get("expiresAt")) or "never",
                str(token.get("sessionKey") or _served(token) or token.get("personId") or ""),
                _scopes(token),
                read_by(token),
            ]
            for token in rows
        ],
    )


@app.command("revoke")
@command
def revoke_token(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The id that the list shows.")],
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Revoke a token or a browser's sign-in; its open connections end within a second."""
    from urllib.parse import quote

    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        client.delete(f"/tokens/{quote(token, safe='')}")
    if as_json:
        show_json({"ok": True})
    else:
        show("Revoked.")


@app.command("rotate")
@command
def rotate_token(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The id that the list shows, or `owner`.")] = "owner",
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Give a token a new secret, or replace the owner's token, which also ends the owner's browsers and links.

    Every gateway on the database rejects the old secret within a second. If no gateway runs, `tokens rotate owner`
    also repairs a home whose token was lost or is no longer valid.
    """
    from urllib.parse import quote

    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        is_owners = token == "owner"
        answer = client.post("/tokens/rotate" if is_owners else f"/tokens/{quote(token, safe='')}/rotate")
    if as_json:
        show_json(answer)
        return
    if not is_owners:
        show(str(answer["token"]), "bold green")
        show("The old secret is no longer valid. This one is not shown again.")
        return
    show(f"The owner's token was replaced: {answer['file']}", "bold green")
    show(with_path("Browsers are signed out. `antiphon open` prints a link that signs one in."))
    show("Homes of other gateways on the same database need a copy of that file (mode 0600); they need no restart.")


def _served(token: JsonObject) -> str:
    """The channel that the token serves; empty for none."""
    return f"the channel {token['namespace']}" if "namespace" in token else ""


def _scopes(token: JsonObject) -> str:
    scopes = token.get("scopes")
    return ", ".join(map(str, scopes)) if isinstance(scopes, list) else ""


def _days(text: str) -> float:
    """The days of `30d`, `12h` or `90m`."""
    matched = re.fullmatch(r"([0-9]{1,6})([dhm])", text.strip())
    if matched is None:
        raise typer.BadParameter(f"Time is not valid: {text[:40]!r}. Write 30d, 12h or 90m.")
    return int(matched[1]) / {"d": 1, "h": 24, "m": 24 * 60}[matched[2]]


def _last_use(token: JsonObject) -> str:
    """As exactly as it is stored: a browser's to the day."""
    from datetime import datetime

    from antiphon.cli.rendering.output import ago

    at_ms = token.get("lastUsedAt")
    if not isinstance(at_ms, int):
        return ""
    if token["kind"] != "browser":
        return ago(at_ms)
    days = (datetime.now().astimezone().date() - datetime.fromtimestamp(at_ms / 1000).astimezone().date()).days
    return {0: "today", 1: "yesterday"}.get(days, f"{days} days ago")
