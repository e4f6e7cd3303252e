"""Several processes on one PostgreSQL database, which tests start, kill, suspend and start again.

Run as a module it imports everything once and then forks a process for each member, a line of JSON on its standard
input; on its standard output a line tells of each member that is ready, and of each that ended.
"""

import gc
import importlib
import json
import os
import random
import signal
import subprocess
import sys
import time
import traceback
from collections import defaultdict
from collections.abc import AsyncGenerator, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import httpx
from anyio.abc import ByteReceiveStream, Process
from anyio.streams.text import TextReceiveStream

from antiphon.agents.toolset import DeclaredFunction, tool
from antiphon.app import gateway_app, open_app
from antiphon.building import App, Parts
from antiphon.cli.connection.logs import configure_logs
from antiphon.config.config import Config
from antiphon.domain.event import Event
from antiphon.domain.message import AssistantMessage, UserMessage, text_content, text_of
from antiphon.domain.run import Outcome, Run, RunStatus
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.gateway.server import bind, serving
from antiphon.policy.system import SYSTEM_REACH
from antiphon.store.database import Query
from antiphon.store.moments import Moments
from antiphon.store.postgres.database import PostgresDatabase
from antiphon.store.runs import RunFilter, list_page
from tests.gateway.served import TOKEN, new_client
from tests.logs import whole_log
from tests.waiting import PROCESS_SECONDS

Json: TypeAlias = dict[str, Any]

HOLD = "hold"
"""A run that answers this text works until another message joins it."""
STEP_SECONDS = 0.1
PAUSE_SECONDS = 0.2
"""Between two tries of a client."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process, and what it does."""

    name: str
    home: str
    database: str
    role: str
    port: int = 0
    work_seconds: float = 0.05
    """How long a run works."""
    clock_shift_seconds: float = 0
    """How far its clock goes wrong."""
    suspend_at: str | None = None
    """The unit before whose first COMMIT the process suspends itself, with the transaction open."""
    is_journalled: bool = True
    """Whether its runs are those of the journal, else those of the model that is configured."""
    settings: Json = field(default_factory=dict[str, Any])
    """Sections of its configuration beside those that every member has."""


class ShiftedClock:
    """The operating system's time, and some more or less."""

    def __init__(self, shift: timedelta) -> None:
        self._shift = shift

    def now(self) -> datetime:
        return datetime.now(UTC) + self._shift

    def now_ms(self) -> int:
        return int(self.now().timestamp() * 1000)

    def monotonic(self) -> float:
        return time.monotonic()


class JournalRunner:
    """Works for a while, storing steps as long as it is held, and writes down when it begins and ends.

    What it stores names the claim and the member.
    """

    def __init__(self, member: Member) -> None:
        self._member = member
        path = journal_directory(Path(member.home)) / f"{member.name}-{os.getpid()}"
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def run(self, context: RunContext) -> RunEnding:
        self._note("begin", context.run)
        try:
            return await self._work(context)
        finally:
            self._note("end", context.run)

    async def _work(self, context: RunContext) -> RunEnding:
        mark = f"{context.run.fence} {self._member.name}"
        transcript = await context.read_log()
        while (newest := transcript.newest_input(context.run.id)) and _text(newest.message) == HOLD:
            await context.record_step(_message(context, f"held by {mark}"))
            await anyio.sleep(STEP_SECONDS)
            transcript = await context.read_log()
        await anyio.sleep(self._member.work_seconds)
        reply = f"done by {mark}"
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply=reply), message=_message(context, reply))

    def _note(self, what: str, run: Run) -> None:
        line = [what, run.id, run.session_key, run.fence, time.monotonic()]
        os.write(self._file, f"{json.dumps(line)}\n".encode())


def _text(message: object) -> str:
    return text_of(message.content) if isinstance(message, UserMessage) else ""


def _message(context: RunContext, text: str) -> AssistantMessage:
    return AssistantMessage(message_id=context.ids.new("msg"), content=text_content(text), saw=context.last_seq)


def journal_directory(home: Path) -> Path:
    return home.parent / "journal"


