"""Sessions for tests that look at them: under one another, though none was spawned."""

from msgspec.structs import replace

from antiphon.building import App
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import Classification
from antiphon.domain.ids import SessionRow
from antiphon.domain.session import Session, Source
from antiphon.domain.session_ids import is_of_task
from antiphon.domain.targets import NamedTarget
from antiphon.engine.sessions.sessions import OpenSession, SessionAttributes, create_session, open_session
from antiphon.store.database import Transaction
from antiphon.store.people import find_standing


async def open_peer(
    app: App,
    name: str,
    *,
    agent: str = "main",
    label: str | None = None,
    parent: SessionRow | None = None,
    taint: Classification | None = None,
) -> Session:
    """The session `agent:<agent>:cli:<name>`, labelled with its name; under a parent if one is given.

    A session of a task comes into being as if the task had fired.
    """
    services = app.services
    command = OpenSession(
        principal=OWNER,
        target=services.sessions.target(f"agent:{agent}:cli:{name}" if ":" not in name else name),
        agent_id=services.rules.agent_id(agent) or services.rules.default_agent,
        source=Source(),
        attributes=SessionAttributes(label=name if label is None else label, taint=taint),
        parent=parent,
    )
    key = command.target.key
    if key is not None and is_of_task(key):
        return await app.database.run(_open_as_task, replace(command, source=Source(kind="schedule")))
    return (await app.database.run(open_session, command, app.services.rules)).session


async def _open_as_task(tx: Transaction, command: OpenSession) -> Session:
    return await create_session(tx, command, await find_standing(tx, command.principal))


def key_of(name: str, agent: str = "main") -> str:
    return f"agent:{agent}:cli:{name}"


def target_of(app: App, session: Session) -> NamedTarget:
    return app.services.sessions.target(str(session.key))
