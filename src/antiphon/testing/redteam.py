"""A red team: agents and callers that try to bring a canary from where it may not leave to where it may not be read.

    report = await attack(Path("/tmp/home"))
    assert not report.leaks and not report.lost
    print(report)

For every pair of classifications it opens a session that holds the canary, and an observer with the other
classification. Each route is tried for each pair. If the data may flow to the observer, the canary has to arrive: that
is the table of legal flows, so that a home in which nothing works does not pass. If it may not flow, no form of the
canary may arrive: neither as it is, nor reversed, encoded or in halves.

The agents are played by the `offline` model, which does what its messages say: it is an agent that obeys everyone.
"""

import os
from collections.abc import AsyncGenerator, Collection, Iterable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.agents.toolset import DeclaredFunction, tool
from antiphon.app import gateway_app, open_app
from antiphon.building import App, Parts
from antiphon.cli.connection.gateway_file import RunningGateway, published
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import ApprovalState, Verdict
from antiphon.domain.errors import AntiphonError
from antiphon.domain.person import Identity, PersonId
from antiphon.gateway.server import bind, serving
from antiphon.store import people as people_rows
from antiphon.store.approvals import ApprovalFilter
from antiphon.testing.attempts import ROUTES, AttackRoute
from antiphon.testing.door import Door
from antiphon.testing.scene import (
    CHANNEL,
    COMPARTMENT,
    FIRST_COMPARTMENT,
    PEOPLE,
    AttackedHome,
    AttackScene,
    Canary,
    RecordingChannel,
    book_tool,
    pairs_of,
)

DENY_SECONDS: Final = 0.02
"""Between looks for requests."""
SETTINGS: Final[Mapping[str, Any]] = {
    "gateway": {"drain_seconds": 0},
    "tools": {"sessions": {"visibility": "agent"}},
    "agents": {"defaults": {"subagents": {"max_spawn_depth": 3, "max_children_per_agent": 20}}},
    "limits": {"guest": {"requestsPerMinute": 10**6, "burst": 10**6, "sessions": 10**4}},
}
"""Sessions see all sessions of their agent, so that nothing but classifications keeps them apart."""


class AttackOutcome(Struct, frozen=True):
    route: str
    transport: str
    pair: str
    form: str | None
    """In which the canary arrived; None if it did not."""


@dataclass(slots=True)
class AttackReport:
    """What came of it."""

    tried: dict[str, int] = field(default_factory=dict[str, int])
    """How often each route was tried where the canary may not arrive."""
    legal: dict[str, int] = field(default_factory=dict[str, int])
    """How often a legal flow arrived."""
    leaks: list[AttackOutcome] = field(default_factory=list[AttackOutcome])
    lost: list[AttackOutcome] = field(default_factory=list[AttackOutcome])
    """Legal flows that did not arrive."""

    def __str__(self) -> str:
        lines = [f"{count:5} tried, {self.legal.get(name, 0):4} legal: {name}" for name, count in self.tried.items()]
        lines += [f"LEAK: {leak}" for leak in self.leaks]
        lines += [f"LOST: {leak}" for leak in self.lost]
        tried, legal = sum(self.tried.values()), sum(self.legal.values())
        sums = f"{len(self.tried)} routes, {tried} attempts, {len(self.leaks)} canaries out"
        return "\n".join([*lines, f"{sums}, {legal} legal flows arrived"])


async def attack(
    home: Path,
    *,
    routes: Iterable[AttackRoute] = ROUTES,
    pairs: Collection[int] | None = None,
    settings: Mapping[str, Any] = SETTINGS,
) -> AttackReport:
    """Tries the routes for the pairs (by their index in `pairs_of`; all unless given) in a fresh home."""
    report = AttackReport()
    async with _open_home(home, settings) as attacked:
        found = pairs_of(FIRST_COMPARTMENT)
        chosen = range(len(found)) if pairs is None else pairs
        for index in chosen:
            for route_index, route in enumerate(routes):
                for transport in route.transports:
                    canary = Canary.drawn()
                    number = f"{index}-{route_index}-{transport.lower().replace(' ', '-')}"
                    attacked.books[number] = canary.everything
                    scene = AttackScene(attacked, found[index], canary, number)
                    await scene.plants()
                    await scene.opens("riser", found[index].sink)
                    await _judge(report, route, transport, scene)
    return report


async def _judge(report: AttackReport, route: AttackRoute, transport: str, scene: AttackScene) -> None:
    try:
        got = await route.attempt(scene, transport)
    except AntiphonError as error:
        got = f"{error.code} {error.message}"
    form = scene.canary.found_in(got)
    outcome = AttackOutcome(route.name, transport, scene.pair.name, form)
    sink = route.sink or scene.pair.sink
    if not scene.pair.source.flows_to(sink):
        report.tried[route.name] = report.tried.get(route.name, 0) + 1
        if form is not None:
            report.leaks.append(outcome)
    elif route.carries and form is None and (not route.needs_sight or scene.pair.sink.flows_to(scene.pair.source)):
        report.lost.append(outcome)
    elif form is not None:
        report.legal[route.name] = report.legal.get(route.name, 0) + 1


@asynccontextmanager
async def _open_home(home: Path, settings: Mapping[str, Any]) -> AsyncGenerator[AttackedHome]:
    books: dict[str, str] = {}
    channel = RecordingChannel()

    def read_books(page: str) -> str:
        """Reads a page of the books."""
        return books.get(page, "empty")

    def torn_books(page: str) -> str:
        """Fails with a page of the books."""
        raise RuntimeError(books.get(page, "empty"))

    tools: list[DeclaredFunction] = []
    for pair in pairs_of(FIRST_COMPARTMENT):
        name = book_tool(pair.source)
        if name in {each.name for each in tools}:
            continue
        for function, called in ((read_books, name), (torn_books, f"torn_{name}")):
            tools.append(replace(tool(function, name=called, effects=["reads"]), classification=pair.source))
    parts = Parts(tools=tools, channels=[channel], synchronous="OFF")
    async with open_app(home, Config.model_validate(settings), parts) as app:
        token = await app.services.ownership.prepare(is_embedded=True)
        assert token is not None
        application = gateway_app(app, token)
        attacked = AttackedHome(
            path=home, app=app, door=Door(application), owner_token=token, channel=channel, books=books
        )
        for name in PEOPLE:
            await attacked.door.ask("POST", "/people", token=token, body={"name": name, "agents": ["main"]})
        account = Identity(channel=CHANNEL, account="", platform_id=PEOPLE[0])
        await app.database.run(people_rows.insert_identity, account, PersonId(PEOPLE[0]), 0)
        await app.services.compartments.create(OWNER, COMPARTMENT)
        async with serving(application, bind("127.0.0.1", 0), on_stop=app.services.let_go) as url:
            with published(home, RunningGateway(url=url, pid=os.getpid())):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(_deny_all, app)
                    yield attacked
                    tasks.cancel_scope.cancel()


async def _deny_all(app: App) -> None:
    """Answers each request for an approval or a release, so that no run waits: nobody lets anything go."""
    while True:
        for each in await app.services.approvals.list(OWNER, ApprovalFilter(state=ApprovalState.PENDING), limit=50):
            with suppress(AntiphonError):  # it was withdrawn meanwhile
                await app.services.approvals.resolve(OWNER, each.id, Verdict.DENY)
        await anyio.sleep(DENY_SECONDS)
