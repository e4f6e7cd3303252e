"""How results of a search are shown to people."""

from antiphon.cli.rendering.output import ago, hint, show, show_table
from antiphon.cli.rendering.rows import rows_of
from antiphon.domain.message import JsonObject

_WRITERS = {"user": "user", "assistant": "agent"}


def show_found(query: str, answer: JsonObject) -> None:
    """Sessions, then messages, each under a heading; and how to see more."""
    sessions, messages = rows_of(answer, "sessions"), rows_of(answer, "messages")
    if sessions:
        show_table(
            ["Session", "Status", "Updated", "Name"],
            [
                [
                    str(row["key"]),
                    str(row["status"]),
                    ago(row["updatedAt"]),
                    _name_of(row) or str(row.get("preview", "")),
                ]
                for row in sessions
            ],
        )
    if answer["moreSessions"]:
        hint("There are more sessions: `antiphon sessions list --all --search` shows them.")
    if sessions and messages:
        show()
    if messages:
        show_table(
            ["Session", "Number", "From", "When", "Message"],
            [
                [
                    str(row["sessionKey"]),
                    str(row["seq"]),
                    _WRITERS[str(row["role"])],
                    ago(row["createdAt"]),
                    str(row["snippet"]),
                ]
                for row in messages
            ],
        )
        newest = messages[0]
        hint(
            "`antiphon sessions history "
            f"{newest['sessionId']} --up-to {newest['seq']}` shows the first of these in its place."
        )
    if not sessions and not messages:
        show(f"Nothing was found that contains all words of {query!r}.", "dim")
    if "nextCursor" in answer:
        show(f"To see older messages: --cursor {answer['nextCursor']}", "dim")


def _name_of(row: JsonObject) -> str:
    return str(row.get("label") or row.get("displayName") or "")
