"""`antiphon people`: persons and their roles. Contract: access 1, 3, 4."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject
from antiphon.domain.person import PersonRole

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client
    from antiphon.cli.rendering.links import PrintedLink

app = typer.Typer(no_args_is_help=True, help="Invite people, and change what they may.")


class InvitedRole(StrEnum):
    """The roles of people who sign in; guests do not."""

    OWNER = PersonRole.OWNER.value
    USER = PersonRole.USER.value


PersonArgument = Annotated[str, typer.Argument(metavar="PERSON", help="The id that the list shows.")]


@app.command("list")
@command
def list_people(home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False) -> None:
    """List people with their roles and accounts."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import ago, show_json, show_table
    from antiphon.cli.rendering.rows import rows_of

    with connect(home, config) as client:
        answer = client.get("/people?limit=200")
        rows = rows_of(answer, "people")
        while after := answer.get("next"):
            answer = client.get(f"/people?limit=200&after={_quoted(str(after))}")
            rows += rows_of(answer, "people")
    if as_json:
        show_json({"count": len(rows), "people": [*rows]})
        return
    show_table(
        ["Person", "Name", "Role", "State", "Reads", "Accounts", "Since"],
        [
            [
                str(person["personId"]),
                str(person["name"]),
                str(person["role"]),
                _state(person),
                read_by(person),
                ", ".join(_accounts(person)),
                ago(person["createdAt"]),
            ]
            for person in rows
        ],
    )


