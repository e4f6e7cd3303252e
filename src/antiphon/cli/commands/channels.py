"""`antiphon channels`: the places where people and programs reach the agents. Contract: channels 1."""

import os
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import CommandFailed, ExitCode, command
from antiphon.domain.errors import Invalid
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from antiphon.cli.homes.channel_sections import Value
    from antiphon.cli.homes.channels import ListedAccount

app = typer.Typer(no_args_is_help=True, help="List the channels of a home, add one, and remove one.")
NameArgument = Annotated[
    str, typer.Argument(metavar="CHANNEL", help="The channel: a name below `channels` in the settings.")
]
AccountOption = Annotated[
    str | None, typer.Option("--account", metavar="NAME", help="The account, if the channel has several.")
]


@app.command("list")
@command
def list_channels(config: ConfigOption = None, home: HomeOption = None, as_json: JsonOption = False) -> None:
    """List the configured accounts: who they are on their platform, whether they are served, and what is wrong."""
    from antiphon.cli.connection.home import config_of, home_of
    from antiphon.cli.homes.channels import list_accounts
    from antiphon.cli.rendering.output import hint, show_json, show_table

    directory = home_of(home)
    rows = [*list_accounts(directory, config_of(directory, config))]
    if as_json:
        show_json({"count": len(rows), "channels": [_row(each) for each in rows]})
    elif not rows:
        hint("No channel is configured. To add one: antiphon channels add NAME")
    else:
        lines = [[each.channel, each.account, "yes" if each.is_served else "no", _told(each)] for each in rows]
        show_table(["Channel", "Account", "Served", "State"], lines, is_last_cut_within=True)


