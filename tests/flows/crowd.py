"""People, sessions and families that act at once on several processes, drawn by a seed; what must hold afterwards."""

import random
from collections import Counter, defaultdict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio
import psycopg

from antiphon.domain.actor import OWNER
from antiphon.domain.errors import AntiphonError
from antiphon.domain.event import Event
from antiphon.domain.message import UserMessage, text_content
from antiphon.domain.person import Person, PersonRole
from antiphon.store.database import Query
from tests.directives import YIELD, to_send, to_spawn
from tests.engine.reports.test_family_laws import Chances, check_laws
from tests.logs import whole_log
from tests.story import MODELS, Character, Story
from tests.waiting import at_least

SETTINGS: dict[str, Any] = {
    "tools": {"sessions": {"visibility": "agent"}},
    "agents": {"defaults": {"subagents": {"models": MODELS, "maxSpawnDepth": 3, "maxChildrenPerAgent": 30}}},
    "limits": {"run": {"timeSeconds": 0}},
}
"""Of every process of the crowd."""
FAMILIES, PAIRS, BROODS, TALKERS, APPENDERS, ROOMS = 3, 2, 2, 4, 4, 2
SHARED = 3
"""Sessions to which all talkers write."""
BROOD = 6
"""Children that end together."""
LOOK_SECONDS = 0.02
STUCK_SECONDS = at_least(30)
"""Without anything that is written, though there is work."""
MIGRATIONS = 7464
"""The advisory lock of whoever brings a schema up to date."""


@dataclass(frozen=True, slots=True)
class Acknowledged:
    """A message that was stored, as its sender was told."""

    client: str
    key: str
    message_id: str
    seq: int


