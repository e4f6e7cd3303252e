"""Rows that one process at a time works on: who was taken over writes nothing, what a dead one left is ended."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from typing import Any

import anyio
import pytest
from msgspec.structs import replace

from antiphon.agents.asking import RetryPolicy
from antiphon.agents.toolset import tool
from antiphon.backends import describe_process
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.call import OutsideCall
from antiphon.domain.classification import PUBLIC
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.event import NewEvent
from antiphon.domain.ids import AgentId, ProcessId, SessionRow
from antiphon.domain.message import Usage
from antiphon.domain.run import Outcome, Run, RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.engine.access.reach import Rights
from antiphon.engine.calls.steps import BeginKeyedCall, TakeCall, begin_keyed_call, end_call, take_call
from antiphon.engine.checkpoints.introspector import BegunCheckpoint, LookedBack
from antiphon.engine.checkpoints.steps import (
    BeginCheckpoint,
    FinishCheckpoint,
    UsedByCheckpoint,
    begin_checkpoint,
    finish_checkpoint,
    hand_back_checkpoint,
    note_usage,
)
from antiphon.engine.deliveries.deliveries import (
    DeliveryFailure,
    settle_failed,
    settle_part,
    settle_sent,
    settle_withdrawn,
)
from antiphon.engine.ledger.fence import Claimant, Fence
from antiphon.engine.ledger.run_log import Steps
from antiphon.engine.runs import lifecycle
from antiphon.engine.runs.ends import FinishRun
from antiphon.engine.sessions.forks import (
    FIRST_COPY,
    ForkSession,
    StagedFork,
    begin_fork,
    finish_fork,
    prepare_fork,
    remove_page,
    store_page,
)
from antiphon.store import calls, channel_accounts, copies, deliveries, processes
from antiphon.store import sessions as rows
from antiphon.store.channel_accounts import AccountName, LeaseRequest
from antiphon.store.checkpoints import DueCheckpoint
from antiphon.store.claims import Claim
from antiphon.store.database import Row, SqlValue, Transaction
from antiphon.store.deliveries import NewDelivery
from antiphon.testing import fake_provider
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.approvals.test_approvals import Disk, S, call, decide, pending
from tests.engine.checkpoints.test_checkpoints import noting, until_facts
from tests.engine.sessions.test_forks_in_pages import large
from tests.engine.stage import HeldRunner, ask, config, find_session, open_session, open_with_provider, post, wait_end
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

ONE, TWO, DEAD = ProcessId("one"), ProcessId("two"), ProcessId("dead")
LEASE_MS = 8_000


class Undone(Exception):
    """Ends a unit of a test, of which nothing is to stay."""


class Kind(ABC):
    """A kind of row that processes claim."""

    table: str
    goes_on = True
    """Whether who takes it over goes on with the work."""
    key: SqlValue
    session: SessionRow

    def __init__(self, stack: AsyncExitStack, open_home: OpenHome) -> None:
        self._stack = stack
        self._open_home = open_home

    def _home(self, settings: Any = None, parts: Parts | None = None) -> AbstractAsyncContextManager[App]:
        return self._open_home(settings, parts)

    async def open(self) -> AbstractAsyncContextManager[App]:
        """A home in which only the test works on the row."""
        return self._home()

    async def open_again(self) -> AbstractAsyncContextManager[App]:
        """The home as people use it."""
        return self._home()

    async def set_up(self, app: App) -> None:
        self.app = app
        await open_session(app, S)
        self.session = (await find_session(app, S)).row

    @abstractmethod
    async def take(self, tx: Transaction, process: ProcessId) -> Any:
        """What the process holds then; None if it may not have the row."""

    @abstractmethod
    def writes(self, held: Any) -> Sequence[Callable[[Transaction], Awaitable[object]]]:
        """All that may be written under a claim; the last ends it."""

    @abstractmethod
    async def until_ended(self, app: App) -> None: ...

    async def stored(self, tx: Transaction) -> tuple[list[Row], list[Row]]:
        column = {"channel_accounts": "account", "copies_under_way": "session"}.get(self.table, "id")
        column = "incarnation" if self.table == "checkpoints" else column
        return (
            await tx.fetch_all(f"SELECT * FROM {self.table} WHERE {column} = ?", (self.key,)),
            await tx.fetch_all("SELECT session, COUNT(*) FROM events GROUP BY session ORDER BY session"),
        )

    @property
    def _now(self) -> int:
        return self.app.services.clock.now_ms()


class RunClaim(Kind):
    table = "runs"

    async def open(self) -> AbstractAsyncContextManager[App]:
        self.runner = HeldRunner()
        return self._home(config(gateway__drain_seconds=0), Parts(runner=self.runner))

    async def set_up(self, app: App) -> None:
        await super().set_up(app)
        self.key = (await post(app, S, "m-1")).run_id
        await self.runner.until_begun(1)

    async def take(self, tx: Transaction, process: ProcessId) -> Run | None:
        claimant = Claimant(process=process, time_limits={AgentId("main"): None})
        return await lifecycle.claim(tx, self.session, claimant)

    def writes(self, held: Run) -> Sequence[Callable[[Transaction], Awaitable[object]]]:
        fence, end = Fence(held.id, held.fence), FinishRun(outcome=Outcome(status=RunStatus.OK))
        return (
            lambda tx: lifecycle.record(tx, fence, Steps((), is_counted=True)),
            lambda tx: lifecycle.set_waiting(tx, fence, (held.id,), None),
            lambda tx: lifecycle.set_attachments_due(tx, fence, True),
            lambda tx: lifecycle.hand_back(tx, fence),
            lambda tx: lifecycle.finish_run(tx, fence, end),
        )

    async def until_ended(self, app: App) -> None:
        run = await wait_end(app, (await app.services.runs.get(OWNER, self.key)).id)  # type: ignore[arg-type]
        assert (run.status, run.reply) == (RunStatus.OK, "echo: m-1")


class TextClaim(Kind):
    table = "deliveries"

    async def open_again(self) -> AbstractAsyncContextManager[App]:
        self.channel = FakeChannel()
        return self._home(None, Parts(channels=[self.channel]))

    async def set_up(self, app: App) -> None:
        await super().set_up(app)
        session = await find_session(app, S)
        new = NewDelivery(
            name="n" * 20,
            session=session.row,
            incarnation=session.id,
            run_id=None,
            place=DeliveryContext(channel=NAME, to="room"),
            text="hello",
            made_of=PUBLIC,
        )
        self.key = await app.database.run(deliveries.insert, new, self._now - 1, sessions=(session.row,))

    async def take(self, tx: Transaction, process: ProcessId) -> Delivery | None:
        return await deliveries.claim(tx, str(self.key), process=process, now_ms=self._now)

    def writes(self, held: Delivery) -> Sequence[Callable[[Transaction], Awaitable[object]]]:
        failure = DeliveryFailure(code="x", error="x", is_permanent=True, wait_ms=0)
        return (
            lambda tx: settle_part(tx, held, ("p1",)),
            lambda tx: settle_failed(tx, held, failure),
            lambda tx: settle_withdrawn(tx, held),
            lambda tx: settle_sent(tx, held, ("p1",)),
        )

    async def until_ended(self, app: App) -> None:
        with anyio.fail_after(SECONDS):
            await app.deliverer.wait_idle()
        (sent,) = await Story(app).deliveries()
        assert (sent.status, sent.attempts, self.channel.texts) == (DeliveryStatus.SENT, 2, ["hello"])


class CheckpointClaim(Kind):
    table = "checkpoints"

    async def open(self) -> AbstractAsyncContextManager[App]:
        fake = await self._stack.enter_async_context(fake_provider(noting()))
        parts = Parts(retry=RetryPolicy(attempts=1))
        return open_with_provider(self._open_home, fake, parts, checkpoints__enabled=True)

    open_again = open

    async def set_up(self, app: App) -> None:
        await super().set_up(app)
        await ask(app, S, "Good morning.")
        await app.checkpointer.drain(0)
        session = await find_session(app, S)
        self.key, self.due = session.id, DueCheckpoint(session.row, session.id)
        await app.database.run(rows.update, session.row, {"checkpoint_at": 1})

    async def take(self, tx: Transaction, process: ProcessId) -> BegunCheckpoint | None:
        command = BeginCheckpoint(due=self.due, process=process, rules=self.app.services.rules)
        return await begin_checkpoint(tx, command)

    def writes(self, held: BegunCheckpoint) -> Sequence[Callable[[Transaction], Awaitable[object]]]:
        used = UsedByCheckpoint(usage=Usage(10, 10, steps=1), model="m", is_counted=True, at_ms=0)
        end = FinishCheckpoint(begun=held, looked=LookedBack(), rules=self.app.services.rules)
        return (
            lambda tx: note_usage(tx, held, used),
            lambda tx: hand_back_checkpoint(tx, held.fence),
            lambda tx: finish_checkpoint(tx, end),
        )

    async def until_ended(self, app: App) -> None:
        (said,) = await until_facts(app, S, "introspection_finished", 1)
        assert said["success"] is True
        assert len(await until_facts(app, S, "introspection_started", 1)) == 1


class ApprovedCallClaim(Kind):
    table = "calls"

    async def open(self) -> AbstractAsyncContextManager[App]:
        async with self._home(config(), self._tools()) as app:
            await open_session(app, S)
            await call(app, "delete", "k", name="old")
        return self._home(config(), Parts())  # without the tool, so that it carries out nothing

    def _tools(self) -> Parts:
        self.disk = Disk()
        return Parts(tools=[tool(self.disk.delete, effects=["deletes"], is_idempotent=True)])

    async def open_again(self) -> AbstractAsyncContextManager[App]:
        return self._home(config(), self._tools())

    async def set_up(self, app: App) -> None:
        await super().set_up(app)
        (approval,) = await pending(app)
        self.key = (await decide(app, approval)).id

    async def take(self, tx: Transaction, process: ProcessId) -> OutsideCall | None:
        begun = await take_call(tx, self._command(process, may_repeat=True))
        return None if begun is None else begun.call

    def _command(self, process: ProcessId, *, may_repeat: bool) -> TakeCall:
        rules = self.app.services.rules
        return TakeCall(id=str(self.key), process=process, rules=rules, may_repeat=may_repeat)

    def writes(self, held: OutsideCall) -> Sequence[Callable[[Transaction], Awaitable[object]]]:
        return (lambda tx: end_call(tx, replace(held, outcome="{}")),)

    async def until_ended(self, app: App) -> None:
        answer = await call(app, "delete", "k", name="old")
        assert (answer["result"], self.disk.calls) == ("deleted old", ["delete old"])


class KeyedCallClaim(ApprovedCallClaim):
    goes_on = False
    key = "call_there"

    async def open(self) -> AbstractAsyncContextManager[App]:
        self.disk = Disk()
        return self._home(config(), Parts(tools=[tool(self.disk.note)]))

    open_again = open

    async def set_up(self, app: App) -> None:
        await Kind.set_up(self, app)

    async def take(self, tx: Transaction, process: ProcessId) -> OutsideCall | None:
        if await calls.find(tx, str(self.key)):
            assert await take_call(tx, self._command(process, may_repeat=False)) is None
            told = await calls.find(tx, str(self.key))
            return told if told and told.outcome else None
        command = BeginKeyedCall(
            id=str(self.key),
            rights=Rights(OWNER, self.app.services.rules),
            target=self.app.services.sessions.target(S),
            key="k",
            sha256="x",
            process=process,
        )
        await begin_keyed_call(tx, command)
        return await calls.find(tx, str(self.key))

    async def until_ended(self, app: App) -> None:
        told = await app.outside_calls.settled(str(self.key), self.session)
        assert told is not None and "outcome_unknown" in (told.outcome or "") and self.disk.calls == []


class AccountClaim(Kind):
    table = "channel_accounts"
    key = "default"
    name = AccountName("telegram", "default")

    async def take(self, tx: Transaction, process: ProcessId) -> Claim | None:
        now_ms = self._now
        taken = await channel_accounts.take(tx, LeaseRequest(self.name, process, now_ms, now_ms + LEASE_MS))
        return None if taken is None else (*self.name, taken)

    def writes(self, held: Claim) -> Sequence[Callable[[Transaction], Awaitable[object]]]:
        return (
            lambda tx: channel_accounts.extend_all(tx, [held], self._now + 2 * LEASE_MS),
            lambda tx: channel_accounts.keep(tx, held),
            lambda tx: channel_accounts.set_name(tx, held, "1", "bot"),
            lambda tx: channel_accounts.release(tx, held),
        )

    async def until_ended(self, app: App) -> None:
        assert await app.inside.accounts.take_lease(*self.name) is not None


class CopyClaim(Kind):
    table = "copies_under_way"

    async def set_up(self, app: App) -> None:
        await super().set_up(app)
        source = await large(app, "api:large")
        self.session = source.row
        self.command = ForkSession(
            principal=OWNER,
            target=app.services.sessions.target("api:large"),
            seq=None,
            new_segment="copy",
            rules=app.services.rules,
        )
        prepared = await app.database.read(prepare_fork, self.command)
        assert not isinstance(prepared, Exception)
        self.prepared: Any = prepared

    def _page(self, number: int) -> Sequence[NewEvent]:
        event = self.prepared.events[number + 1]
        return [NewEvent(event.type, event.actor, event.classification, None, event.message)] * 3

    async def take(self, tx: Transaction, process: ProcessId) -> StagedFork | None:
        if await tx.fetch_one("SELECT 1 FROM copies_under_way") is None:  # a unit may run twice
            staged = await begin_fork(tx, self.command, self.prepared, process)
            assert isinstance(staged, StagedFork)
            self.key, self.staged = staged.row, staged
            for number in range(2):
                assert await store_page(tx, staged, self._page(number), FIRST_COPY + 3 * number)
            return staged
        if self.staged.row not in await copies.list_left(tx, process):
            return None
        assert await remove_page(tx, self.staged.row, process)
        return replace(self.staged, process=process)

    def writes(self, held: StagedFork) -> Sequence[Callable[[Transaction], Awaitable[object]]]:
        return (
            lambda tx: finish_fork(tx, self.command, held, []),
            lambda tx: remove_page(tx, held.row, held.process),
            lambda tx: store_page(tx, held, self._page(2), FIRST_COPY + 6),
        )

    async def until_ended(self, app: App) -> None:
        with anyio.fail_after(SECONDS):
            while await app.database.read(copies.list_left, DEAD):
                await anyio.sleep(0.01)


KINDS = (RunClaim, TextClaim, CheckpointClaim, ApprovedCallClaim, KeyedCallClaim, AccountClaim, CopyClaim)


async def show_life(tx: Transaction, process: ProcessId) -> None:
    await processes.insert(tx, describe_process(process, "all", version="1", fingerprint="", agents=()), 0)


async def come_back(tx: Transaction, kind: Kind) -> None:
    """A process is declared dead at work and taken over, and comes back. In one unit: nobody else takes part."""
    await tx.execute("DELETE FROM processes")
    await show_life(tx, ONE)
    await show_life(tx, TWO)
    first = await kind.take(tx, ONE)
    assert first is not None
    assert await kind.take(tx, TWO) is None, "it lives"
    await processes.delete(tx, ONE)
    second = await kind.take(tx, TWO)
    assert second is not None
    await show_life(tx, ONE)
    before = await kind.stored(tx)
    for number, write in enumerate(kind.writes(first)):
        await write(tx)
        assert await kind.stored(tx) == before, f"write {number}"
    if kind.goes_on:
        await kind.writes(second)[-1](tx)
        assert await kind.stored(tx) != before
    raise Undone


@requirement("runs:8", "channels:1", "checkpoints:1", "approvals:5", "tools:1", "sessions:8")
@pytest.mark.parametrize("make", KINDS)
async def test_a_process_that_was_declared_dead_and_comes_back_writes_nothing(
    open_home: OpenHome, make: type[Kind]
) -> None:
    async with AsyncExitStack() as stack:
        kind = make(stack, open_home)
        app = await stack.enter_async_context(await kind.open())
        await kind.set_up(app)
        with pytest.raises(Undone):
            await app.database.run(come_back, kind, sessions=(kind.session,))


async def die(tx: Transaction, kind: Kind) -> None:
    """A process takes the row and is dead. In one unit: the living one would show itself again."""
    await tx.execute("DELETE FROM processes")
    assert await kind.take(tx, DEAD) is not None


@requirement("runs:8", "channels:1", "checkpoints:1", "approvals:5", "tools:1", "sessions:8")
@pytest.mark.parametrize("make", KINDS)
async def test_what_a_process_held_when_it_died_is_ended_by_the_next(open_home: OpenHome, make: type[Kind]) -> None:
    async with AsyncExitStack() as stack:
        kind = make(stack, open_home)
        async with await kind.open() as app:
            await kind.set_up(app)
            await app.database.run(die, kind, sessions=(kind.session,))
        async with await kind.open_again() as app:
            await kind.until_ended(app)
