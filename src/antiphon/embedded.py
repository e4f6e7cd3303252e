"""Antiphon inside a Python program, without a server. Contract: cli 1.

async with antiphon.open("./app") as app:
    session = await app.sessions.open("customer-42")
    run = await session.post("Hello", message_id="m-1")
    print((await run.wait()).reply)
"""

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

from antiphon.agents.model import ToolSchema
from antiphon.app import App, Parts, ToolFunction, open_app
from antiphon.config.config import Config
from antiphon.config.sections.agents import AgentSection
from antiphon.config.sources import find_config_file, load_config
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Conflict, Invalid
from antiphon.domain.event import Event
from antiphon.domain.ids import RunId
from antiphon.domain.label import parse_label
from antiphon.domain.message import JsonObject, text_content
from antiphon.domain.run import QueueMode, Run
from antiphon.domain.session import Session, SessionSummary, Source
from antiphon.domain.targets import NamedTarget
from antiphon.engine.services import Services
from antiphon.engine.sessions.inbox import Envelope
from antiphon.engine.sessions.sessions import SessionAttributes, SessionFilter

DEFAULT_WAIT = timedelta(minutes=10)
LISTED = 50


class RunHandle:
    """A run of an embedded session. Its id stays valid after a restart."""

    def __init__(self, services: Services, run_id: RunId) -> None:
        self._services = services
        self.id = run_id

    async def wait(self, timeout: timedelta = DEFAULT_WAIT) -> Run:
        """The run once it has ended. Raises `NotFound`, and `TimeoutError`, after which the run continues."""
        run = await self._services.waits.wait(self.id, timeout)
        if run is None:
            raise TimeoutError(f"Run has not ended within {timeout}: {self.id!r}")
        return run

    async def status(self) -> Run:
        """The run in its present state. Raises `NotFound`."""
        return await self._services.runs.get(OWNER, self.id)

    async def cancel(self) -> Run:
        """Cancels the run; the text that it had streamed is kept."""
        return await self._services.runs.cancel(OWNER, self.id)


class SessionHandle:
    """A session of an embedded system. It is used as its owner."""

    def __init__(self, services: Services, session: Session) -> None:
        self._services = services
        self._target = NamedTarget(session.key, None)
        self.key = str(session.key)

    async def post(
        self,
        text: str,
        *,
        message_id: str | None = None,
        queue_mode: QueueMode | None = None,
        sender: str | None = None,
    ) -> RunHandle:
        """Stores the message durably and returns the run that answers it, before any model is called.

        With a `message_id`, a repeated call is the same message: it is stored and answered once.
        """
        posted = await self._services.inbox.post(
            OWNER,
            self._target,
            text_content(text),
            message_id=message_id,
            mode=queue_mode,
            envelope=Envelope(sender=sender),
        )
        if posted.run_id is None:
            raise Conflict("Message started no run: it is stored for later turns of the group", code="not_triggered")
        return RunHandle(self._services, posted.run_id)

    async def append(self, text: str, *, message_id: str | None = None) -> int:
        """Stores the message for later turns without starting a run; returns its `seq`."""
        posted = await self._services.inbox.append(OWNER, self._target, text_content(text), message_id=message_id)
        return posted.seq

    async def history(self, *, limit: int = LISTED, include_tools: bool = False) -> list[Event]:
        """The newest messages, oldest first, each in its event's `message`."""
        page = await self._services.history.page(OWNER, self._target, limit=limit, include_tools=include_tools)
        return page.events

    async def events(self, *, after: int = 0) -> AsyncIterator[Event]:
        """Every event of the present incarnation above `after`, up to now."""
        async for event in self._services.history.events(OWNER, self._target, after):
            yield event

    async def status(self) -> Session:
        return (await self._services.sessions.get(OWNER, self._target)).session

    async def reset(self) -> None:
        """Starts a new incarnation under the same key. The old one can still be read by its id."""
        await self._services.resets.reset(OWNER, self._target)

    async def delete(self) -> None:
        await self._services.sessions.delete(OWNER, self._target)


