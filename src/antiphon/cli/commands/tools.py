"""`antiphon tools`: what tools of MCP servers and packages count as, and what an owner confirms. Contract: flow 10."""

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, said
from antiphon.cli.exits import CommandFailed, ExitCode
from antiphon.domain.message import JsonObject
from antiphon.domain.text import exact, shown_name

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

app = NounCommands(no_args_is_help=True, help="Show and review the tools of MCP servers and packages.")
SourceArgument = Annotated[
    str, typer.Argument(metavar="SOURCE", help="A server or package, as `list` shows it: 'mcp:files', or 'files'.")
]
_STATES = {"confirmed": "", "unreviewed": "not reviewed", "changed": "changed since its review"}
ALL_READ = "Every tool is reviewed."


def _effects(tool: JsonObject, name: str = "effects") -> str:
    found = tool[name]
    return ", ".join(map(str, found)) if isinstance(found, list) else ""


def _count(number: int) -> str:
    return "1 tool" if number == 1 else f"{number} tools"


def _show_sources(answer: JsonObject) -> None:
    from antiphon.cli.rendering.output import hint, show, show_table
    from antiphon.cli.rendering.rows import rows_of

    sources = rows_of(answer, "sources")
    if not sources:
        hint("No agent has an MCP server, and no package offers a tool whose effects it does not declare.")
    for source in sources:
        tools, unreviewed = rows_of(source, "tools"), source["unreviewed"]
        state = f"; {unreviewed} not reviewed" if unreviewed else ""
        show(f"{shown_name(str(source['source']))}: {_count(len(tools))}{state}", "bold")
        if source.get("unavailableFor"):
            show("  The server does not answer now, so not all of its tools are known.", "dim")
        if tools:
            lines = [
                [
                    f"  {shown_name(str(tool['name']))}",
                    _effects(tool) + (" (settings)" if tool.get("declared") else ""),
                    _STATES[str(tool["state"])],
                ]
                for tool in tools
            ]
            show_table(["  Tool", "Counts as", "State"], lines)
    if any(source["unreviewed"] for source in sources):
        hint("To confirm what they do: antiphon tools review")


@app.asks("list", _show_sources)
def list_tools(client: "Client") -> JsonObject:
    """List the tools of all servers and packages, with what each counts as."""
    return client.get("/tool-reviews")


def _check_effects(*, effects: list[str] | None, **_: object) -> None:
    _named_effects(effects)


def _named_effects(given: list[str] | None) -> dict[str, list[str]]:
    from antiphon.domain.agent import Effect

    found: dict[str, list[str]] = {}
    for each in given or ():
        tool, sign, names = each.rpartition("=")
        effects = [name.strip() for name in names.split(",")]
        if not sign or not tool or not {*effects} <= {*Effect}:
            known = ", ".join(Effect)
            raise typer.BadParameter(f"{each[:80]!r} is not TOOL=EFFECT,… with {known}.", param_hint="--effects")
        found[tool] = effects
    return found


@app.asks("review", said, _check_effects)
def review(
    client: "Client",
    source: Annotated[
        str | None, typer.Argument(metavar="SOURCE", help="Only this server or package, such as 'files'.")
    ] = None,
    effects: Annotated[
        list[str] | None,
        typer.Option(
            "--effects",
            metavar="TOOL=EFFECTS",
            help="What a tool does, if not what is proposed: 'send=writes,leaves'. May be repeated.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
) -> Printed:
    """Read what tools say of themselves, and confirm what they do, once for each server."""
    from antiphon.cli.rendering.rows import rows_of
    from antiphon.domain.errors import Invalid

    corrected = _named_effects(effects)
    reviewed: list[JsonObject] = []
    known: set[str] = set()
    for each in _sources(client, source):
        tools = [tool for tool in rows_of(each, "tools") if tool["state"] != "confirmed" or tool["name"] in corrected]
        known |= {str(tool["name"]) for tool in tools}
        if not tools:
            continue
        name = str(each["source"])
        if not yes:
            _show_tools(name, tools, corrected)
            if not sys.stdin.isatty():
                raise Invalid("Reviewing needs your consent: add --yes to confirm what is shown.", code="usage")
            if not typer.confirm(f"Confirm this for {_count(len(tools))} of {shown_name(name)}?", err=True):
                continue
        reviewed.append(client.post("/tool-reviews", {"source": name, "tools": [*_confirmed(tools, corrected)]}))
    if missing := sorted(corrected.keys() - known):
        raise Invalid(f"Tools not found: {', '.join(missing)[:200]}. `antiphon tools list` shows them.", code="usage")
    if not known:
        return Printed({"sources": []}, ALL_READ)
    if not reviewed:
        raise CommandFailed(ExitCode.FAILED)
    return Printed({"sources": [*reviewed]}, "\n".join(f"Reviewed: {each['source']}." for each in reviewed))


def _sources(client: "Client", named: str | None) -> list[JsonObject]:
    from antiphon.cli.rendering.rows import rows_of
    from antiphon.domain.errors import NotFound

    sources = rows_of(client.get("/tool-reviews"), "sources")
    if named is None:
        return sources
    found = [each for each in sources if named in (each["source"], str(each["source"]).partition(":")[2])]
    if not found:
        raise NotFound(f"Server or package not found: {named[:80]!r}. `antiphon tools list` shows them.")
    return found


def _show_tools(source: str, tools: list[JsonObject], corrected: dict[str, list[str]]) -> None:
    """Beside the answer, so that programs can read that. All words are shown: they are what is confirmed."""
    import json

    from antiphon.cli.rendering.output import tell

    tell(f"{shown_name(source)}:")
    for tool in tools:
        name = str(tool["name"])
        does = ", ".join(corrected.get(name, ())) or _effects(tool, "effects" if tool.get("declared") else "proposed")
        changed = " It has changed since its review." if tool["state"] == "changed" else ""
        tell(f"\n{exact(name)}: {does}.{changed}")
        tell(exact(str(tool["description"])))
        tell(exact(f"Arguments: {json.dumps(tool['parameters'], ensure_ascii=False)}"))


def _confirmed(tools: list[JsonObject], corrected: dict[str, list[str]]) -> Iterator[JsonObject]:
    for tool in tools:
        name = str(tool["name"])
        effects: JsonObject = {"effects": [*corrected[name]]} if name in corrected else {}
        yield {"name": name, "sha256": tool["sha256"], **effects}


@app.asks("withdraw", said)
def withdraw(client: "Client", source: SourceArgument) -> Printed:
    """Take back the review of a server or package: its tools are not reviewed any more."""
    from urllib.parse import quote

    name = source if ":" in source else f"mcp:{source}"
    answer = client.delete(f"/tool-reviews/{quote(name, safe='')}")
    number = answer["withdrawn"]
    assert isinstance(number, int)
    return Printed(answer, f"Not reviewed any more: {_count(number)} of {shown_name(name)}.")
