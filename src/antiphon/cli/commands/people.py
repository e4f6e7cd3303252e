"""`antiphon people`: persons and their roles. Contract: access 1, 3, 4."""

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, quoted, said, since
from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject
from antiphon.domain.person import PersonRole

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client
    from antiphon.cli.rendering.links import PrintedLink

app = NounCommands(no_args_is_help=True, help="Invite people, and change what they may.")


class InvitedRole(StrEnum):
    """The roles of people who sign in; guests do not."""

    OWNER = PersonRole.OWNER.value
    USER = PersonRole.USER.value


PersonArgument = Annotated[str, typer.Argument(metavar="PERSON", help="The id that the list shows.")]


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


def _seen(person: JsonObject) -> list[str]:
    """When the person was last seen at each account, to the hour."""
    from antiphon.cli.rendering.output import ago
    from antiphon.cli.rendering.rows import rows_of

    if "identities" not in person:
        return []
    return [
        f", last seen {said}" if (said := ago(each.get("seenAt"))) else "" for each in rows_of(person, "identities")
    ]


def _show(person: JsonObject) -> None:
    said(f"{person['personId']}: {person['name']}, {person['role']}, {_state(person)}.")
    if reads := read_by(person):
        said(f"  reads {reads}")
    for account, seen in zip(_accounts(person), _seen(person), strict=True):
        said(f"  {account}{seen}")


@app.asks(
    "list",
    listed(
        "people",
        {
            "Person": "personId",
            "Name": "name",
            "Role": "role",
            "State": _state,
            "Reads": read_by,
            "Accounts": lambda each: ", ".join(_accounts(each)),
            "Since": since("createdAt"),
        },
    ),
)
def list_people(client: "Client") -> JsonObject:
    """List people with their roles and accounts."""
    from antiphon.cli.rendering.rows import rows_of

    answer = client.get("/people?limit=200")
    rows = rows_of(answer, "people")
    while after := answer.get("next"):
        answer = client.get(f"/people?limit=200&after={quoted(str(after))}")
        rows += rows_of(answer, "people")
    return {"count": len(rows), "people": [*rows]}


@app.asks("show", _show)
def show_person(client: "Client", person: PersonArgument) -> JsonObject:
    """Show one person."""
    return client.get(f"/people/{quoted(person)}")


@app.command("invite")
@command
def invite_person(
    name: Annotated[str, typer.Option("--name", metavar="NAME", help="What to call the person.")],
    role: Annotated[InvitedRole, typer.Option("--role", help="What they may.")] = InvitedRole.USER,
    agents: Annotated[
        list[str] | None,
        typer.Option("--agent", metavar="AGENT", help="An agent with which they may open sessions; repeat for more."),
    ] = None,
    place: Annotated[
        str | None,
        typer.Option("--on", metavar="CHANNEL", help="Also print a code of this channel that they scan to join there."),
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
        invited = answer["person"]
        assert isinstance(invited, dict)
        joining = None
        try:
            if place is not None:
                joining = client.post("/join-links", {"channel": place, "into": invited["personId"]})
        finally:
            _show_link(answer, client, home, config, as_json=as_json, joining=joining)


@app.command("link")
@command
def link_person(
    person: PersonArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Print another sign-in link for a person whose link was used or has expired."""
    from antiphon.cli.connection.connect import connect

    with connect(home, config) as client:
        answer = client.post(f"/people/{quoted(person)}/link", {})
        _show_link(answer, client, home, config, as_json=as_json)


@app.asks("role", _show)
def change_role(
    client: "Client",
    person: PersonArgument,
    role: Annotated[PersonRole, typer.Argument(help="What they may from now on.")],
) -> JsonObject:
    """Promote or demote a person, at once."""
    return client.post(f"/people/{quoted(person)}/role", {"role": role.value})


def _check_level(
    *, level: str | None, none: bool, compartments: list[str] | None, whose: str | None, **_: object
) -> None:
    if (level is None) is not none or (none and (compartments or whose)):
        raise typer.BadParameter("Give --level, with --compartment and --person if you like, or --none.")


@app.asks("clear", _show, _check_level)
def clear_person(
    client: "Client",
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
) -> JsonObject:
    """Say which classified data a person may read, at once. Owners read everything."""
    clearance: JsonObject | None = None
    if level is not None:
        clearance = {"level": level, "compartments": [*(compartments or [])]}
        if whose is not None:
            clearance["person"] = whose
    return client.patch(f"/people/{quoted(person)}", {"clearance": clearance})


@app.asks("suspend", _show)
def suspend_person(client: "Client", person: PersonArgument) -> JsonObject:
    """End all that a person does, until they are resumed."""
    return client.post(f"/people/{quoted(person)}/suspend", {})


@app.asks("resume", _show)
def resume_person(client: "Client", person: PersonArgument) -> JsonObject:
    """Let a suspended person act again."""
    return client.post(f"/people/{quoted(person)}/resume", {})


@app.asks("merge", _show)
def merge_person(
    client: "Client",
    person: PersonArgument,
    into: Annotated[str, typer.Option("--into", metavar="PERSON", help="The person as whom they act from now on.")],
) -> JsonObject:
    """Make two persons one, with the accounts, sessions and tokens of both."""
    return client.post(f"/people/{quoted(person)}/merge", {"into": into})


@app.asks("remove", said)
def remove_person(client: "Client", person: PersonArgument) -> Printed:
    """Forget a person: their accounts, tokens, browsers and participation."""
    client.delete(f"/people/{quoted(person)}")
    return Printed({"ok": True}, "Removed.")


def _show_link(
    answer: JsonObject,
    client: "Client",
    home: Path | None,
    config: Path | None,
    *,
    as_json: bool,
    joining: JsonObject | None = None,
) -> None:
    """`joining` is the link with which the person joins on a channel."""
    from antiphon.cli.rendering.join_links import show_join_link
    from antiphon.cli.rendering.output import show, show_json

    person = answer["person"]
    assert isinstance(person, dict)
    made = _link_of(answer, client, home, config)
    if as_json:
        shown: JsonObject = {"person": person, "signInLink": None, "gatewayRuns": not client.is_temporary}
        if made is not None:
            shown |= {"signInLink": made.link, "onlyHere": made.is_only_here}
        if joining is not None:
            shown |= {"joinLink": joining}
        show_json(shown | {"expiresInSeconds": answer["expiresInSeconds"]})
        return
    if joining is not None:
        show_join_link(joining)
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
