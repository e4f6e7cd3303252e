"""The clock is set back or forward by hours: nothing waits longer than its longest wait, counted from now."""

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from importlib import resources

import anyio
import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.clock import time_left
from antiphon.domain.actor import OWNER
from antiphon.domain.checkpoint import LONGEST_BACKOFF, CheckpointRules, milliseconds_of
from antiphon.domain.delivery import LONGEST_WISH, DeliveryStatus, wait_before_next
from antiphon.domain.errors import NotFound
from antiphon.domain.ids import SessionId
from antiphon.domain.inbound import LONGEST_HOLD, Inbound, Sender
from antiphon.domain.keys import ChatType
from antiphon.domain.person import Identity, PersonId, PersonRole
from antiphon.domain.run import RunStatus
from antiphon.domain.session import DeliveryContext, Session, SessionStatus
from antiphon.domain.thread_bindings import HOUR_MS, BindingLimits
from antiphon.engine.access.people import INVITATION_LIFE
from antiphon.engine.access.signin import LINK_LIFE
from antiphon.engine.chats.linking import UNDO_LIFE_MS
from antiphon.engine.children.clock_steps import ClockSteps, due_times
from antiphon.engine.children.wait import MARGIN
from antiphon.engine.deliveries.paces import RateLimits, chat_of
from antiphon.engine.ledger.waits import LONGEST_WAIT
from antiphon.store import checkpoints, held_messages, link_undos, pairings, thread_bindings
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from antiphon.store.due_times import DueTime
from antiphon.store.held_messages import NewHeld
from antiphon.store.pairings import Pairing, PairingState
from antiphon.store.routes import RouteName
from antiphon.store.thread_bindings import ThreadBinding
from antiphon.store.tokens import TokenKind
from tests.channels.fake_channel import NAME, Act, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import YIELD, to_call, to_spawn, wait_at
from tests.engine.gates import Gates
from tests.engine.stage import START, ManualClock
from tests.story import Character, Child, Story, telling
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

LIMIT = timedelta(minutes=10)
ALL_TIMES = due_times(CheckpointRules())
STEPS = [timedelta(days=-1), timedelta(hours=-1), timedelta(hours=1), timedelta(days=1)]
PAST = {
    *("sessions.deleted_at", "sessions.created_at", "sessions.updated_at", "incarnations.ended_at"),
    *("events.created_at", "runs.created_at", "runs.ended_at", "tokens.used_at", "processes.started_at"),
    *("exchanges.created_at", "exchanges.ended_at", "deliveries.ended_at", "spawns.created_at"),
    *("reports.created_at", "reports.ended_at", "people.created_at", "identities.created_at"),
    "identities.seen_at",
    *("arrivals.arrived_at", "groups_of_channels.created_at", "groups_of_channels.decided_at"),
    *("pairings.decided_at", "routes.changed_at", "checkpoints.started_at"),
    *("approvals.decided_at", "standing_approvals.created_at", "compartments.created_at"),
    *("trusted_content.trusted_at", "tool_reviews.reviewed_at", "skill_reviews.reviewed_at"),
    *("quarantined_results.created_at", "quarantined_values.created_at"),
    *("runner_states.saved_at", "code_agents.seen_at"),
    *("tasks.created_at", "tasks.updated_at", "tasks.last_slot_at", "calls.begun_at"),
    *("task_slots.slot_at", "task_slots.fired_at", "task_slots.ended_at"),
    *("notes.created_at", "notes.updated_at", "audit_rows.created_at", "audit_seals.created_at"),
}
"""Times that say what happened, and for which nothing waits."""
READ_WITH_LIMIT = {
    *("runs.deadline", "runs.wait_until", "exchanges.wait_until"),
    *("audit_denials.first_at", "channel_accounts.served_until", "pairings.told_at", "tasks.next_at"),
}
"""Times whose reader knows the longest wait: claims, repeated waits and sends, processes, codes, tasks."""


def stored_times() -> set[str]:
    """The columns of all tables that hold a time."""
    found, folder = set[str](), resources.files("antiphon.store.schema")
    for name in sorted(file.name for file in folder.iterdir() if file.name.endswith(".sql")):
        text = folder.joinpath(name).read_text("utf-8")
        tables = [(table, body) for table, body in re.findall(r"CREATE TABLE (\w+) \((.*?)\n\)", text, re.DOTALL)]
        tables += re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+ BIGINT)", text)
        for table, body in tables:
            table = table.removesuffix("_new")  # a table that is made again takes the name of the one before
            found |= {f"{table}.{column}" for column in re.findall(r"(\w+(?:_at|_until)|deadline) BIGINT", body)}
    newest = json.loads(folder.joinpath("newest.json").read_text("utf-8"))  # without what was dropped since
    return found & {f"{table}.{column}" for table, columns in newest.items() for column in columns}


