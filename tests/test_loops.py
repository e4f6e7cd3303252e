"""An error in one item of a loop ends that one and is logged with its ids; the loop serves the next. Contract: runs 8.

The table is complete: a test compares it with the loops that stand in the source.
"""

import ast
import asyncio
import math
from collections.abc import AsyncGenerator, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from datetime import timedelta
from itertools import count
from types import SimpleNamespace
from typing import Any, TypeVar, TypeVarTuple, cast

import anyio
import anyio.lowlevel
import pytest
from msgspec.structs import replace

from antiphon.building import App
from antiphon.channels.account_loop import Pauses
from antiphon.channels.telegram.loop import TelegramLoop
from antiphon.clock import SystemClock
from antiphon.domain.channel_form import ChannelForm, Streaming
from antiphon.domain.classification import PUBLIC
from antiphon.domain.delay import Delta
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import AgentId, ApprovalId, ProcessId, RunId, SessionId, SessionRow, TaskId
from antiphon.domain.person import PersonId
from antiphon.engine.access.credentials import Credentials
from antiphon.engine.access.names import PersonNames
from antiphon.engine.audit.sealer import Sealer
from antiphon.engine.audit.trail import Trail
from antiphon.engine.calls.calls import ApprovedWork, OutsideCalls
from antiphon.engine.chats.accounts import AccountLease, Accounts, KeptUp
from antiphon.engine.children.due import DueChildren
from antiphon.engine.deliveries.deliverer import Deliverer
from antiphon.engine.deliveries.live import LiveReplies
from antiphon.engine.deliveries.paces import RateLimits
from antiphon.engine.notifications import Notifications
from antiphon.engine.runs.context import Runtime
from antiphon.engine.schedules.scheduler import Scheduler
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.engine.views.indexer import Indexer
from antiphon.engine.work.checkpointer import Checkpointer
from antiphon.engine.work.dispatch import LocalDispatch
from antiphon.engine.work.health import Health
from antiphon.engine.work.processes import Processes
from antiphon.engine.work.rule_reloads import SETTLE_SECONDS, RuleReloads
from antiphon.engine.work.worker import Worker
from antiphon.feed.changes import Change, Changes
from antiphon.feed.follow import Hub, LogSlice, Permit
from antiphon.feed.local import LocalNotifier
from antiphon.feed.postgres import PostgresNotifier
from antiphon.policy.notified import NotifiedPerson
from antiphon.policy.system import system_grant
from antiphon.policy.written.rule_set import NO_RULES, RuleSet
from antiphon.store import spawns
from antiphon.store import tasks as stored_tasks
from antiphon.store.approvals import DueApproval
from antiphon.store.checkpoints import DueCheckpoint
from antiphon.store.database import Database, Named, Query, Transaction
from antiphon.store.deliveries import ChannelAccount, Head
from antiphon.store.processes import Process
from antiphon.store.search import LogState
from antiphon.store.spawns import Parked
from antiphon.store.tasks import Due
from tests.channels.fake_channel import FakeChannel, LiveFakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import HeldRunner, ManualClock, config
from tests.test_doors import sources
from tests.waiting import at_least

pytestmark = pytest.mark.anyio

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
Script = Callable[[tuple[Any, ...]], Any]
"""In place of a unit: what it does and returns, by its arguments."""

BAD, GOOD = SessionRow(901), SessionRow(902)
PROCESS = ProcessId("proc_test")
ACCOUNT = ChannelAccount("fake", None)


class PlantedError(RuntimeError):
    """A bug of ours, in the item that it is planted into."""


class Stand:
    """A loop between the test and the home's database: what it lists is the test's, and so is what fails."""

    def __init__(self, app: App) -> None:
        self.app = app
        self.served = asyncio.Event()
        """Set once the next item was served."""
        self.failures = 0
        self.lists: dict[str, Script] = {}
        """What there is to do, by the last names of the module and the function that reads it."""
        self.units: dict[str, Script] = {}
        """What serving an item does, likewise."""
        self.trouble: Unavailable | None = None
        self.failure: Unavailable | None = None

    def serve(self, item: object) -> None:
        """Serves the item: the bad one fails, with the good one the test is over."""
        if item in (BAD, str(BAD)):
            self.fails()
        if item in (GOOD, str(GOOD)):
            self.served.set()

    def fails(self) -> None:
        self.failures += 1
        raise PlantedError("planted")

    def fails_first(self, *_: object) -> None:
        """Fails the first time and serves from then on."""
        if not self.failures:
            self.fails()
        self.served.set()

    def left(self, *items: R) -> list[R]:
        """What is due of these, bad first: what was served is not due any more."""
        return list(items[:1] if self.served.is_set() else items)

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R:
        script = self.units.get(_name_of(unit))
        if script is not None:
            return cast(R, script(arguments))
        return await self.app.database.run(unit, *arguments, sessions=sessions)

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        name = _name_of(query)
        script = self.lists.get(name) or self.units.get(name)
        if script is not None:
            return cast(R, script(arguments))
        return await self.app.database.read(query, *arguments)

    @property
    def database(self) -> Database:
        return cast(Database, self)


