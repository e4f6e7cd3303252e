"""`antiphon pair`: people who wait to be admitted to a channel, and codes that link accounts. Contract: access 3."""

from typing import Annotated, Any

import typer

from antiphon.cli.commands.listing import ListingGroup
from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject


class PairGroup(ListingGroup):
    """`antiphon pair CODE` admits somebody, without another word."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = args and (args[0] in self.commands or args[0].startswith("-"))
        return super().resolve_command(ctx, args if known else ["approve", *args])


app = typer.Typer(
    cls=PairGroup,
    help="Admit people who wrote on a channel, and link your own accounts.\n\n"
    "Without a command, list the people who wait to be admitted.",
)
WhoArgument = Annotated[str, typer.Argument(metavar="CODE", help="The code that the person was given, or the id.")]


@app.command("list")
@command
def list_waiting(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the people who wait to be admitted."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import ago, show, show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    with connect(home, config) as client:
        answer = client.get("/pairings")
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "pairings")
    if not rows:
        show("Nobody waits to be admitted.", "dim")
        return
    show_table(
        ["Id", "Name", "Account", "Since", "First message"],
        [
            [
                str(each["pairingId"]),
                str(each["name"]),
                f"{each['channel']} {each['account']} {each['platformId']}",
                ago(each["createdAt"]),
                str(each.get("message") or ""),
            ]
            for each in rows
        ],
    )


@app.command("approve")
@command
def approve(
    who: WhoArgument,
    into: Annotated[
        str | None, typer.Option("--as", metavar="PERSON", help="Whose account it is; a new guest's unless set.")
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Admit somebody; what they wrote is answered now. `antiphon pair CODE` does the same."""
    body: JsonObject = {} if into is None else {"into": into}
    _decide(who, "approve", body, home=home, config=config, as_json=as_json)


@app.command("refuse")
@command
def refuse(who: WhoArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Refuse somebody; what they wrote is deleted."""
    _decide(who, "refuse", {}, home=home, config=config, as_json=as_json)


@app.command("link")
@command
def link(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """Print a code that makes an account of a channel yours."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        answer = client.post("/link-codes", {})
    if as_json:
        show_json(answer)
        return
    show(str(answer["code"]), "bold green")
    show(f"Send `/link {answer['code']} yes` to the bot, in private, within an hour. The code works once.")


def _decide(who: str, act: str, body: JsonObject, *, home: HomeOption, config: ConfigOption, as_json: bool) -> None:
    from urllib.parse import quote

    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        answer = client.post(f"/pairings/{quote(who, safe='')}/{act}", body)
    if as_json:
        show_json(answer)
        return
    sender = answer.get("pairing", answer)
    assert isinstance(sender, dict)
    named = f"{sender['name']}, {sender['channel']} {sender['platformId']}"
    show(f"Admitted: {named}, as {answer['personId']}." if act == "approve" else f"Refused: {named}.")