def test_each_stored_time_is_bounded_or_past() -> None:
    pulled_in = {f"{due.table}.{column}" for due in ALL_TIMES for column in (due.column, due.end) if column}
    assert stored_times() == pulled_in | PAST | READ_WITH_LIMIT
    assert not PAST & (pulled_in | READ_WITH_LIMIT)


def test_a_stored_end_is_never_further_than_the_longest_wait() -> None:
    longest = timedelta(minutes=1)
    assert time_left(START + timedelta(seconds=20), START, longest) == timedelta(seconds=20)
    assert time_left(START + timedelta(days=1), START, longest) == longest
    assert time_left(START - timedelta(days=1), START, longest) == timedelta(0)


@dataclass
class World:
    """A home in which something waits for each kind of stored time."""

    story: Story
    clock: ManualClock
    channel: FakeChannel
    archived: Child
    deleted: Child
    parked: Character
    code: str
    invitation: str

    async def settle(self) -> None:
        await self.story.app.due_children.settle_due()

    async def far(self, due: DueTime) -> tuple[int, int]:
        """How many rows of that kind there are, and how many of them lie too far ahead."""
        now_ms = self.clock.now_ms()

        async def count(query: Query, condition: str, *values: int) -> int:
            row = await query.fetch_one(f"SELECT COUNT(*) FROM {due.table} WHERE {condition}", values)
            assert row is not None
            return row[0]

        read = self.story.app.database.read
        return await read(count, due.rows), await read(count, due.is_far, now_ms)

    async def delivery_status(self) -> DeliveryStatus:
        (delivery,) = [each for each in await self.story.deliveries() if each.session is not None]
        return delivery.status


def wipe() -> str:
    """Deletes."""
    return "wiped"


def pairing_at(at: datetime) -> Pairing:
    return Pairing(
        id="pairing",
        platform_id="42",
        name="Anna",
        code_hash="",
        place=DeliveryContext(channel="elsewhere", to="42", account_id="default"),
        message=None,
        state=PairingState.OPEN,
        told_at=at,
        created_at=at,
        expires_at=at + timedelta(hours=1),
    )


def held_at(now_ms: int) -> NewHeld:
    place = DeliveryContext(channel="elsewhere", to="42", account_id="default")
    sender = Sender(id="42", name="Anna")
    message = Inbound(platform_id="1", place=place, chat_type=ChatType.DIRECT, sender=sender, text="late")
    due_ms = now_ms + milliseconds_of(LONGEST_HOLD)
    return NewHeld(
        principal="person:anna",
        is_favoured=False,
        is_counted=False,
        size=4,
        message=message,
        held_at=now_ms,
        due_at=due_ms,
    )


@asynccontextmanager
async def waiting(open_home: OpenHome) -> AsyncGenerator[World]:
    clock, channel, gates = ManualClock(), FakeChannel(), Gates()
    channel.retry_after = LONGEST_WISH
    channel.will(Act.BUSY)
    parts = Parts(clock=clock, channels=[channel], tools=[tool(wipe, effects=["deletes"])])
    async with telling(open_home, parts, gates=gates, limits__run__time_seconds=LIMIT.total_seconds()) as story:
        services = story.app.services
        boss = await story.opens("boss")
        archived = await boss.spawns("!say kept")
        deleted = await boss.spawns(wait_at("deleted"), cleanup="delete")
        await boss.calls("sessions_wait", runIds=[deleted.run_id], timeoutSeconds=0)
        await story.end_of(archived.run_id)
        parked = await story.opens("parked")
        await parked.hears(to_spawn(wait_at("never")), YIELD)
        await parked.parks()
        asking = await story.opens("asking")
        await asking.hears(to_call("wipe"))
        await story.sees(asking.session, lambda session: session.pending_approvals == 1)
        speaker = await story.opens("speaker")
        await speaker.speaks_at("room", NAME)
        await speaker.answers("!say to the room")
        await channel.until_asked(1)
        with anyio.fail_after(SECONDS):
            await story.app.deliverer.wait_idle()
        await services.tokens.create(OWNER, boss.target, life=timedelta(days=30))
        assert await services.sign_in.exchange(await services.sign_in.new_link_code(OWNER), "browser") is not None
        code = await services.sign_in.new_link_code(OWNER)
        invitation = (await services.people.invite(OWNER, "Ann", PersonRole.USER)).code
        long = timedelta(days=365)
        await services.tokens.create_for_person(OWNER, "ann", life=long)
        await services.tokens.create_for_channel(OWNER, "elsewhere", life=long)
        await services.nodes.create_token(OWNER, "machine", life=long)
        await services.links.make_code(OWNER)
        await story.app.database.run(pairings.insert, pairing_at(clock.now()))
        await story.app.database.run(held_messages.insert, held_at(clock.now_ms()))
        await story.app.database.run(let_undo_link, clock.now_ms())
        await story.app.database.run(let_bind, await archived.session(), clock.now_ms())
        await story.app.database.run(let_look_back, await parked.session(), clock.now_ms())
        story.opens_gate("deleted")
        await story.end_of(deleted.run_id)
        world = World(story, clock, channel, archived, deleted, parked, code, invitation)
        await world.settle()
        yield world


