"""The scope as SQL is the very rule that policy decides by."""

import random
from collections.abc import AsyncGenerator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from antiphon.building import App
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import EVERYTHING, PEOPLE, PUBLIC, Classification, Level
from antiphon.domain.ids import AgentId, SessionRow
from antiphon.domain.person import PersonRole
from antiphon.domain.session import Session, SessionSummary
from antiphon.engine.ledger.append import shown_text
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.policy.acts import Act
from antiphon.policy.authorize import UNLIMITED, authorize
from antiphon.policy.decision import Deny
from antiphon.policy.reach import Grant, Reach, decide, reach_of_session
from antiphon.policy.session_tools import SESSION_TOOLS
from antiphon.policy.shown import shown_session
from antiphon.policy.standing import Standing
from antiphon.policy.visibility import AgentToAgent, Visibility, VisibilityRules
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.parley import open_peer
from tests.people import standing_of
from tests.story import settings

pytestmark = pytest.mark.anyio

SEED = 20_261_121
AGENTS = ("ops-a", "ops-b", "main", "guest")
GUEST = Principal(PrincipalKind.PERSON, "webhook:x")
ANN = Principal(PrincipalKind.PERSON, "ann")
"""A user: reaches no more than what she takes part in, but more than guests, who see only their own session."""
TAINTS = (
    PUBLIC,
    Classification(Level.INTERNAL),
    Classification(Level.RESTRICTED),
    Classification(Level.PUBLIC, 0b01),
    Classification(Level.INTERNAL, 0b10),
)
PERSONS = (*[None] * 12, "person:ann", "person:bo", PEOPLE)


@dataclass(frozen=True)
class World:
    app: App
    sessions: list[Session]
    shared: frozenset[SessionRow]
    """Those in which the guest and the user take part."""


@pytest.fixture
async def world(open_home: OpenHome) -> AsyncGenerator[World]:
    """A forest of sessions of several agents, taints and depths, some of them shared with a guest, some deleted."""
    drawn = random.Random(SEED)
    agents = [{"id": agent} for agent in AGENTS]
    async with open_home(settings(agents__list=agents)) as app:
        made: list[Session] = []
        shared: set[SessionRow] = set()
        for number in range(60):
            parents = [session for session in made if session.depth < 5]
            parent = drawn.choice(parents) if parents and drawn.random() < 0.6 else None
            agent = drawn.choice(AGENTS)
            session = await open_peer(
                app,
                f"agent:{agent}:cli:s{number}",
                agent=agent,
                parent=None if parent is None else parent.row,
                taint=replace(drawn.choice(TAINTS), person=PERSONS[number % len(PERSONS)]),
            )
            made.append(session)
            if drawn.random() < 0.3:
                shared.add(session.row)
                await app.database.run(_let_in, session.row)
        for session in drawn.sample(made, 6):
            await app.services.sessions.delete(OWNER, app.services.sessions.target(str(session.key)))
        present = [session for each in made if (session := await app.database.read(rows.find_by_row, each.row))]
        yield World(app, present, frozenset(shared))


async def _let_in(tx: Transaction, session: SessionRow) -> None:
    for principal in (GUEST, ANN):
        await rows.add_participant(tx, session, str(principal))


@requirement("visibility:1", "visibility:2", "visibility:3", "visibility:4", "visibility:6", "flow:3", "access:1")
async def test_a_list_shows_exactly_what_policy_allows_one_by_one(world: World) -> None:
    crossings = (
        AgentToAgent(),
        AgentToAgent(enabled=True),
        AgentToAgent(enabled=True, allow=("ops-*",)),
        AgentToAgent(enabled=True, allow=("ops-*", "main")),
    )
    counts: set[int] = set()
    for caller in world.sessions:
        for principal in (OWNER, ANN, GUEST):
            for visibility in Visibility:
                for crossing in crossings:
                    rules = VisibilityRules(visibility=visibility, agent_to_agent=crossing)
                    for act in (Act.LIST, Act.SEND):
                        counts.add(await _compare(world, _reach(caller, principal, act, rules)))
    assert len(counts) > 5


@requirement("visibility:5", "visibility:2")
async def test_a_narrowed_or_sandboxed_caller_reaches_less_and_never_more(world: World) -> None:
    for caller in world.sessions[:10]:
        for visibility in Visibility:
            wide = VisibilityRules(visibility=visibility, agent_to_agent=AgentToAgent(enabled=True))
            for limit in (None, *Visibility):
                rules = VisibilityRules(
                    visibility=visibility,
                    agent_to_agent=AgentToAgent(enabled=True),
                    narrowed={AgentId(agent): {Act.LIST: limit} for agent in AGENTS},
                )
                for is_sandboxed in (False, True):
                    narrow = _reach(caller, OWNER, Act.LIST, rules, is_sandboxed=is_sandboxed)
                    assert isinstance(narrow, Deny) is (limit is None)
                    within = await _compare(world, narrow)
                    assert within <= await _compare(world, _reach(caller, OWNER, Act.LIST, wide))
                    assert (within == 0) is (limit is None)