class Crowd:
    """Everyone acts until told to stop; each refusal is an answer too."""

    def __init__(self, story: Story, seed: int) -> None:
        self.story = story
        self.acknowledged: list[Acknowledged] = []
        self.refused = Counter[str]()
        self.acts = Counter[str]()
        self.families: list[Chances] = []
        self.bosses: list[Character] = []
        self._seed = seed
        self._shared: list[Character] = []
        self._is_over = False

    async def act(self) -> None:
        """Begins, and goes on until told to stop."""
        self._shared = [await self.story.opens(f"shared-{number}") for number in range(SHARED)]
        hot = await self.story.opens("hot")
        async with anyio.create_task_group() as tasks:
            for number in range(FAMILIES):
                boss = await self.story.opens(f"boss-{number}")
                self.bosses.append(boss)
                self.families.append(Chances(self.story, boss, self._seed + number))
                tasks.start_soon(self._go_on, "family", number, self.families[-1].play)
            for number in range(PAIRS):
                sides = [await self.story.opens(f"{side}-{number}") for side in ("left", "right")]
                tasks.start_soon(self._drawn, "send", number, self._send, sides)
            for number in range(BROODS):
                hen = await self.story.opens(f"hen-{number}")
                self.bosses.append(hen)
                tasks.start_soon(self._drawn, "brood", number, self._brood, hen)
            for number in range(TALKERS):
                tasks.start_soon(self._drawn, "post", number, self._post, f"talker-{number}")
            for number in range(APPENDERS):
                tasks.start_soon(self._drawn, "append", number, self._append, f"appender-{number}", hot)
            for number in range(ROOMS):
                room = await self.story.opens(f"room-{number}")
                tasks.start_soon(self._drawn, "merge", number, self._merge, room)
            tasks.start_soon(self._drawn, "fork", 0, self._fork)
            tasks.start_soon(self._drawn, "reset", 0, self._reset)

    def stop(self) -> None:
        self._is_over = True

    async def _drawn(self, name: str, number: int, act: Callable[..., Awaitable[None]], *arguments: Any) -> None:
        random_ = random.Random(f"{self._seed} {name} {number}")
        await self._go_on(name, number, lambda: act(random_, *arguments))

    async def _go_on(self, name: str, number: int, act: Callable[[], Awaitable[None]]) -> None:
        pauses = random.Random(f"{self._seed} {name} {number} pauses")
        while not self._is_over:
            try:
                await act()
            except AntiphonError as error:
                self.refused[f"{error.code}: {error.message}" if error.code == "store_busy" else error.code] += 1
            self.acts[name] += 1
            await anyio.sleep(pauses.choice((0, 0.02, 0.1)))

    async def _send(self, random_: random.Random, sides: list[Character]) -> None:
        """Both send to each other in the same moment; sometimes one of them begins anew or is called off."""
        async with anyio.create_task_group() as tasks:
            for one, other in (sides, sides[::-1]):
                wait = random_.choice((0, 0, 1))
                tasks.start_soon(one.hears, to_send("!say aye", sessionKey=other.key, timeoutSeconds=wait), "!say sent")
        fate = random_.random()
        if fate < 0.1:
            await self.story.resets(random_.choice(sides))
        elif fate < 0.2:
            await self.story.cancels_work_of(random_.choice(sides))
        await _rest(random_, 0.5)

    async def _brood(self, random_: random.Random, hen: Character) -> None:
        nap = f"!sleep {random_.choice((0.1, 0.3))}"
        spawns = [to_spawn(nap, "!say hatched", cleanup=random_.choice(("keep", "delete"))) for _ in range(BROOD)]
        await hen.hears(*spawns, YIELD)
        await _rest(random_, 1)

    async def _post(self, random_: random.Random, name: str) -> None:
        target = random_.choice(self._shared)
        await self._acknowledge(name, target, is_run=True)

    async def _append(self, random_: random.Random, name: str, hot: Character) -> None:
        for _ in range(random_.randrange(1, 10)):
            await self._acknowledge(name, hot, is_run=False)

    async def _acknowledge(self, client: str, target: Character, *, is_run: bool) -> None:
        inbox = self.story.app.services.inbox
        speak = inbox.post if is_run else inbox.append
        message_id = f"{self._seed}-{client}-{len(self.acknowledged)}-{self.acts.total()}"
        posted = await speak(OWNER, target.target, text_content("!say heard"), message_id=message_id)
        self.acknowledged.append(Acknowledged(client, target.key, message_id, posted.seq))

    async def _merge(self, random_: random.Random, room: Character) -> None:
        """Two people write in one room, and are one from then on, while runs of both are under way."""
        people = self.story.app.services.people
        both: list[Person] = []
        for _ in range(2):
            both.append((await people.invite(OWNER, f"P{random_.randrange(10**12)}", PersonRole.USER)).person)
            await room.admits(both[-1].principal)
            await room.hears("!sleep 0.1", "!say hello", principal=both[-1].principal)
        await people.merge(OWNER, both[0].id, both[1].id)
        await room.hears("!say both", principal=both[0].principal)
        await _rest(random_, 1)

    async def _fork(self, random_: random.Random) -> None:
        """A copy of a session that others write to meanwhile; it is spoken to, and sometimes deleted."""
        forked = await self.story.app.services.forks.fork(OWNER, random_.choice(self._shared).target, None)
        copy = self.story.session(str(forked.key))
        await copy.hears("!say and on")
        if random_.random() < 0.5:
            await self.story.deletes(copy)
        await _rest(random_, 1)

    async def _reset(self, random_: random.Random) -> None:
        target = random_.choice(self._shared)
        if random_.random() < 0.5:
            await self.story.resets(target)
        else:
            await self.story.cancels_work_of(target)
        await _rest(random_, 1)


async def _rest(random_: random.Random, longest: float) -> None:
    await anyio.sleep(random_.uniform(0, longest))


async def until_quiet(story: Story) -> None:
    """Returns when nothing runs, and nothing waits to be continued; fails when for a while nothing went on."""
    before: tuple[int, list[Any]] = (0, [])
    went_on_at = anyio.current_time()
    while True:
        now = await story.app.database.read(_under_way)
        if not now[1]:
            return
        if now[0] != before[0]:
            before, went_on_at = now, anyio.current_time()
        assert anyio.current_time() - went_on_at < STUCK_SECONDS, f"stuck: {now[1]}"
        await anyio.sleep(0.1)


