"""Messages that wait for files, for those before them or for their pace. What is refused is refused before it costs."""

import math
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from typing import Any, cast

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.channel_access import ChannelAccess
from antiphon.domain.ids import AgentId
from antiphon.domain.inbound import Filling, Inbound, InboundFile, SentFile
from antiphon.domain.joining import JoinWaits, joined
from antiphon.engine.chats.accounts import AccountLease, Accounts
from antiphon.engine.chats.held import MOST_AT_ONCE, MOST_OF_GUESTS, MOST_OF_ONE, HeldMessages, choose
from antiphon.engine.chats.reception import Reception
from antiphon.policy.chats import ChannelRules, GroupRules
from antiphon.policy.uploads import FileRoom, FileVerdict, decide_file, room_after
from antiphon.store import codec, held_messages
from antiphon.store.arrivals import ArrivalOutcome
from antiphon.store.channel_accounts import AccountName
from antiphon.store.database import Database
from antiphon.store.held_messages import HeldId, HeldMessage
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import ACCOUNT, CHANNEL, Lobby, lobby
from tests.engine.stage import ManualClock
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

KEY = "agent:main:telegram:direct:42"
PUBLIC = ChannelAccess.PUBLIC
KIB = 1024


def file(size: int = 4, name: str = "report.pdf") -> SentFile:
    return SentFile(file_id=f"id of {name}", kind="document", name=name, size=size)


class Platform:
    """Gives files, as many bytes as it said; waits for `gate` before."""

    def __init__(self) -> None:
        self.fetched: list[str] = []
        self.bytes = 0
        self.gate = anyio.Event()
        self.gate.set()

    async def fetch(self, inbound: Inbound) -> Inbound:
        self.fetched += [each.name for each in inbound.unfetched]
        await self.gate.wait()
        files = [InboundFile(name=each.name, data=b"x" * each.size, kind=each.kind) for each in inbound.unfetched]
        self.bytes += sum(len(each.data) for each in files)
        return replace(inbound, files=tuple(files), unfetched=())


async def lease_of(scene: Lobby) -> AccountLease:
    accounts = Accounts(scene.app.database, await scene.living_process(), scene.app.services.clock)
    lease = await accounts.take_lease(CHANNEL, ACCOUNT)
    assert lease is not None
    return lease


@asynccontextmanager
async def serving(scene: Lobby, platform: Platform) -> AsyncGenerator[HeldMessages]:
    """Somebody posts what waits, as the process with the lease does."""
    held, lease = HeldMessages(scene.reception, scene.app.services.clock), await lease_of(scene)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(held.serve, lease, platform.fetch)
        yield held
        tasks.cancel_scope.cancel()


async def until(scene: Lobby, is_so: Callable[[], Any]) -> None:
    with anyio.fail_after(SECONDS):
        while not await is_so():
            scene.reception.wake()
            await anyio.sleep(0.01)


async def until_nothing_waits(scene: Lobby) -> None:
    async def is_so() -> bool:
        return await scene.count("held_messages") == 0

    await until(scene, is_so)


def first_lines(texts: list[str]) -> list[str]:
    return [text.splitlines()[0] for text in texts]


@requirement("channels:1")
async def test_nobody_waits_for_the_file_of_another_and_a_chat_keeps_its_order(open_home: OpenHome) -> None:
    platform = Platform()
    async with lobby(open_home, access=PUBLIC) as scene:
        platform.gate = anyio.Event()
        async with serving(scene, platform):
            outcomes = [
                (await scene.hears("42", "first", unfetched=(file(),))).outcome,
                (await scene.hears("42", "second")).outcome,
                (await scene.hears("42", "third", unfetched=(file(name="b.txt"),))).outcome,
                (await scene.hears("7", "of another")).outcome,
            ]
            assert outcomes == [ArrivalOutcome.HELD] * 3 + [ArrivalOutcome.POSTED]
            platform.gate.set()
            await until_nothing_waits(scene)
        assert first_lines(await scene.messages(KEY)) == ["first", "second", "third"]
        assert (await scene.hears("42", "fourth")).outcome is ArrivalOutcome.POSTED