@app.command("show")
@command
def show_person(
    person: PersonArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show one person."""
    _call("GET", person, "", None, home=home, config=config, as_json=as_json)


@app.command("invite")
@command
def invite_person(
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What to call the person.")],
    role: Annotated[InvitedRole, typer.Option("--role", help="What they may.")] = InvitedRole.USER,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="AGENT", help="An agent with which they may open sessions; repeat for more."),
    ] = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Create a person, and print a link that signs one browser in as them."""
    from antiphon.cli.connection.connect import connect

    with connect(home, config) as client:
        body: JsonObject = {"name": name, "role": role.value, "agents": [*(agents or [])]}
        answer = client.post("/people", body)
        _show_link(answer, client, home, config, as_json=as_json)


@app.command("link")
@command
def link_person(
    person: PersonArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Print another sign-in link for a person whose link was used or has expired."""
    from antiphon.cli.connection.connect import connect

    with connect(home, config) as client:
        answer = client.post(f"/people/{_quoted(person)}/link", {})
        _show_link(answer, client, home, config, as_json=as_json)


@app.command("role")
@command
def change_role(
    person: PersonArgument,
    role: Annotated[PersonRole, typer.Argument(help="What they may from now on.")],
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Promote or demote a person, at once."""
    _call("POST", person, "/role", {"role": role.value}, home=home, config=config, as_json=as_json)


@app.command("clear")
@command
def clear_person(
    person: PersonArgument,
    level: Annotated[
        str | None,
        typer.Option("--level", metavar="LEVEL", help="PUBLIC, INTERNAL, CONFIDENTIAL or RESTRICTED."),
    ] = None,
    compartments: Annotated[
        list[str] | None,
        typer.Option("--compartment", metavar="COMPARTMENT", help="A compartment they may read; repeat for more."),
    ] = None,
    whose: Annotated[
        str | None,
        typer.Option("--person", metavar="people", help="`people`: the data of every person, not only their own."),
    ] = None,
    none: Annotated[bool, typer.Option("--none", help="Public data and their own, as for everybody.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Say which classified data a person may read, at once. Owners read everything."""
    if (level is None) is not none or (none and (compartments or whose)):
        raise typer.BadParameter("Give --level, with --compartment and --person if you like, or --none.")
    clearance: JsonObject | None = None
    if level is not None:
        clearance = {"level": level, "compartments": [*(compartments or [])]}
        if whose is not None:
            clearance["person"] = whose
    _call("PATCH", person, "", {"clearance": clearance}, home=home, config=config, as_json=as_json)


@app.command("suspend")
@command
def suspend_person(
    person: PersonArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """End all that a person does, until they are resumed."""
    _call("POST", person, "/suspend", {}, home=home, config=config, as_json=as_json)


@app.command("resume")
@command
def resume_person(
    person: PersonArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Let a suspended person act again."""
    _call("POST", person, "/resume", {}, home=home, config=config, as_json=as_json)


@app.command("merge")
@command
def merge_person(
    person: PersonArgument,
    into: Annotated[str, typer.Option("--into", metavar="PERSON", help="The person as whom they act from now on.")],
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Make two persons one, with the accounts, sessions and tokens of both."""
    _call("POST", person, "/merge", {"into": into}, home=home, config=config, as_json=as_json)


@app.command("remove")
@command
def remove_person(
    person: PersonArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Forget a person: their accounts, tokens, browsers and participation."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        client.delete(f"/people/{_quoted(person)}")
    if as_json:
        show_json({"ok": True})
    else:
        show("Removed.")


def _call(
    method: str,
    person: str,
    act: str,
    body: JsonObject | None,
    *,
    home: HomeOption,
    config: ConfigOption,
    as_json: bool,
) -> None:
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        path = f"/people/{_quoted(person)}{act}"
        if body is None:
            answer = client.get(path)
        else:
            answer = client.patch(path, body) if method == "PATCH" else client.post(path, body)
    if as_json:
        show_json(answer)
        return
    show(f"{answer['personId']}: {answer['name']}, {answer['role']}, {_state(answer)}.")
    if reads := read_by(answer):
        show(f"  reads {reads}")
    for account in _accounts(answer):
        show(f"  {account}")


def _show_link(answer: JsonObject, client: "Client", home: Path | None, config: Path | None, *, as_json: bool) -> None:
    from antiphon.cli.rendering.output import show, show_json

    person = answer["person"]
    assert isinstance(person, dict)
    made = _link_of(answer, client, home, config)
    if as_json:
        shown: JsonObject = {"person": person, "signInLink": None, "gatewayRuns": not client.is_temporary}
        if made is not None:
            shown |= {"signInLink": made.link, "onlyHere": made.is_only_here}
        show_json(shown | {"expiresInSeconds": answer["expiresInSeconds"]})
        return
    if made is None:
        show("No gateway runs on this home, and gateway.port is 0, so nobody knows its address yet.")
        show(f"Start one with `antiphon serve`, then print the link with `antiphon people link {person['personId']}`.")
        return
    show(made.link, "bold green")
    show(f"The link works once, within 24 hours. It signs one browser in as {person['name']}.")
    for hint in made.hints:
        show(hint, "yellow")
    show("Tell them: the owners of this gateway can read everything that is written here.")


def _link_of(answer: JsonObject, client: "Client", home: Path | None, config: Path | None) -> "PrintedLink | None":
    """The link; None while no gateway runs and nothing says where the next one will listen."""
    from antiphon.cli.connection.home import config_of, home_of
    from antiphon.cli.rendering.links import configured_address, sign_in_link

    address = answer.get("publicUrl") or client.url
    if client.is_temporary and not answer.get("publicUrl"):
        gateway = config_of(home_of(home), config).gateway
        address = configured_address(gateway.host, gateway.port)
    if address is None:
        return None
    return sign_in_link(str(address), answer["code"], is_gateway_running=not client.is_temporary)


def _quoted(person: str) -> str:
    from urllib.parse import quote

    return quote(person, safe="")


def read_by(shown: JsonObject) -> str:
    """What a person or token may read, in a few words; empty for a token that reads what its person may."""
    if shown.get("role") == PersonRole.OWNER.value:
        return "everything"
    clearance = shown.get("clearance")
    if not isinstance(clearance, dict):
        return "PUBLIC" if "role" in shown else ""
    compartments, is_everybodys = clearance.get("compartments"), clearance.get("person") == "people"
    words = [str(clearance["level"])]
    if isinstance(compartments, list):
        words += map(str, compartments)
    return ", ".join([*words, "everybody's"] if is_everybodys else words)


def _state(person: JsonObject) -> str:
    if merged := person.get("mergedInto"):
        return f"merged into {merged}"
    return "suspended" if person.get("suspended") else "active"


def _accounts(person: JsonObject) -> list[str]:
    from antiphon.cli.rendering.rows import rows_of

    if "identities" not in person:
        return []
    return [
        f"{account['channel']} {account['account']} {account['platformId']}"
        for account in rows_of(person, "identities")
    ]
