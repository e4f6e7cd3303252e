"""Stories: a running home whose sessions a test opens, speaks to and looks at, by its public services alone."""

import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, TypeVar

import anyio
from msgspec.structs import replace

from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.delivery import Delivery
from antiphon.domain.event import Event
from antiphon.domain.ids import RunId, SessionId
from antiphon.domain.message import ExchangeStage, ReportStage, TextPart, UserMessage, text_content, text_of
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.runs.cancel import Cancelled
from antiphon.engine.sessions.inbox import Envelope
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.engine.views.activities import Work
from antiphon.store.deliveries import DeliveryFilter
from antiphon.store.runs import RunFilter
from antiphon.store.sessions import SessionFilter
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.gates import Gates
from tests.engine.parley import open_peer
from tests.engine.stage import config
from tests.waiting import SECONDS, at_least

T = TypeVar("T")

AGENT_WIDE = {"tools__sessions__visibility": "agent"}
MODELS = ("offline", "openai:*", "nowhere:*", *(f"scripted:script-{number}.json" for number in range(4)))
"""What the tests' agents may name for their children."""
NESTED: dict[str, Any] = {"agents__defaults__subagents__max_spawn_depth": 3}
"""Settings under which children may have children."""
LONGEST_STORY_SECONDS = at_least(120)
"""Within it all that follows from a story has ended, if each run ends in its time."""
MOST = 2_000
"""Sessions, runs and deliveries that a story has at most."""


def settings(**more: Any) -> Config:
    """Sessions see those of their agent, unless said otherwise."""
    return config(**{**AGENT_WIDE, "agents__defaults__subagents__models": MODELS, **more})


@asynccontextmanager
async def telling(
    open_home: OpenHome, parts: Parts | None = None, *, gates: Gates | None = None, **more: Any
) -> AsyncGenerator["Story"]:
    """The home with the gates' tool beside those of `parts`; settings as for `settings`."""
    parts, gates = parts or Parts(), gates or Gates()
    async with open_home(settings(**more), replace(parts, tools=[gates.tool, *parts.tools])) as app:
        yield Story(app, gates)


class Story:
    """What happens in a running home. Runs wait at its gates until they are opened."""

    def __init__(self, app: App, gates: Gates | None = None) -> None:
        self.app = app
        self._gates = gates or Gates()

    async def opens(
        self, name: str, *, agent: str = "main", label: str | None = None, taint: Classification | None = None
    ) -> "Character":
        """The session of that key, or `agent:<agent>:cli:<name>`; labelled with its name unless told otherwise."""
        label = name if label is None else label
        if ":cron:" in name:
            return Character(self, str((await open_peer(self.app, name, label=label)).key))
        target = self.session(name, agent).target
        opened = await self.app.services.sessions.open(
            OWNER, target, attributes=SessionAttributes(label=label, taint=taint)
        )
        return Character(self, str(opened.session.key))

    def session(self, name: str, agent: str = "main") -> "Character":
        """The session that `opens` would open."""
        return Character(self, name if ":" in name else f"agent:{agent}:cli:{name}")

    def script(self, *turns: list[dict[str, Any]]) -> str:
        """The name of a model that plays the turns, a new one each time."""
        name = f"script-{len(list(self.app.home.glob('script-*.json')))}.json"
        (self.app.home / name).write_text(json.dumps({"sessions": {"*": turns}}), "utf-8")
        return f"scripted:{name}"

    async def resets(self, character: "Character") -> SessionId:
        """The incarnation that has ended."""
        ended = (await character.session()).id
        await self.app.services.resets.reset(OWNER, character.target)
        return ended

    async def deletes(self, character: "Character") -> None:
        await self.app.services.sessions.delete(OWNER, character.target)

    async def cancels(self, run_id: RunId) -> None:
        await self.app.services.runs.cancel(OWNER, run_id)

    async def cancels_work_of(self, character: "Character") -> Cancelled:
        return await self.app.services.runs.cancel_session(OWNER, character.target)

    def opens_gate(self, name: str) -> None:
        """Runs at the gate go on, and none waits there again."""
        self._gates.open(name)

    async def comes_to(self, gate: str) -> None:
        """Returns when a run has come to the gate."""
        await self._gates.until_reached(gate)

    async def settles(self) -> None:
        """Returns when no run is queued or running: what follows from a run's end is queued in the same transaction.

        Each run has the time of a wait: two exchanges with all their turns take a busy machine longer than one wait.
        """
        with anyio.fail_after(LONGEST_STORY_SECONDS):
            while unfinished := [run for run in await self.runs() if not run.status.is_terminal]:
                await self.end_of(unfinished[-1].id)

    async def sees(self, look: Callable[[], Awaitable[T]], is_so: Callable[[T], object]) -> T:
        """What the look shows, once it is so of it."""
        with anyio.fail_after(SECONDS):
            while not is_so(seen := await look()):
                await anyio.sleep(0.01)
        return seen

    async def until(self, is_so: Callable[[list[Run]], bool]) -> None:
        """Returns when it is so of all runs."""
        await self.sees(self.runs, is_so)

    async def until_work(self, is_so: Callable[[Work], bool]) -> Work:
        """What is being done, once it is so of that."""
        return await self.sees(lambda: self.app.services.activities.now(OWNER, limit=100), is_so)

    async def until_running(self, run_id: RunId) -> None:
        await self.until(lambda runs: any(run.id == run_id and run.status is RunStatus.RUNNING for run in runs))

    async def end_of(self, run_id: RunId) -> Run:
        """The run once it is over, with the end of what continued it."""
        run = await self.app.services.waits.wait(run_id, timedelta(seconds=SECONDS))
        assert run is not None, "the run has not ended"
        return run

    async def run(self, run_id: RunId) -> Run:
        """The run as it stands, without what continued it."""
        return await self.app.services.runs.get(OWNER, run_id)

    async def runs(self) -> list[Run]:
        """Newest first."""
        return await self.app.services.runs.list(OWNER, RunFilter(), limit=MOST)

    async def owed(self) -> int:
        """How many results children still owe."""
        return sum(run.report is not None and not run.is_over for run in await self.runs())

    async def kept(self) -> list[str | None]:
        """The results that nobody is left for."""
        return [run.reply for run in await self.app.services.runs.list(OWNER, RunFilter(is_kept=True), limit=MOST)]

    async def deliveries(self) -> list[Delivery]:
        return (await self.app.services.deliveries.list(OWNER, DeliveryFilter(), limit=MOST))[::-1]