def _name_of(unit: Callable[..., object]) -> str:
    return f"{unit.__module__.rpartition('.')[2]}.{unit.__name__}"


Loop = Callable[[], Coroutine[Any, Any, None]]
Start = Callable[[Stand], Loop]
CASES: dict[str, tuple[Start, dict[str, object]]] = {}
"""By the loop, and the kind of item if it has several: how it begins on the stand, and the ids that its log names."""


def case(loop: str, **ids: object) -> Callable[[Start], Start]:
    def add(start: Start) -> Start:
        assert loop not in CASES
        CASES[loop] = start, ids
        return start

    return add


def _nothing(_: tuple[Any, ...]) -> list[object]:
    return []


def due_children(stand: Stand) -> Loop:
    app = stand.app
    for name in ("spawns.list_due", "spawns.list_overdue", "approvals.list_due", "exchanges.list_sealed"):
        stand.lists.setdefault(name, _nothing)
    return DueChildren(
        stand.database, LocalNotifier(), app.workspaces, app.services.rules, clock=app.services.clock
    ).run


@case("engine/ledger/due_loop.py DueLoop.run, a child", session=BAD)
def _(stand: Stand) -> Loop:
    stand.lists["spawns.list_due"] = lambda _: stand.left(BAD, GOOD)
    stand.units["due.archive"] = lambda given: stand.serve(given[0])
    return due_children(stand)


@case("engine/ledger/due_loop.py DueLoop.run, a deadline", session=BAD, due=str(BAD))
def _(stand: Stand) -> Loop:
    due = [Parked(RunId(str(each)), each) for each in (BAD, GOOD)]
    stand.lists["spawns.list_overdue"] = lambda _: stand.left(*due)
    stand.units["due.end_overdue"] = lambda given: stand.serve(given[0])
    return due_children(stand)


@case("engine/ledger/due_loop.py DueLoop.run, a request", session=BAD, due=str(BAD))
def _(stand: Stand) -> Loop:
    due = [DueApproval(ApprovalId(str(each)), each) for each in (BAD, GOOD)]
    stand.lists["approvals.list_due"] = lambda _: stand.left(*due)
    stand.units["decisions.expire_approval"] = lambda given: stand.serve(given[0])
    return due_children(stand)


@case("engine/children/due.py DueChildren._open_sealed", session=BAD, due=str(BAD))
def _(stand: Stand) -> Loop:
    sealed = [SimpleNamespace(id=str(each), requester=each, target=each) for each in (BAD, GOOD)]
    stand.lists["exchanges.list_sealed"] = lambda _: stand.left(*sealed)
    stand.units["sealed.open_sealed"] = lambda given: stand.serve(given[0])
    return due_children(stand)


@case("engine/ledger/due_loop.py DueLoop.run, the look for children")
def _(stand: Stand) -> Loop:
    stand.lists["spawns.list_overdue"] = lambda _: stand.fails_first() or []
    run = due_children(stand)
    notifier = LocalNotifier()
    app = stand.app
    run = DueChildren(stand.database, notifier, app.workspaces, app.services.rules, clock=app.services.clock).run
    return woken_again(run, lambda: notifier.wake([spawns.DUE]))


def woken_again(run: Loop, wake: Callable[[], object]) -> Loop:
    """The loop, which is woken again and again, so that its long pause after an error costs the test nothing."""

    async def wake_again() -> None:
        while True:
            await anyio.sleep(0.05)
            wake()

    async def both() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wake_again)
            await run()

    return both


@case("engine/ledger/due_loop.py DueLoop.run, a task", task_id=str(BAD))
def _(stand: Stand) -> Loop:
    due = [Due(TaskId(str(each)), AgentId("main"), 1) for each in (BAD, GOOD)]
    stand.lists["tasks.list_due"] = lambda _: stand.left(*due)
    stand.units["firing.fire_due"] = lambda given: stand.serve(given[0])
    services = stand.app.services
    return Scheduler(stand.database, LocalNotifier(), services.rules, clock=services.clock).run


@case("engine/ledger/due_loop.py DueLoop.run, the look for tasks")
def _(stand: Stand) -> Loop:
    stand.lists["tasks.list_due"] = lambda _: stand.fails_first() or []
    services, notifier = stand.app.services, LocalNotifier()
    run = Scheduler(stand.database, notifier, services.rules, clock=services.clock).run
    return woken_again(run, lambda: notifier.wake([stored_tasks.TASKS_DUE]))


def deliverer(stand: Stand) -> Loop:
    services = stand.app.services
    return Deliverer(
        database=stand.database,
        notifier=LocalNotifier(),
        senders={ACCOUNT: FakeChannel()},
        rules=services.rules,
        clock=services.clock,
        process=PROCESS,
        paces=RateLimits(services.clock),
    ).run


