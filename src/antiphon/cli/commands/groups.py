"""`antiphon groups`: groups of channels in which the bot may answer. Contract: groups 1."""

from typing import Annotated

import typer

from antiphon.cli.commands.listing import ListingGroup
from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject

app = typer.Typer(cls=ListingGroup, help="List groups of channels, and say where the bot may answer.")
NEGATIVE_IDS = {"ignore_unknown_options": True}
"""Ids of groups may begin with a minus, as an option does."""
GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The id that the list shows.")]
ChannelOption = Annotated[
    str | None, typer.Option("--channel", metavar="CHANNEL", help="The group's channel, if two have this id.")
]
AccountOption = Annotated[
    str | None, typer.Option("--account", metavar="ACCOUNT", help="The bot's account, if two of them are in the group.")
]


@app.command("list")
@command
def list_groups(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the groups that the bots of this home are or were in."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import ago, show, show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    with connect(home, config) as client:
        answer = client.get("/groups")
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "groups")
    if not rows:
        show("No bot is in a group.", "dim")
        return
    show_table(
        ["Group", "Title", "Account", "State", "Since"],
        [
            [
                str(each["groupId"]),
                str(each["title"]),
                f"{each['channel']} {each['account']}",
                str(each["state"]),
                ago(each["createdAt"]),
            ]
            for each in rows
        ],
    )


@app.command("allow", context_settings=NEGATIVE_IDS)
@command
def allow(
    group: GroupArgument,
    channel: ChannelOption = None,
    account: AccountOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let the bot answer in a group."""
    _decide("allow", group, channel, account, home=home, config=config, as_json=as_json)


@app.command("refuse", context_settings=NEGATIVE_IDS)
@command
def refuse(
    group: GroupArgument,
    channel: ChannelOption = None,
    account: AccountOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Keep the bot silent in a group."""
    _decide("refuse", group, channel, account, home=home, config=config, as_json=as_json)


def _decide(
    act: str,
    group: str,
    channel: str | None,
    account: str | None,
    *,
    home: HomeOption,
    config: ConfigOption,
    as_json: bool,
) -> None:
    from urllib.parse import quote

    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json
    from antiphon.cli.rendering.rows import rows_of
    from antiphon.domain.errors import Invalid, NotFound

    with connect(home, config) as client:
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
            raise Invalid(
                f"Group is not unique: {group[:80]!r}. Name its --channel and --account.", code="ambiguous_group"
            )
        body: JsonObject = {"channel": found[0]["channel"], "account": found[0]["account"]}
        answer = client.post(f"/groups/{quote(str(found[0]['groupId']), safe='')}/{act}", body)
    if as_json:
        show_json(answer)
    else:
        show(f"{answer['title']}: {answer['state']}.")
