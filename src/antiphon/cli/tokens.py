"""`antiphon tokens`: tokens for programs that act as one session. Contract: access 2."""

from typing import Annotated

import typer

from antiphon.cli.exits import command
from antiphon.cli.options import ConfigOption, HomeOption, JsonOption
from antiphon.domain.message import JsonObject

app = typer.Typer(no_args_is_help=True, help="Tokens for programs that act as one session, and do nothing else.")


@app.command("create")
@command
def create_token(
    session: Annotated[str, typer.Option("--session", metavar="SESSION", help="The session that it acts as.")],
    name: Annotated[str | None, typer.Option("--name", metavar="NAME", help="What you know it by.")] = None,
    days: Annotated[
        float | None, typer.Option("--days", metavar="DAYS", help="How long it is good; for ever unless set.")
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token that calls tools as the session; it is printed this once."""
    from antiphon.cli.connection import connect
    from antiphon.cli.names import find_session
    from antiphon.cli.output import show, show_json

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
    """List the tokens that are valid."""
    from antiphon.cli.connection import connect
    from antiphon.cli.output import ago, clock_time, show, show_json, show_table
    from antiphon.cli.rows import rows_of

    with connect(home, config) as client:
        answer = client.get("/tokens")
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "tokens")
    if not rows:
        show("There are no tokens.", "dim")
        return
    show_table(
        ["Token", "Name", "Created", "Expires", "Session"],
        [
            [
                str(token["id"]),
                str(token.get("name") or ""),
                ago(token["createdAt"]),
                clock_time(token.get("expiresAt")) or "never",
                str(token["sessionKey"]),
            ]
            for token in rows
        ],
    )


@app.command("revoke")
@command
def revoke_token(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The token's id, as listed.")],
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make a token worthless; the next call with it is refused."""
    from urllib.parse import quote

    from antiphon.cli.connection import connect
    from antiphon.cli.output import show, show_json

    with connect(home, config) as client:
        client.delete(f"/tokens/{quote(token, safe='')}")
    if as_json:
        show_json({"ok": True})
    else:
        show("Revoked.")