@requirement("channels:1")
async def test_what_waits_is_posted_once_by_a_later_process(open_home: OpenHome) -> None:
    platform = Platform()
    async with lobby(open_home, access=PUBLIC) as scene:
        platform.gate = anyio.Event()
        async with serving(scene, platform):
            await scene.hears("42", "look", id="u1", unfetched=(file(),))
            await until(scene, lambda: _is(platform.fetched == ["report.pdf"]))  # and then it dies
        again = await scene.hears("42", "look", id="u1", unfetched=(file(),))
        assert again.is_repeated and again.outcome is ArrivalOutcome.HELD
        platform.gate.set()
        async with serving(scene, platform):
            await until_nothing_waits(scene)
        last = await scene.hears("42", "look", id="u1", unfetched=(file(),))
        assert last.is_repeated and last.outcome is ArrivalOutcome.POSTED and last.posted is not None
        assert first_lines(await scene.messages(KEY)) == ["look"]


async def _is(found: bool) -> bool:
    return found


@requirement("access:4")
@pytest.mark.parametrize(
    ("settings", "size", "why"),
    [
        ({"limits__guest": {"stored_bytes": 100 * KIB}}, 100 * KIB, "stored as much as you may"),
        ({"limits__guest": {"session_bytes": 40 * KIB}}, 50 * KIB, "in this chat"),
        ({"limits__files": {"free_disk_bytes": 2**60}}, 5, "disk is nearly full"),
    ],
    ids=["sender", "session", "disk"],
)
async def test_a_file_without_room_is_not_fetched_and_its_message_says_so(
    open_home: OpenHome, settings: dict[str, Any], size: int, why: str
) -> None:
    platform = Platform()
    async with lobby(open_home, access=PUBLIC, **settings) as scene:
        async with serving(scene, platform):
            await scene.hears("42", "small", unfetched=(file(2),))
            await until_nothing_waits(scene)
            fetched = list(platform.fetched)
            got = await scene.hears("42", "large", unfetched=(file(size, "large.pdf"),))
        assert got.outcome is ArrivalOutcome.POSTED and platform.fetched == fetched
        assert (await scene.messages(KEY))[-1] == "large\n[document: large.pdf, not fetched]"
        assert why in (await scene.told("42"))[-1]


@requirement("access:4")
async def test_bytes_on_disk_stay_within_the_share_and_are_free_again_with_the_session(open_home: OpenHome) -> None:
    platform = Platform()
    limits = {"stored_bytes": 64 * KIB}
    async with lobby(open_home, access=PUBLIC, limits__guest=limits, access__messages_per_minute=1000) as scene:
        async with serving(scene, platform):
            for number in range(40):
                await scene.hears("42", f"file {number}", unfetched=(file(5 * KIB, f"{number}.bin"),))
            await until_nothing_waits(scene)
        received = scene.app.home / "workspaces" / "main" / "received"
        on_disk = sum(path.stat().st_size for path in received.rglob("*.bin"))
        assert 50 * KIB <= on_disk == platform.bytes <= 64 * KIB
        ((stored,),) = await scene.rows("SELECT SUM(stored_bytes) FROM participants")
        assert on_disk <= stored <= 64 * KIB
        await until(scene, lambda: _is_idle(scene))
        services = scene.app.services
        await services.sessions.delete(OWNER, services.sessions.target(KEY))
        assert await scene.rows("SELECT SUM(stored_bytes) FROM participants") == [(None,)]
        async with serving(scene, platform):
            assert (await scene.hears("42", "again", unfetched=(file(5 * KIB),))).outcome is ArrivalOutcome.HELD
            await until_nothing_waits(scene)


