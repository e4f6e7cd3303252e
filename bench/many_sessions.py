"""A million sessions on one PostgreSQL server: `python -m bench.many_sessions [1000000]`.

The server copies what the product wrote for one session, and keeps it in the folder `ANTIPHON_BENCH_CORPUS`.
"""

import asyncio
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import psycopg

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.errors import Denied
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.redaction import RULES
from antiphon.domain.run import RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.engine.access.caller import Caller
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import ConstantRunner, RunEnding
from antiphon.store.runs import RunFilter
from antiphon.store.sessions import SessionFilter
from antiphon.store.usage import find_agents_spent
from bench.bulk import begin, clone, finish, fresh_copy, is_made, kept_server
from bench.measure import p50, p99
from bench.runs import TIMEOUT

SESSIONS = 1_000_000
FIRST = 1_000
MODEL = "agent:main:api:model"
OF_GUEST, OF_USER = 20, 100_000
"""Sessions in which a guest takes part, and those of a user who writes everywhere."""
TIMES = 200
HELD = "held"


class Runner:
    """Ends at once, save the first attempt of a run that is held."""

    def __init__(self) -> None:
        self._constant = ConstantRunner("ok")

    async def run(self, context: RunContext) -> RunEnding:
        if HELD in context.run.session_key and context.run.attempt == 1:
            await anyio.sleep(600)
        return await self._constant.run(context)


def _config(url: str, role: str) -> Config:
    database = {"url": url, "connections": 16 if role == "gateway" else 8}
    gateway, tools = {"role": role, "drainSeconds": 0}, {"sessions": {"visibility": "agent"}}
    return Config.model_validate({"database": database, "gateway": gateway, "tools": tools})


async def _make(server: str, count: int, home: Path) -> None:
    url = begin(server)
    async with open_app(home, _config(url, "all"), Parts(runner=ConstantRunner("ok"))) as app:
        for name, role in (("Guest", PersonRole.GUEST), ("User", PersonRole.USER)):
            invited = await app.services.people.invite(OWNER, name, PersonRole.USER)
            await app.services.people.change_role(OWNER, invited.person.id, role)
        target = app.services.sessions.target(MODEL)
        await app.services.sessions.open(OWNER, target)
        posted = await app.services.inbox.post(OWNER, target, text_content("hello"))
        assert posted.run_id is not None
        await app.services.waits.wait(posted.run_id, TIMEOUT)
        while await app.services.search.lag():
            await anyio.sleep(0.05)
    with psycopg.connect(url, autocommit=True) as connection:
        _fill(connection, count)
    finish(server)


def _fill(connection: psycopg.Connection[tuple[object, ...]], count: int) -> None:
    numbers = f"generate_series({FIRST}, {FIRST + count - 1}) n"
    one = f"x.session = (SELECT id FROM sessions WHERE key = '{MODEL}')"
    key = "'agent:main:api:n' || n"
    named = {"key": key, "folded_key": key, "incarnation": "'api:n' || n"}
    clone(
        connection,
        "sessions",
        f"x.key = '{MODEL}'",
        {"id": "n", "updated_at": "x.updated_at - 1000 * n", "interacted_at": "x.interacted_at - 1000 * n", **named},
        numbers=numbers,
    )
    clone(connection, "incarnations", one, {"id": "'api:n' || n", "session": "n"}, numbers=numbers)
    own = {"session": "n", "incarnation": "'api:n' || n"}
    clone(
        connection,
        "events",
        one,
        {**own, "run_id": "CASE WHEN x.run_id IS NOT NULL THEN 'run_' || n END"},
        numbers=numbers,
    )
    clone(
        connection, "runs", one, {**own, "id": "'run_' || n", "created_at": "x.created_at - 1000 * n"}, numbers=numbers
    )
    connection.execute(
        f"INSERT INTO indexed_logs SELECT id, 1, last_seq, {RULES} FROM sessions WHERE id >= {FIRST}".encode()
    )
    # All worked on the day on which it is measured, which nobody knows yet: `_today` says it.
    connection.execute(b"INSERT INTO daily_usage SELECT 'today', 'main', n, 1000, 10 FROM generate_series(0, 63) n")
    for person, many in (("guest", OF_GUEST), ("user", OF_USER)):
        step = max(1, count // many)
        connection.execute(
            "INSERT INTO participants (session, principal) SELECT n, 'person:' || id FROM people, "
            f"generate_series({FIRST}, {FIRST + count - 1}, {step}) n WHERE name ILIKE '{person}'".encode()
        )


def _today(url: str) -> None:
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "UPDATE daily_usage SET day = %s WHERE day = 'today'", (datetime.now(UTC).date().isoformat(),)
        )
        connection.execute("ANALYZE")


async def _samples(act: Callable[[int], Awaitable[object]], times: int = TIMES) -> list[float]:
    samples: list[float] = []
    for number in range(times):
        start = time.perf_counter()
        await act(number)
        samples.append(time.perf_counter() - start)
        if sum(samples) > 20:
            break
    return samples


