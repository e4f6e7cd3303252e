"""`antiphon audit`: what was refused, read and released, and whether anything was changed. Contract: flow 12."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, moment
from antiphon.cli.commands.options import CursorOption, LimitOption
from antiphon.cli.exits import ExitCode
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

app = NounCommands(no_args_is_help=True, help="See what was refused, read and released, and verify what is stored.")
KindOption = Annotated[
    str | None, typer.Option("--kind", metavar="KIND", help="Only rows of this kind, such as 'denied' or 'read'.")
]
ROWS_AT_ONCE = 500
MOST_SEALS = 5_000


def _content(row: JsonObject) -> str:
    content = row["data"]
    assert isinstance(content, dict)
    return ", ".join(f"{name} {value}" for name, value in content.items() if name != "by")


def _by(row: JsonObject) -> str:
    content = row["data"]
    return str(content.get("by", "")) if isinstance(content, dict) else ""


@app.asks(
    "show",
    listed(
        "rows",
        {
            "When": moment("at"),
            "What": "kind",
            "By": _by,
            "About": _content,
            "Times": lambda row: "" if row["count"] == 1 else str(row["count"]),
        },
        none="Nothing was refused, read above PUBLIC, released or trusted.",
        optional="Times",
        is_last_cut_within=True,
    ),
)
def show_audit(
    client: "Client", kind: KindOption = None, limit: LimitOption = 20, cursor: CursorOption = None
) -> JsonObject:
    """Show what was refused, what people read above PUBLIC, and what owners released and trusted, newest first."""
    return client.get("/audit", kind=kind, limit=limit, cursor=cursor)


def _lines(answer: JsonObject) -> None:
    from antiphon.cli.rendering.rows import rows_of
    from antiphon.cli.streams import json_text

    for row in rows_of(answer, "rows"):
        typer.echo(json_text(row))


@app.asks("export", _lines)
def export_audit(client: "Client", kind: KindOption = None) -> JsonObject:
    """Write all rows as lines of JSON, newest first."""
    from antiphon.cli.rendering.rows import rows_of

    rows: list[JsonObject] = []
    cursor: str | None = None
    while True:
        page = client.get("/audit", kind=kind, limit=ROWS_AT_ONCE, cursor=cursor)
        rows += rows_of(page, "rows")
        if (following := page.get("nextCursor")) is None:
            return {"count": len(rows), "rows": [*rows]}
        cursor = str(following)


_FAULTS = {
    "changed": "was changed",
    "missing": "is missing",
    "cut_off": "and what follows is cut off, or was added from outside",
    "beginning": "is not where the chain began",
    "unknown": "belongs to nothing",
    "rewritten": "is not what was sealed: it was written anew",
    "rolled_back": "is in the file but not in the home: the home was rolled back, or is another one",
}


def _show_checked(answer: JsonObject) -> None:
    from antiphon.cli.rendering.output import show
    from antiphon.cli.rendering.rows import rows_of

    show(
        f"{answer['events']:,} events in {answer['logs']:,} logs, {answer['rows']:,} rows of {answer['processes']:,} "
        f"processes, {answer['seals']:,} seals."
    )
    if answer["coveredEvents"]:
        show(f"{answer['coveredEvents']:,} events from before are covered by one hash a log.", "dim")
    for finding in rows_of(answer, "findings"):
        where = str(finding.get("sessionKey") or finding["chain"])
        what = "Seal" if finding["chain"] == "seals" else "Row" if where.startswith("process:") else "Event"
        show(f"{what} {finding['number']} of {where} {_FAULTS[str(finding['fault'])]}.", "bold red")
    if answer["hasMore"]:
        show("There is more; these are the first findings.", "bold red")
    if answer["whole"]:
        show("Nothing was changed, removed or cut off.", "green")
    if answer["keptSeals"]:
        show(f"{answer['keptSeals']:,} seals from outside the home were looked for.", "dim")
    else:
        show("Without --head, what was cut off together with its hashes, or rolled back, is not found.", "dim")


@app.asks("verify", _show_checked)
def verify_audit(
    client: "Client",
    head: Annotated[
        Path | None,
        typer.Option("--head", metavar="FILE", help="The file of audit.seal_to, or a copy that was kept elsewhere."),
    ] = None,
) -> Printed:
    """Verify that nothing stored was changed, removed or cut off; the exit code is 1 if something was."""
    seals = [] if head is None else _seals_in(head)
    answer = client.verify_audit(seals)
    return Printed(answer, answer, ExitCode.OK if answer["whole"] else ExitCode.FAILED)


def _seals_in(path: Path) -> list[JsonObject]:
    from antiphon.domain.errors import NotFound
    from antiphon.seals import last_lines, read_seals

    try:
        lines = last_lines(path)
    except OSError as error:
        raise NotFound(
            f"File of seals cannot be read: {str(path)!r} ({error.strerror}).", code="seals_missing"
        ) from error
    seals = read_seals(lines)[-MOST_SEALS:]
    if not seals:
        raise NotFound(
            f"File has no seal: {str(path)!r}. Name the file of audit.seal_to; a gateway writes to it.",
            code="seals_missing",
        )
    return [{"home": seal.home, "n": seal.n, "hash": seal.hash.hex()} for seal in seals]
