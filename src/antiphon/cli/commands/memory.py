"""`antiphon memory`: what agents remember. Contract: checkpoints 2."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, present, quoted, said, since
from antiphon.cli.commands.listing import ListingGroup
from antiphon.cli.commands.options import ConfigOption, HomeOption
from antiphon.cli.exits import command
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

app = NounCommands(cls=ListingGroup, help="Show, correct and forget what agents remember.")
NoteArgument = Annotated[str, typer.Argument(metavar="NOTE", help="The id that the list shows.")]
AgentOption = Annotated[str | None, typer.Option("--agent", metavar="AGENT", help="Only what this agent remembers.")]
PersonOption = Annotated[
    str | None, typer.Option("--person", metavar="PERSON", help="Only the notes of this person, by id.")
]


def _show(note: JsonObject) -> None:
    from antiphon.cli.rendering.output import ago, show

    show(str(note["text"]))
    learnt = f", learnt in {note['sessionKey']} at {note['seq']}" if note.get("sessionKey") else ""
    show(f"{note['noteId']}, {_holder(note)}, agent {note['agentId']}, changed {ago(note['updatedAt'])}{learnt}", "dim")


def _holder(note: JsonObject) -> str:
    return "shared" if note.get("shared") else str(note.get("holderName") or note["holder"])


def _path(note: str) -> str:
    return f"/memory/{quoted(note)}"


@app.asks(
    "list",
    listed(
        "notes",
        {"Note": "noteId", "Of": _holder, "Agent": "agentId", "Text": "text", "Changed": since("updatedAt")},
        none="Nothing is remembered.",
    ),
)
def list_notes(client: "Client", agent: AgentOption = None, person: PersonOption = None) -> JsonObject:
    """List notes, the newest first."""
    notes = _all(client, agent, person)
    return {"count": len(notes), "notes": [*notes]}


@app.asks("show", _show)
def show_note(client: "Client", note: NoteArgument) -> JsonObject:
    """Show one note, and where it was learnt."""
    return client.get(_path(note))


@app.asks("add", _show)
def add_note(
    client: "Client",
    text: Annotated[str, typer.Argument(metavar="TEXT", help="What to remember, at most 1,000 characters.")],
    agent: Annotated[
        str | None,
        typer.Option("--agent", metavar="AGENT", help="Which agent remembers it; default: the default agent."),
    ] = None,
    shared: Annotated[bool, typer.Option("--shared", help="Share it with all chats of the agent.")] = False,
) -> JsonObject:
    """Add a note of yours, or one for all chats of an agent."""
    return client.post("/memory", present({"text": text, "shared": shared, "agentId": agent}))


@app.asks("edit", _show)
def edit_note(
    client: "Client",
    note: NoteArgument,
    text: Annotated[str | None, typer.Argument(metavar="TEXT", help="What it says from now on.")] = None,
    shared: Annotated[bool, typer.Option("--share", help="Share it with all chats of its agent.")] = False,
) -> JsonObject:
    """Correct a note, or share it."""
    return client.patch(_path(note), present({"shared": shared, "text": text}))


@app.asks("forget", said)
def forget_note(client: "Client", note: NoteArgument) -> Printed:
    """Delete a note."""
    return Printed(client.delete(_path(note)), "Forgotten.")


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