@case("engine/ledger/due_loop.py DueLoop.run, a delivery", delivery_id=str(BAD), session=BAD)
def _(stand: Stand) -> Loop:
    due = [Head(str(each), each, ACCOUNT, f"room-{each}") for each in (BAD, GOOD)]
    stand.lists["deliveries.list_heads"] = lambda _: stand.left(*due)
    stand.units["deliveries.claim_delivery"] = lambda given: stand.serve(given[0].id)
    return deliverer(stand)


@case("engine/ledger/due_loop.py DueLoop.run, the look for deliveries")
def _(stand: Stand) -> Loop:
    stand.lists["deliveries.list_heads"] = lambda _: stand.fails_first() or []
    return deliverer(stand)


@case("engine/deliveries/live.py LiveReplies.run", run_id=str(BAD))
def _(stand: Stand) -> Loop:
    services = stand.app.services
    stand.units["showing.look"] = lambda given: stand.serve(given[0].run.id)
    live = LiveReplies(
        database=stand.database,
        notifier=LocalNotifier(),
        channels={ACCOUNT: LiveFakeChannel(form=ChannelForm(streaming=Streaming.EDIT))},
        rules=services.rules,
        paces=RateLimits(services.clock),
        clock=services.clock,
    )
    for each in (BAD, GOOD):
        run = SimpleNamespace(id=str(each), session=each, place=None, purpose=SimpleNamespace(speaks_for_itself=True))
        live.begin(cast(Any, run))
    return live.run


def notifications(stand: Stand) -> Loop:
    services = stand.app.services
    people = [NotifiedPerson(channel="fake", account=str(each), person=PersonId("owner")) for each in (BAD, GOOD)]
    rules = replace(services.rules, notified=tuple(people))
    accounts = [ChannelAccount("fake", each.account) for each in people]
    return Notifications(stand.database, rules, services.clock, accounts=accounts, look_seconds=0.05).run


@case("engine/notifications.py Notifications.run, a person", channel="fake", account=str(BAD))
def _(stand: Stand) -> Loop:
    def look(given: tuple[Any, ...]) -> SimpleNamespace:
        stand.serve(given[0].account)
        return SimpleNamespace(change=False)

    stand.lists["notifications.look_for"] = look
    return notifications(stand)


@case("engine/notifications.py Notifications.run")
def _(stand: Stand) -> Loop:
    stand.trouble = Unavailable("Disk is full", code="disk_full")
    stand.lists["notifications.look_for"] = lambda _: stand.fails_first() or SimpleNamespace(change=False)
    return notifications(stand)


def index(stand: Stand) -> Indexer:
    return Indexer(stand.database, LocalNotifier())


@case("engine/views/indexer.py Indexer._work", session=BAD)
def _(stand: Stand) -> Loop:
    states = [LogState(each, first_seq=1, last_seq=5, indexed_first_seq=1, indexed_seq=0) for each in (BAD, GOOD)]
    stand.lists["search.list_backlog"] = lambda _: stand.left(BAD, GOOD)
    stand.lists["search.find_states"] = lambda _: stand.left(*states)

    def read(given: tuple[Any, ...]) -> list[object]:
        for state in given[0]:
            stand.serve(state.session)
        return []

    stand.units["indexer._read_logs"] = read
    return index(stand).run


@case("engine/views/indexer.py Indexer._sweep")
def _(stand: Stand) -> Loop:
    stand.lists["search.list_backlog"] = lambda _: stand.fails_first() or []
    return index(stand).run


@case("engine/audit/trail.py Trail.run")
def _(stand: Stand) -> Loop:
    stand.lists["audit.has_denials"] = lambda _: True
    stand.units["trail._settle"] = lambda _: stand.fails_first() or 0
    return Trail(stand.database, stand.app.services.clock, settle_seconds=0).run


@case("engine/audit/sealer.py Sealer.run")
def _(stand: Stand) -> Loop:
    stand.units["audit.seal"] = stand.fails_first
    trail = Trail(stand.database, stand.app.services.clock)
    return Sealer(stand.database, LocalNotifier(), trail, path=stand.app.home / "seals", home="0" * 16).run


@case("engine/sessions/upkeep.py Upkeep.prune", session=BAD)
def _(stand: Stand) -> Loop:
    stand.lists["sessions.list_logs"] = lambda given: [] if given[0] else [(BAD, 1), (GOOD, 1)]
    stand.units["upkeep.prune_log"] = lambda given: stand.serve(given[0])
    return upkeep(stand)


def upkeep(stand: Stand) -> Loop:
    app, day = stand.app, timedelta(days=1)
    return Upkeep(stand.database, app.workspaces, app.services.clock, stale_after=day, retention=day).run


@case("engine/sessions/upkeep.py Upkeep.run", step="hide_stale")
def _(stand: Stand) -> Loop:
    stand.lists["sessions.list_idle_before"] = lambda _: stand.fails()
    stand.lists["sessions.list_logs"] = lambda _: stand.served.set() or []
    return upkeep(stand)


