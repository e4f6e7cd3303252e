"""`antiphon pair`: people who wait to be admitted to a channel, and codes that link accounts. Contract: access 3."""

import re
from typing import TYPE_CHECKING, Annotated, Any

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, present, quoted, said, since
from antiphon.cli.commands.listing import ListingGroup
from antiphon.domain.codes import parse_code
from antiphon.domain.message import JsonObject, JsonValue

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client


_CHANNEL = re.compile("[a-z][a-z0-9]{0,31}")


class PairGroup(ListingGroup):
    """`antiphon pair CODE` admits somebody, and `antiphon pair CHANNEL` invites somebody, without another word."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        known = args and (args[0] in self.commands or args[0].startswith("-"))
        is_channel = args and parse_code(args[0]) is None and _CHANNEL.fullmatch(args[0]) is not None
        return super().resolve_command(ctx, args if known else ["invite" if is_channel else "approve", *args])


app = NounCommands(
    cls=PairGroup,
    help="Admit people who wrote on a channel, and link your own accounts.\n\n"
    "Without a command, list the people who wait to be admitted.",
)
WhoArgument = Annotated[str, typer.Argument(metavar="CODE", help="The code that the person was given, or the id.")]


@app.asks(
    "list",
    listed(
        "pairings",
        {
            "Id": "pairingId",
            "Name": "name",
            "Account": lambda each: f"{each['channel']} {each['account']} {each['platformId']}",
            "Since": since("createdAt"),
            "First message": "message",
        },
        none="Nobody waits to be admitted.",
    ),
)
def list_waiting(client: "Client") -> JsonObject:
    """List the people who wait to be admitted."""
    return client.get("/pairings")


@app.asks("approve", said)
def approve(
    client: "Client",
    who: WhoArgument,
    into: Annotated[
        str | None, typer.Option("--as", metavar="PERSON", help="Whose account it is; a new guest's unless set.")
    ] = None,
) -> Printed:
    """Admit somebody; what they wrote is answered now. `antiphon pair CODE` does the same."""
    answer = client.post(f"/pairings/{quoted(who)}/approve", present({"into": into}))
    return Printed(answer, f"Admitted: {_name(answer['pairing'])}, as {answer['personId']}.")


@app.asks("refuse", said)
def refuse(client: "Client", who: WhoArgument) -> Printed:
    """Refuse somebody; what they wrote is deleted."""
    answer = client.post(f"/pairings/{quoted(who)}/refuse", {})
    return Printed(answer, f"Refused: {_name(answer)}.")


def _name(sender: JsonValue) -> str:
    assert isinstance(sender, dict)
    return f"{sender['name']}, {sender['channel']} {sender['platformId']}"


def _show_join_link(answer: JsonObject) -> None:
    from antiphon.cli.rendering.join_links import show_join_link

    show_join_link(answer)


@app.asks("invite", _show_join_link)
def invite(
    client: "Client",
    channel: Annotated[str, typer.Argument(metavar="CHANNEL", help="The channel, such as a messenger.")],
    into: Annotated[
        str | None, typer.Option("--as", metavar="PERSON", help="Whose account it will be; a new guest's unless set.")
    ] = None,
    account: Annotated[str | None, typer.Option(help="The account of the channel, if it has several.")] = None,
) -> JsonObject:
    """Print a code to scan, which admits the first person who scans it. `antiphon pair CHANNEL` does the same."""
    return client.post("/join-links", present({"channel": channel, "account": account, "into": into}))


def _show_code(answer: JsonObject) -> None:
    from antiphon.cli.rendering.output import show

    show(str(answer["code"]), "bold green")
    show(f"Send `/link {answer['code']} yes` to the bot, in private, within an hour. The code works once.")


@app.asks("link", _show_code)
def link(client: "Client") -> JsonObject:
    """Print a code that makes an account of a channel yours."""
    return client.post("/link-codes", {})
