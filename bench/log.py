"""B1 to B5: appending, listing, reading."""

import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import anyio
import httpx

from antiphon.app import gateway_app, open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content
from antiphon.domain.targets import NamedTarget
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.gateway.server import bind, serving
from bench.bare import TEXT, BareLog, SameStatements
from bench.labels import config_of
from bench.measure import Row, micros, p50, p99

CONTENT = text_content(TEXT)


async def _session(app: App, name: str) -> NamedTarget:
    opened = await app.services.sessions.open(OWNER, app.services.sessions.target(f"api:{name}"))
    return NamedTarget(opened.session.key, None)


async def _timed(call: Callable[[], Awaitable[object]], count: int) -> list[float]:
    samples: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        await call()
        samples.append(time.perf_counter() - start)
    return samples


async def appends(directory: Path) -> list[Row]:
    """B1, B2."""
    bare = BareLog(directory / "bare.db")
    async with open_app(directory / "home", Config()) as app:
        target = await _session(app, "one")
        inbox = app.services.inbox
        ours: dict[int, list[float]] = {}
        base: dict[int, list[float]] = {}
        stored = 0
        for size in (100, 10_000):
            while stored < size:
                await inbox.append(OWNER, target, CONTENT)
                bare.append()
                stored += 1
            ours[size], base[size] = [], []
            for _ in range(600):
                base[size].append(bare.append())
                start = time.perf_counter()
                await inbox.append(OWNER, target, CONTENT)
                ours[size].append(time.perf_counter() - start)
            stored += 600
    mine, theirs = p50(ours[10_000]), p50(base[10_000])
    bound = max(1.2 * theirs, theirs + 80e-6)
    growth = p50(ours[10_000]) / p50(ours[100])
    return [
        Row(
            id="B1",
            what="one durable append at 10,000 messages, p50",
            measured=micros(mine),
            reference=f"bare {micros(theirs)} ({mine / theirs:.2f} ×, + {micros(mine - theirs)})",
            target="≤ max(1.2 × bare, bare + 80 µs)",
            is_met=mine <= bound,
            figures={"ours_s": mine, "bare_s": theirs},
        ),
        Row(
            id="B2",
            what="the same, p50(10,000) ÷ p50(100)",
            measured=f"{growth:.2f}",
            reference=f"bare {p50(base[10_000]) / p50(base[100]):.2f}",
            target="≤ 1.1",
            is_met=growth <= 1.1,
            figures={"growth": growth},
        ),
    ]


async def throughput(directory: Path) -> list[Row]:
    """B3: beside raw batches of 32 appends, of the same three statements on the same tables, and of bare two."""
    bare = BareLog(directory / "bare.db")
    samples: list[float] = []
    per_task = 600
    rates: list[float] = []
    twos: list[float] = []
    sames: list[float] = []
    async with open_app(directory / "raw", Config()) as app:
        for number in range(32):
            await _session(app, f"s{number}")
    same = SameStatements(directory / "raw" / "antiphon.db")
    async with open_app(directory / "home", Config()) as app:
        targets = [await _session(app, f"s{number}") for number in range(32)]

        async def append_many(target: NamedTarget) -> None:
            for _ in range(per_task):
                start = time.perf_counter()
                await app.services.inbox.append(OWNER, target, CONTENT)
                samples.append(time.perf_counter() - start)

        for _ in range(3):
            twos.append(bare.batches(per_task, 32))
            sames.append(same.batches(per_task))
            start = time.perf_counter()
            async with anyio.create_task_group() as tasks:
                for target in targets:
                    tasks.start_soon(append_many, target)
            rates.append(32 * per_task / (time.perf_counter() - start))
    rate, raw, two, tail = p50(rates), p50(sames), p50(twos), p99(samples)
    return [
        Row(
            id="B3",
            what="32 tasks, 32 sessions, appends a second",
            measured=f"{rate:,.0f}/s, p99 {micros(tail)}",
            reference=f"raw batches of 32: {raw:,.0f}/s ({rate / raw:.2f} ×); of two bare statements {two:,.0f}/s",
            target="≥ 0.75 × raw, p99 < 10 ms",
            is_met=rate / raw >= 0.75 and tail < 10e-3,
            figures={"ours_per_s": rate, "raw_per_s": raw, "bare_two_per_s": two, "p99_s": tail},
        )
    ]


async def lists(directory: Path) -> list[Row]:
    """B4."""
    store: dict[int, float] = {}
    http: dict[int, float] = {}
    async with open_app(directory / "home", config_of()) as app:
        token = "bench"
        made = 0
        async with serving(gateway_app(app, token), bind("127.0.0.1", 0), on_stop=app.services.let_go) as url:
            headers = {"Authorization": f"Bearer {token}"}
            async with httpx.AsyncClient(base_url=url, headers=headers) as client:
                for size in (1_000, 100_000):
                    await fill(app, made, size)
                    made = size
                    for samples, call in (
                        (store, lambda: app.services.sessions.list(OWNER, SessionFilter(), limit=50)),
                        (http, lambda: client.get("/sessions?limit=50")),
                    ):
                        await _timed(call, 50)
                        samples[size] = p50(await _timed(call, 400))
    growth = store[100_000] / store[1_000]
    return [
        Row(
            id="B4",
            what="list the 50 newest of 100,000 sessions, p50",
            measured=f"store {micros(store[100_000])}, HTTP {micros(http[100_000])}",
            reference=f"of 1,000: store {micros(store[1_000])}, HTTP {micros(http[1_000])} ({growth:.2f} ×)",
            target="≤ 1 ms, ≤ 5 ms, ≤ 1.2 ×",
            is_met=store[100_000] <= 1e-3 and http[100_000] <= 5e-3 and growth <= 1.2,
            figures={
                f"{name}_{size}_s": seconds
                for name, samples in (("store", store), ("http", http))
                for size, seconds in samples.items()
            },
        )
    ]


async def fill(app: App, made: int, size: int) -> None:
    limiter = anyio.Semaphore(64)

    async def make(number: int) -> None:
        async with limiter:
            target = await _session(app, f"n{number}")
            await app.services.inbox.append(OWNER, target, CONTENT)

    for start in range(made, size, 2_000):
        async with anyio.create_task_group() as tasks:
            for number in range(start, min(start + 2_000, size)):
                tasks.start_soon(make, number)


async def pages(directory: Path) -> list[Row]:
    """B5."""
    async with open_app(directory / "home", Config()) as app:
        target = await _session(app, "one")
        for _ in range(100):
            async with anyio.create_task_group() as tasks:
                for _ in range(100):
                    tasks.start_soon(app.services.inbox.append, OWNER, target, CONTENT)

        def read() -> Awaitable[object]:
            return app.services.history.page(OWNER, target, limit=50)

        await _timed(read, 100)
        time_s = p50(await _timed(read, 1_000))
    return [
        Row(
            id="B5",
            what="the last 50 of 10,000 messages, decoded, p50",
            measured=micros(time_s),
            reference="–",
            target="≤ 0.3 ms",
            is_met=time_s <= 0.3e-3,
            figures={"ours_s": time_s},
        )
    ]
