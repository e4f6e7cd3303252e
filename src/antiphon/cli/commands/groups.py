"""`antiphon groups`: groups of channels in which the bot may answer. Contract: groups 1."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, listed, quoted, said, since
from antiphon.cli.commands.listing import ListingGroup
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

app = NounCommands(cls=ListingGroup, help="List groups of channels, and say where the bot may answer.")
NEGATIVE_IDS = {"ignore_unknown_options": True}
"""Ids of groups may begin with a minus, as an option does."""
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The id that the list shows.")]
ChannelOption = Annotated[
    str | None, typer.Option("--channel", metavar="CHANNEL", help="The group's channel, if two have this id.")
]
AccountOption = Annotated[
    str | None, typer.Option("--account", metavar="ACCOUNT", help="The bot's account, if two of them are in the group.")
]


def _show(group: JsonObject) -> None:
    said(f"{group['title']}: {group['state']}.")


@app.asks(
    "list",
    listed(
        "groups",
        {
            "Group": "groupId",
            "Title": "title",
            "Account": lambda each: f"{each['channel']} {each['account']}",
            "State": "state",
            "Since": since("createdAt"),
        },
        none="No bot is in a group.",
    ),
)
def list_groups(client: "Client") -> JsonObject:
    """List the groups that the bots of this home are or were in."""
    return client.get("/groups")


@app.asks("allow", _show, context_settings=NEGATIVE_IDS)
def allow(
    client: "Client", group: GroupArgument, channel: ChannelOption = None, account: AccountOption = None
) -> JsonObject:
    """Let the bot answer in a group."""
    return _decide(client, "allow", group, channel, account)


@app.asks("refuse", _show, context_settings=NEGATIVE_IDS)
def refuse(
    client: "Client", group: GroupArgument, channel: ChannelOption = None, account: AccountOption = None
) -> JsonObject:
    """Keep the bot silent in a group."""
    return _decide(client, "refuse", group, channel, account)


def _decide(client: "Client", act: str, group: str, channel: str | None, account: str | None) -> JsonObject:
    from antiphon.cli.rendering.rows import rows_of
    from antiphon.domain.errors import Invalid, NotFound

    found = [
        each
        for each in rows_of(client.get("/groups"), "groups")
        if group in (each["groupId"], each["address"])
        and channel in (None, each["channel"])
        and account in (None, each["account"])
    ]
    if not found:
        raise NotFound(f"Group not found: {group[:80]!r}. `antiphon groups list` shows them.")
    if len(found) > 1:
        raise Invalid(f"Group is not unique: {group[:80]!r}. Name its --channel and --account.", code="ambiguous_group")
    body: JsonObject = {"channel": found[0]["channel"], "account": found[0]["account"]}
    return client.post(f"/groups/{quoted(str(found[0]['groupId']))}/{act}", body)
