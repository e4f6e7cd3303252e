"""`antiphon policy`: what owners trust of what sessions have read. Contract: flow 10."""

from typing import TYPE_CHECKING, Annotated

import typer

from antiphon.cli.commands.asking import NounCommands, Printed, listed, quoted, said, session_key, since
from antiphon.cli.commands.options import LimitOption, SessionArgument
from antiphon.domain.message import JsonObject

if TYPE_CHECKING:
    from antiphon.cli.connection.client import Client

app = NounCommands(no_args_is_help=True, help="See and change what agents may do with what they have read.")
trust = NounCommands(no_args_is_help=True, help="List and revoke what owners trust of what sessions have read.")
app.add_typer(trust, name="trust")
HASH_CHARACTERS = 12
"""Of a hash in a table."""
MOST_LOOKED_AT = 200


def _line(content: JsonObject) -> str:
    from antiphon.cli.rendering.rows import source_line

    return source_line(content)


@trust.asks(
    "list",
    listed(
        "trustedContent",
        {
            "Content": lambda each: str(each["sha256"])[:HASH_CHARACTERS],
            "Session": "sessionKey",
            "What": _line,
            "By": lambda each: str(each.get("createdByName") or each["createdBy"]),
            "Trusted": since("createdAt"),
        },
        none="Nothing that was read is trusted.",
    ),
)
def list_trusted(
    client: "Client",
    session: Annotated[
        str | None, typer.Option("--session", metavar="KEY", help="Only what this session has read.")
    ] = None,
    limit: LimitOption = 20,
) -> JsonObject:
    """List what is trusted, newest first."""
    return client.get("/trusted-content", session=session, limit=limit)


@trust.asks("revoke", said)
def revoke_trusted(
    client: "Client",
    session: SessionArgument,
    content: Annotated[
        str, typer.Argument(metavar="CONTENT", help="Its hash, or how that begins, as `list` shows it.")
    ],
) -> Printed:
    """Trust content no more; calls of the session ask again because of it."""
    from antiphon.cli.rendering.rows import rows_of

    key = session_key(client, session)
    trusted = rows_of(client.get("/trusted-content", session=key, limit=MOST_LOOKED_AT), "trustedContent")
    found = [str(each["sha256"]) for each in trusted if str(each["sha256"]).startswith(content)]
    hash = found[0] if len(found) == 1 else content
    revoked = client.delete(f"/trusted-content/{quoted(hash)}", sessionKey=key)
    return Printed(revoked, f"Not trusted any more: {_line(revoked)}")