def _print(name: str, samples: list[float]) -> None:
    print(
        f"  {name:44} p50 {p50(samples) * 1000:8.1f} ms   p99 {p99(samples) * 1000:8.1f} ms   ({len(samples)})",
        flush=True,
    )


async def _measure(app: App, count: int) -> None:
    services = app.services
    targets = [
        services.sessions.target(f"agent:main:api:n{FIRST + (number * 7919) % count}") for number in range(TIMES)
    ]
    people = {
        str(known.person.name): known.person.principal
        for known in await services.people.list(OWNER, after=None, limit=9)
    }
    everything = SessionFilter()
    caller = Caller(session=SessionRow(FIRST), agent_id=AgentId("main"), principal=OWNER, call_id="b", run=None)

    async def page(who: Principal, where: SessionFilter) -> None:
        await services.sessions.list(who, where, limit=50)

    first = await services.sessions.list(OWNER, everything, limit=50)
    after = first.next
    _print("list, owner, newest 50", await _samples(lambda _: page(OWNER, everything)))

    async def deep(_: int) -> None:
        nonlocal after
        after = (await services.sessions.list(OWNER, everything, limit=50, after=after)).next

    _print("list, owner, page after page", await _samples(deep))
    _print(
        "list, owner, a word in names (none)", await _samples(lambda _: page(OWNER, SessionFilter(search="zebra")), 20)
    )
    for name in ("Guest", "User"):
        try:
            _print(f"list, {name.lower()}", await _samples(lambda _, who=people[name]: page(who, everything)))
        except Denied as error:
            print(f"  list, {name.lower()}: {error.code}")
    _print(
        "list, a session, what it sees",
        await _samples(lambda _: services.views.list(caller, everything, limit=50, message_limit=0, after=None)),
    )
    _print("append", await _samples(lambda n: services.inbox.append(OWNER, targets[n], text_content("hello"))))

    async def turn(number: int) -> None:
        posted = await services.inbox.post(OWNER, targets[number], text_content("hello"))
        assert posted.run_id is not None
        await services.waits.wait(posted.run_id, TIMEOUT)

    _print("post, claim, run, end, wait", await _samples(turn))
    day = datetime.now(UTC).date().isoformat()
    _print("sum of what agents used today", await _samples(lambda _: app.database.read(find_agents_spent, day), 20))
    _print("newest 50 runs", await _samples(lambda _: services.runs.list(OWNER, RunFilter(), limit=50)))


async def _take_over(app: App, url: str, home: Path) -> float:
    """Seconds from the kill of a worker with a run until another has ended that run."""
    target = app.services.sessions.target("agent:main:api:held")
    await app.services.sessions.open(OWNER, target, place=DeliveryContext())
    posted = await app.services.inbox.post(OWNER, target, text_content("hold"))
    assert posted.run_id is not None
    first = _start_worker(url, home / "first")
    while (await app.services.runs.get(OWNER, posted.run_id)).status is not RunStatus.RUNNING:
        await anyio.sleep(0.05)
    second = _start_worker(url, home / "second")
    while (await app.services.health.check()).workers < 2:
        await anyio.sleep(0.1)
    first.kill()
    began = time.perf_counter()
    run = await app.services.waits.wait(posted.run_id, timedelta(seconds=60))
    assert run is not None and run.status is RunStatus.OK, run
    seconds = time.perf_counter() - began
    second.terminate()
    for process in (first, second):
        process.wait(30)
    return seconds


def _start_worker(url: str, home: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-W", "ignore", "-m", "bench.many_sessions", "work", url, str(home)])


async def _work(url: str, home: Path) -> None:
    stop = anyio.Event()
    asyncio.get_running_loop().add_signal_handler(15, stop.set)
    async with open_app(home, _config(url, "worker"), Parts(runner=Runner())):
        await stop.wait()


async def main(count: int) -> None:
    async with kept_server(f"sessions-{count}") as server:
        with tempfile.TemporaryDirectory() as folder:
            home = Path(folder)
            if not is_made(server):
                began = time.perf_counter()
                await _make(server, count, home / "making")
                print(f"made {count:,} sessions in {time.perf_counter() - began:.0f} s", flush=True)
            url = fresh_copy(server)
            _today(url)
            print(f"{count:,} sessions", flush=True)
            began = time.perf_counter()
            async with open_app(home / "all", _config(url, "all"), Parts(runner=Runner())) as app:
                print(f"  start {time.perf_counter() - began:.2f} s", flush=True)
                await _measure(app, count)
            async with open_app(home / "gateway", _config(url, "gateway")) as app:
                print(f"  takeover {await _take_over(app, url, home):.1f} s", flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        anyio.run(_work, sys.argv[2], Path(sys.argv[3]), backend_options={"use_uvloop": True})
    else:
        anyio.run(main, int(sys.argv[1]) if sys.argv[1:] else SESSIONS, backend_options={"use_uvloop": True})
