"""A program that is killed: it carries out a scenario on a home and dies where it is told to.

Run as a module it imports everything once and then forks one process for each request, a line of JSON on its
standard input; it answers each with a line that holds the process's exit code.
"""

import importlib
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import anyio

import antiphon
from antiphon import Antiphon, RunHandle, SessionHandle, ToolContext
from antiphon.building import Parts
from antiphon.channels.channel import Channel
from antiphon.channels.signature import Direction, sign
from antiphon.config.config import Config
from antiphon.configured import ToolFunction
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import ApprovalState, Verdict
from antiphon.domain.channel_form import PLAIN_FORM, ChannelForm, DeliveryPart, Streaming
from antiphon.domain.classification import Classification, Level
from antiphon.domain.delivery import Delivery
from antiphon.domain.event import Event
from antiphon.domain.ids import ApprovalId, RunId, SessionRow
from antiphon.domain.message import (
    AssistantMessage,
    JsonObject,
    JsonValue,
    ToolResult,
    UserMessage,
    text_content,
    text_of,
)
from antiphon.domain.parts import SHORTEST
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.schedule import Every, Schedule
from antiphon.domain.session import NOWHERE, DeliveryContext
from antiphon.domain.stored_task import NewTask
from antiphon.engine.deliveries.outbox import ExitCheck, Outgoing, name_of
from antiphon.engine.deliveries.refused import send_or_ask
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.inbox import Envelope
from antiphon.store import deliveries
from antiphon.store.approvals import ApprovalFilter
from antiphon.store.database import Query, Transaction
from antiphon.store.deliveries import DeliveryFilter
from antiphon.store.runs import RunFilter
from antiphon.store.sqlite import connect_sqlite
from tests.engine.stage import START, ManualClock
from tests.fork_server import ForkServer, serve_forks
from tests.logs import whole_log
from tests.sqlite_template import connect_to_copy
from tests.waiting import PROCESS_SECONDS, at_least
from tests.whole_file import write_whole

SCENES = (
    "plain",
    "effects",
    "steered",
    "queued",
    "cancelled",
    "reset",
    "exchange",
    "children",
    "approvals",
    "releases",
    "classified",
)
ROOMS = ("attic", "cellar")
NESTS = ("answers", "yields", "announces")
"""Sessions that spawn without end, each of which has its own way of taking the results."""
BROOD = 4
"""Children of each of their runs."""
TEXTS = 3
SLOTS = 3
"""Of the task."""
LOOKING_TURNS = 2
"""After which the session of `checkpoints` looks back by itself."""
LOOKS = {
    "sessions": {"*": [[{"text": "yes"}]]},
    "checkpoints": {
        "*": [
            {
                "calls": [
                    {"name": "add_note", "arguments": {"text": "They like trees."}},
                    {"name": "set_working_memory", "arguments": {"text": "The oak is ill."}},
                    {"name": "set_description", "arguments": {"text": "Trees"}},
                ]
            },
            {"text": "done"},
        ]
    },
}
"""What its model says."""
CLIENTS = 3
OUTSTANDING = 4
HOOK_SECRET = "s3cret-of-the-build-server"
LOOK_SECONDS = 0.01
"""Between looks at what nothing tells of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What one process does, and when it dies."""

    scenario: str
    """One of `SCENES`, `conversation` for all of them in turn, or another of `Program.run`."""
    home: str
    database: str | None = None
    """Address of a PostgreSQL database; a file in the home if None."""
    kill_at: int | None = None
    """The number of the commit at which it dies."""
    moment: str = "before"
    """Of that commit: `before | after`."""
    kill_after_seconds: float | None = None
    """Dies after that long, wherever it is."""
    messages: int | None = None
    """For a storm: how many each client posts in this life; until it dies if None."""
    spawns: int = 0
    """For `spawns`: how many there are to be in all, over all lives."""


class Postbox:
    """A channel whose platform outlives the process: a file, to which it appends what it takes."""

    name = "postbox"
    account = None
    timeout_seconds = 10.0

    def __init__(self, path: Path, form: ChannelForm) -> None:
        self._path = path
        self.form = form

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        append_line(self._path, json.dumps([delivery.id, delivery.place.to, part.text]))
        return None

    async def aclose(self) -> None:
        return