async def let_undo_link(tx: Transaction, now_ms: int) -> None:
    account = Identity(channel="elsewhere", account="default", platform_id="42")
    undo = link_undos.LinkUndo(None, PersonId("anna"), now_ms)
    await link_undos.insert(tx, account, undo, expires_at_ms=now_ms + UNDO_LIFE_MS)


async def let_bind(tx: Transaction, child: Session, now_ms: int) -> None:
    binding = ThreadBinding(
        name=RouteName("elsewhere", "default", "group:1", "2"),
        child=child.row,
        chat="1",
        bound_by="person:owner",
        bound_ms=now_ms,
        used_ms=now_ms,
        limits=BindingLimits(HOUR_MS, HOUR_MS),
        ends_ms=now_ms + HOUR_MS,
    )
    await thread_bindings.insert(tx, binding)


async def let_look_back(tx: Transaction, session: Session, now_ms: int) -> None:
    """The session looks back after its idle time, and its last checkpoint failed often."""
    longest = now_ms + milliseconds_of(LONGEST_BACKOFF)
    await rows.update(tx, session.row, {"checkpoint_at": now_ms + milliseconds_of(CheckpointRules().idle)})
    columns = {"again_at": longest, "look_at": longest}
    await checkpoints.set_columns(tx, session.row, SessionId(session.id), columns)


@pytest.mark.parametrize("step", STEPS, ids=["day back", "hour back", "hour on", "day on"])
async def test_no_stored_time_lies_further_ahead_than_its_longest_wait(open_home: OpenHome, step: timedelta) -> None:
    async with waiting(open_home) as world:
        for due in ALL_TIMES:
            count, far = await world.far(due)
            assert count and not far, due
        world.clock.step(step)
        far_before = [(await world.far(due))[1] for due in ALL_TIMES]
        assert all(far_before) if step <= timedelta(days=-1) else True
        await world.settle()
        assert [(await world.far(due))[1] for due in ALL_TIMES] == [0] * len(ALL_TIMES)


@pytest.mark.parametrize("step", STEPS[:2], ids=["day back", "hour back"])
async def test_everything_comes_in_its_time_after_the_clock_went_back(open_home: OpenHome, step: timedelta) -> None:
    async with waiting(open_home) as world:
        world.clock.step(step)
        await world.settle()
        assert (await world.archived.session()).status is SessionStatus.IDLE
        assert (await world.deleted.session()).status is SessionStatus.IDLE
        world.clock.pass_time(LINK_LIFE + timedelta(seconds=1))
        await world.settle()
        assert await world.story.app.services.sign_in.exchange(world.code, "late") is None
        run = (await world.parked.runs())[-1]
        assert (await world.story.end_of(run.id)).status is RunStatus.TIMEOUT
        world.clock.pass_time(LONGEST_WAIT + MARGIN - LINK_LIFE)
        await world.settle()
        with pytest.raises(NotFound):
            await world.deleted.session()
        world.clock.pass_time(timedelta(hours=1))
        await world.settle()
        assert (await world.archived.session()).status is SessionStatus.INACTIVE
        world.story.app.deliverer.wake()
        await world.channel.until_asked(2)
        await world.story.sees(world.delivery_status, lambda status: status is DeliveryStatus.SENT)