@dataclass(frozen=True, slots=True)
class Entry:
    """A line of the journal that the members write of their work."""

    pid: int
    what: str
    """`begin | end`"""
    run_id: str
    session: str
    fence: int
    at: float
    """By the clock that all processes of a machine share."""


def read_journal(home: Path) -> list[Entry]:
    """What every member wrote, by time."""
    entries = [
        Entry(int(path.name.rpartition("-")[2]), *json.loads(line))
        for path in journal_directory(home).iterdir()
        for line in path.read_text("ascii").splitlines()
    ]
    return sorted(entries, key=lambda entry: entry.at)


async def live(number: int, member: Member) -> None:
    """The life of one process, until SIGTERM."""
    role = {"role": member.role, "drain_seconds": 0}
    database = {"url": member.database, "connections": 6}
    tools = {"sessions": {"visibility": "agent"}}
    limits = {"run": {"time_seconds": 0}}  # clocks of members are days apart
    given = {"gateway": role, "database": database, "tools": tools, "limits": limits, **member.settings}
    config = Config.model_validate(given)
    configure_logs(config, level="warning")
    parts = Parts(
        runner=JournalRunner(member) if member.is_journalled else None,
        tools=[wiping(Path(member.home))],
        clock=ShiftedClock(timedelta(seconds=member.clock_shift_seconds)),
        commit_hook=Suspender(member.suspend_at),
    )
    with anyio.open_signal_receiver(signal.SIGTERM) as signals:
        async with open_app(Path(member.home), config, parts) as app, _gateway(app, member) as url:
            _say({"number": number, "pid": os.getpid(), "url": url})
            gc.freeze()
            await anext(signals)


def wiping(home: Path) -> DeclaredFunction:
    """A tool that needs an approval, and notes each call where all members see it."""

    def wipe(name: str) -> str:
        """Wipes."""
        file = os.open(wiped_file(home), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(file, f"{name}\n".encode())
        finally:
            os.close(file)
        return f"wiped {name}"

    return tool(wipe, effects=["deletes"])


def wiped_file(home: Path) -> Path:
    return home.parent / "wiped"


@asynccontextmanager
async def _gateway(app: App, member: Member) -> AsyncGenerator[str]:
    """The member's address; empty if it answers no requests."""
    if member.role == "worker":
        yield ""
        return
    listener = bind("127.0.0.1", member.port)
    async with serving(gateway_app(app, TOKEN), listener, on_stop=app.services.hub.close) as url:
        yield url


class Suspender:
    """A commit hook that suspends the process before the first COMMIT of the named unit."""

    def __init__(self, unit: str | None) -> None:
        self._unit = unit

    def __call__(self, number: int, moment: str, units: Sequence[str]) -> None:
        if self._unit in units and moment == "before":
            self._unit = None
            os.kill(os.getpid(), signal.SIGSTOP)


def _say(message: Json) -> None:
    os.write(1, f"{json.dumps(message)}\n".encode())


def serve() -> None:
    """Forks a process for each line; those that live end with the input."""
    living: set[int] = set()

    def reap(*_: object) -> None:
        while living:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            living.discard(pid)
            _say({"ended": pid, "code": os.waitstatus_to_exitcode(status)})

    for name in (
        "antiphon.engine.work.procrastinate_dispatch",
        "antiphon.feed.postgres",
        "antiphon.store.postgres.schema",
    ):
        importlib.import_module(name)  # what a process loads lazily, so that each begins at once
    signal.signal(signal.SIGCHLD, reap)
    gc.freeze()
    for line in sys.stdin:
        number, member = json.loads(line)
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD})
        process = os.fork()
        if process == 0:
            _live_and_exit(number, Member(**member))
        living.add(process)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in living:
        os.kill(pid, signal.SIGKILL)


def _live_and_exit(number: int, member: Member) -> None:
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
        anyio.run(live, number, member, backend_options={"use_uvloop": True})
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


@dataclass(slots=True, eq=False)
class Node:
    """A member that was started, from the testing side."""

    member: Member
    pid: int
    url: str
    killed_at: float | None = None
    ended: anyio.Event = field(default_factory=anyio.Event)
    code: int | None = None


