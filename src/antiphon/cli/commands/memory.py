"""`antiphon memory`: what agents remember. Contract: checkpoints 2."""

from typing import TYPE_CHECKING, Annotated
from urllib.parse import quote

import typer

from antiphon.cli.commands.listing import ListingGroup
from antiphon.cli.commands.options import ConfigOption, HomeOption, JsonOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

app = typer.Typer(cls=ListingGroup, help="Show, correct and forget what agents remember.")
NoteArgument = Annotated[str, typer.Argument(metavar="NOTE", help="The id that the list shows.")]
AgentOption = Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="Only what this agent remembers.")]
PersonOption = Annotated[
    str | None, typer.Option("--person", metavar="PERSON", help="Only the notes of this person, by id.")
]


@app.command("list")
@command
def list_notes(
    agent: AgentOption = None,
    person: PersonOption = None,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """List notes, the newest first."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import ago, show, show_json, show_table

    with connect(home, config) as client:
        notes = _all(client, agent, person)
    if as_json:
        show_json({"count": len(notes), "notes": [*notes]})
        return
    if not notes:
        show("Nothing is remembered.", "dim")
        return
    show_table(
        ["Note", "Of", "Agent", "Text", "Changed"],
        [[str(n["noteId"]), _holder(n), str(n["agentId"]), str(n["text"]), ago(n["updatedAt"])] for n in notes],
    )


@app.command("show")
@command
def show_note(
    note: NoteArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Show one note, and where it was learnt."""
    from antiphon.cli.connection.connect import connect

    with connect(home, config) as client:
        _show(client.get(_path(note)), as_json=as_json)


@app.command("add")
@command
def add_note(
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember, at most 1,000 characters.")],
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="AGENT", help="Which agent remembers it; default: the default agent."),
    ] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Share it with all chats of the agent.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Add a note of yours, or one for all chats of an agent."""
    from antiphon.cli.connection.connect import connect

    body: JsonObject = {"text": text, "shared": shared, **({} if agent is None else {"agentId": agent})}
    with connect(home, config) as client:
        _show(client.post("/memory", body), as_json=as_json)


@app.command("edit")
@command
def edit_note(
    note: NoteArgument,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What it says from now on.")] = None,
    shared: Annotated[bool, typer.Option("--share", help="Share it with all chats of its agent.")] = False,
    home: HomeOption = None,
    config: ConfigOption = None,
    as_json: JsonOption = False,
) -> None:
    """Correct a note, or share it."""
    from antiphon.cli.connection.connect import connect

    body: JsonObject = {"shared": shared, **({} if text is None else {"text": text})}
    with connect(home, config) as client:
        _show(client.patch(_path(note), body), as_json=as_json)


@app.command("forget")
@command
def forget_note(
    note: NoteArgument, home: HomeOption = None, config: ConfigOption = None, as_json: JsonOption = False
) -> None:
    """Delete a note."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show, show_json

    with connect(home, config) as client:
        answer = client.delete(_path(note))
    if as_json:
        show_json(answer)
    else:
        show("Forgotten.")


@app.command("export")
@command
def export_notes(
    agent: AgentOption = None, person: PersonOption = None, home: HomeOption = None, config: ConfigOption = None
) -> None:
    """Print all notes as JSON, one a line."""
    from antiphon.cli.connection.connect import connect
    from antiphon.cli.rendering.output import show_json

    with connect(home, config) as client:
        for note in _all(client, agent, person):
            show_json(note)


def _all(client: "Client", agent: str | None, person: str | None) -> list[JsonObject]:
    from antiphon.cli.rendering.rows import rows_of

    notes: list[JsonObject] = []
    before: str | None = None
    while True:
        answer = client.get("/memory", limit=200, agentId=agent, personId=person, before=before)
        notes += rows_of(answer, "notes")
        if not (following := answer.get("next")):
            return notes
        before = str(following)


def _show(note: JsonObject, *, as_json: bool) -> None:
    from antiphon.cli.rendering.output import ago, show, show_json

    if as_json:
        show_json(note)
        return
    show(str(note["text"]))
    learnt = f", learnt in {note['sessionKey']} at {note['seq']}" if note.get("sessionKey") else ""
    show(f"{note['noteId']}, {_holder(note)}, agent {note['agentId']}, changed {ago(note['updatedAt'])}{learnt}", "dim")


def _holder(note: JsonObject) -> str:
    return "shared" if note.get("shared") else str(note.get("holderName") or note["holder"])


def _path(note: str) -> str:
    return f"/memory/{quote(note, safe='')}"
