"""`antiphon tokens`: tokens of people and programs, browsers, the owner's token. Contract: access 2."""

import re
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, quoted, said, session_key, since
from antiphon.cli.commands.people import read_by
from antiphon.domain.message import JsonObject
from antiphon.program import with_path

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client


app = NounCommands(
    no_args_is_help=True,
    help="Manage tokens of persons, channels, nodes and sessions, signed-in browsers, and the owner's token.",
)


def _served(token: JsonObject) -> str:
    """The channel that the token serves; empty for none."""
    return f"the channel {token['namespace']}" if "namespace" in token else ""


def _scopes(token: JsonObject) -> str:
    scopes = token.get("scopes")
    return ", ".join(map(str, scopes)) if isinstance(scopes, list) else ""


def _end(token: JsonObject) -> str:
    from antiphon.cli.rendering.output import clock_time

    return clock_time(token.get("expiresAt")) or "never"


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


def _show_made(token: JsonObject) -> None:
    from antiphon.cli.rendering.output import show

    show(str(token["token"]), "bold green")
    acting = token.get("sessionKey") or _served(token) or f"the person {token['personId']}"
    does = "posts to" if token["kind"] == "node" else "acts as"
    show(f"It {does} {acting} and is not shown again. Revoke it: antiphon tokens revoke {token['id']}")


def _check_served(*, scopes: str | None, agent: str | None, expires: str | None, **given: object) -> None:
    if [given[name] for name in ("session", "person", "namespace", "node")].count(None) != 3:
        raise typer.BadParameter("Give one of --session, --person, --namespace and --node.")
    if scopes is not None and given["person"] is None and given["namespace"] is None:
        raise typer.BadParameter("--scopes is only for --person and --namespace.")
    if agent is not None and given["node"] is None:
        raise typer.BadParameter("--agent is only for --node.")
    if expires is not None:
        _days(expires)


@app.asks("create", _show_made, _check_served)
def create_token(
    client: "Client",
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="The session to call tools as, and nothing else.")
    ] = None,
    person: Annotated[str | None, typer.Option("--person", metavar="PERSON", help="The person to act as.")] = None,
    namespace: Annotated[
        str | None,
        typer.Option("--namespace", metavar="NAMESPACE", help="The channel to serve, by its name."),
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
) -> JsonObject:
    """Create a token that acts as a person, serves a channel or a node, or calls tools as a session; print it once."""
    body: JsonObject = {} if name is None else {"name": name}
    if expires is not None:
        body["days"] = _days(expires)
    if scopes is not None:
        body["scopes"] = [scope.strip() for scope in scopes.split(",")]
    if clearance is not None:
        level, *compartments = (word.strip() for word in clearance.split(","))
        body["clearance"] = {"level": level, "compartments": [*compartments]}
    if person is not None:
        body["personId"] = person
    elif namespace is not None:
        body["namespace"] = namespace
    elif node is not None:
        body |= {"nodeId": node} if agent is None else {"nodeId": node, "agentId": agent}
    elif session is not None:
        body["sessionKey"] = session_key(client, session)
    return client.post("/tokens", body)


@app.asks(
    "list",
    listed(
        "tokens",
        {
            "Token": "id",
            "Kind": "kind",
            "Name": "name",
            "Created": since("createdAt"),
            "Last used": _last_use,
            "Expires": _end,
            "Acts as": lambda each: str(each.get("sessionKey") or _served(each) or each.get("personId") or ""),
            "Scopes": _scopes,
            "Reads": read_by,
        },
        none="There are no tokens and no signed-in browsers.",
    ),
)
def list_tokens(client: "Client") -> JsonObject:
    """List valid tokens and signed-in browsers."""
    return client.get("/tokens")


@app.asks("revoke", said)
def revoke_token(
    client: "Client", token: Annotated[str, typer.Argument(metavar="TOKEN", help="The id that the list shows.")]
) -> Printed:
    """Revoke a token or a browser's sign-in; its open connections end within a second."""
    client.delete(f"/tokens/{quoted(token)}")
    return Printed({"ok": True}, "Revoked.")


def _show_rotated(answer: JsonObject) -> None:
    from antiphon.cli.rendering.output import show

    if "token" in answer:
        show(str(answer["token"]), "bold green")
        show("The old secret is no longer valid. This one is not shown again.")
        return
    show(f"The owner's token was replaced: {answer['file']}", "bold green")
    show(with_path("Browsers are signed out. `antiphon open` prints a link that signs one in."))
    show("Homes of other gateways on the same database need a copy of that file (mode 0600); they need no restart.")


@app.asks("rotate", _show_rotated)
def rotate_token(
    client: "Client",
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The id that the list shows, or `owner`.")] = "owner",
) -> JsonObject:
    """Give a token a new secret, or replace the owner's token, which also ends the owner's browsers and links.

    Every gateway on the database rejects the old secret within a second. If no gateway runs, `tokens rotate owner`
    also repairs a home whose token was lost or is no longer valid.
    """
    return client.post("/tokens/rotate" if token == "owner" else f"/tokens/{quoted(token)}/rotate")