class Cluster:
    """The processes on one database."""

    def __init__(self, server: Process, home: Path, database: str) -> None:
        self.home = home
        self.database = database
        self.nodes: list[Node] = []
        """All that there ever were."""
        self._server = server
        self._ready: dict[int, Json] = {}
        self._changed = anyio.Event()
        self._numbers = 0

    async def start(self, name: str, role: str, **settings: Any) -> Node:
        """A new process, once it answers and works."""
        self._numbers += 1
        number = self._numbers
        member = Member(name=name, home=str(self.home), database=self.database, role=role, **settings)
        assert self._server.stdin is not None
        await self._server.stdin.send(f"{json.dumps([number, asdict(member)])}\n".encode())
        with anyio.fail_after(PROCESS_SECONDS):
            while number not in self._ready:
                await self._changed.wait()
        ready = self._ready.pop(number)
        node = Node(member, ready["pid"], ready["url"])
        self.nodes.append(node)
        return node

    async def start_again(self, node: Node) -> Node:
        """A new process in the place of one that ended, at the same address."""
        port = int(node.url.rpartition(":")[2]) if node.url else 0
        return await self.start(
            node.member.name,
            node.member.role,
            port=port,
            work_seconds=node.member.work_seconds,
            clock_shift_seconds=node.member.clock_shift_seconds,
            is_journalled=node.member.is_journalled,
            settings=node.member.settings,
        )

    async def kill(self, node: Node) -> None:
        """kill -9; returns once the process is gone."""
        node.killed_at = time.monotonic()
        self.send_signal(node, signal.SIGKILL)
        with anyio.fail_after(PROCESS_SECONDS):
            await node.ended.wait()

    async def stop(self, node: Node) -> None:
        """Ends the process in good order."""
        self.send_signal(node, signal.SIGTERM)
        with anyio.fail_after(PROCESS_SECONDS):
            await node.ended.wait()
        assert node.code == 0, f"{node.member.name} ended with {node.code}"

    def send_signal(self, node: Node, number: signal.Signals) -> None:
        assert not node.ended.is_set(), f"{node.member.name} has ended with {node.code}"
        os.kill(node.pid, number)

    async def listen(self) -> None:
        """Takes in what the processes say, until they all have ended."""
        assert isinstance(self._server.stdout, ByteReceiveStream)
        rest = ""
        async for text in TextReceiveStream(self._server.stdout):
            *lines, rest = (rest + text).split("\n")
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, message: Json) -> None:
        if "number" in message:
            self._ready[message["number"]] = message
            self._changed.set()
            self._changed = anyio.Event()
            return
        for node in self.nodes:
            if node.pid == message["ended"] and not node.ended.is_set():
                node.code = message["code"]
                node.ended.set()