class Blackboard:
    """A channel that shows replies while they are written. Its platform notes each change in a file."""

    name = "blackboard"
    account = None
    timeout_seconds = 10.0
    form = ChannelForm(streaming=Streaming.EDIT, stream_interval_ms=50, group_interval_ms=50)

    def __init__(self, path: Path) -> None:
        self._path = path
        self._count = 0

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        self._count += part.replaces is None
        id = part.replaces or f"{os.getpid()}-{self._count}"
        append_line(self._path, json.dumps([id, delivery.id, part.text]))
        return id

    async def draft(self, place: DeliveryContext, draft_id: int, text: str) -> None:
        raise AssertionError

    async def typing(self, place: DeliveryContext) -> None:
        return

    async def withdraw(self, place: DeliveryContext, platform_id: str) -> None:
        append_line(self._path, json.dumps([platform_id, None, None]))

    async def aclose(self) -> None:
        return


class Holds:
    """Barriers in tools: a call that holds goes on when the program lets it."""

    def __init__(self) -> None:
        self._reached: dict[str, anyio.Event] = {}
        self._released: dict[str, anyio.Event] = {}

    async def hold(self, name: str) -> str:
        self._event(self._reached, name).set()
        await self._event(self._released, name).wait()
        return f"held {name}"

    async def reach(self, name: str, run: RunHandle) -> None:
        """Returns once the run is inside the call, or has ended."""
        async with anyio.create_task_group() as tasks:

            async def ended() -> None:
                await run.wait()
                tasks.cancel_scope.cancel()

            tasks.start_soon(ended)
            await self._event(self._reached, name).wait()
            tasks.cancel_scope.cancel()

    def release(self, name: str) -> None:
        self._event(self._released, name).set()

    def _event(self, events: dict[str, anyio.Event], name: str) -> anyio.Event:
        return events.setdefault(name, anyio.Event())


class Refused(NamedTuple):
    """The reply of a run, and where it may not go."""

    run: Run
    text: str
    rules: Rules


async def refuse_reply(tx: Transaction, refused: Refused) -> None:
    """Queues the reply as the end of its run does, unless an earlier life has."""
    run, text, rules = refused
    if await deliveries.find_named(tx, SessionRow(run.session), name_of(run.id)) is not None:
        return
    check = ExitCheck(rules=rules, read=())
    outgoing = Outgoing(text=text, made_of=Classification(Level.CONFIDENTIAL), check=check)
    await send_or_ask(tx, run, DeliveryContext(channel=Postbox.name, to="room"), outgoing)


