"""`antiphon routes`: which agent and session a chat uses. Contract: channels 2."""

from typing import Annotated

import typer

from antiphon.cli.commands.listing import ListingGroup
from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject

app = typer.Typer(cls=ListingGroup, help="List and change which agent and session chats use.")
ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="Such as telegram or webhook.")]
PeerArgument = Annotated[str, typer.Argument(metavar="CHAT", help="direct:<platform id> or group:<group id>.")]
AccountOption = Annotated[
    str, typer.Option("--account", metavar="ACCOUNT", help="The channel's account, such as the name of a webhook.")
]
ThreadOption = Annotated[str, typer.Option("--thread", metavar="THREAD", help="A thread or topic of the chat.")]
VersionOption = Annotated[
    int | None,
    typer.Option("--version", metavar="N", min=0, help="Change the route only if it still has this version."),
]


@app.command("list")
@command
def list_routes(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List the chats for which somebody chose an agent or a session."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import ago, show, show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    with connect(home, config) as client:
        answer = client.get("/routes")
    if as_json:
        show_json(answer)
        return
    rows = rows_of(answer, "routes")
    if not rows:
        show("All chats follow the settings.", "dim")
        return
    show_table(
        ["Chat", "Agent", "Session", "Version", "Changed"],
        [[_chat(each), _agent(each), _session(each), str(each["version"]), ago(each["changedAt"])] for each in rows],
    )


@app.command("set")
@command
def set_route(
    channel: ChannelArgument,
    peer: PeerArgument,
    agent: Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="The agent that answers.")] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="A session, by its key or id.")
    ] = None,
    account: AccountOption = "default",
    thread: ThreadOption = "",
    version: VersionOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Choose the agent or the session of a chat, from its next message on."""
    from antiphon.cli.connection.connect import connect

    if agent is None and session is None:
        raise typer.BadParameter("Give --agent or --session. `routes clear` follows the settings again.")
    body: JsonObject = {"channel": channel, "account": account, "peer": peer, "thread": thread}
    body |= {name: value for name, value in (("agentId", agent), ("sessionKey", session)) if value is not None}
    if version is not None:
        body["version"] = version
    with connect(home, config) as client:
        answer = client.post("/routes", body)
    _show(answer, as_json=as_json)


@app.command("clear")
@command
def clear_route(
    channel: ChannelArgument,
    peer: PeerArgument,
    account: AccountOption = "default",
    thread: ThreadOption = "",
    version: VersionOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Let a chat follow the settings again."""
    from antiphon.cli.connection.connect import connect

    with connect(home, config) as client:
        answer = client.delete("/routes", channel=channel, account=account, peer=peer, thread=thread, version=version)
    _show(answer, as_json=as_json)


def _show(route: JsonObject, *, as_json: bool) -> None:
    from antiphon.cli.rendering.output import show, show_json

    if as_json:
        show_json(route)
    else:
        show(f"{_chat(route)}: agent {_agent(route)}, {_session(route)}. Version {route['version']}.")
        if note := route.get("note"):
            show(str(note), "yellow")


def _chat(route: JsonObject) -> str:
    account = "" if route["account"] == "default" else f" {route['account']}"
    thread = f" ({route['thread']})" if route.get("thread") else ""
    return f"{route['channel']}{account} {route['peer']}{thread}"


def _agent(route: JsonObject) -> str:
    if route.get("fallback"):
        return f"{route['agentId']} (fallback: {route.get('chosenAgentId')} is not configured)"
    return str(route["agentId"])


def _session(route: JsonObject) -> str:
    return str(route.get("sessionKey") or "the chat's own session")