async def test_a_clock_that_goes_back_while_no_process_runs_is_noticed_at_the_start(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say kept")
        await story.settles()
    late = ManualClock(START - timedelta(days=1))
    async with telling(open_home, Parts(clock=late)) as story:
        await story.app.due_children.settle_due()
        late.pass_time(timedelta(minutes=62))
        await story.app.due_children.settle_due()
        assert (await story.session(child.key).session()).status is SessionStatus.INACTIVE


async def test_a_run_taken_over_after_the_clock_went_back_has_no_more_than_its_limit(open_home: OpenHome) -> None:
    gates = Gates()
    limit = {"limits__run__time_seconds": LIMIT.total_seconds()}
    async with telling(open_home, Parts(clock=ManualClock()), gates=gates, **limit) as story:
        boss = await story.opens("boss")
        run_id = await boss.hears(wait_at("held"))
        await story.comes_to("held")
    earlier = ManualClock(START - timedelta(days=1))
    async with telling(open_home, Parts(clock=earlier), gates=Gates(), **limit) as story:
        await story.comes_to("held")
        run = await story.run(run_id)
        assert run.deadline is not None and run.deadline - earlier.now() <= LIMIT
        story.opens_gate("held")
        await story.settles()


@pytest.mark.parametrize("revive", ["post", "open"])
async def test_an_archived_child_that_is_used_again_is_archived_again(open_home: OpenHome, revive: str) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        boss = await story.opens("boss")
        child = await boss.spawns("!say kept")
        await story.settles()
        for _ in range(2):
            clock.pass_time(timedelta(minutes=61))
            await story.app.due_children.settle_due()
            assert (await child.session()).status is SessionStatus.INACTIVE
            if revive == "post":
                await child.answers("!say again")
            else:
                await story.opens(child.key)
            assert (await child.session()).status is SessionStatus.IDLE
            clock.pass_time(timedelta(minutes=59))
            await story.app.due_children.settle_due()
            assert (await child.session()).status is SessionStatus.IDLE


@requirement("access:1", "gateway:6")
async def test_a_start_cuts_no_stored_time_however_far_ahead_it_lies(
    open_home: OpenHome, caplog: pytest.LogCaptureFixture
) -> None:
    """Each start of any process on the home looks for times that lie too far ahead: none do, of any kind."""
    async with waiting(open_home) as world:
        app = world.story.app
        stored = await app.database.read(all_times)
        kinds = {kind for (kind,) in await app.database.read(kinds_of_tokens)}
        assert kinds == {*TokenKind} - {TokenKind.OWNER}  # each kind that ends
        assert all(stored[f"{due.table}.{due.column}"] for due in ALL_TIMES)
        await ClockSteps(app.database, world.clock, app.services.rules.checkpoints).look()
        assert await app.database.read(all_times) == stored
    async with open_home(parts=Parts(clock=world.clock)) as app:
        await app.due_children.settle_due()
        world.clock.pass_time(INVITATION_LIFE - timedelta(seconds=1))
        assert await app.services.sign_in.exchange(world.invitation, "browser") is not None
    assert "clock_went_back" not in {record.__dict__.get("action") for record in caplog.records}


async def all_times(query: Query) -> dict[str, list[tuple[object, ...]]]:
    """The values of every column that holds a time, by its name."""
    found: dict[str, list[tuple[object, ...]]] = {}
    for name in sorted(stored_times()):
        table, column = name.split(".")
        rows = await query.fetch_all(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL ORDER BY {column}")
        found[name] = [tuple(row) for row in rows]
    return found


async def kinds_of_tokens(query: Query) -> list[tuple[str]]:
    rows = await query.fetch_all("SELECT DISTINCT kind FROM tokens WHERE expires_at IS NOT NULL AND used_at IS NULL")
    return [(row[0],) for row in rows]


async def test_an_invitation_lives_no_longer_after_the_clock_went_back(open_home: OpenHome) -> None:
    async with waiting(open_home) as world:
        world.clock.step(timedelta(days=-1))
        await world.settle()
        world.clock.pass_time(INVITATION_LIFE + timedelta(seconds=1))
        assert await world.story.app.services.sign_in.exchange(world.invitation, "late") is None


@requirement("channels:1")
@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_text_that_is_tried_again_waits_for_its_own_back_off_after_the_clock_went_back(
    open_home: OpenHome, attempts: int
) -> None:
    clock, channel = ManualClock(), FakeChannel()
    async with telling(open_home, Parts(clock=clock, channels=[channel])) as story:
        speaker = await story.opens("speaker")
        await speaker.speaks_at("room", NAME)
        channel.will(*[Act.DROP] * attempts)
        await speaker.answers("!say to the room")
        for attempt in range(1, attempts + 1):
            await channel.until_asked(attempt)
            with anyio.fail_after(SECONDS):
                await story.app.deliverer.wait_idle()
            wait = wait_before_next(attempt, None)
            if attempt < attempts:
                clock.pass_time(wait)
                story.app.deliverer.wake()
        clock.step(-timedelta(hours=2))
        await story.app.due_children.settle_due()
        (delivery,) = await story.deliveries()
        assert delivery.due_at == clock.now() + wait_before_next(attempts, None)


@requirement("channels:1")
async def test_a_chat_that_the_platform_asked_to_leave_alone_is_held_no_longer_after_the_clock_went_back() -> None:
    clock = ManualClock()
    paces, chat = RateLimits(clock), chat_of(DeliveryContext(channel=NAME, to="room"))
    paces.note_use(chat)
    paces.pause(chat, 30_000)
    clock.step(-timedelta(hours=2))
    assert paces.holds(chat, "dlv")
    assert paces.free_at(chat, 1_000) == paces.now_ms() + 30_000
    clock.pass_time(timedelta(seconds=30))
    assert not paces.holds(chat, "dlv")
