"""`antiphon costs`: what runs used, by day, agent, person and model."""

from typing import Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject, JsonValue

_GROUPS = (
    ("days", "Day", "day"),
    ("agents", "Agent", "name"),
    ("people", "Person", "name"),
    ("models", "Model", "name"),
)
"""The lists of the answer, each with its heading and the field that names its rows."""


@command
def costs(
    days: Annotated[
        int, typer.Option("--days", min=1, max=366, help="How many UTC days; the last is the present one.")
    ] = 30,
    agent: Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="Only runs of this agent.")] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Show what runs cost by day, agent, person and model, and how much of the daily caps is used.

    Models without a known price count by their tokens. Deleted sessions do not count any more.
    """
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    with connect(home, config) as client:
        answer = client.get("/costs", days=days, agentId=agent)
    if as_json:
        show_json(answer)
        return
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