@case("engine/ledger/due_loop.py DueLoop.run, a checkpoint", session=BAD, incarnation=str(BAD))
def _(stand: Stand) -> Loop:
    due = [DueCheckpoint(each, SessionId(str(each))) for each in (BAD, GOOD)]
    stand.lists["checkpoints.list_due"] = lambda _: stand.left(*due)
    stand.units["steps.begin_checkpoint"] = lambda given: stand.serve(given[0].due.session)
    return checkpointer(stand)


def checkpointer(stand: Stand) -> Loop:
    services = stand.app.services
    return Checkpointer(
        stand.database,
        LocalNotifier(),
        cast(Any, None),
        services.rules,
        process=PROCESS,
        clock=services.clock,
    ).run


@case("engine/ledger/due_loop.py DueLoop.run, the look for checkpoints")
def _(stand: Stand) -> Loop:
    stand.lists["checkpoints.list_due"] = lambda _: stand.fails_first() or []
    return checkpointer(stand)


def credentials(stand: Stand) -> Credentials:
    return Credentials(stand.database, stand.app.services.clock)


@case("engine/access/credentials.py Credentials.run", credential=str(BAD))
def _(stand: Stand) -> Loop:
    watching = credentials(stand)
    for each in (BAD, GOOD):
        watching.watch(str(each), 0, lambda _, each=each: stand.serve(each))
    return watching.run


@case("engine/access/credentials.py Credentials.run, the look")
def _(stand: Stand) -> Loop:
    watching = credentials(stand)
    watching.watch("hash", 0, lambda _: None)
    stand.lists["tokens.find_valid"] = lambda _: stand.fails_first() or {}
    return watching.run


@case("engine/access/names.py PersonNames.run")
def _(stand: Stand) -> Loop:
    stand.lists["names._list"] = lambda _: stand.fails_first() or {}
    return PersonNames(stand.database, LocalNotifier()).run


@case("engine/work/health.py Health.run")
def _(stand: Stand) -> Loop:
    stand.trouble = Unavailable("Disk is full", code="disk_full")
    stand.units["checkup.probe"] = stand.fails_first
    return Health(stand.database, None, look_seconds=0.05).run


@case("engine/work/processes.py Processes.run")
def _(stand: Stand) -> Loop:
    this = Process(id=PROCESS, role="all", host="here", pid=1, version="", fingerprint="", agents=())
    stand.units["processes.beat"] = lambda _: stand.fails_first() or True
    return Processes(stand.database, stand.app.services.clock, this, beat_seconds=0.05).run


@case("engine/work/rule_reloads.py RuleReloads.run")
def _(stand: Stand) -> Loop:
    services = stand.app.services
    file = stand.app.home / "rules.toml"

    def read(_: object) -> RuleSet:
        stand.fails_first()
        return NO_RULES

    reloads = RuleReloads(stand.app.database, services.rules, services.clock, file=file, read=read, look_seconds=0.05)

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reloads.run)
            for number in count():  # each look finds another file
                file.write_text("#" * number, "utf-8")
                await anyio.sleep(3 * SETTLE_SECONDS)

    return run


@case("engine/work/dispatch.py LocalDispatch._find_busy")
def _(stand: Stand) -> Loop:
    stand.lists["runs.list_busy_sessions"] = lambda _: stand.fails_first() or []
    dispatch = LocalDispatch()
    dispatch.read_from(stand.database)

    async def run() -> None:
        await dispatch.run(cast(Any, None))
        await anyio.sleep_forever()

    return run


def worker(stand: Stand) -> Worker:
    app = stand.app
    services = app.services
    runtime = Runtime(
        database=stand.database,
        waits=services.waits,
        publish_delta=lambda _, __: None,
        clock=services.clock,
        ids=services.ids,
    )
    return Worker(runtime, runner=HeldRunner(), rules=services.rules, process=PROCESS, workspaces=app.workspaces)


@case("engine/work/worker.py Worker._drive", session=BAD)
def _(stand: Stand) -> Loop:
    stand.units["lifecycle.claim"] = lambda given: stand.serve(given[0])
    working = worker(stand)
    working.take(BAD)
    working.take(GOOD)
    return working.run


@case("engine/work/worker.py Worker.run")
def _(stand: Stand) -> Loop:
    stand.units["lifecycle.claim"] = lambda _: None
    stand.lists["runs.find_askers"] = lambda _: stand.fails_first() or {}
    working = worker(stand)
    for each in range(40):  # more than there are slots, so that it is looked up whose they are
        working.take(SessionRow(1_000 + each))
    return working.run


@case("engine/ledger/due_loop.py DueLoop.run, an approved call", approval_id=str(BAD), tool="delete")
def _(stand: Stand) -> Loop:
    return approved_calls(stand, lambda: stand.left(str(BAD), str(GOOD)))