class SessionHandles:
    """`app.sessions`."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def open(
        self, name: str, *, agent_id: str | None = None, metadata: JsonObject | None = None, label: str | None = None
    ) -> SessionHandle:
        """The session, created if it does not exist. `name` is a key, a session id, or a word for `api:<word>`.

        Raises `Invalid`, also for a label with a line break.
        """
        target = self._target(name)
        opened = await self._services.sessions.open(
            OWNER,
            target,
            agent_id=self._services.rules.agent_id(agent_id),
            source=Source(kind="api"),
            attributes=SessionAttributes(label=None if label is None else _label(label), metadata=metadata or {}),
        )
        return SessionHandle(self._services, opened.session)

    async def list(self, *, limit: int = LISTED, include_inactive: bool = False) -> list[SessionSummary]:
        """Sessions, newest first."""
        page = await self._services.sessions.list(OWNER, SessionFilter(include_inactive=include_inactive), limit=limit)
        return page.sessions

    def _target(self, name: str) -> NamedTarget:
        try:
            return self._services.sessions.target(name)
        except Invalid:
            if ":" in name:
                raise
            return self._services.sessions.target(f"api:{name}")


class Tools:
    """`app.tools`: the agents' tools, for a program that acts as one of its sessions. Contract: tools 1."""

    def __init__(self, app: App) -> None:
        self._app = app

    @property
    def names(self) -> list[str]:
        return self._app.tools.names

    @property
    def schemas(self) -> list[ToolSchema]:
        """The name, description and JSON Schema of the arguments of each tool."""
        return self._app.tool_calls.schemas

    async def call(
        self,
        name: str,
        arguments: JsonObject | None = None,
        *,
        session: SessionHandle | str,
        idempotency_key: str | None = None,
    ) -> JsonObject:
        """The tool's answer, an object, also for failures. With the same `idempotency_key`, it is the same call.

        `session` is a handle, key or id. The call acts as that session, with the rights of its agent, and starts no
        turn. Raises `NotFound` for a session or tool that does not exist, `Denied` for a tool that the session does not
        have.
        """
        acting = session.key if isinstance(session, SessionHandle) else session
        target = self._app.services.sessions.target(acting)
        return await self._app.tool_calls.call(OWNER, target, name, arguments or {}, idempotency_key=idempotency_key)


class Antiphon:
    """A running system in this process."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.sessions = SessionHandles(app.services)
        self.tools = Tools(app)

    def run(self, run_id: str) -> RunHandle:
        """The run of that id, as in `RunHandle.id`; also a run of an earlier process."""
        return RunHandle(self.app.services, RunId(run_id))


@asynccontextmanager
async def open_embedded(
    home: str | Path | None = None,
    *,
    config: str | Path | Config | None = None,
    agents: Sequence[AgentSection] = (),
    tools: Sequence[ToolFunction] = (),
    parts: Parts | None = None,
) -> AsyncGenerator[Antiphon]:
    """A running system on a home directory, which is created if it does not exist.

    `config` is a configuration or a file with one; without it, `antiphon.toml` in the home is used if it exists.
    `agents` are added to the configured ones. Raises `StoreUnusable`, also if a gateway uses the home.
    """
    directory = Path(home) if home is not None else Path("antiphon-home")
    settings = config if isinstance(config, Config) else _load(directory, config)
    if agents:
        listed = settings.agents.model_copy(update={"list": (*settings.agents.list, *agents)})
        settings = settings.model_copy(update={"agents": listed})
    parts = parts or Parts(tools=tools)
    async with open_app(directory, settings, parts) as app:
        yield Antiphon(app)


def _label(text: str) -> str:
    try:
        return parse_label(text)
    except ValueError as error:
        raise Invalid(f"Label {error}.", code="invalid_request") from error


def _load(home: Path, named: str | Path | None) -> Config:
    return load_config(find_config_file(home, None if named is None else Path(named)))
