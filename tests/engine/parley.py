"""Sessions for tests that look at them: under one another, though none was spawned."""

from antiphon.app import App
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification
from antiphon.domain.ids import SessionRow
from antiphon.domain.session import Session, Source
from antiphon.domain.targets import NamedTarget
from antiphon.engine.refusal import accepted
from antiphon.engine.sessions.sessions import OpenSession, SessionAttributes, open_session


async def open_peer(
    app: App,
    name: str,
    *,
    agent: str = "main",
    label: str | None = None,
    parent: SessionRow | None = None,
    taint: Classification | None = None,
) -> Session:
    """The session `agent:<agent>:cli:<name>`, labelled with its name; under a parent if one is given."""
    services = app.services
    command = OpenSession(
        principal=OWNER,
        target=services.sessions.target(f"agent:{agent}:cli:{name}" if ":" not in name else name),
        agent_id=services.rules.agent_id(agent) or services.rules.default_agent,
        source=Source(),
        attributes=SessionAttributes(label=name if label is None else label, taint=taint),
        parent=parent,
        new_session_id=services.sessions.new_session_id(Source()),
        at_ms=services.clock.now_ms(),
    )
    return accepted(await app.database.run(open_session, command, app.services.rules)).session


def key_of(name: str, agent: str = "main") -> str:
    return f"agent:{agent}:cli:{name}"


def target_of(app: App, session: Session) -> NamedTarget:
    return app.services.sessions.target(str(session.key))
