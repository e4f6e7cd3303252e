"""`antiphon costs`: what runs used, by day, agent, person and model."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import asking
from antiphon.domain.message import JsonObject, JsonValue

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client


_GROUPS = (
    ("days", "Day", "day"),
    ("agents", "Agent", "name"),
    ("people", "Person", "name"),
    ("models", "Model", "name"),
)
"""The lists of the answer, each with its heading and the field that names its rows."""


def _show(answer: JsonObject) -> None:
    from antiphon.cli.rendering.output import show, show_table
    from antiphon.cli.rendering.rows import rows_of

    for name, heading, title in _GROUPS:
        lines = [_line(str(row[title]), row["spent"]) for row in rows_of(answer, name)]
        used = [line for line in lines if line[1] != "0"]
        if used:
            show_table([heading, "Runs", "Tokens in", "Tokens out", "Cost", "Tokens without a price"], used)
            show()
    if rows := rows_of(answer, "caps"):
        show_table(["Cap of today", "Tokens", "Cost", ""], [_cap(row) for row in rows])
    else:
        show("No daily cap is set for you.", "dim")


@asking(_show)
def costs(
    client: "Client",
    days: Annotated[
        int, typer.Option("--days", min=1, max=366, help="How many UTC days; the last is the present one.")
    ] = 30,
    agent: Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="Only runs of this agent.")] = None,
) -> JsonObject:
    """Show what runs cost by day, agent, person and model, and how much of the daily caps is used.

    Models without a known price count by their tokens. Deleted sessions do not count any more.
    """
    return client.get("/costs", days=days, agentId=agent)


def _line(name: str, spent: JsonValue) -> list[str]:
    from antiphon.cli.rendering.trees import dollars

    assert isinstance(spent, dict)
    about = "~" if spent.get("estimated") else ""
    counts = [f"{spent['runs']:,}", *(f"{about}{spent[field]:,}" for field in ("inputTokens", "outputTokens"))]
    unpriced = spent.get("unpricedTokens")
    return [name, *counts, dollars(spent.get("costUsd")), f"{unpriced:,}" if unpriced else ""]


def _cap(row: JsonObject) -> list[str]:
    from antiphon.cli.rendering.trees import dollars

    tokens, usd = row.get("tokens"), row.get("usd")
    return [
        str(row.get("agentId") or row["name"]),
        f"{row['spentTokens']:,} of {tokens:,}" if tokens is not None else "no limit",
        f"{dollars(row['spentUsd'])} of {dollars(usd)}" if usd is not None else "no limit",
        f"reached: {row['setting']}" if row["reached"] else "",
    ]
