"""`antiphon agents`: which there are, and what carries out their runs. Contract: foreign_agents 1."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, listed, quoted
from antiphon.cli.commands.listing import ListingGroup
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

app = NounCommands(cls=ListingGroup, help="List agents, and forget those whose programs are gone.")


def _runs(agent: JsonObject) -> str:
    if agent.get("runtime") == "acp":
        return "harness (ACP), unattended" if agent.get("unattended") else "harness (ACP)"
    return f"runner {agent['runner']}" if "runner" in agent else str(agent["model"])


def _problem(agent: JsonObject) -> str:
    return str(agent.get("problem") or "")


def _show_forgotten(answer: JsonObject) -> None:
    from antiphon.cli.rendering.output import show

    runs = answer["runs"]
    ended = "It had no runs." if not runs else f"Its {runs} waiting {'run ends' if runs == 1 else 'runs end'} now."
    show(f"Agent {answer['id']} is forgotten. {ended} Its sessions stay.")


@app.asks(
    "list", listed("agents", {"Agent": "id", "Name": "name", "Runs by": _runs, "Problem": _problem}, optional="Problem")
)
def list_agents(client: "Client") -> JsonObject:
    """List the agents, with what carries out their runs; `runner_missing` means that their runs wait."""
    return client.get("/agents")


@app.asks("forget", _show_forgotten)
def forget_agent(
    client: "Client",
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="An agent that a program gave in code, by its id.")],
) -> JsonObject:
    """End the waiting runs of an agent whose program is gone for good."""
    return client.delete(f"/agents/{quoted(agent)}")