@case("engine/ledger/due_loop.py DueLoop.run, the look for approved calls")
def _(stand: Stand) -> Loop:
    return approved_calls(stand, lambda: stand.fails_first() or [])


def approved_calls(stand: Stand, due: Callable[[], list[str]]) -> Loop:
    def work_of(approval: Any) -> ApprovedWork:
        return ApprovedWork("delete", True, cast(Any, None))

    stand.lists["approvals.list_to_carry_out"] = lambda _: [SimpleNamespace(id=id, session=GOOD) for id in due()]
    stand.units["steps.take_call"] = lambda given: stand.serve(given[0].id)
    services = stand.app.services
    calls = OutsideCalls(
        stand.database,
        services.waits,
        cast(Any, SimpleNamespace(work_of=work_of)),
        services.rules,
        process=PROCESS,
        ids=services.ids,
    )
    return woken_again(calls.run, calls.wake)


def slices_of(stand: Stand, cursors: Mapping[SessionRow, int]) -> Mapping[SessionRow, LogSlice]:
    for session in cursors:
        stand.serve(session)
    return {session: LogSlice(first_seq=1, last_seq=0, events=(), size=0) for session in cursors}


@case("feed/follow.py Hub.run", session=BAD)
def _(stand: Stand) -> Loop:
    async def read(cursors: Mapping[SessionRow, int]) -> Mapping[SessionRow, LogSlice]:
        return slices_of(stand, cursors)

    hub = Hub(LocalNotifier(), read, SystemClock())
    return following(hub, hub.run, (BAD, GOOD), lambda _: None)


@case("feed/follow.py Hub.sweep", session=BAD)
def _(stand: Stand) -> Loop:
    async def read(cursors: Mapping[SessionRow, int]) -> Mapping[SessionRow, LogSlice]:
        return {}

    clock = ManualClock()
    hub = Hub(LocalNotifier(), read, clock)

    def begin_sending() -> None:
        for reader in hub.readers:
            reader.sending_since = clock.monotonic()
        clock.pass_time(timedelta(hours=1))

    return following(hub, hub.sweep, (BAD, GOOD), stand.serve, begin_sending)


def following(
    hub: Hub,
    run: Loop,
    sessions: Collection[SessionRow],
    on_stall: Callable[[SessionRow], None],
    begin: Callable[[], None] = lambda: None,
) -> Loop:
    """The loop, with a reader of each session."""
    view = cast(Any, SimpleNamespace(keep_alive=b""))

    async def both() -> None:
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                tasks.start_soon(follow, session)
            await anyio.lowlevel.checkpoint()
            begin()
            await run()

    async def follow(session: SessionRow) -> None:
        def stall() -> None:
            on_stall(session)

        async with hub.follow(Permit(system_grant(session)), 0, view, on_stall=stall):
            await anyio.sleep_forever()

    return both


class Reader:
    def __init__(self, serve: Callable[[], object]) -> None:
        self._serve = serve

    async def take(self, changes: Sequence[Change]) -> None:
        self._serve()

    async def look_again(self) -> None:
        self._serve()


@case("feed/changes.py Changes.run", session=BAD)
def _(stand: Stand) -> Loop:
    return changes(stand, [Reader(lambda: None)], is_log_bad=True)


@case("feed/changes.py Changes._tell", reader="Reader", sessions=[GOOD])
def _(stand: Stand) -> Loop:
    return changes(stand, [Reader(stand.fails), Reader(stand.served.set)], is_log_bad=False)


def changes(stand: Stand, readers: Sequence[Reader], *, is_log_bad: bool) -> Loop:
    async def read(cursors: Mapping[SessionRow, int]) -> Mapping[SessionRow, LogSlice]:
        return slices_of(stand, cursors) if is_log_bad else {}

    async def read_heads(above: SessionRow, limit: int) -> Mapping[SessionRow, int]:
        return {}

    notifier = LocalNotifier()
    feed = Changes(notifier, read, read_heads, SystemClock())

    async def run() -> None:
        for reader in readers:
            await feed.add(reader)
        notifier.tell([BAD, GOOD] if is_log_bad else [GOOD])
        await feed.run()

    return run


class Wire:
    """A notification channel; what it sends and hears is the test's."""

    def __init__(self, send: Callable[[str], object], heard: Sequence[str] = ()) -> None:
        self._send = send
        self._heard = heard

    async def send(self, text: str) -> None:
        self._send(text)

    async def receive(self) -> AsyncGenerator[str | None]:
        yield None
        for text in self._heard:
            yield text
        await asyncio.Event().wait()


def notifier(stand: Stand, wire: Wire, begin: Callable[[PostgresNotifier], object]) -> Loop:
    made = PostgresNotifier(wire, PROCESS, on_interrupt=lambda _: stand.served.set())
    begin(made)

    async def run() -> None:
        await made.run(stand.database)

    return run