@requirement("access:4", "groups:2")
async def test_files_of_members_who_do_not_address_the_agent_are_not_fetched(open_home: OpenHome) -> None:
    platform = Platform()
    rules = ChannelRules(agent_id=AgentId("main"), access=PUBLIC, groups={"-5": GroupRules()})
    async with lobby(open_home, channel_rules=rules) as scene, serving(scene, platform):
        for _ in range(5):
            await scene.hears("42", "aside", group="-5", is_meant=False, unfetched=(file(),))
        assert platform.fetched == [] and await scene.count("held_messages") == 0
        await scene.hears("42", "for you", group="-5", unfetched=(file(),))
        await until_nothing_waits(scene)
        assert platform.fetched == ["report.pdf"] and await scene.told("-5") == []


@requirement("access:4")
async def test_messages_that_are_one_too_many_cost_no_fetch_and_no_row(open_home: OpenHome) -> None:
    platform = Platform()
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), access=PUBLIC, access__messages_per_minute=2) as scene:
        async with serving(scene, platform):
            got = [(await scene.hears("42", "look", unfetched=(file(),))).outcome for _ in range(50)]
            await until_nothing_waits(scene)
            assert got == [ArrivalOutcome.HELD] * 2 + [ArrivalOutcome.IGNORED] * 48 and len(platform.fetched) == 2
            clock.pass_time(timedelta(seconds=61))

            async def is_told() -> bool:
                return len(await scene.told("42")) == 2

            await until(scene, is_told)
        first, number = await scene.told("42")
        assert "Too many messages" in first and number == "47 more of your messages were not taken in."


@requirement("channels:1")
async def test_a_damaged_message_that_waits_holds_up_its_own_chat_alone(open_home: OpenHome) -> None:
    platform = Platform()
    async with lobby(open_home, access=PUBLIC) as scene:
        await scene.hears("42", "damaged", unfetched=(file(),))
        await scene.change("UPDATE held_messages SET message = '{'")
        await scene.hears("7", "whole", unfetched=(file(),))
        async with serving(scene, platform):
            await until(scene, lambda: _count_is(scene, 1))
        assert first_lines(await scene.messages("agent:main:telegram:direct:7")) == ["whole"]


async def _is_idle(scene: Lobby) -> bool:
    return await scene.rows("SELECT 1 FROM runs WHERE status IN ('queued', 'running')") == []


async def _count_is(scene: Lobby, count: int) -> bool:
    return await scene.count("held_messages") == count


def spread(clock: ManualClock, count: int, seconds: float) -> list[datetime]:
    """Dates of messages that were written while nobody was there; the last one five minutes ago."""
    first = clock.now() - timedelta(minutes=5) - count * timedelta(seconds=seconds)
    return [first + number * timedelta(seconds=seconds) for number in range(count)]


@requirement("channels:1", "access:4")
async def test_what_people_wrote_during_an_outage_is_taken_in(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), access=PUBLIC) as scene:
        for number, sent_at in enumerate(spread(clock, 100, seconds=6)):
            got = await scene.hears("42", f"number {number}", sent_at=sent_at)
            assert got.outcome is ArrivalOutcome.POSTED
        assert len(await scene.messages(KEY)) == 100 and await scene.told("42") == []


@requirement("channels:1", "access:4")
async def test_a_backlog_is_taken_in_at_a_rate_and_in_order_and_nothing_of_it_is_dropped(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), access=PUBLIC) as scene:
        for number, sent_at in enumerate(spread(clock, 100, seconds=0.1)):
            assert (await scene.hears("42", f"number {number}", sent_at=sent_at)).refused is None
        at_first = len(await scene.messages(KEY))
        assert at_first == 20
        async with serving(scene, Platform()):
            for minutes in range(1, 5):
                clock.pass_time(timedelta(seconds=61))
                await until(scene, lambda now=20 + 20 * minutes: _has(scene, now))
        assert await scene.messages(KEY) == [f"number {number}" for number in range(100)]
        assert await scene.told("42") == []


