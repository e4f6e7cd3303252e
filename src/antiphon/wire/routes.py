"""The JSON of routes. Contract: channels 2."""

from collections.abc import Sequence

from antiphon.engine.chats.routing import ShownRoute
from antiphon.store.routes import StoredRoute
from antiphon.wire.encoding import Shape, milliseconds


class RouteShape(Shape, frozen=True, kw_only=True):
    """Which agent and session a chat uses, because somebody chose them."""

    channel: str
    account: str
    peer: str
    """`direct:<platform id>` or `group:<group id>`."""
    thread: str | None = None
    agent_id: str
    """The agent that answers."""
    chosen_agent_id: str | None = None
    """Absent for the agent of the settings."""
    session_key: str | None = None
    """Absent for the chat's own session."""
    fallback: bool | None = None
    """Whether the chosen agent is not configured any more, so that the settings decide."""
    version: int
    """Grows with each change; name it to change the route only if nobody else did meanwhile."""
    changed_by: str
    changed_at: int
    note: str | None = None
    """What the route lets people do, if it leads into a chosen session."""


class RouteList(Shape, frozen=True, kw_only=True):
    count: int
    routes: Sequence[RouteShape]


def route(shown: ShownRoute) -> RouteShape:
    stored = shown.stored
    return RouteShape(
        channel=stored.channel,
        account=stored.account,
        peer=stored.peer,
        thread=stored.thread or None,
        agent_id=shown.agent_id,
        chosen_agent_id=stored.agent_id,
        session_key=stored.session_key,
        fallback=shown.is_fallback or None,
        version=stored.version,
        changed_by=stored.changed_by,
        changed_at=milliseconds(stored.changed_at),
        note=_note(stored),
    )


def _note(stored: StoredRoute) -> str | None:
    if stored.session_key is None:
        return None
    thread = f" ({stored.thread})" if stored.thread else ""
    return (
        f"People who write in {stored.channel} {stored.peer}{thread} take part in this session: "
        f"they can read and write in {stored.session_key}."
    )