class Character:
    """A session of a story: what is said to it, what it does, and what can be seen of it."""

    def __init__(self, story: Story, key: str) -> None:
        self.key = key
        self._story = story
        self._app = story.app
        self._place: DeliveryContext | None = None
        self.target = story.app.services.sessions.target(key)

    async def hears(
        self,
        *lines: str,
        mode: QueueMode | None = None,
        principal: Principal = OWNER,
        place: DeliveryContext | None = None,
        route: Classification = PUBLIC,
    ) -> RunId:
        """The run that answers the lines, which are one message, written at the place where the session speaks."""
        place = place or self._place
        content = text_content("\n".join(lines))
        posted = await self._app.services.inbox.post(
            principal, self.target, content, mode=mode, envelope=Envelope(place=place, classification=route)
        )
        assert posted.run_id is not None
        return posted.run_id

    async def answers(self, *lines: str, principal: Principal = OWNER) -> Run:
        """The run that answered the lines, with the end of what continued it."""
        return await self._story.end_of(await self.hears(*lines, principal=principal))

    async def calls(
        self, tool: str, /, *, key: str | None = None, principal: Principal = OWNER, **arguments: Any
    ) -> dict[str, Any]:
        """The tool's answer to a call from outside, as the session."""
        with anyio.fail_after(SECONDS):
            return await self._app.tool_calls.call(principal, self.target, tool, arguments, idempotency_key=key)

    async def calls_in_a_run(
        self, tool: str, /, *then: str, principal: Principal = OWNER, **arguments: Any
    ) -> dict[str, Any]:
        """The tool's answer within a run of the session, whose message goes on with the lines of `then`."""
        run = await self.answers(to_call(tool, **arguments), *then, principal=principal)
        assert run.reply is not None, run.error
        return json.loads(run.reply)

    async def spawns(self, *task: str, **arguments: Any) -> "Child":
        """A child that a call from outside spawned, with a task of these lines."""
        return Child(self._story, await self.calls("sessions_spawn", task="\n".join(task), **arguments))

    async def spawns_in_a_run(self, *task: str, **arguments: Any) -> "Child":
        return Child(self._story, await self.calls_in_a_run("sessions_spawn", task="\n".join(task), **arguments))

    async def sends_in_a_run(self, *message: str, then: Sequence[str] = (), **arguments: Any) -> dict[str, Any]:
        """What `sessions_send` answers within a run of the session, which goes on with the lines of `then`."""
        return await self.calls_in_a_run("sessions_send", *then, message="\n".join(message), **arguments)

    async def steers(self, target: str, message: str, *, key: str | None = None) -> dict[str, Any]:
        """The answer to a call from outside that tells a child something more."""
        return await self.calls("subagents", key=key, action="steer", target=target, message=message)

    async def cancels_children(self, target: str = "all") -> dict[str, Any]:
        return await self.calls("subagents", action="cancel", target=target)

    async def lists_children(self, **arguments: Any) -> list[dict[str, Any]]:
        """The rows of `subagents`."""
        answer = await self.calls("subagents", action="list", **arguments)
        assert answer["count"] == len(answer["children"])
        return answer["children"]

    async def admits(self, guest: Principal) -> None:
        """The guest takes part in the session from now on."""
        await self._app.services.sessions.open(guest, self.target, place=DeliveryContext())

    async def changes(self, **columns: Any) -> None:
        await self._app.services.sessions.patch(OWNER, self.target, columns)

    async def speaks_at(self, to: str, channel: str = "nowhere") -> None:
        """Somebody writes to it at that place of the channel, and its answers go there."""
        self._place = DeliveryContext(channel=channel, to=to)
        await self.changes(delivery_channel=channel, delivery_to=to)

    async def parks(self) -> None:
        """Returns when a run of the session is parked."""
        await self._story.until(lambda runs: any(run.session_key == self.key and run.is_parked for run in runs))

    async def session(self) -> Session:
        return (await self._app.services.sessions.get(OWNER, self.target)).session

    async def runs(self) -> list[Run]:
        """Newest first."""
        where = RunFilter(session=(await self.session()).row)
        return await self._app.services.runs.list(OWNER, where, limit=MOST)

    async def log(self) -> list[Event]:
        """Every event of the key, over all incarnations."""
        row, events = (await self.session()).row, list[Event]()
        while True:
            found = (await self._app.services.history.read_logs({row: events[-1].seq if events else 0}))[row]
            events += found.events
            if not found.events or events[-1].seq == found.last_seq:
                return events

    async def texts(self) -> list[str]:
        """The texts of the messages, in order."""
        return [text_of(event.message.content) for event in await self.log() if event.message is not None]

    async def records(self) -> list["Record"]:
        """The results that were put into the log, in order."""
        return [record for event in await self.log() if (record := _record_of(event)) is not None]

    async def exchanged(self) -> list[tuple[ExchangeStage, int, str]]:
        """The messages of exchanges in the log: stage, turn, words."""
        return [shown for event in await self.log() if (shown := _exchanged_by(event)) is not None]

    async def children(self) -> list["Character"]:
        """In the order of their spawning."""
        where = SessionFilter(include_inactive=True)
        listed = (await self._app.services.sessions.list(OWNER, where, limit=MOST)).sessions
        children = sorted((each for each in listed if str(each.parent_key) == self.key), key=lambda child: child.row)
        return [Character(self._story, str(child.key)) for child in children]


class Child(Character):
    """A session that was spawned, with the answer to its spawning."""

    def __init__(self, story: Story, answer: dict[str, Any]) -> None:
        assert answer["status"] == "accepted", answer
        super().__init__(story, answer["childSessionKey"])
        self.answer = answer
        self.run_id = RunId(answer["runId"])


@dataclass(frozen=True, slots=True)
class Record:
    """A result in the log of the session that it was for."""

    id: RunId
    text: str
    result: str
    answers: tuple[str, ...]
    has_run: bool
    session_id: str


def _record_of(event: Event) -> Record | None:
    message = event.message
    if not isinstance(message, UserMessage) or message.report is None or message.report.stage is not ReportStage.RECORD:
        return None
    parts = [part.text for part in message.content if isinstance(part, TextPart)]
    report, has_run = message.report, event.run_id is not None
    return Record(RunId(report.id), "".join(parts), parts[1], report.answers, has_run, event.session_id)


def _exchanged_by(event: Event) -> tuple[ExchangeStage, int, str] | None:
    message = event.message
    if not isinstance(message, UserMessage) or message.exchange is None:
        return None
    words = " | ".join(part.text for part in message.content if isinstance(part, TextPart))
    return message.exchange.stage, message.exchange.turn, words