@requirement("access:1")
async def test_a_person_lists_what_it_takes_part_in_and_the_owner_all(world: World) -> None:
    for principal, expected in ((OWNER, {session.row for session in world.sessions}), (GUEST, world.shared)):
        reach = authorize(standing_of(principal), UNLIMITED, Act.READ)
        assert isinstance(reach, Reach)
        assert await _compare(world, reach) == len(expected & {session.row for session in world.sessions}) > 0


@requirement("flow:3", "flow:8")
async def test_a_row_in_a_list_shows_what_policy_shows_of_the_session(world: World) -> None:
    drawn = random.Random(SEED)
    classes = [replace(taint, person=person) for taint in TAINTS for person in (None, "person:ann", PEOPLE)]
    for session in world.sessions:
        columns = {
            **shown_text("preview", "last words", drawn.choice(classes)),
            **shown_text("description", "first words", drawn.choice(classes)),
            "input_tokens": 7,
            "context_tokens": 5,
            "aborted_last_run": 1,
        }
        await world.app.database.run(rows.update, session.row, columns)
    names = [field for field in SessionSummary.__struct_fields__ if field != "participants"]
    hidden = 0
    for clearance in (*classes, EVERYTHING):
        reach = Reach(act=Act.LIST, cleared=clearance)

        async def listed(query: Query, reach: Reach = reach) -> list[SessionSummary]:
            return await rows.list_page(query, reach, SessionFilter(include_inactive=True), limit=1_000, after=None)

        for row in await world.app.database.read(listed):
            stored = await world.app.database.read(rows.find_by_row, row.row)
            assert stored is not None
            shown = shown_session(stored, clearance)
            assert [getattr(row, name) for name in names] == [getattr(shown, name) for name in names], clearance
            hidden += (shown.preview is None) + (shown.description is None) + (not shown.usage.input_tokens)
    assert hidden > 100


async def _compare(world: World, reach: Reach | Deny) -> int:
    """How many sessions the list of the reach has, which are those that policy allows one by one."""
    if isinstance(reach, Deny):
        return 0

    async def listed(query: Query) -> list[SessionRow]:
        where = SessionFilter(include_inactive=True)
        return [session.row for session in await rows.list_page(query, reach, where, limit=1_000, after=None)]

    found = await world.app.database.read(listed)
    allowed = {session.row for session in world.sessions if _is_allowed(world, reach, session)}
    assert len(found) == len(set(found))
    assert set(found) == allowed, f"{reach}"
    return len(found)


def _is_allowed(world: World, reach: Reach, session: Session) -> bool:
    takes_part = session.row in world.shared
    decision = decide(reach, session, incarnation=session.id, taint=session.taint, is_participant=takes_part)
    return isinstance(decision, Grant)


def _reach(
    session: Session, principal: Principal, act: Act, rules: VisibilityRules, *, is_sandboxed: bool = False
) -> Reach | Deny:
    standing = Standing(principal=ANN, role=PersonRole.USER) if principal == ANN else standing_of(principal)
    return reach_of_session(session, standing, act, rules, is_sandboxed=is_sandboxed, subagent_tools=SESSION_TOOLS)


@requirement("visibility:1")
async def test_a_key_that_comes_again_inherits_nobody(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        parent = await open_peer(app, "parent")
        child = await open_peer(app, "agent:main:subagent:c", parent=parent.row)
        grandchild = await open_peer(app, "agent:main:subagent:g", parent=child.row)
        sessions = app.services.sessions
        await sessions.delete(OWNER, sessions.target(str(child.key)))
        other = await open_peer(app, "other")
        again = await open_peer(app, "agent:main:subagent:c", parent=other.row)
        assert again.row == child.row and again.depth == 1 and again.ancestors == (other.row,)
        left = await app.database.read(rows.find_by_row, grandchild.row)
        assert left is not None and left.parent is None
        reach = _reach(again, OWNER, Act.LIST, VisibilityRules())
        assert isinstance(reach, Reach)

        async def listed(query: Query) -> list[SessionRow]:
            page = await rows.list_page(query, reach, SessionFilter(), limit=10, after=None)
            return [session.row for session in page]

        assert await app.database.read(listed) == [again.row]
