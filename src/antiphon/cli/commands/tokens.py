"""`antiphon tokens`: tokens bound to a session, signed-in browsers, the owner's token. Contract: access 2."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject
from antiphon.program import with_path

app = typer.Typer(
    no_args_is_help=True, help="Manage tokens that act as one session, signed-in browsers, and the owner's token."
)


@app.command("create")
@command
def create_token(
    session: Annotated[str, typer.Option("--session", metavar="SESSION", help="The session to act as.")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="A name of your choice.")] = None,
    days: Annotated[
        float | None, typer.Option("--days", metavar="DAYS", help="Days until it expires; default: never.")
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a token that calls tools as the session, and print it once."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.names import find_session
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        body: JsonObject = {"sessionKey": find_session(client, session)["key"]}
        if name is not None:
            body["name"] = name
        if days is not None:
            body["days"] = days
        token = client.post("/tokens", body)
    if as_json:
        show_json(token)
    else:
        show(str(token["token"]), "bold green")
        show(
            f"It acts as {token['sessionKey']} and is not shown again. Revoke it: antiphon tokens revoke {token['id']}"
        )


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
        ["Token", "Kind", "Name", "Created", "Last used", "Expires", "Session"],
        [
            [
                str(token["id"]),
                str(token["kind"]),
                str(token.get("name") or ""),
                ago(token["createdAt"]),
                _day(token.get("lastUsedAt")),
                clock_time(token.get("expiresAt")) or "never",
                str(token.get("sessionKey") or ""),
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
def rotate_token(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Replace the owner's token, and end all browser sign-ins and sign-in links.

    Every gateway on the database rejects the old token within a second. If no gateway runs, this also repairs a home
    whose token was lost or is no longer valid.
    """
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        answer = client.post("/tokens/rotate")
    if as_json:
        show_json(answer)
        return
    show(f"The owner's token was replaced: {answer['file']}", "bold green")
    show(with_path("Browsers are signed out. `antiphon open` prints a link that signs one in."))
    show("Homes of other gateways on the same database need a copy of that file (mode 0600); they need no restart.")


def _day(at_ms: object) -> str:
    """To the day, because no more is kept."""
    from datetime import datetime

    if not isinstance(at_ms, int):
        return ""
    days = (datetime.now().astimezone().date() - datetime.fromtimestamp(at_ms / 1000).astimezone().date()).days
    return {0: "today", 1: "yesterday"}.get(days, f"{days} days ago")
