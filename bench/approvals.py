"""B17: what a principal may; B18: listing open requests for approval; B19: ending streams after a revocation."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import anyio
import httpx
from pydantic import SecretStr

from antiphon.app import gateway_app, open_app
from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Approval, ApprovalState, AskedCall, hash_of_text
from antiphon.domain.ids import ApprovalId
from antiphon.domain.person import PersonId, PersonRole, person_principal
from antiphon.domain.session import Session
from antiphon.engine.runs.decisions import ApprovalFilter
from antiphon.gateway.server import bind, serving
from antiphon.policy.acts import Act
from antiphon.policy.authorize import UNLIMITED, authorize
from antiphon.policy.standing import Standing
from antiphon.store import approvals
from antiphon.store.database import Transaction
from bench.cluster import own_server
from bench.measure import Row, micros, p50, p99

OPEN, DECIDED, LISTED = 10_000, 40_000, 50
START = datetime(2026, 1, 1, tzinfo=UTC)
ENDINGS = 20


async def authorizing(directory: Path) -> list[Row]:
    """B17: for each role and act, alone and by turns."""
    standings = [Standing(principal=person_principal(PersonId(role)), role=role) for role in PersonRole]
    asked = [(standing, act) for standing in standings for act in Act]
    samples: list[float] = []
    for _ in range(500):
        for standing, act in asked:
            start = time.perf_counter()
            authorize(standing, UNLIMITED, act)
            samples.append(time.perf_counter() - start)
    return [
        Row(
            id="B17",
            what=f"authorize: {len(PersonRole)} roles × {len(Act)} acts, p50",
            measured=f"{p50(samples) * 1e6:.2f} µs",
            reference=f"p99 {p99(samples) * 1e6:.2f} µs",
            target="≤ 20 µs",
            is_met=p50(samples) <= 20e-6,
            figures={"p50_s": p50(samples), "p99_s": p99(samples)},
        )
    ]


async def listing(directory: Path) -> list[Row]:
    """B18: on SQLite, and on a PostgreSQL server of our own."""
    found = [await _list(directory / "embedded", Config(), "SQLite")]
    async with own_server() as url:
        shared = Config.model_validate({"database": {"url": SecretStr(url), "connections": 8}})
        found.append(await _list(directory / "shared", shared, "PostgreSQL"))
    return found


async def _list(home: Path, config: Config, name: str) -> Row:
    async with open_app(home, config) as app:
        sessions, requests = app.services.sessions, app.services.approvals
        session = (await sessions.open(OWNER, sessions.target("api:asking"))).session
        for first in range(0, OPEN + DECIDED, 1_000):
            await app.database.run(_fill, session, first)
        where = ApprovalFilter(state=ApprovalState.PENDING)
        listed = await _timed(lambda: requests.list(OWNER, where, limit=LISTED), 200)
        counted = await _timed(lambda: requests.count_open(OWNER), 200)
        assert len(await requests.list(OWNER, where, limit=LISTED)) == LISTED
    return Row(
        id="B18",
        what=f"{LISTED} of {OPEN:,} open requests listed, before {DECIDED:,} decided ones, p50 ({name})",
        measured=f"{micros(p50(listed))}; counted for the page in {micros(p50(counted))}",
        reference=f"p99 {micros(p99(listed))}",
        target="≤ 5 ms",
        is_met=p50(listed) <= 5e-3,
        figures={"p50_s": p50(listed), "p99_s": p99(listed), "count_p50_s": p50(counted)},
    )


async def _fill(tx: Transaction, session: Session, first: int) -> None:
    """A thousand requests, the open ones before the decided ones."""
    for number in range(first, first + 1_000):
        arguments = f'{{"name": "backup {number}"}}'
        call = AskedCall(
            id="1",
            tool="wipe",
            arguments=arguments,
            sha256=hash_of_text(arguments),
            definition="d",
            reason="It deletes.",
        )
        asked_at = START + timedelta(seconds=number)
        approval = Approval(
            id=ApprovalId(f"appr_{number:08d}"),
            session=session.row,
            session_key=str(session.key),
            session_id=session.id,
            run=None,
            agent_id=session.agent_id,
            principal=OWNER,
            state=ApprovalState.PENDING if number < OPEN else ApprovalState.DECIDED,
            calls=(call,),
            asked_at=asked_at,
            expires_at=asked_at + timedelta(days=36_500),
        )
        await approvals.insert(tx, approval)


async def _timed(call: Callable[[], Awaitable[object]], count: int) -> list[float]:
    samples: list[float] = []
    for _ in range(count):
        start = time.perf_counter()
        await call()
        samples.append(time.perf_counter() - start)
    return samples


async def revoking(directory: Path) -> list[Row]:
    """B19: a token is revoked at one gateway; its stream at the other, and at the same one, ends."""
    found = [await _revoke([directory / "alone"], Config(), "SQLite, one gateway")]
    async with own_server() as url:
        shared = Config.model_validate({"database": {"url": SecretStr(url), "connections": 8}})
        homes = [directory / "one", directory / "other"]
        found.append(await _revoke(homes, shared, "PostgreSQL, the other of two gateways"))
    return found


async def _revoke(homes: list[Path], config: Config, name: str) -> Row:
    samples: list[float] = []
    async with AsyncExitStack() as stack:
        served = [await stack.enter_async_context(_served(home, config)) for home in homes]
        (here, _), (_, url) = served[0], served[-1]
        services = here.services
        key = str((await services.sessions.open(OWNER, services.sessions.target("api:watched"))).session.key)
        for _ in range(ENDINGS):
            token, secret = await services.tokens.create_for_person(OWNER, "owner", life=timedelta(days=1))
            headers = {"Authorization": f"Bearer {secret}"}
            async with (
                httpx.AsyncClient(base_url=url, headers=headers, timeout=30, trust_env=False) as client,
                client.stream("GET", f"/sessions/{key}/events") as stream,
            ):
                lines = stream.aiter_lines()
                await anext(lines)
                await services.tokens.revoke(OWNER, token.id)
                start = time.perf_counter()
                async for line in lines:
                    if line == "event: end":
                        break
                samples.append(time.perf_counter() - start)
    return Row(
        id="B19",
        what=f"from revoking a token to the end of its stream, p50 ({name})",
        measured=micros(p50(samples)),
        reference=f"longest of {ENDINGS}: {micros(max(samples))}",
        target="≤ 1 s, the longest",
        is_met=max(samples) <= 1.0,
        figures={"p50_s": p50(samples), "longest_s": max(samples)},
    )


@asynccontextmanager
async def _served(home: Path, config: Config) -> AsyncGenerator[tuple[App, str]]:
    async with open_app(home, config) as app:
        listener = bind("127.0.0.1", 0)
        async with serving(gateway_app(app, "ant_" + "0" * 48), listener, on_stop=app.services.hub.close) as url:
            with anyio.fail_after(300):
                yield app, url