@case("feed/postgres.py PostgresNotifier._send")
def _(stand: Stand) -> Loop:
    return notifier(stand, Wire(stand.fails_first), lambda made: made.publish([GOOD], ()))


@case("feed/postgres.py PostgresNotifier._send_deltas")
def _(stand: Stand) -> Loop:
    def begin(made: PostgresNotifier) -> None:
        def publish() -> None:
            made.publish_delta(GOOD, Delta(RunId("run_x"), 0, "piece", PUBLIC))

        publish()
        asyncio.get_running_loop().call_later(0.3, publish)

    return notifier(stand, Wire(stand.fails_first), begin)


@case("feed/postgres.py PostgresNotifier._listen", text="planted")
def _(stand: Stand) -> Loop:
    stand.failures = 1  # by what it hears
    return notifier(stand, Wire(lambda _: None, ["planted", f"proc_other  {GOOD} "]), lambda _: None)


@case("feed/postgres.py PostgresNotifier._poll")
def _(stand: Stand) -> Loop:
    stand.lists["sessions.find_last_seqs"] = lambda _: stand.fails_first() or {}
    return notifier(stand, Wire(lambda _: None), lambda made: made.subscribe(GOOD, lambda: None))


class TelegramStand(Accounts):
    """The bot's client and its account, of which one request fails."""

    def __init__(self, stand: Stand, failing: str) -> None:
        super().__init__(stand.database, PROCESS, SystemClock())
        self._stand = stand
        self._failing = failing
        self.bot = SimpleNamespace(delete_webhook=self._nothing, set_my_commands=self._nothing)

    def _step(self, name: str) -> None:
        if name == self._failing:
            self._stand.fails_first()

    async def _nothing(self, *_: object, **__: object) -> None: ...

    async def open(self) -> None:
        self._step("open")

    async def take_lease(self, channel: str, account: str) -> AccountLease:
        self._step("take_lease")
        return AccountLease(channel=channel, account=account, process=PROCESS, fence=1, position=None)

    async def release(self, lease: object) -> None: ...

    async def note_name(self, *_: object, **__: object) -> None:
        self._step("note_name")

    async def note_trouble(self, channel: str, account: str, trouble: object) -> None: ...

    async def list_held(self, _: object) -> list[object]:
        return []

    async def pause_before_next(self, _: object) -> float:
        return math.inf

    async def tell_numbers(self) -> None: ...

    async def wait_held(self, seconds: float) -> None:
        await anyio.sleep(seconds)

    async def find_me(self) -> object:
        self._step("find_me")
        return SimpleNamespace(id=1, username="bot")

    async def find_hook(self) -> object:
        return SimpleNamespace(url="")

    async def fetch_updates(self, _: object) -> list[object]:
        await anyio.sleep(0.05)
        self._step("fetch_updates")
        return []


def telegram(failing: str) -> Start:
    def start(stand: Stand) -> Loop:
        both: Any = TelegramStand(stand, failing)
        settings = cast(Any, SimpleNamespace(mode="polling", webhook_url=None))
        pauses = Pauses(timedelta(0), timedelta(0))
        return TelegramLoop(settings, both, both, both, clock=SystemClock(), secret="x", pauses=pauses).run

    return start


for _loop, _failing in {
    "engine/chats/accounts.py Accounts.hold": "take_lease",
    "channels/account_loop.py AccountLoop.run": "open",
    "channels/account_loop.py AccountLoop._until_it_works": "find_me",
    "channels/account_loop.py AccountLoop.store_name": "note_name",
    "channels/telegram/loop.py TelegramLoop.listen": "fetch_updates",
}.items():
    case(_loop, channel="telegram")(telegram(_failing))


@case("engine/chats/accounts.py Accounts.run")
def _(stand: Stand) -> Loop:
    accounts = Accounts(stand.database, PROCESS, SystemClock())
    stand.units["accounts.take"] = lambda _: (1, None)
    stand.units["accounts.keep_up"] = lambda given: stand.fails_first() or KeptUp(set(given[0].claims), {})

    async def run() -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(accounts.run)
            await accounts.hold("fake", "default", lambda _: anyio.sleep_forever())

    return run


class Room:
    """A worker that takes nothing, and of which one answer fails."""

    def __init__(self, stand: Stand, failing: str) -> None:
        self._stand = stand
        self._failing = failing

    def _step(self, name: str) -> None:
        if name == self._failing:
            self._stand.fails_first()

    def take(self, session: SessionRow) -> None: ...

    async def check_all(self) -> None:
        self._step("check_all")

    async def wait_room(self) -> bool:
        self._step("wait_room")
        return False

    async def wait_guest_room(self) -> None:
        self._step("wait_guest_room")
        await anyio.sleep(0.05)

    async def wait_left(self, session: SessionRow) -> bool:
        return True