@asynccontextmanager
async def open_cluster(home: Path, database: str) -> AsyncGenerator[Cluster]:
    """A cluster without members; those that live at the end are killed. What they log goes to `log_file`."""
    journal_directory(home).mkdir(parents=True)
    log = os.open(log_file(home), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    server = await anyio.open_process(
        [sys.executable, "-m", "tests.flows.cluster"],
        cwd=Path(__file__).parents[2],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdin=subprocess.PIPE,
        stderr=log,
    )
    os.close(log)
    async with anyio.create_task_group() as tasks:
        cluster, has_heard_all = Cluster(server, home, database), anyio.Event()

        async def listen() -> None:
            await cluster.listen()
            has_heard_all.set()

        tasks.start_soon(listen)
        try:
            yield cluster
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(PROCESS_SECONDS):
                assert server.stdin is not None
                await server.stdin.aclose()
                await server.wait()
                await has_heard_all.wait()
            tasks.cancel_scope.cancel()
            sys.stderr.write(log_file(home).read_text("utf-8", "replace"))  # for whoever looks at a failure


def log_file(home: Path) -> Path:
    return home.parent / "log"


class Clients:
    """Posts over several gateways, again and again until it is acknowledged."""

    def __init__(self, addresses: Iterable[str], seed: int = 0) -> None:
        self._clients = [new_client(url, TOKEN) for url in addresses]
        self._random = random.Random(seed)
        self.acknowledged: dict[tuple[str, str], Json] = {}
        """The answers, by session and message id."""
        self.repeats = 0
        self.seconds: list[float] = []
        """How long each post took, with its repeats."""

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()

    async def open(self, session: str) -> None:
        await self.ask("POST", "/sessions", json={"key": session})

    async def post(self, session: str, message_id: str, text: str, **fields: object) -> Json:
        """The answer; every repeat goes to any of the gateways."""
        body = {"text": text, "messageId": message_id, **fields}
        began = time.monotonic()
        posted = await self.ask("POST", f"/sessions/{session}/messages", json=body)
        self.acknowledged[session, message_id] = posted
        self.seconds.append(time.monotonic() - began)
        return posted

    def take_post_seconds(self) -> list[float]:
        """How long each post took, with its repeats, since they were taken last."""
        taken, self.seconds = self.seconds, []
        return taken

    def run_of(self, session: str, message_id: str) -> str:
        """The run that answers the message."""
        return self.acknowledged[session, message_id]["runId"]

    async def follow(self, session: str) -> AsyncGenerator[Json]:
        """The events of the session from the first one on, as they come."""
        async with self._clients[0].stream("GET", f"/sessions/{session}/events", params={"after": 0}) as answer:
            async for line in answer.aiter_lines():
                if line.startswith("data: "):
                    yield json.loads(line.removeprefix("data: "))

    async def wait(self, run_id: str, **arguments: Any) -> Json:
        """The run once it has ended."""
        while True:
            run = await self.ask("GET", f"/runs/{run_id}", params={"wait": 15}, **arguments)
            if "endedAt" in run:
                return run

    async def ask(self, method: str, path: str, **arguments: Any) -> Json:
        """The answer, as soon as one of the gateways gives one."""
        with anyio.fail_after(PROCESS_SECONDS):
            while True:
                try:
                    answer = await self._random.choice(self._clients).request(method, path, **arguments)
                    if answer.is_success:
                        return answer.json()
                    assert answer.status_code == 503, answer.text
                except httpx.TransportError:
                    pass
                self.repeats += 1
                await anyio.sleep(PAUSE_SECONDS)


@asynccontextmanager
async def open_clients(*gateways: Node) -> AsyncGenerator[Clients]:
    clients = Clients(node.url for node in gateways)
    try:
        yield clients
    finally:
        await clients.aclose()


class Load:
    """Clients that post to sessions at random, each with a few runs that it has not seen the end of."""

    def __init__(self, clients: Clients, *, sessions: int, outstanding: int = 3) -> None:
        self._clients = clients
        self._sessions = [f"api:load-{number}" for number in range(sessions)]
        self._outstanding = outstanding
        self._is_over = False

    async def run(self, count: int) -> None:
        """Loads until told to stop, then until each of the runs has ended."""
        for session in self._sessions:
            await self._clients.open(session)
        async with anyio.create_task_group() as tasks:
            for number in range(count):
                tasks.start_soon(self._post_on, number)

    def stop(self) -> None:
        self._is_over = True

    async def _post_on(self, client: int) -> None:
        random_ = random.Random(client)
        runs: list[str] = []
        number = 0
        while not self._is_over:
            posted = await self._clients.post(random_.choice(self._sessions), f"{client}-{number}", "work")
            runs.append(posted["runId"])
            number += 1
            if len(runs) > self._outstanding:
                await self._clients.wait(runs.pop(0))
        for run_id in runs:
            await self._clients.wait(run_id)


@dataclass(frozen=True, slots=True)
class Ledger:
    """What the database holds in the end."""

    logs: dict[str, list[Event]]
    runs: dict[str, Run]


async def read_ledger(database: str) -> Ledger:
    def on_commit(*_: object) -> None: ...

    def defer(*_: object) -> tuple[str, tuple[()]]:
        raise AssertionError

    async with PostgresDatabase.open(
        database, on_commit=on_commit, defer=defer, moments=Moments(), connections=2
    ) as opened:
        return await opened.read(_read_ledger)


async def _read_ledger(query: Query) -> Ledger:
    rows = await query.fetch_all("SELECT id, key FROM sessions")
    logs = {key: await whole_log(query, row) for row, key in rows}
    runs = await list_page(query, SYSTEM_REACH, RunFilter(), limit=1_000_000)
    return Ledger(logs, {run.id: run for run in runs})


def check_ledger(ledger: Ledger, acknowledged: dict[tuple[str, str], Json]) -> None:
    """What must hold whatever was killed: nothing lost, doubled or out of order, and every run ended."""
    for events in ledger.logs.values():
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        check_order(events, ledger.runs)
    stored: dict[tuple[str, str], list[Event]] = defaultdict(list)
    for key, events in ledger.logs.items():
        for event in events:
            if isinstance(event.message, UserMessage):
                stored[key.removeprefix("agent:main:"), event.message.message_id].append(event)
    assert {name: len(events) for name, events in stored.items() if len(events) > 1} == {}
    for name, posted in acknowledged.items():
        assert [(event.seq, event.run_id) for event in stored[name]] == [(posted["seq"], posted["runId"])]
    for run in ledger.runs.values():
        check_run(run, [event for event in ledger.logs[str(run.session_key)] if event.run_id == run.id])


def check_order(events: list[Event], runs: dict[str, Run]) -> None:
    """The session's runs began in the order in which they were queued, each after the end of the one before."""
    active: str | None = None
    begun: list[int] = []
    for event in events:
        if event.type == "run_started":
            assert event.run_id is not None and active in (None, event.run_id)
            if active is None:
                begun.append(runs[event.run_id].seq)
            active = event.run_id
        elif event.type == "run_finished":
            assert active == event.run_id
            active = None
    assert active is None
    assert begun == sorted(set(begun))


def check_run(run: Run, events: list[Event]) -> None:
    """The run has one end; nothing that an earlier claim wrote stands behind the claim that followed it."""
    assert run.status is RunStatus.OK or (run.code, run.attempt) == ("crashed", 3), run
    assert [event.type for event in events].count("run_finished") == 1
    assert events[-1].type == "run_finished"
    fence = 0
    replies: list[str] = []
    for event in events:
        if event.type == "run_started":
            fence += 1
        if isinstance(event.message, AssistantMessage):
            text = text_of(event.message.content)
            assert int(text.split()[2]) == fence, f"{text!r} behind claim {fence}"
            replies += [text] if text.startswith("done") else []
    assert replies == ([run.reply] if run.status is RunStatus.OK else [])


def check_overlaps(journal: list[Entry], nodes: list[Node]) -> None:
    """No two living processes worked on one session at the same time."""
    killed = {node.pid: node.killed_at for node in nodes if node.killed_at is not None}
    working: dict[str, dict[int, Entry]] = defaultdict(dict)
    for entry in journal:
        others = working[entry.session]
        if entry.what == "end":
            del others[entry.pid]
            continue
        for pid in [pid for pid in others if killed.get(pid, entry.at) < entry.at]:
            del others[pid]
        assert not others, f"{entry} while {others}"
        others[entry.pid] = entry


def takeovers(journal: list[Entry], nodes: list[Node]) -> list[float]:
    """How long each run that was cut by a kill was without a process, in seconds; from the last kill before, if it
    was to be taken over by one that was killed too."""
    found: list[float] = []
    kills = sorted(node.killed_at for node in nodes if node.killed_at is not None)
    for node in nodes:
        if node.killed_at is None:
            continue
        cut: dict[str, Entry] = {}
        for entry in journal:
            if entry.pid == node.pid:
                if entry.what == "begin":
                    cut[entry.run_id] = entry
                else:
                    cut.pop(entry.run_id, None)
        for run_id in cut:
            later = [entry.at for entry in journal if entry.run_id == run_id and entry.at > node.killed_at]
            if later:
                found.append(later[0] - max(kill for kill in kills if kill < later[0]))
    return found


if __name__ == "__main__":
    serve()