@app.command("add")
@command
def add_channel(
    name: NameArgument,
    account: AccountOption = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="SETTING=VALUE", help="A setting; repeat for more.")
    ] = None,
    variables: Annotated[
        list[str] | None,
        typer.Option("--env", metavar="SETTING=VARIABLE", help="The environment variable that holds a secret."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check/--no-check", help="Whether to ask the platform before anything is written.")
    ] = True,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Ask for what a channel needs, check it with the platform, and write its section into the configuration.

    Secrets are asked for without an echo, or stay in variables; no option takes one.
    """
    from antiphon.cli.connection.home import config_of, home_of
    from antiphon.cli.homes.channels import add_account, kind_named, place_for
    from antiphon.cli.rendering.output import show, show_json

    directory = home_of(home)
    kind = kind_named(name)
    place = place_for(kind, account, config_of(directory, config))
    written = _given(name, settings or [], variables or [])
    added = add_account(directory, config, place, written, is_checked=check)
    if as_json:
        checks: list[JsonObject] = [{"name": each.name, "detail": each.detail} for each in added.findings]
        show_json({"ok": True, "file": str(added.file), "section": ".".join(place), "checks": [*checks]})
        return
    for each in added.findings:
        show(f"{each.name}: {each.detail}")
        if each.remedy:
            show(f"  → {each.remedy}", "yellow")
    show(f"Wrote [{'.'.join(place)}] into {added.file}. A running gateway uses it after a restart.", "green")


@app.command("remove")
@command
def remove_channel(
    name: NameArgument,
    account: AccountOption = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False,
    config: ConfigOption = None,
    home: HomeOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say what becomes of the sessions, routes and people of a channel, and remove its section."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.connection.home import config_of, home_of
    from antiphon.cli.homes.channel_uses import count_uses
    from antiphon.cli.homes.channels import kept_state, kind_named, place_to_remove, remove_section
    from antiphon.cli.rendering.output import show, show_json

    directory = home_of(home)
    kind = kind_named(name)
    place = place_to_remove(kind, account, config_of(directory, config))
    if not yes and not sys.stdin.isatty():
        raise Invalid(f"Removing needs your consent: add --yes to remove {'.'.join(place)!r}.", code="usage")
    with connect(home, config) as client:
        uses = count_uses(client, kind.name, account)
    folders = [each for each in kept_state(directory) if each.parent.name == name and account in (None, each.name)]
    if not as_json:
        show(
            f"{uses.sessions} sessions, {uses.routes} routes and {uses.identities} accounts of people stay as they are."
        )
        show("Nobody is answered there any more; if you add the channel again, all goes on where it was.")
        for folder in folders:
            show(f"The keys of the account stay in {folder}: remove them if it is not to come back.")
    if not yes and not typer.confirm(f"Remove {'.'.join(place)}?"):
        raise CommandFailed(ExitCode.FAILED)
    file = remove_section(directory, config, place)
    if as_json:
        stay: JsonObject = {**uses._asdict(), "folders": [str(each) for each in folders]}
        show_json({"ok": True, "file": str(file), "section": ".".join(place), "stay": stay})
    else:
        show(f"Removed [{'.'.join(place)}] from {file}. A running gateway serves it until it restarts.", "green")


def _row(listed: "ListedAccount") -> JsonObject:
    return {
        "channel": listed.channel,
        "account": listed.account,
        "served": listed.is_served,
        "checks": [
            {
                "name": each.name,
                "status": each.grade.value,
                "detail": each.detail,
                **({"remedy": each.remedy} if each.remedy else {}),
            }
            for each in listed.findings
        ],
    }


def _told(listed: "ListedAccount") -> str:
    return "; ".join(each.detail for each in listed.findings) or "configured"


def _given(name: str, settings: list[str], variables: list[str]) -> "dict[str, Value]":
    """The settings as they are written. What is required, and secrets that no variable holds, are asked for."""
    from antiphon.cli.homes.channels import choices_of, kind_named, secrets_of, settings_of

    kind = kind_named(name)
    known, secrets = settings_of(kind), secrets_of(kind)
    written: dict[str, Value] = {}
    for given in settings:
        key, value = _pair(given, "--set SETTING=VALUE")
        if key in secrets:
            raise Invalid(
                f"Secret does not belong on a command line, where others can read it: {key!r}. "
                f"Put it into a variable: --env {key}=VARIABLE.",
                code="usage",
            )
        if key not in known:
            raise Invalid(f"Setting not found: {key!r}. Known: {', '.join(sorted(known))}.", code="usage")
        written[key] = _value(value)
    for given in variables:
        key, variable = _pair(given, "--env SETTING=VARIABLE")
        if key not in secrets:
            raise Invalid(f"Setting is not a secret: {key!r}. Secrets: {', '.join(secrets) or 'none'}.", code="usage")
        if not os.environ.get(variable):
            raise Invalid(f"Variable is not set: {variable!r}. Set it, and try again.", code="usage")
        written[f"{key}_env"] = variable
    if sys.stdin.isatty():
        for key in kind.required:
            if key not in written:
                written[key] = _answer(key, choices_of(kind, key))
        needless = kind.needless(written)
        written |= _asked([key for key in secrets if f"{key}_env" not in written and key not in needless])
    return written


def _answer(key: str, choices: "Sequence[str]") -> str:
    """What a person types; the first of the choices if they type nothing."""
    if not choices:
        return typer.prompt(key).strip()
    while True:
        typed: str = typer.prompt(f"{key} ({', '.join(choices)})", default=choices[0]).strip()
        if typed in choices:
            return typed


def _asked(secrets: list[str]) -> "dict[str, Value]":
    """Secrets that a person types; an empty answer leaves one out."""
    answers: dict[str, Value] = {}
    for key in secrets:
        typed: str = typer.prompt(f"{key} (Enter for none)", default="", show_default=False, hide_input=True)
        if typed.strip():
            answers[key] = typed.strip()
    return answers


def _pair(given: str, form: str) -> tuple[str, str]:
    key, mark, value = given.partition("=")
    if not mark or not key:
        raise Invalid(f"Not understood: {given[:80]!r}. Write {form}.", code="usage")
    return key, value


def _value(text: str) -> "Value":
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.isascii() and text.isdigit() and not text.startswith("0") else text
