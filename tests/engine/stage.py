"""What the engine's tests act with: a runner that waits for the test, a clock set by hand, short forms."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import anyio

from antiphon.agents.provider import ProviderModel, import_provider
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.event import Event
from antiphon.domain.ids import RunId
from antiphon.domain.message import AssistantMessage, JsonObject, UserMessage, text_content, text_of
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import Outcome, Run, RunStatus
from antiphon.domain.session import Session, Source
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.engine.sessions.inbox import Envelope, Posted
from antiphon.testing import FakeProvider
from tests.conftest import OpenHome
from tests.waiting import SECONDS

MODEL = "fake:model"
START = datetime(2026, 3, 4, 12, tzinfo=UTC)


class ManualClock:
    """Time that passes only when the test says so."""

    def __init__(self, now: datetime = START) -> None:
        self._now = now
        self._monotonic = now.timestamp()

    def pass_time(self, passed: timedelta) -> None:
        self._now += passed
        self._monotonic += passed.total_seconds()

    def step(self, by: timedelta) -> None:
        """The clock is set forward or back; no time passes."""
        self._now += by

    def now(self) -> datetime:
        return self._now

    def now_ms(self) -> int:
        return int(self._now.timestamp() * 1000)

    def monotonic(self) -> float:
        return self._monotonic


class HeldRunner:
    """Begins each run, shows a first piece of its reply, and ends it when the test lets it go."""

    def __init__(self, *, is_stubborn: bool = False) -> None:
        self.begun: list[RunId] = []
        self.working: dict[int, int] = {}
        """How many runs of each session are being worked on."""
        self.overlapped = False
        self.most_at_once = 0
        self._is_stubborn = is_stubborn
        self._changed = anyio.Event()
        self._released: dict[RunId, anyio.Event] = {}
        self._all_released = False

    async def run(self, context: RunContext) -> RunEnding:
        transcript = await context.read_log()
        run, session = context.run.id, int(context.run.session)
        self.working[session] = self.working.get(session, 0) + 1
        self.overlapped |= self.working[session] > 1
        self.most_at_once = max(self.most_at_once, sum(self.working.values()))
        self.begun.append(run)
        self._changed.set()
        context.emit("partial ")
        try:
            with anyio.CancelScope(shield=self._is_stubborn):
                if not self._all_released:
                    await self._release_of(run).wait()
        finally:
            self.working[session] -= 1
        newest = transcript.newest_input(run)
        assert newest is not None and isinstance(newest.message, UserMessage)
        reply = f"answer to {newest.message.message_id}"
        message = AssistantMessage(
            message_id=context.ids.new("msg"), content=text_content(reply), saw=transcript.last_seq
        )
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply=reply), message=message)

    async def until_begun(self, count: int) -> None:
        with anyio.fail_after(SECONDS):
            while len(self.begun) < count:
                self._changed = anyio.Event()
                await self._changed.wait()

    def release(self, run_id: RunId | None) -> None:
        assert run_id is not None
        self._release_of(run_id).set()

    def release_all(self) -> None:
        """Runs that begin later are not held either."""
        self.release_later()
        for released in self._released.values():
            released.set()

    def release_later(self) -> None:
        """Only those that have begun are held."""
        self._all_released = True

    def _release_of(self, run_id: RunId) -> anyio.Event:
        return self._released.setdefault(run_id, anyio.Event())


async def open_session(app: App, name: str, *, source: Source | None = None) -> Session:
    sessions = app.services.sessions
    return (await sessions.open(OWNER, sessions.target(name), source=source)).session


async def find_session(app: App, name: str) -> Session:
    return (await app.services.sessions.get(OWNER, app.services.sessions.target(name))).session


async def post(
    app: App,
    name: str,
    text: str,
    *,
    message_id: str | None = None,
    mode: QueueMode | None = None,
    principal: Principal = OWNER,
    mentioned: bool = True,
) -> Posted:
    """Posts; a short text is its own message id."""
    return await app.services.inbox.post(
        principal,
        app.services.sessions.target(name),
        text_content(text),
        message_id=message_id or (text if text.isprintable() and len(text) < 100 else None),
        mode=mode,
        envelope=Envelope(mentioned=mentioned),
    )


async def wait_end(app: App, run_id: RunId | None) -> Run:
    assert run_id is not None
    run = await app.services.waits.wait(run_id, timedelta(seconds=SECONDS))
    assert run is not None, "the run has not ended"
    return run


async def ask(app: App, name: str, text: str) -> Run:
    """Posts and waits for the end of the run."""
    return await wait_end(app, (await post(app, name, text)).run_id)


async def find_run(app: App, run_id: RunId | None) -> Run:
    assert run_id is not None
    return await app.services.runs.get(OWNER, run_id)


async def read_log(app: App, name: str) -> list[Event]:
    """Every event of the key, over all incarnations."""
    row, events = (await find_session(app, name)).row, list[Event]()
    while True:
        found = (await app.services.history.read_logs({row: events[-1].seq if events else 0}))[row]
        events += found.events
        if not found.events or events[-1].seq == found.last_seq:
            return events


def texts(events: list[Event]) -> list[str]:
    """The texts of the messages, in order."""
    return [text_of(event.message.content) for event in events if event.message is not None]


def facts(events: list[Event], type: str) -> list[JsonObject]:
    return [event.data for event in events if event.type == type]


@asynccontextmanager
async def open_with_provider(
    open_home: OpenHome,
    fake: FakeProvider,
    parts: Parts | None = None,
    *,
    context_tokens: int | None = None,
    **settings: Any,
) -> AsyncGenerator[App]:
    """The home with a model over the wire, whose tokens count; settings as for `config`."""
    import_provider(MODEL)  # once, and not within a wait
    provider = {"base_url": fake.base_url, "api_key": "none"}
    defaults = {"model": MODEL, "context_tokens": context_tokens}
    settings = {"agents__defaults": defaults, "providers__fake": provider, "checkpoints__enabled": False, **settings}
    async with open_home(config(**settings), parts) as app:
        yield app
        model = app.models.open(MODEL, context_tokens=context_tokens)
        assert isinstance(model, ProviderModel)
        await model.aclose()


def config(**settings: Any) -> Config:
    """The configuration of those settings, by dotted path with `__`."""
    tree: dict[str, Any] = {}
    for path, value in settings.items():
        *sections, name = path.split("__")
        section = tree
        for part in sections:
            section = section.setdefault(part, {})
        section[name] = value
    return Config.model_validate(tree)


async def until_indexed(app: App) -> None:
    """Returns once the app itself has indexed everything."""
    with anyio.fail_after(SECONDS):
        while await app.services.search.lag():
            await anyio.sleep(0.01)
