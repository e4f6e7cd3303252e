"""Who may do what is decided below every edge: a program that embeds Antiphon is refused as a request is."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from dataclasses import dataclass
from typing import Any, cast

import pytest

from antiphon.building import App
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.errors import AntiphonError, Denied, NotFound
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import JsonObject as Json
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Rights, TokenHolder, find_reach
from antiphon.engine.deliveries.deliveries import DeliveryFilter
from antiphon.engine.runs.cancel import RunFilter, Runs
from antiphon.engine.sessions.sessions import SessionFilter, Sessions
from antiphon.engine.views.history import History
from antiphon.feed.follow import PAGE_EVENTS
from antiphon.policy.acts import Act
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Transaction
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.counted import CountedDatabase
from tests.engine.parley import open_peer, target_of
from tests.engine.stage import post, until_indexed, wait_end
from tests.story import settings

pytestmark = pytest.mark.anyio

GUEST = Principal(PrincipalKind.PERSON, "webhook:x")


@dataclass(frozen=True)
class World:
    app: App
    shared: Session
    """In which the guest takes part."""
    hidden: Session

    def target(self, name: str) -> NamedTarget:
        return self.app.services.sessions.target(f"agent:main:cli:{name}")


@pytest.fixture
async def world(open_home: OpenHome) -> AsyncGenerator[World]:
    async with open_home(settings()) as app:
        shared, hidden = await open_peer(app, "shared"), await open_peer(app, "hidden")
        await app.database.run(_let_in, shared.row)
        yield World(app, shared, hidden)


async def _let_in(tx: Transaction, session: SessionRow, principal: Principal = GUEST) -> None:
    await rows.add_participant(tx, session, str(principal))


OWNERS: dict[str, Callable[[World], Awaitable[Any]]] = {
    "sessions.list": lambda world: world.app.services.sessions.list(GUEST, SessionFilter(), limit=5),
    "sessions.open": lambda world: world.app.services.sessions.open(GUEST, world.target("new")),
    "sessions.patch a label": lambda world: world.app.services.sessions.patch(
        GUEST, world.target("shared"), {"label": "mine"}
    ),
    "sessions.delete": lambda world: world.app.services.sessions.delete(GUEST, world.target("shared")),
    "sessions.patch a model": lambda world: world.app.services.sessions.patch(
        GUEST, world.target("shared"), {"model": "offline"}
    ),
    "sessions.patch a send policy": lambda world: world.app.services.sessions.patch(
        GUEST, world.target("shared"), {"send_policy": "deny"}
    ),
    "runs.list": lambda world: world.app.services.runs.list(GUEST, RunFilter(), limit=5),
    "runs.list of a session": lambda world: world.app.services.runs.list(
        GUEST, RunFilter(session=world.shared.row), limit=5
    ),
    "trees.under": lambda world: world.app.services.trees.under(
        GUEST, world.target("shared"), include_inactive=False, limit=5
    ),
    "trees.family": lambda world: world.app.services.trees.family(GUEST, world.target("shared"), limit=5),
    "trees.recent": lambda world: world.app.services.trees.recent(GUEST, include_inactive=False, roots=5, limit=5),
    "trees.folded": lambda world: world.app.services.trees.folded(GUEST, {}, roots=5),
    "activities.now": lambda world: world.app.services.activities.now(GUEST, limit=5),
    "deliveries.list": lambda world: world.app.services.deliveries.list(GUEST, DeliveryFilter(), limit=5),
    "tokens.create": lambda world: world.app.services.tokens.create(GUEST, world.target("shared")),
    "tokens.list": lambda world: world.app.services.tokens.list(GUEST),
    "tokens.revoke": lambda world: world.app.services.tokens.revoke(GUEST, "tok_0"),
    "sign_in.new_link_code": lambda world: world.app.services.sign_in.new_link_code(GUEST),
    "sign_in.list": lambda world: world.app.services.sign_in.list(GUEST),
    "ownership.rotate": lambda world: world.app.services.ownership.rotate(GUEST),
}


@requirement("access:1", "access:4")
@pytest.mark.parametrize("act", OWNERS)
async def test_what_is_the_owners_is_refused_to_a_guest_of_the_session(world: World, act: str) -> None:
    with pytest.raises(Denied) as refused:
        await OWNERS[act](world)
    assert refused.value.code == "forbidden"


async def test_a_guest_that_is_refused_leaves_everything_as_it_was(world: World) -> None:
    services = world.app.services
    token, _ = await services.tokens.create(OWNER, world.target("shared"))
    before = await services.ownership.proof_key()
    for act in ("tokens.revoke", "ownership.rotate", "sessions.open", "sessions.patch a model"):
        with pytest.raises(Denied):
            await OWNERS[act](world)
    assert [each.id for each in await services.tokens.list(OWNER)] == [token.id]
    assert await services.ownership.proof_key() == before
    listed = await services.sessions.list(OWNER, SessionFilter(), limit=5)
    assert {session.row for session in listed.sessions} == {world.shared.row, world.hidden.row}
    assert [session.model for session in listed.sessions] == [None, None]


OF_A_SESSION: dict[str, Callable[[App, NamedTarget], Awaitable[Any]]] = {
    "sessions.get": lambda app, target: app.services.sessions.get(GUEST, target),
    "resets.reset": lambda app, target: app.services.resets.reset(GUEST, target),
    "forks.fork": lambda app, target: app.services.forks.fork(GUEST, target, None),
    "inbox.post": lambda app, target: app.services.inbox.post(GUEST, target, text_content("hello")),
    "inbox.append": lambda app, target: app.services.inbox.append(GUEST, target, text_content("hello")),
    "history.page": lambda app, target: app.services.history.page(GUEST, target, limit=5),
    "history.events": lambda app, target: anext(app.services.history.events(GUEST, target)),
    "runs.cancel_session": lambda app, target: app.services.runs.cancel_session(GUEST, target),
    "trees.under": lambda app, target: app.services.trees.under(GUEST, target, include_inactive=False, limit=5),
    "trees.family": lambda app, target: app.services.trees.family(GUEST, target, limit=5),
    "tools": lambda app, target: app.tool_calls.call(GUEST, target, "session_status", {}),
}
"""Use cases that name a session."""
REFUSED = {"trees.under": "forbidden", "trees.family": "forbidden", "forks.fork": "agent_not_open"}


@requirement("access:1", "answers:2")
@pytest.mark.parametrize("act", OF_A_SESSION)
async def test_a_session_of_others_is_missing_for_a_guest_and_its_own_is_not(world: World, act: str) -> None:
    told: list[str] = []
    for name in ("hidden", "missing"):
        with pytest.raises(NotFound) as refused:
            await OF_A_SESSION[act](world.app, world.target(name))
        told.append(f"{refused.value.code} {refused.value.message}".replace(name, "it"))
    assert told[0] == told[1]
    hidden = (await world.app.services.sessions.get(OWNER, world.target("hidden"))).session
    assert hidden == world.hidden, "nothing was changed"
    try:
        await OF_A_SESSION[act](world.app, world.target("shared"))
    except AntiphonError as error:
        assert error.code == REFUSED.get(act)
    else:
        assert act not in REFUSED


@requirement("answers:2")
async def test_hidden_and_missing_cost_the_same_statements(world: World) -> None:
    app, services = world.app, world.app.services
    run = (await post(app, str(world.hidden.key), "hello")).run_id
    assert run is not None
    await wait_end(app, run)
    counted = CountedDatabase(app.database)
    database = cast(Database, counted)
    sessions = Sessions(
        database,
        services.rules,
        app.workspaces,
    )
    history, runs = History(database, services.rules, services.names, services.trail), Runs(database, services.rules)
    ids = {"hidden": run, "missing": RunId("run_missing")}
    asked: dict[str, Callable[[str], Awaitable[Any]]] = {
        "by key": lambda name: sessions.get(GUEST, world.target(name)),
        "by id": lambda name: sessions.get(GUEST, services.sessions.target(f"cli:{name}")),
        "history": lambda name: history.page(GUEST, world.target(name), limit=5),
        "run": lambda name: runs.get(GUEST, ids[name]),
    }
    for what, ask in asked.items():
        costs: list[int] = []
        for name in ("hidden", "missing"):
            counted.statements = 0
            with pytest.raises(NotFound):
                await ask(name)
            costs.append(counted.statements)
        assert costs[0] == costs[1] > 0, what


@requirement("access:2")
async def test_a_bound_token_calls_tools_as_its_session_and_does_nothing_else(world: World) -> None:
    key = str(world.shared.key)
    holder = TokenHolder(principal=OWNER, session=world.shared.row, session_key=key)
    status = await world.app.tool_calls.call(holder, target_of(world.app, world.shared), "session_status", {})
    assert status["sessionKey"] == key
    with pytest.raises(NotFound):
        await world.app.tool_calls.call(holder, target_of(world.app, world.hidden), "session_status", {})
    rights = Rights(holder, world.app.services.rules)
    for act in set(Act) - {Act.CALL}:
        with pytest.raises(Denied) as refused:
            await world.app.database.read(find_reach, rights, act)
        assert refused.value.code == "token_bound", act


@requirement("access:2")
async def test_a_bound_token_acts_within_its_makers_present_rights(world: World) -> None:
    """The maker takes part in one of the sessions and becomes a guest: of the other nothing is left."""
    app, people = world.app, world.app.services.people
    maker = (await people.invite(OWNER, "Ann", PersonRole.OWNER)).person.principal
    await app.database.run(_let_in, world.shared.row, maker)

    async def call(session: Session, tool: str) -> Json:
        holder = TokenHolder(principal=maker, session=session.row, session_key=str(session.key))
        return await app.tool_calls.call(holder, target_of(app, session), tool, {})

    for session in (world.shared, world.hidden):
        assert (await call(session, "agents_list"))["agents"]
    await people.change_role(OWNER, "ann", PersonRole.GUEST)
    assert (await call(world.shared, "session_status"))["sessionKey"] == str(world.shared.key)
    with pytest.raises(Denied) as kept:
        await call(world.shared, "agents_list")
    assert kept.value.code == "tool_not_given"
    with pytest.raises(NotFound):
        await call(world.hidden, "session_status")
    await people.suspend(OWNER, "ann")
    with pytest.raises(Denied) as denied:
        await call(world.shared, "session_status")
    assert denied.value.code == "suspended"
    await people.resume(OWNER, "ann")
    await people.merge(OWNER, "ann", "owner")
    assert (await call(world.hidden, "agents_list"))["agents"], "she acts as the person into whom she was merged"


@requirement("access:1")
async def test_runs_and_deliveries_of_others_are_missing(world: World) -> None:
    app, services = world.app, world.app.services
    run_id = (await post(app, str(world.hidden.key), "hello")).run_id
    assert run_id is not None
    ended = await wait_end(app, run_id)
    for refused in (services.runs.get(GUEST, run_id), services.runs.cancel(GUEST, run_id)):
        with pytest.raises(NotFound):
            await refused
    assert await services.runs.get(OWNER, run_id) == ended
    for refused in (services.deliveries.get(GUEST, "dlv_0"), services.deliveries.retry(GUEST, "dlv_0")):
        with pytest.raises(NotFound) as hidden:
            await refused
        with pytest.raises(NotFound) as missing:
            await services.deliveries.get(OWNER, "dlv_0")
        assert hidden.value.message == missing.value.message


@requirement("access:1")
async def test_a_person_searches_what_it_takes_part_in_and_the_owner_everything(world: World) -> None:
    app = world.app
    for session in (world.shared, world.hidden):
        await app.services.inbox.append(OWNER, target_of(app, session), text_content("needle"))
    await until_indexed(app)
    for principal, sessions in ((GUEST, [world.shared]), (OWNER, [world.shared, world.hidden])):
        found = (await app.services.search.messages(principal, "needle", limit=10)).hits
        assert {str(hit.session_key) for hit in found} == {str(session.key) for session in sessions}


@requirement("access:1")
async def test_reading_on_asks_again(world: World) -> None:
    app, target = world.app, target_of(world.app, world.shared)
    for number in range(PAGE_EVENTS):
        await app.services.inbox.append(OWNER, target, text_content(f"message {number}"))
    events = app.services.history.events(GUEST, target)
    read = [await anext(events) for _ in range(PAGE_EVENTS)]
    assert [event.seq for event in read] == list(range(1, PAGE_EVENTS + 1))
    await app.services.sessions.delete(OWNER, target)
    with pytest.raises(NotFound):
        await anext(events)