async def _has(scene: Lobby, count: int) -> bool:
    found = len(await scene.messages(KEY))
    assert found <= count, "a backlog comes in at the rate of its sender"
    return found == count


@requirement("access:4")
async def test_a_date_ahead_buys_nothing(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), access=PUBLIC, access__messages_per_minute=5) as scene:
        dates = [clock.now() + timedelta(hours=number) for number in range(20)]
        got = [(await scene.hears("42", "hello", sent_at=date)).outcome for date in dates]
        assert got == [ArrivalOutcome.POSTED] * 5 + [ArrivalOutcome.IGNORED] * 15


def waiting(number: int, principal: str, *, is_favoured: bool = False) -> HeldMessage:
    return HeldMessage(
        id=HeldId(number),
        recipient=str(number),
        thread_id="",
        principal=principal,
        is_favoured=is_favoured,
        is_counted=True,
        size=0,
        message="{}",
        held_at=0,
    )


def test_owners_go_first_and_guests_leave_them_a_place() -> None:
    crowd = [waiting(number, f"person:{number}") for number in range(10)]
    one = [waiting(number, "person:1") for number in range(10)]
    owners = [waiting(100 + number, "person:owner", is_favoured=True) for number in range(10)]
    assert len(choose(crowd, [])) == MOST_OF_GUESTS < MOST_AT_ONCE
    assert len(choose(one, [])) == MOST_OF_ONE
    assert choose([*owners, *crowd], []) == owners[:MOST_AT_ONCE]
    assert choose([owners[0], *crowd], crowd[:MOST_OF_GUESTS]) == [owners[0]]
    assert choose(crowd[:1], crowd[:1]) == []


SIZES = st.integers(0, 30)


@given(st.lists(SIZES), SIZES | st.none(), SIZES | st.none(), st.integers(-5, 30), st.booleans())
def test_files_that_are_fetched_fit_into_every_room(
    sizes: list[int], of_sender: int | None, of_session: int | None, of_disk: int, is_addressed: bool
) -> None:
    room = FileRoom(is_addressed=is_addressed, of_sender=of_sender, of_session=of_session, of_disk=of_disk)
    left, fetched = room, 0
    for size in sizes:
        if decide_file(size, left) is FileVerdict.FETCH:
            left, fetched = room_after(size, left), fetched + size
    assert fetched <= min(each for each in (of_sender, of_session, max(of_disk, 0)) if each is not None)
    assert is_addressed or fetched == 0


JOINING = ChannelRules(agent_id=AgentId("main"), access=PUBLIC, join_waits=JoinWaits(text_ms=0))


async def first_held(scene: Lobby, at_ms: int) -> HeldMessage:
    (held,) = await scene.app.database.read(held_messages.list_first, AccountName(CHANNEL, ACCOUNT), at_ms)
    return held


@requirement("groups:5", "channels:1")
async def test_a_part_that_comes_while_its_message_is_posted_is_kept(open_home: OpenHome) -> None:
    """The process that posts has read the message, and the part is stored before it posts it."""
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), channel_rules=JOINING) as scene:
        lease = await lease_of(scene)
        await scene.hears("42", "begin", filling=Filling.LONG)
        held = await first_held(scene, clock.now_ms() + 1_500)
        await scene.hears("42", "end")
        posted = await scene.reception.go_on(held, joined(codec.inbound(held.message)), lease)
        assert posted.outcome is ArrivalOutcome.HELD and await scene.count("held_messages") == 1
        clock.pass_time(timedelta(seconds=1.5))
        async with serving(scene, Platform()):
            await until_nothing_waits(scene)
        assert await scene.messages(KEY) == ["begin\nend"]