async def _under_way(query: Query) -> tuple[int, list[Any]]:
    """How much was written in all logs, and the runs that have not ended."""
    row = await query.fetch_one("SELECT SUM(last_seq) FROM sessions")
    assert row is not None
    runs = await query.fetch_all(
        "SELECT r.id, s.key, r.status, r.is_parked, r.attempt, r.process FROM runs r "
        "JOIN sessions s ON s.id = r.session "
        "WHERE r.status IN ('queued', 'running', 'awaiting_approval') OR r.is_parked = 1"
    )
    return int(row[0]), runs


async def check_crowd(crowd: Crowd) -> None:
    """All that was acknowledged is there once and in order, no session did two things at once, and nothing is owed."""
    logs = await crowd.story.app.database.read(_all_logs)
    for events in logs.values():
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        _check_one_at_a_time(events)
    stored: dict[tuple[str, str], list[int]] = defaultdict(list)
    for key, events in logs.items():
        for event in events:
            if isinstance(event.message, UserMessage):
                stored[key, event.message.message_id].append(event.seq)
    assert {each: stored[each.key, each.message_id] for each in crowd.acknowledged} == {
        each: [each.seq] for each in crowd.acknowledged
    }
    by_client: dict[tuple[str, str], list[int]] = defaultdict(list)
    for each in crowd.acknowledged:
        by_client[each.client, each.key].append(each.seq)
    assert all(seqs == sorted(seqs) for seqs in by_client.values())
    for boss in crowd.bosses:
        await check_laws(crowd.story, boss)


async def _all_logs(query: Query) -> dict[str, list[Event]]:
    rows = await query.fetch_all("SELECT id, key FROM sessions WHERE deleted_at IS NULL ORDER BY id")
    return {key: await whole_log(query, row) for row, key in rows}


def _check_one_at_a_time(events: list[Event]) -> None:
    """A run that began ends before another begins."""
    active: str | None = None
    for event in events:
        if event.type == "run_started":
            assert active in (None, event.run_id), f"{event} while {active}"
            active = event.run_id
        elif event.type == "run_finished" and event.run_id == active:
            active = None
    assert active is None


@dataclass(slots=True)
class Seen:
    """What the server was seen to do."""

    advisory: Counter[str] = field(default_factory=Counter[str])
    """Advisory locks, save the one of migrations."""
    longest_wait: float = 0
    """For a lock, in seconds."""


@asynccontextmanager
async def watching(database: str) -> AsyncGenerator[Seen]:
    """Looks at the server's locks again and again."""
    seen = Seen()
    async with (
        await psycopg.AsyncConnection.connect(database, autocommit=True) as connection,
        anyio.create_task_group() as tasks,
    ):
        tasks.start_soon(_watch, connection, seen)
        yield seen
        tasks.cancel_scope.cancel()


async def _watch(connection: psycopg.AsyncConnection[Any], seen: Seen) -> None:
    while True:
        found = await connection.execute(
            "SELECT classid, objid FROM pg_locks WHERE locktype = 'advisory' "
            "AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        )
        seen.advisory.update(f"{a} {b}" for a, b in await found.fetchall() if b != MIGRATIONS)
        found = await connection.execute(
            "SELECT COALESCE(max(extract(epoch FROM clock_timestamp() - l.waitstart)), 0)::float FROM pg_locks l "
            "JOIN pg_database d ON d.datname = current_database() WHERE NOT l.granted "
            "AND l.pid IN (SELECT pid FROM pg_stat_activity WHERE datid = d.oid)"
        )
        row = await found.fetchone()
        assert row is not None
        seen.longest_wait = max(seen.longest_wait, row[0])
        await anyio.sleep(LOOK_SECONDS)


def deadlocks(database: str) -> int:
    """How many the server has ended; exact once the connections of all processes are closed."""
    with psycopg.connect(database, autocommit=True) as connection:
        connection.execute("SELECT pg_stat_force_next_flush()")
        row = connection.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
        assert row is not None
        return row[0]
