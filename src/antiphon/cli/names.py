"""Sessions as people name them on the command line."""

from antiphon.cli.client import Client, session_path
from antiphon.domain.errors import NotFound
from antiphon.domain.message import JsonObject


def session_name(text: str, agent: str | None = None) -> str:
    """A key or id: a plain word names the chat `cli:<word>`, `main` is that of the agent."""
    if text == "main":
        return f"agent:{agent}:main" if agent else "main"
    return text if ":" in text else f"cli:{text}"


def find_session(client: Client, text: str, agent: str | None = None) -> JsonObject:
    """The session's row; `main` comes into being. Raises `NotFound` with what to do."""
    name = session_name(text, agent)
    if text == "main":
        return open_session(client, text, agent)
    try:
        return client.get(session_path(name))
    except NotFound as error:
        raise NotFound(
            f"Session not found: {text!r}. `antiphon sessions list` shows what there is; "
            f"`antiphon chat {text} --new` begins it."
        ) from error


def open_session(client: Client, text: str, agent: str | None = None) -> JsonObject:
    """The session's row, made if it is new."""
    name = session_name(text, agent)
    is_key = text == "main" or name.startswith("agent:")
    body: JsonObject = {"key" if is_key else "sessionId": name, "source": {"kind": "cli"}}
    if agent is not None and not is_key:
        body["agentId"] = agent
    return client.post("/sessions", body)