@requirement("groups:5", "channels:1")
async def test_parts_have_the_first_answer_of_their_message(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), channel_rules=JOINING) as scene:
        await scene.hears("42", "begin", id="u1", filling=Filling.LONG)
        await scene.hears("42", "end", id="u2")
        clock.pass_time(timedelta(seconds=1.5))
        async with serving(scene, Platform()):
            await until_nothing_waits(scene)
        answers = [await scene.hears("42", "end", id=id) for id in ("u1", "u2")]
        assert all(each.is_repeated and each.outcome is ArrivalOutcome.POSTED for each in answers)
        assert answers[0].posted == answers[1].posted is not None


@requirement("groups:5", "access:4")
async def test_a_text_waits_for_nobodys_files_in_other_chats(open_home: OpenHome) -> None:
    clock, platform = ManualClock(), Platform()
    platform.gate = anyio.Event()
    async with (
        lobby(open_home, Parts(clock=clock), channel_rules=replace(JOINING, join_waits=JoinWaits())) as scene,
        serving(scene, platform),
    ):
        for number in range(2 * MOST_AT_ONCE):
            await scene.hears(f"9{number}", "look", unfetched=(file(),))
        await scene.hears("42", "hello")
        clock.pass_time(timedelta(seconds=0.3))

        async def is_posted() -> bool:
            return await scene.count("held_messages") == 2 * MOST_AT_ONCE

        await until(scene, is_posted)
        assert await scene.messages(KEY) == ["hello"]
        platform.gate.set()
        await until_nothing_waits(scene)


@requirement("groups:5", "access:4")
async def test_parts_of_a_guest_stay_within_its_share(open_home: OpenHome) -> None:
    async with lobby(open_home, channel_rules=JOINING, limits__guest__stored_bytes=9 * KIB) as scene:
        outcomes = [(await scene.hears("42", "x" * 4 * KIB, filling=Filling.LONG)).outcome for _ in range(4)]
        assert outcomes == [ArrivalOutcome.HELD, ArrivalOutcome.HELD, ArrivalOutcome.IGNORED, ArrivalOutcome.IGNORED]


@requirement("channels:1")
async def test_a_program_whose_answers_hold_files_is_stopped_too(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), access=PUBLIC) as scene:
        chats = scene.rules.chats
        forms = {CHANNEL: replace(chats.form(CHANNEL), hasty_seconds=60)}
        rules = replace(scene.rules, chats=replace(chats, forms=forms, quick_turns={(CHANNEL, ACCOUNT): 3}))
        scene.reception = Reception(scene.app.database, rules, scene.app.workspaces, clock=clock)
        async with serving(scene, Platform()):
            for number in range(5):
                await scene.hears("42", f"out of office {number}", unfetched=(file(),))
                await until_nothing_waits(scene)
                await until(scene, lambda: answered_all(scene))
        assert len(await scene.messages(KEY)) == 3


async def answered_all(scene: Lobby) -> bool:
    return await scene.rows("SELECT id FROM runs WHERE ended_at IS NULL") == []


class CountingReads:
    """A store that counts what is read from it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reads = 0

    async def read(self, query: Any, *arguments: Any) -> Any:
        self.reads += 1
        return await self._database.read(query, *arguments)


@requirement("channels:1")
async def test_one_look_tells_all_accounts_of_a_process_that_nothing_waits(open_home: OpenHome) -> None:
    async with lobby(open_home, access=PUBLIC) as scene:
        services, store = scene.app.services, CountingReads(scene.app.database)
        reception = Reception(cast(Database, store), scene.rules, scene.app.workspaces, clock=services.clock)
        lease = await lease_of(scene)
        leases = [replace(lease, account=str(number)) for number in range(4)] + [lease]
        for each in leases:
            assert (await reception.list_held(each), await reception.pause_before_next(each)) == ([], math.inf)
        assert store.reads == 1
        await scene.hears("42", "with a file", unfetched=(file(),))
        reception.wake()  # as the reception does that takes it in
        assert [len(await reception.list_held(each)) for each in leases] == [0, 0, 0, 0, 1]
