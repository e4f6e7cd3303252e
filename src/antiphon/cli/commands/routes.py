"""`antiphon routes`: which agent and session a chat uses. Contract: channels 2."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, listed, present, since
from antiphon.cli.commands.listing import ListingGroup
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

app = NounCommands(cls=ListingGroup, help="List and change which agent and session chats use.")
ChannelArgument = Annotated[str, typer.Argument(metavar="CHANNEL", help="Its name in the settings.")]
PeerArgument = Annotated[str, typer.Argument(metavar="CHAT", help="direct:<platform id> or group:<group id>.")]
AccountOption = Annotated[
    str, typer.Option("--account", metavar="ACCOUNT", help="The channel's account, such as the name of a webhook.")
]
ThreadOption = Annotated[str, typer.Option("--thread", metavar="THREAD", help="A thread or topic of the chat.")]
VersionOption = Annotated[
    int | None,
    typer.Option("--version", metavar="N", min=0, help="Change the route only if it still has this version."),
]


def _show(route: JsonObject) -> None:
    from antiphon.cli.rendering.output import show

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


@app.asks(
    "list",
    listed(
        "routes",
        {"Chat": _chat, "Agent": _agent, "Session": _session, "Version": "version", "Changed": since("changedAt")},
        none="All chats follow the settings.",
    ),
)
def list_routes(client: "Client") -> JsonObject:
    """List the chats for which somebody chose an agent or a session."""
    return client.get("/routes")


def _check_choice(*, agent: str | None, session: str | None, **_: object) -> None:
    if agent is None and session is None:
        raise typer.BadParameter("Give --agent or --session. `routes clear` follows the settings again.")


@app.asks("set", _show, _check_choice)
def set_route(
    client: "Client",
    channel: ChannelArgument,
    peer: PeerArgument,
    agent: Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="The agent that answers.")] = None,
    session: Annotated[
        str | None, typer.Option("--session", metavar="SESSION", help="A session, by its key or id.")
    ] = None,
    account: AccountOption = "default",
    thread: ThreadOption = "",
    version: VersionOption = None,
) -> JsonObject:
    """Choose the agent or the session of a chat, from its next message on."""
    body: JsonObject = {"channel": channel, "account": account, "peer": peer, "thread": thread}
    body |= present({"agentId": agent, "sessionKey": session, "version": version})
    return client.post("/routes", body)


@app.asks("clear", _show)
def clear_route(
    client: "Client",
    channel: ChannelArgument,
    peer: PeerArgument,
    account: AccountOption = "default",
    thread: ThreadOption = "",
    version: VersionOption = None,
) -> JsonObject:
    """Let a chat follow the settings again."""
    return client.delete("/routes", channel=channel, account=account, peer=peer, thread=thread, version=version)