class Program:
    """The scenarios, each of which may be begun again after the process died in it."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self._home = Path(request.home)
        self._holds = Holds()
        self._outside = self._home.parent
        self._commits = 0
        self._hours = self._outside / "hours"
        """How many have passed, in a file: a clock does not go back when a process begins."""
        self._clock = ManualClock(START + timedelta(hours=self._passed()))
        """For the scenario of tasks."""
        self._app: Antiphon | None = None

    async def run(self) -> None:
        clock = self._clock if self._request.scenario == "tasks" else None
        parts = Parts(
            commit_hook=self._on_commit,
            tools=self._tools(),
            channels=[self._channel()],
            clock=clock,
            # One that may die at any instruction makes its home by itself.
            connect=connect_to_copy if self._request.kill_after_seconds is None else connect_sqlite,
        )
        database = {"url": self._request.database, "connections": 6}
        subagents = {"max_spawn_depth": 2, "max_children_per_agent": 1000}
        config = Config.model_validate(
            {
                "database": database,
                "tools": {"sessions": {"visibility": "agent"}},
                "agents": {"defaults": {"subagents": subagents}},
                "hooks": {"ci": {"secret": HOOK_SECRET}},
                **self._settings(),
            }
        )
        async with antiphon.open(self._home, config=config, parts=parts) as app:
            self._app = app
            match self._request.scenario:
                case "conversation":
                    for scene in SCENES:
                        await self._scene(app, scene)
                case scene if scene in SCENES:
                    await self._scene(app, scene)
                case "storm":
                    await self._storm(app)
                case "effect":
                    session = await app.sessions.open("effect")
                    await (await self._post(session, "n-1", '!call note {"text": "once"}')).wait()
                case "hook":
                    await self._hook(app)
                case "example":
                    await self._example(app)
                case "outbox":
                    await self._outbox(app)
                case "streamed":
                    await self._streamed(app)
                case "outside":
                    await self._calls_from_outside(app)
                case "waits":
                    await self._waits(app)
                case "spawns":
                    await self._spawns(app)
                case "tasks":
                    await self._tasks(app)
                case "checkpoints":
                    await self._checkpoints(app)
                case other:
                    raise LookupError(f"Scenario not found: {other!r}")
            dumped = {**await dump(app), "commits": self._commits}
            write_whole(self._outside / "dump.json", json.dumps(dumped))

    def _settings(self) -> JsonObject:
        """Of the scenario that needs a model with checkpoints."""
        if self._request.scenario != "checkpoints":
            return {}
        self._home.mkdir(mode=0o700, exist_ok=True)
        write_whole(self._home / "looks.json", json.dumps(LOOKS))
        return {"checkpoints": {"turns": LOOKING_TURNS}, "agents": {"defaults": {"model": "scripted:looks.json"}}}

    def _on_commit(self, number: int, moment: str, units: Sequence[str]) -> None:
        self._commits = number
        if number == self._request.kill_at and moment == self._request.moment:
            os.kill(os.getpid(), signal.SIGKILL)

    def _channel(self) -> Channel:
        """Each text of the outbox leaves in parts."""
        if self._request.scenario == "streamed":
            return Blackboard(self._outside / "shown")
        form = ChannelForm(longest=SHORTEST) if self._request.scenario == "outbox" else PLAIN_FORM
        return Postbox(self._outside / "taken", form)

    def _tools(self) -> list[ToolFunction]:
        def note(text: str, context: ToolContext) -> str:
            """Has an effect outside, and must not have it twice."""
            self._note("effects", f"{context.call_id} {text}")
            return f"noted {text}"

        def wipe(text: str, context: ToolContext) -> str:
            """The same, and waits for approval."""
            return note(text, context)

        def look(text: str, context: ToolContext) -> str:
            """May be repeated."""
            self._note("looks", f"{context.call_id} {text}")
            return f"looked {text}"

        async def hold(name: str) -> str:
            return await self._holds.hold(name)

        async def delegate(task: str, context: ToolContext) -> str:
            """Spawns a child and waits for it, as two calls of a model would; the reply, or the code it failed with."""
            assert self._app is not None
            spawn, wait = self._app.app.tools.find("sessions_spawn"), self._app.app.tools.find("sessions_wait")
            assert spawn is not None and wait is not None
            answer = json.loads((await spawn.call(context, {"task": task})).text)
            arguments: JsonObject = {"runIds": [answer["runId"]], "timeoutSeconds": 600}
            run = json.loads((await wait.call(context, arguments)).text)["runs"][0]
            return run["reply"] if run["status"] == "ok" else run["code"]

        return [
            note,
            antiphon.tool(wipe, effects=["deletes"]),
            antiphon.tool(look, effects=["reads"]),
            antiphon.tool(look, name="digest", effects=["reads"], classification={"level": "INTERNAL"}),
            antiphon.tool(look, name="books", effects=["reads"], classification={"level": "CONFIDENTIAL"}),
            antiphon.tool(hold, effects=["writes"], is_idempotent=True),
            antiphon.tool(delegate, effects=["writes"], is_idempotent=True),
        ]

    def _note(self, name: str, line: str) -> None:
        """Appends a line, which outlives the process once this returns."""
        append_line(self._outside / name, line)

    async def _post(
        self, session: SessionHandle, message_id: str, text: str, mode: QueueMode | None = None
    ) -> RunHandle:
        """Posts as the owner, from the session's place if it has one."""
        app, place = self._app, (await session.status()).delivery
        assert app is not None
        if place == NOWHERE:
            run = await session.post(text, message_id=message_id, queue_mode=mode)
        else:
            posted = await app.app.services.inbox.post(
                OWNER,
                app.app.services.sessions.target(session.key),
                text_content(text),
                message_id=message_id,
                mode=mode,
                envelope=Envelope(place=place),
            )
            assert posted.run_id is not None
            run = app.run(posted.run_id)
        self._note("acknowledged", json.dumps([session.key, message_id, run.id]))
        return run

    async def _scene(self, app: Antiphon, scene: str) -> None:
        session = await app.sessions.open(scene)
        match scene:
            case "plain":
                await self._plain(session)
            case "effects":
                await self._with_effects(session)
            case "steered":
                await self._steered(session)
            case "queued":
                await self._queued(session)
            case "cancelled":
                await self._cancelled(session)
            case "exchange":
                await self._exchange(app, session)
            case "children":
                await self._children(app, session)
            case "approvals":
                await self._approvals(app, session)
            case "releases":
                await self._releases(app, session)
            case "classified":
                await self._classified(session)
            case _:
                await self._reset(session)

    async def _plain(self, session: SessionHandle) -> None:
        for message_id in ("p-1", "p-2"):
            await (await self._post(session, message_id, f"hello {message_id}")).wait()

    async def _with_effects(self, session: SessionHandle) -> None:
        texts = {
            "e-1": '!call note {"text": "e-1"}',
            "e-2": '!call note {"text": "e-2a"}\n!call look {"text": "e-2b"}\n!call note {"text": "e-2c"}',
        }
        for message_id, text in texts.items():
            await (await self._post(session, message_id, text)).wait()

    async def _classified(self, session: SessionHandle) -> None:
        """Rises twice in its first run, and stays there."""
        texts = {"k-1": '!call digest {"text": "k-1"}\n!call books {"text": "k-2"}', "k-2": "and now?"}
        for message_id, text in texts.items():
            await (await self._post(session, message_id, text)).wait()

    async def _steered(self, session: SessionHandle) -> None:
        run = await self._post(session, "s-1", '!call hold {"name": "s"}')
        await self._holds.reach("s", run)
        joined = await self._post(session, "s-2", "and this", QueueMode.STEER)
        self._holds.release("s")
        await run.wait()
        await joined.wait()

    async def _queued(self, session: SessionHandle) -> None:
        run = await self._post(session, "q-1", '!call hold {"name": "q"}')
        await self._holds.reach("q", run)
        queued = [
            await self._post(session, "q-2", "two"),
            await self._post(session, "q-3", "three", QueueMode.COLLECT),
            await self._post(session, "q-4", "four"),
        ]
        self._holds.release("q")
        for handle in queued:
            await handle.wait()

    async def _cancelled(self, session: SessionHandle) -> None:
        run = await self._post(session, "c-1", '!call hold {"name": "c"}')
        await self._holds.reach("c", run)
        await run.cancel()
        await run.wait()
        await (await self._post(session, "c-2", "after the cancel")).wait()

    async def _reset(self, session: SessionHandle) -> None:
        await (await self._post(session, "r-1", "before")).wait()
        running = await self._post(session, "r-2", '!call hold {"name": "r"}')
        await self._holds.reach("r", running)
        queued = await self._post(session, "r-3", "never answered")
        messages = [event.message for event in await session.history()]
        if any(isinstance(message, UserMessage) and message.message_id == "r-1" for message in messages):
            await session.reset()
        await running.wait()
        await queued.wait()
        await (await self._post(session, "r-4", "anew")).wait()

    async def _exchange(self, app: Antiphon, session: SessionHandle) -> None:
        """Five turns and an announcement, all of which are rows between the runs."""
        expert = await app.sessions.open("expert")
        sessions = app.app.services.sessions
        if (await expert.status()).delivery == NOWHERE:
            place = {"delivery_channel": "nowhere", "delivery_to": "experts"}
            await sessions.patch(OWNER, sessions.target(expert.key), place)
        request = "!say first\n!turn from the expert\n!announce told to all"
        call = json.dumps({"sessionKey": expert.key, "message": request})
        run = await self._post(session, "x-1", f"!call sessions_send {call}\n!turn from the asker")
        await run.wait()
        await self._until_all_ended(app)

    async def _until_all_ended(self, app: Antiphon) -> None:
        """What follows from a run's end is queued with it, so that an empty ledger stays empty."""
        unfinished = RunFilter(statuses=frozenset({RunStatus.QUEUED, RunStatus.RUNNING}))
        while runs := await app.app.services.runs.list(OWNER, unfinished, limit=1):
            await app.run(runs[0].id).wait()

    async def _children(self, app: Antiphon, session: SessionHandle) -> None:
        """A run that yields for three children, one with two of its own; one whose child's words leave; one that waits.

        The children end in an order: each is held until the session that takes its result has come to rest.
        """
        nested = "\n".join([spawning(held("twin-1"), "twin-1"), spawning(held("twin-2"), "twin-2"), "!say not yet"])
        spawned = (spawning(held("first"), "first"), spawning(nested, "middle"), spawning(held("last"), "last"))
        run = await self._post(session, "h-1", "\n".join([*spawned, "!call sessions_yield {}"]))
        await self._until_at_rest(app, run.id)
        await self._end_child(app, "first")
        await self._until_at_rest(app, await self._run_of_child(app, "middle"))
        for label in ("twin-1", "twin-2", "middle", "last"):
            await self._end_child(app, label)
        await run.wait()
        herald = await self._open_with_place(app, "herald", "square")
        crier = spawning(f"!announce Hear!\n{held('crier')}", "crier")
        run = await self._post(herald, "h-2", f"{crier}\n!say <NO_REPLY>")
        await run.wait()
        await self._end_child(app, "crier")
        waiter = await app.sessions.open("waiter")
        await (await self._post(waiter, "h-3", '!call delegate {"task": "!say waited for"}')).wait()
        await self._until_all_ended(app)
        await app.app.deliverer.wait_idle()

    async def _approvals(self, app: Antiphon, session: SessionHandle) -> None:
        """Calls that are approved undisturbed, approved beside another run, and denied."""
        for number, verdict, beside in ((1, Verdict.ONCE, False), (2, Verdict.ONCE, True), (3, Verdict.DENY, True)):
            run = await self._post(session, f"a-{number}", f'!call wipe {{"text": "a-{number}"}}')
            asked = await self._until_asked(app, run.id)
            if beside:
                await (await self._post(session, f"b-{number}", "beside")).wait()
            if asked is not None and (await app.app.services.approvals.get(OWNER, asked)).is_pending:
                await app.app.services.approvals.resolve(OWNER, asked, verdict)
            await run.wait()

    async def _releases(self, app: Antiphon, session: SessionHandle) -> None:
        """Words that an owner lets go undisturbed, beside another run, and not at all."""
        peer = await app.sessions.open("hears-releases")
        await (await self._post(session, "r-0", '!call books {"text": "r-0"}')).wait()
        for number, verdict, beside in ((1, Verdict.ONCE, False), (2, Verdict.ONCE, True), (3, Verdict.DENY, False)):
            call = json.dumps({"sessionKey": peer.key, "message": f"Heard {number}.\n!say REPLY_SKIP"})
            run = await self._post(session, f"r-{number}", f"!call sessions_send {call}")
            asked = await self._until_asked(app, run.id)
            if beside:
                await (await self._post(session, f"s-{number}", "beside")).wait()
            if asked is not None and (await app.app.services.approvals.get(OWNER, asked)).is_pending:
                await app.app.services.approvals.resolve(OWNER, asked, verdict)
            await run.wait()
        await self._refused_replies(app, session)

    async def _refused_replies(self, app: Antiphon, session: SessionHandle) -> None:
        """Words that may not go to their place, of which an owner lets the first go; nothing waits for the answer."""
        row = SessionRow((await session.status()).row)
        for number, verdict in ((1, Verdict.ONCE), (2, Verdict.DENY)):
            run = await self._post(session, f"t-{number}", f"hello {number}")
            await run.wait()
            ended = await app.app.services.runs.get(OWNER, run.id)
            refused = Refused(run=ended, text=f"Read {number}.", rules=app.app.services.rules)
            await app.app.database.run(refuse_reply, refused, sessions=(row,))
            where = ApprovalFilter(session=row, state=ApprovalState.PENDING)
            found = await app.app.services.approvals.list(OWNER, where, limit=9)
            for asked in (each for each in found if each.calls[0].shown == refused.text):
                await app.app.services.approvals.resolve(OWNER, asked.id, verdict)
            await app.app.deliverer.wait_idle()

    async def _calls_from_outside(self, app: Antiphon) -> None:
        """Calls from outside a run, approved, denied and not asked about; the last life notes the answers."""
        session = await app.sessions.open("outside")
        target, services = app.app.services.sessions.target(session.key), app.app.services
        answers: JsonObject = {}
        calls = [
            ("o-1", "wipe", Verdict.ONCE),
            ("k-1", "note", None),
            ("o-2", "wipe", Verdict.DENY),
            ("o-3", "wipe", Verdict.ONCE),
            ("k-2", "note", None),
        ]
        for key, tool, verdict in calls:
            arguments: JsonObject = {"text": key}
            while True:
                answer = await app.app.tool_calls.call(OWNER, target, tool, arguments, idempotency_key=key)
                if answer.get("status") != "pending":
                    break
                id = ApprovalId(str(answer["approvalId"]))
                assert verdict is not None
                if (await services.approvals.get(OWNER, id)).is_pending:
                    await services.approvals.resolve(OWNER, id, verdict)
            answers[key] = answer
        write_whole(self._outside / "answers.json", json.dumps(answers))

    async def _until_asked(self, app: Antiphon, run_id: RunId) -> ApprovalId | None:
        """The request of the run; None if its work is over already, or another run continues it."""
        while True:
            run = await app.app.services.runs.get(OWNER, run_id)
            if run.is_over or run.continued_by is not None:
                return None
            if run.approval is not None:
                return run.approval
            await anyio.sleep(LOOK_SECONDS)

    async def _until_at_rest(self, app: Antiphon, run_id: RunId) -> None:
        """Returns once the run has ended, or waits for its children."""
        while not (await app.app.services.runs.get(OWNER, run_id)).status.is_terminal:
            await anyio.sleep(LOOK_SECONDS)

    async def _run_of_child(self, app: Antiphon, label: str) -> RunId:
        """The run that the child of that label was spawned with, once it is."""

        async def find(query: Query) -> list[RunId]:
            statement = "SELECT p.run FROM spawns p JOIN sessions s ON s.id = p.child WHERE s.label = ?"
            return [row[0] for row in await query.fetch_all(statement, (label,))]

        while not (found := await app.app.database.read(find)):
            await anyio.sleep(LOOK_SECONDS)
        return found[0]

    async def _end_child(self, app: Antiphon, label: str) -> None:
        self._holds.release(label)
        await app.run(await self._run_of_child(app, label)).wait()

    async def _open_with_place(self, app: Antiphon, name: str, to: str, channel: str = Postbox.name) -> SessionHandle:
        """The session, whose answers leave by that channel."""
        session = await app.sessions.open(name)
        if (await session.status()).delivery == NOWHERE:
            sessions = app.app.services.sessions
            place = {"delivery_channel": channel, "delivery_to": to}
            await sessions.patch(OWNER, sessions.target(session.key), place)
        return session

    async def _spawns(self, app: Antiphon) -> None:
        """Children without end, until there are as many as there are to be."""
        await self._until_all_ended(app)
        async with anyio.create_task_group() as tasks:
            for nest in NESTS:
                tasks.start_soon(self._nest, app, nest)
        await self._until_all_ended(app)
        await app.app.deliverer.wait_idle()

    async def _nest(self, app: Antiphon, nest: str) -> None:
        """Posts on from the last message that was not acknowledged."""
        session = await (self._open_with_place(app, nest, nest) if nest == "announces" else app.sessions.open(nest))
        number = sum(acknowledged[0] == session.key for acknowledged in acknowledgements(self._outside))
        runs: list[RunHandle] = []
        while await app.app.database.read(count_reports) < self._request.spawns:
            words = [f"{nest} {number} {child}" for child in range(BROOD)]
            lines = [spawning(f"!announce told {text}\n!say {text}", text) for text in words]
            lines.append("!call sessions_yield {}" if nest == "yields" else "!say <NO_REPLY>")
            runs.append(await self._post(session, f"{nest}-{number}", "\n".join(lines)))
            if len(runs) > 1:
                await runs.pop(0).wait()
            number += 1

    async def _storm(self, app: Antiphon) -> None:
        async with anyio.create_task_group() as tasks:
            for client in range(CLIENTS):
                tasks.start_soon(self._client, app, client)
        for run in await app.app.services.runs.list(OWNER, RunFilter(), limit=100_000):
            await app.run(run.id).wait()

    async def _waits(self, app: Antiphon) -> None:
        """Runs that wait for their children, each in a session where the next message is queued already."""
        sessions = [await app.sessions.open(f"waiter-{client}") for client in range(CLIENTS)]
        done = len(acknowledgements(self._outside))
        runs: list[RunHandle] = []
        while self._request.messages is None or len(runs) < self._request.messages:
            number = done + len(runs)
            call = json.dumps({"task": f"!say waited w-{number}"})
            runs.append(await self._post(sessions[number % CLIENTS], f"w-{number}", f"!call delegate {call}"))
            if len(runs) >= 2 * CLIENTS:
                await runs[len(runs) - 2 * CLIENTS].wait()
        await self._until_all_ended(app)

    async def _client(self, app: Antiphon, client: int) -> None:
        """Posts on from the last message that was not acknowledged."""
        sessions = [await app.sessions.open(f"client-{client}"), await app.sessions.open("shared")]
        done = sum(acknowledged[1].startswith(f"{client}-") for acknowledged in acknowledgements(self._outside))
        number = done
        runs: list[RunHandle] = []
        while self._request.messages is None or number < done + self._request.messages:
            message_id = f"{client}-{number}"
            text = f'!call note {{"text": "{message_id}"}}' if number % 2 else f"hello {message_id}"
            runs.append(await self._post(sessions[number // 3 % 2], message_id, text))
            if len(runs) >= OUTSTANDING:
                await runs.pop(0).wait()
            number += 1

    async def _hook(self, app: Antiphon) -> None:
        """A message of a hook, whose sender repeats it until it gets an answer, and once more."""
        body = json.dumps({"messageId": "h-1", "text": "!say hooked"}).encode()
        for _ in range(2):
            timestamp = int(app.app.services.clock.now().timestamp())
            signature = sign(HOOK_SECRET, Direction.HOOK, "ci", timestamp=timestamp, body=body)
            headers = {"antiphon-timestamp": str(timestamp), "antiphon-signature": signature}
            answer: Any = await app.app.receivers["hook"].receive("ci", headers, body)
            assert answer.run_id is not None
            self._note("acknowledged", json.dumps([answer.session_key, "hook:ci:h-1", answer.run_id]))
            await app.run(RunId(answer.run_id)).wait()

    async def _outbox(self, app: Antiphon) -> None:
        """Replies to two rooms, each of which leaves by a channel."""
        for room in ROOMS:
            await self._open_with_place(app, room, room)
        for number in range(TEXTS):
            for room in ROOMS:
                session = await app.sessions.open(room)
                run = await self._post(session, f"{room}-{number}", f"!say {' '.join(parts_said(room, number))}")
                await run.wait()
        await app.app.deliverer.wait_idle()

    async def _tasks(self, app: Antiphon) -> None:
        """A task with an effect, whose results go to a room, at each of its slots."""
        services = app.app.services
        target = services.sessions.target("main")
        if not await services.tasks.list(OWNER, limit=1):
            schedule = Schedule(Every(3600, self._clock.now()), "UTC")
            new = NewTask(name="tick", prompt='!call note {"text": "tick"}', schedule=schedule)
            await services.tasks.create(OWNER, target, [new], place=DeliveryContext(channel=Postbox.name, to="room"))
        await self._until_all_ended(app)
        await app.app.scheduler.settle_due()
        await self._until_all_ended(app)
        while (passed := self._passed()) < SLOTS:
            write_whole(self._hours, str(passed + 1))
            self._clock.pass_time(timedelta(hours=1))
            await app.app.scheduler.settle_due()
            await self._until_all_ended(app)
        await app.app.deliverer.wait_idle()

    def _passed(self) -> int:
        return int(self._hours.read_text("utf-8")) if self._hours.exists() else 0

    async def _checkpoints(self, app: Antiphon) -> None:
        """A session that looks back by itself, and once more because somebody asks."""
        session = await app.sessions.open("looked")
        for number in range(LOOKING_TURNS):
            await (await self._post(session, f"l-{number}", f"hello l-{number}")).wait()
        while await app.app.database.read(_count_looked_back) == 0:
            await anyio.sleep(LOOK_SECONDS)
        await (await self._post(session, "l-asked", "hello l-asked")).wait()
        target = app.app.services.sessions.target(session.key)
        while await app.app.database.read(_count_looked_back) < 2:
            await app.app.services.checkpoints.ask(OWNER, target, timedelta(seconds=LOOK_SECONDS))

    async def _streamed(self, app: Antiphon) -> None:
        """A reply that is shown while it is written, with a pause in which the platform gets to show it."""
        await self._open_with_place(app, ROOMS[0], ROOMS[0], Blackboard.name)
        session = await app.sessions.open(ROOMS[0])
        await (await self._post(session, "s-1", "!stream 20\n!sleep 0.5\n!stream 20")).wait()
        await app.app.deliverer.wait_idle()

    async def _example(self, app: Antiphon) -> None:
        session = await app.sessions.open("customer-42")
        run = await self._post(session, "m-1", "Hello")
        await run.wait()


STREAMED = " ".join(str(number) for number in [*range(1, 21), *range(1, 21)])
"""The reply that is shown while it is written."""


def parts_said(room: str, number: int) -> list[str]:
    """The parts of a text in the outbox."""
    return [f"{room} {number} {'-' * 44}.", f"End of it {number}."]


def spawning(task: str, label: str) -> str:
    return "!call sessions_spawn " + json.dumps({"task": task, "label": label})


def held(name: str) -> str:
    """A task that ends when the program lets it, in words of its own."""
    return f'!call hold {{"name": "{name}"}}'


async def count_reports(query: Query) -> int:
    return (await query.fetch_all("SELECT COUNT(*) FROM reports"))[0][0]


def append_line(path: Path, line: str) -> None:
    """Appends in one write, which outlives the process."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    try:
        os.write(file, f"{line}\n".encode())
    finally:
        os.close(file)


def acknowledgements(directory: Path) -> list[tuple[str, str, str]]:
    """Key, message id and run id of each post that returned, in order."""
    path = directory / "acknowledged"
    lines = path.read_text("utf-8").splitlines() if path.exists() else []
    return [tuple(json.loads(line)) for line in lines]


async def dump(app: Antiphon) -> JsonObject:
    """Every log, whole, by its session's key, a child's by its label; every run, and every result that was owed."""
    sessions: JsonObject = {}
    names: dict[str, str] = {}
    for row, key, label in await app.app.database.read(_list_sessions):
        events = await app.app.database.read(whole_log, row)
        named = f"child:{label or 'delegate'}" if ":subagent:" in key else key
        names[key] = key if named in sessions else named
        sessions[names[key]] = [_event(event) for event in events]
    runs = await app.app.services.runs.list(OWNER, RunFilter(), limit=1_000_000)
    deliveries = await app.app.services.deliveries.list(OWNER, DeliveryFilter(), limit=10_000)
    return {
        "sessions": sessions,
        "deliveries": [f"{sent.place.to} {sent.text}" for sent in deliveries],
        "sent": {sent.id: sent.run_id for sent in deliveries},
        "reports": await app.app.database.read(_list_stages),
        "spawned": await app.app.database.read(_count_spawns),
        "taints": await app.app.database.read(_list_taints),
        "slots": await app.app.database.read(_list_slots),
        "notes": await app.app.database.read(_list_notes),
        "cursors": await app.app.database.read(_list_cursors),
        "runs": {
            run.id: {
                "key": names[run.session_key],
                "announces": run.announces,
                "seq": run.seq,
                "status": run.status.value,
                "code": run.code,
                "reply": run.reply,
                "steps": run.usage.steps,
            }
            for run in runs
        },
    }


async def _list_sessions(query: Query) -> list[tuple[SessionRow, str, str | None]]:
    rows = await query.fetch_all("SELECT id, key, label FROM sessions WHERE deleted_at IS NULL ORDER BY id")
    return [(row[0], row[1], row[2]) for row in rows]


async def _list_stages(query: Query) -> JsonObject:
    """The stage of each result, and whether it was to be told outside."""
    return {
        row[0]: [row[1], row[2] is not None] for row in await query.fetch_all("SELECT id, stage, place FROM reports")
    }


async def _list_taints(query: Query) -> JsonObject:
    return dict(await query.fetch_all("SELECT id, taint_level FROM incarnations"))


async def _list_slots(query: Query) -> list[JsonValue]:
    """The run of each slot of a task, and what became of it."""
    rows = await query.fetch_all("SELECT slot_at, run, outcome FROM task_slots ORDER BY slot_at")
    return [list(row) for row in rows]


async def _list_notes(query: Query) -> list[JsonValue]:
    return [row[0] for row in await query.fetch_all("SELECT text FROM notes ORDER BY id")]


async def _list_cursors(query: Query) -> list[JsonValue]:
    """How far each incarnation was looked back at, and the checkpoint at work."""
    return [list(row) for row in await query.fetch_all("SELECT through_seq, run FROM checkpoints")]


async def _count_looked_back(query: Query) -> int:
    return (await query.fetch_all("SELECT COUNT(*) FROM events WHERE type = 'introspection_finished'"))[0][0]


async def _count_spawns(query: Query) -> int:
    return (await query.fetch_all("SELECT COUNT(*) FROM spawns"))[0][0]


def _event(event: Event) -> JsonObject:
    shown: JsonObject = {
        "seq": event.seq,
        "type": event.type,
        "incarnation": event.session_id,
        "run": event.run_id,
        "actor": event.actor,
        "data": event.data,
        "level": int(event.classification.level),
    }
    message = event.message
    if message is not None:
        shown["text"] = text_of(message.content)
    match message:
        case UserMessage():
            shown["messageId"] = message.message_id
            if message.report is not None:
                shown["report"] = [message.report.id, message.report.stage.value]
        case AssistantMessage():
            shown |= {"saw": message.saw, "calls": [f"{call.name} {call.arguments}" for call in message.calls]}
        case ToolResult():
            shown |= {"call": [message.call_seq, message.call_index], "isError": message.is_error}
        case None:
            pass
    return shown


def carry_out(request: Request) -> None:
    """The life of one process."""
    Path(request.home).parent.mkdir(parents=True, exist_ok=True)
    is_to_die = request.kill_at is not None or request.kill_after_seconds is not None
    # Of all scenarios, only runs that wait leave hundreds of others to the life that is not killed.
    longest = at_least(300) if request.scenario == "waits" and not is_to_die else PROCESS_SECONDS
    signal.alarm(round(longest))  # one that neither ends nor dies; its exit code tells
    if request.kill_after_seconds is not None:
        # The default action of the signal ends the process at whatever instruction it is.
        signal.setitimer(signal.ITIMER_REAL, request.kill_after_seconds)
    anyio.run(Program(request).run, backend_options={"use_uvloop": True})


class Killer:
    """Has processes carry out requests, from the testing side."""

    def __init__(self) -> None:
        self._server = ForkServer("tests.flows.kill_target")

    def carry_out(self, request: Request) -> int:
        """The exit code of a new process; negative for the signal that killed it."""
        return self._server.run(asdict(request))

    def carry_out_to_end(self, request: Request) -> None:
        code = self.carry_out(replace(request, kill_at=None, kill_after_seconds=None))
        assert code == 0, f"The process ended with {code}"

    def close(self) -> None:
        self._server.close()


def serve() -> None:
    with TemporaryDirectory() as directory:
        # Loads what is loaded lazily, so that each life begins at once.
        carry_out(Request(scenario="conversation", home=f"{directory}/home"))
    for name in (
        "antiphon.engine.work.procrastinate_dispatch",
        "antiphon.feed.postgres",
        "antiphon.store.postgres.schema",
    ):
        importlib.import_module(name)
    serve_forks(lambda request: carry_out(Request(**request)))


if __name__ == "__main__":
    serve()
