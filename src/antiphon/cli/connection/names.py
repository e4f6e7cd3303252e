"""Sessions as people name them on the command line."""

from unicodedata import normalize

from antiphon.cli.connection.client import Client, session_path
from antiphon.cli.rendering.output import tell
from antiphon.cli.rendering.rows import rows_of
from antiphon.domain.errors import Invalid, NotFound
from antiphon.domain.message import JsonObject

_CHILD = "subagent:"
_NODE = "node-"


def session_name(text: str, agent: str | None = None) -> str:
    """A key or id: a plain word in any case names the chat `cli:<word>`, `main` is that of the agent.

    A word that is the key of a node's session, `node-<id>`, names that session.
    """
    if ":" in text or _is_of_node(text):
        return text
    word = normalize("NFC", normalize("NFC", text).lower())
    if word == "main":
        return f"agent:{agent}:main" if agent else "main"
    return f"cli:{word}"


def find_session(client: Client, text: str, agent: str | None = None) -> JsonObject:
    """The session's row; creates `main` if needed. Raises `NotFound` with a remedy.

    A plain word names the chat, whatever it was reset to since; an id its own incarnation.
    """
    name = session_name(text, agent)
    if _is_main(text):
        return open_session(client, text, agent)
    try:
        row = client.get(session_path(name))
        return client.get(session_path(str(row["key"]))) if ":" not in text else row
    except NotFound as error:
        if name.startswith(_CHILD) and (key := _key_of_child(client, name, agent)):
            return client.get(session_path(key))
        begin = "." if _is_made_by_spawning(name) else f"; `antiphon chat {text} --new` creates it."
        if _is_of_node(name):
            begin = f"; `antiphon tokens create --node {name.removeprefix(_NODE)}` creates it."
        raise NotFound(f"Session not found: {text!r}. `antiphon sessions list` shows all sessions{begin}") from error


def why_none(client: Client) -> str:
    """Why a list of sessions is empty, and what to do."""
    if client.get("/sessions", includeInactive=True, limit=1)["count"]:
        return "No session matches. `antiphon sessions list --all` lists all sessions, inactive ones too."
    return "There are no sessions yet. `antiphon chat` begins one."


def name_to_read(row: JsonObject, text: str) -> str:
    """By what the session of that row is read: the id that was given, else its key."""
    return text if text == row["sessionId"] else str(row["key"])


def _key_of_child(client: Client, name: str, agent: str | None) -> str | None:
    """The one key of any agent that ends in `subagent:<uuid>`, as trees show children."""
    answer = client.get("/sessions", search=name, agentId=agent, includeInactive=True, limit=200)
    keys = [str(row["key"]) for row in rows_of(answer, "sessions")]
    found = [key for key in keys if key.split(":", 2)[2:] == [name]]
    if len(found) > 1:
        raise Invalid(f"Session name is not unique: {name!r}. Give the key, such as {found[0]!r}.", code="usage")
    return found[0] if found else None


def _is_made_by_spawning(name: str) -> bool:
    parts = name.split(":")
    return (parts[2:] if parts[0] == "agent" else parts)[:1] in (["subagent"], ["spawn"])


def open_session(client: Client, text: str, agent: str | None = None) -> JsonObject:
    """The session's row, made if it is new. A word with capitals is then the name of the session too."""
    name = session_name(text, agent)
    is_key = _is_main(text) or name.startswith("agent:") or _is_of_node(name)
    body: JsonObject = {"key" if is_key else "sessionId": name, "source": {"kind": "cli"}}
    if agent is not None and (not is_key or _is_of_node(name)):
        body["agentId"] = agent
    row = client.post("/sessions", body)
    if is_key or name in (text, f"cli:{text}") or row["messageCount"] or row.get("label"):
        return row
    row = client.patch(session_path(str(row["key"])), {"label": text})
    tell(f"Session {name} is new; its name is {text!r}.")
    return row


def _is_main(text: str) -> bool:
    return ":" not in text and session_name(text) == "main"


def _is_of_node(text: str) -> bool:
    return text.startswith(_NODE) and text != _NODE
