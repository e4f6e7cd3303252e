"""`antiphon skills`: folders of instructions and programs, trusted by their hashes. Contract: foreign_agents 5."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, quoted, said
from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import CommandFailed, ExitCode, command
from antiphon.domain.message import JsonObject
from antiphon.domain.text import exact, shown_name

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

app = NounCommands(no_args_is_help=True, help="Add, show, trust and remove skills.")
NameArgument = Annotated[str, typer.Argument(metavar="NAME", help="The skill.")]
UntrustedOption = Annotated[
    bool, typer.Option("--untrusted", help="Offer it without trusting it: runs that see it ask before they send.")
]
YesOption = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
_STATES = {
    "trusted": "trusted",
    "untrusted": "offered untrusted",
    "unreviewed": "not reviewed",
    "changed": "changed since its review",
    "broken": "no skill",
    "missing": "missing in this home",
}
UNTRUSTED = (
    "Its words stay those of somebody else. Every run that is offered it counts as untrusted, so it asks before it "
    "sends, deletes, spends or sets anything."
)
NOT_OFFERED = "Not offered to any agent. To trust it: antiphon skills trust {}"


def _state(row: JsonObject) -> str:
    return _STATES[str(row["state"])]


def _agents(row: JsonObject) -> str:
    found = row.get("agents")
    return ", ".join(map(str, found)) if isinstance(found, list) else ""


def _description(row: JsonObject) -> str:
    return shown_name(str(row.get("description") or row.get("problem") or ""))


@app.asks(
    "list",
    listed(
        "skills",
        {"Skill": "name", "State": _state, "Agents": _agents, "Description": _description},
        none="There are no skills. To add one: antiphon skills add PATH",
        is_last_cut_within=True,
    ),
)
def list_skills(client: "Client") -> JsonObject:
    """List the skills of the gateway's home and of the settings."""
    return client.get("/skills")


def _show(skill: JsonObject) -> None:
    from antiphon.cli.rendering.output import show

    for line in _lines(skill):
        show(line)
    if body := skill.get("body"):
        show("")
        show("\n".join(exact(line) for line in str(body).split("\n")))


@app.asks("show", _show)
def show_skill(client: "Client", name: NameArgument) -> JsonObject:
    """Show a skill with its files and its instructions."""
    return client.get(f"/skills/{quoted(name)}")


def _lines(skill: JsonObject) -> Iterator[str]:
    """Everything that an owner trusts, but for the contents of the files."""
    from antiphon.cli.rendering.rows import rows_of

    yield f"{shown_name(str(skill['name']))}: {_state(skill)}"
    if problem := skill.get("problem"):
        yield shown_name(str(problem))
    if description := skill.get("description"):
        yield exact(str(description))
    for label, name in (("License", "license"), ("Needs", "compatibility")):
        if value := skill.get(name):
            yield f"{label}: {exact(str(value))}"
    metadata = skill.get("metadata")
    if isinstance(metadata, dict) and metadata:
        yield "Metadata: " + ", ".join(f"{exact(key)}: {exact(str(value))}" for key, value in metadata.items())
    tools = skill.get("allowedTools")
    if isinstance(tools, list) and tools:
        yield f"Asks for the tools {exact(' '.join(map(str, tools)))}. This grants it nothing."
    agents = _agents(skill)
    yield f"Agents: {agents}" if agents else "No agent names it. To offer it, name it in agents.list[].skills."
    for file in rows_of(skill, "files") if "files" in skill else ():
        kind = "program" if file["executable"] else "file"
        yield f"  {kind:7} {file['size']:>8} {exact(str(file['path']))}"
    if sha256 := skill.get("sha256"):
        yield f"Hash: {sha256}"


@app.asks("trust", said)
def trust(client: "Client", name: NameArgument, untrusted: UntrustedOption = False, yes: YesOption = False) -> Printed:
    """Look at a skill, and trust it as it is now."""
    shown = client.get(f"/skills/{quoted(name)}")
    return _trusted(client, shown, is_untrusted=untrusted, yes=yes)


def _trusted(client: "Client", shown: JsonObject, *, is_untrusted: bool, yes: bool) -> Printed:
    from antiphon.cli.rendering.output import tell
    from antiphon.domain.errors import Invalid

    name = str(shown["name"])
    if shown.get("sha256") is None:
        raise Invalid(
            str(shown.get("problem") or f"Skill is missing in this home: {name!r}. Add it first."), code="skill_invalid"
        )
    if not yes:
        for line in _lines(shown):
            tell(line)
        tell(f"To read its instructions: antiphon skills show {name}")
        if is_untrusted:
            tell(UNTRUSTED)
        if not sys.stdin.isatty():
            raise Invalid("Trusting needs your consent: add --yes to trust what is shown.", code="usage")
        question = "Offer this skill without trusting it?" if is_untrusted else "Trust this skill as it is now?"
        if not typer.confirm(question, err=True):
            tell(NOT_OFFERED.format(name))
            raise CommandFailed(ExitCode.FAILED)
    answer = client.post(
        f"/skills/{quoted(name)}/trust", {"sha256": shown["sha256"], **({"untrusted": True} if is_untrusted else {})}
    )
    agents = _agents(answer)
    to_whom = f" Agents: {agents}." if agents else " No agent names it yet: see agents.list[].skills."
    done = f"Offered without trust: {name}. {UNTRUSTED}" if is_untrusted else f"Trusted: {name}."
    return Printed(answer, done + to_whom)


@command
def add(
    path: Annotated[Path, typer.Argument(metavar="PATH", help="The skill's folder, with its SKILL.md.")],
    untrusted: UntrustedOption = False,
    yes: YesOption = False,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Copy a skill's folder into this home, and trust it. Run it on the gateway's machine."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.home import home_of
    from antiphon.cli.rendering.output import show, show_json
    from antiphon.engine.skills.folders import SKILLS_NAME, SkillFolders
    from antiphon.private_files import make_private_directory

    place = home_of(home)
    with connect(home, config) as client:
        make_private_directory(place)
        skill = SkillFolders(place / SKILLS_NAME).add(path)
        shown = client.get(f"/skills/{quoted(skill.words.name)}")
        done = _trusted(client, shown, is_untrusted=untrusted, yes=yes)
    if as_json:
        show_json(done.answer)
    else:
        show(str(done.seen))


app.command("add")(add)


@app.asks("remove", said)
def remove(client: "Client", name: NameArgument) -> Printed:
    """Remove a skill from the gateway's home, and withdraw its review."""
    answer = client.delete(f"/skills/{quoted(name)}")
    return Printed(answer, f"Removed: {name}. Agents that name it do without it.")