def dispatch(failing: str) -> Start:
    def start(stand: Stand) -> Loop:
        from antiphon.engine.work import procrastinate_dispatch

        url = stand.app.config.database.url
        assert url is not None
        made = procrastinate_dispatch.ProcrastinateDispatch(url.get_secret_value())
        made.read_from(stand.database)
        if failing == "sweep":
            stand.lists["jobs.list_undelivered"] = lambda _: stand.left(BAD, GOOD)
            stand.units["procrastinate_dispatch._deliver_again"] = lambda sessions: [*map(stand.serve, sessions)]
        if failing == "look":
            stand.lists["jobs.list_undelivered"] = lambda _: stand.fails_first() or []

        async def run() -> None:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(made.run, Room(stand, failing))
                try:
                    await anyio.sleep_forever()
                finally:
                    made.stop()

        return run

    return start


DISPATCH = "engine/work/procrastinate_dispatch.py ProcrastinateDispatch"
case(f"{DISPATCH}.run")(dispatch("wait_room"))
case(f"{DISPATCH}._check")(dispatch("check_all"))
case(f"{DISPATCH}._invite_guests")(dispatch("wait_guest_room"))
case(f"{DISPATCH}._sweep", session=BAD)(dispatch("sweep"))
case(f"{DISPATCH}._sweep, the look")(dispatch("look"))
ON_POSTGRES = [loop for loop in CASES if loop.startswith(DISPATCH)]


@requirement("runs:8")
@pytest.mark.parametrize(
    ("database_section", "loop"),
    [("postgres" if loop in ON_POSTGRES else "sqlite", loop) for loop in CASES],
    indirect=["database_section"],
)
async def test_an_error_in_one_item_is_logged_and_the_next_is_served(
    open_home: OpenHome, loop: str, caplog: pytest.LogCaptureFixture
) -> None:
    start, ids = CASES[loop]
    async with open_home(config(checkpoints__enabled=True)) as app:
        stand = Stand(app)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(start(stand))
            with anyio.fail_after(at_least(30)):
                await stand.served.wait()
            tasks.cancel_scope.cancel()
    assert 1 <= stand.failures <= 5  # it rests, and does not spin
    (said,) = [record for record in caplog.records if record.exc_info is not None and record.levelname != "DEBUG"]
    assert {name: said.__dict__.get(name) for name in ids} == ids


@requirement("runs:8")
def test_a_reader_that_cannot_be_woken_keeps_no_other_from_the_news_of_a_commit(
    caplog: pytest.LogCaptureFixture,
) -> None:
    notifier, told = LocalNotifier(), list[object]()

    def fails(*_: object) -> None:
        raise PlantedError("planted")

    for wake in (fails, lambda: told.append("of the session")):
        notifier.subscribe(GOOD, wake)
    for hear in (fails, told.append):
        notifier.subscribe_all(hear)
        notifier.subscribe_everywhere(hear)
    notifier.publish([GOOD])
    assert told == ["of the session", [GOOD], [GOOD]]
    assert [record.__dict__["session"] for record in caplog.records if "session" in record.__dict__] == [GOOD]


