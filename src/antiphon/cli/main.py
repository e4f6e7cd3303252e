"""The program `antiphon`. Each command imports what it needs when it is called, so that help answers at once."""

import sys
from itertools import takewhile
from typing import Annotated

import typer
from typer.exceptions import TyperException

from antiphon import __version__
from antiphon.cli.commands import (
    agents,
    approvals,
    audit,
    channels,
    chat,
    compartments,
    config,
    deliveries,
    doctor,
    groups,
    memory,
    pair,
    people,
    policy,
    routes,
    runs,
    sessions,
    setup,
    skills,
    tasks,
    tokens,
    tools,
)
from antiphon.cli.commands.acp import acp
from antiphon.cli.commands.backup import backup, restore
from antiphon.cli.commands.costs import costs
from antiphon.cli.commands.mcp import mcp
from antiphon.cli.commands.migrate import migrate
from antiphon.cli.commands.open import open_page
from antiphon.cli.commands.serve import serve
from antiphon.cli.commands.tool import call_tool
from antiphon.cli.commands.who import who
from antiphon.cli.commands.worker import worker
from antiphon.cli.demo.command import demo
from antiphon.cli.exits import ExitCode, show_error
from antiphon.cli.streams import prepare_output

app = typer.Typer(
    name="antiphon",
    help="A durable session runtime and gateway for AI agents.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.add_typer(setup.app, name="setup")
app.command("serve")(serve)
app.command("worker")(worker)
app.command("open")(open_page)
app.command("chat")(chat.chat)
app.add_typer(sessions.app, name="sessions")
app.add_typer(runs.app, name="runs")
app.add_typer(tasks.app, name="tasks")
app.command("who")(who)
app.command("costs")(costs)
app.add_typer(agents.app, name="agents")
app.add_typer(approvals.app, name="approvals")
app.add_typer(policy.app, name="policy")
app.add_typer(audit.app, name="audit")
app.add_typer(deliveries.app, name="deliveries")
app.add_typer(people.app, name="people")
app.add_typer(channels.app, name="channels")
app.add_typer(pair.app, name="pair")
app.add_typer(groups.app, name="groups")
app.add_typer(routes.app, name="routes")
app.add_typer(memory.app, name="memory")
app.add_typer(compartments.app, name="compartments")
app.add_typer(tokens.app, name="tokens")
app.command("mcp")(mcp)
app.command("acp")(acp)

app.command("tool")(call_tool)
app.add_typer(tools.app, name="tools")
app.add_typer(skills.app, name="skills")
app.command("demo")(demo)
app.command("doctor")(doctor.doctor)
app.command("migrate")(migrate)
app.command("backup")(backup)
app.command("restore")(restore)
app.add_typer(config.app, name="config")


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        print(f"antiphon {__version__}")
        raise typer.Exit


@app.callback()
def antiphon(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """A durable session runtime and gateway for AI agents."""


def keep_only(name: str) -> None:
    """Leaves out the other commands, if there is one of that name: typer builds all of them, which takes longer."""
    commands = [command for command in app.registered_commands if command.name == name]
    groups = [group for group in app.registered_groups if group.name == name]
    if commands or groups:
        app.registered_commands, app.registered_groups = commands, groups


def main() -> None:
    try:
        _main()
    except KeyboardInterrupt:  # before a command has begun, which has its own way of ending
        sys.exit(ExitCode.INTERRUPTED)


def _main() -> None:
    prepare_output()
    keep_only(sys.argv[1] if len(sys.argv) > 1 else "")
    if "--json" not in takewhile(lambda argument: argument != "--", sys.argv[1:]):
        app(prog_name="antiphon")
    try:
        sys.exit(app(prog_name="antiphon", standalone_mode=False))
    except TyperException as error:
        show_error(error.format_message(), "usage", as_json=True)
        sys.exit(error.exit_code)
    except typer.Abort:
        sys.exit(ExitCode.FAILED)