OF_ONE = {
    "channels/telegram/client.py _BotRequests.fetch": "the bytes of one answer",
    "channels/account_loop.py AccountLoop._hold": "each round ends in `_until_it_works`",
    **dict.fromkeys(
        (
            "channels/discord/gateway.py DiscordGateway._follow",
            "channels/discord/loop.py DiscordLoop._take_events",
            "channels/discord/loop.py DiscordLoop._take_presses",
        ),
        "one account, which `AccountLoop.run` serves again",
    ),
    "channels/account_loop.py AccountLoop._fetch": "the tries of one file",
    "channels/files.py read_at_most": "the bytes of one file",
    "channels/discord/client.py RequestBudget.acquire": "one request",
    "channels/discord/loop.py DiscordLoop._written_since": "one chat",
    "channels/deltachat/core.py Core.next_event": "one event",
    "channels/deltachat/account.py DeltaChatLoop._wait_for_missed": "one core, likewise",
    "channels/deltachat/account.py DeltaChatLoop._take_in": "one core, after which `_until_it_works` starts another",
    "channels/join_window.py JoinWindow.close_in_time": "the windows of one account, whose channel is served again",
    "channels/email/account.py EmailLoop.listen": "one connection, after which `_until_it_works` calls it again",
    "channels/telegram/files.py fetch_file": "the tries of one file",
    "channels/intake.py Intake.take": "the tries of one event, which is then passed over",
    **dict.fromkeys(
        (
            "channels/slack/loop.py SlackLoop._note_alive",
            "channels/slack/socket.py listen",
            "channels/slack/socket.py _serve",
            "channels/slack/socket.py _hear_hello",
            "channels/slack/socket.py _next",
        ),
        "one account, which `AccountLoop.run` serves again",
    ),
    "channels/slack/channel.py SlackChannel._find": "one text",
    "channels/matrix/loop.py MatrixLoop.listen": "one account, which `AccountLoop.run` serves again",
    "channels/matrix/loop.py MatrixLoop._with_earlier": "one room",
    "channels/slack/client.py SlackClient.pages": "one list",
    "channels/slack/loop.py SlackLoop._catch_up": "one list",
    "channels/slack/loop.py SlackLoop._missed": "one chat",
    "channels/webhook/channel.py _read": "the bytes of one answer",
    "engine/access/callers.py Callers.present": "one call",
    "engine/access/ownership.py Ownership._read": "one request",
    "engine/audit/check.py _Check._check_logs": "one request",
    "engine/audit/check.py _Check._check_processes": "one request",
    "engine/audit/check.py _Check._check_seals": "one request",
    "engine/audit/trail.py _settle": "one unit",
    "engine/calls/calls.py OutsideCalls._end": "one call",
    "engine/calls/calls.py OutsideCalls._list_to_carry_out": "one list",
    "engine/calls/calls.py OutsideCalls._take": "one call",
    "engine/chats/held.py HeldMessages.serve": "one account, which `TelegramLoop.run` serves again",
    "engine/chats/session_commands.py _free_key": "one name",
    "engine/checkpoints/reading.py BegunCheckpointReader.read_entries": "one checkpoint",
    "engine/deliveries/acknowledgements.py Acknowledgements._accompany": "one message",
    "engine/deliveries/acknowledgements.py look_at": "one chain of runs",
    "engine/deliveries/deliverer.py Deliverer._send_parts": "one text",
    "engine/deliveries/deliverer.py Deliverer._settle": "one text",
    "engine/deliveries/live.py LiveReplies._show": "one reply",
    "engine/deliveries/live.py LiveReplies._store": "one reply",
    "engine/firings/ends.py _slot_of": "one unit",
    "engine/ledger/cycles.py waits_for": "one unit",
    "engine/ledger/waits.py Waits.wait": "one wait",
    "engine/ledger/waits.py Waits.wait_several": "one wait",
    "engine/ledger/waits.py Waits.wait_until": "one wait",
    "engine/reports/inherit.py _find_heir": "one unit",
    "engine/reports/result.py _newest_words": "one unit",
    "engine/runs/cancel.py cancel_run": "one unit",
    "engine/runs/context.py RunContext.read_log": "one run",
    "engine/runs/chains.py read_chain": "the run and those that it continues",
    "engine/schedules/scheduler.py Scheduler.settle_due": "one look, whose items the loop around it has",
    "engine/sessions/forks.py Forks._remove": "one copy",
    "engine/sessions/forks.py _read_all": "one unit",
    "engine/sessions/upkeep.py Upkeep._prune": "one session",
    "engine/sessions/upkeep.py Upkeep.hide_stale": "one step of the upkeep",
    "engine/sessions/upkeep.py Upkeep.forget_calls": "one step of the upkeep",
    "engine/sessions/upkeep.py Upkeep.forget_files": "one step of the upkeep",
    "engine/children/due.py DueChildren._settle_due": "one look, whose items the loop around it has",
    "engine/views/history.py History.events": "one request",
    "engine/views/indexer.py Indexer.catch_up": "one request",
    "engine/views/indexer.py Indexer._index_all": "one look, whose items the loop around it has",
    "engine/views/refusals.py _find_last": "one request",
    "engine/views/search.py Search.messages": "one request",
    "engine/views/summary_inputs.py SummaryInputs.read": "one request",
    "engine/work/checkpointer.py Checkpointer._settle": "one checkpoint",
    "engine/work/worker.py Worker._finish": "one run",
    "engine/work/worker.py Worker._run_to_end": "one run",
    "engine/work/worker.py Worker._wait_idle": "the end of the process",
    "engine/work/worker.py Worker.wait_guest_room": "one wait",
    "engine/work/worker.py Worker.wait_room": "one wait",
    "feed/changes.py Changes._find_missed": "one look, whose items the loop around it has",
    "feed/changes.py Changes._prepare": "one reader",
    "feed/follow.py Reader.next": "one reader",
}
"""Loops that serve one item: an error ends it, and the loop or the request around it has to stand it."""
ROOMS = ("engine/", "channels/", "feed/")


def test_the_table_has_every_loop() -> None:
    served = {name.partition(",")[0] for name in CASES}
    assert served.isdisjoint(OF_ONE)
    assert {name for file, tree in sources() if file.startswith(ROOMS) for name in loops_in(file, tree)} == (
        served | OF_ONE.keys()
    )


def loops_in(file: str, node: ast.AST, *scopes: str) -> Iterator[str]:
    """Where a loop of the node waits for something, by the function that it stands in."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.AsyncFunctionDef | ast.FunctionDef | ast.ClassDef):
            yield from loops_in(file, child, *scopes, child.name)
            continue
        waits = (ast.Await, ast.AsyncFor, ast.AsyncWith)
        if isinstance(child, ast.AsyncFor) or (
            isinstance(child, ast.While) and any(isinstance(each, waits) for each in ast.walk(child))
        ):
            yield f"{file} {'.'.join(scopes)}"
        yield from loops_in(file, child, *scopes)
