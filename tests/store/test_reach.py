"""What the store tells of sessions it tells by a reach or a grant, and no more than lies within it."""

import importlib
import inspect
import pkgutil
import types
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast, get_args, get_type_hints

import pytest

import antiphon.store
from antiphon.domain.actor import Principal, PrincipalKind
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.delivery import Delivery
from antiphon.domain.event import Event
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext, Session, SessionSummary
from antiphon.policy.acts import Act
from antiphon.policy.authorize import UNLIMITED, authorize
from antiphon.policy.reach import Grant, Reach, Viewer
from antiphon.policy.system import SYSTEM_REACH
from antiphon.policy.visibility import AgentToAgent, Visibility
from antiphon.store import activities, deliveries, trees
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.activities import Activity, LastRun
from antiphon.store.database import Query, Transaction
from antiphon.store.deliveries import DeliveryFilter
from antiphon.store.runs import RunFilter
from antiphon.store.search import FoundMessage
from antiphon.store.sessions import SessionFilter
from antiphon.store.trees import TreeRoot
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.parley import open_peer
from tests.engine.stage import post, wait_end
from tests.people import standing_of
from tests.story import Story, settings

pytestmark = pytest.mark.anyio

GUEST = Principal(PrincipalKind.PERSON, "webhook:x")
CONTENT = (Event, Session, SessionSummary, Run, Delivery, FoundMessage, Activity, LastRun)
"""What holds words of people and agents."""

LOOKED_UP = "what the decision is about; engine/access/reach decides before anybody is told"
OWN = "sessions and runs that a unit works on, or whose requester they are of"
WITHOUT_REACH = {
    "askers.find_with_session": LOOKED_UP,
    "sessions.find_by_key": LOOKED_UP,
    "sessions.find_by_row": LOOKED_UP,
    "sessions.find_as_in": LOOKED_UP,
    "deliveries.claim": "the text that is sent now; the unit decides whether it may leave",
    "deliveries.find_newest_at": "the newest notification of a person, whose number it compares",
    "deliveries.find_streaming": "what a run has shown of its own reply, which the reply replaces",
    "deliveries.find_stored": "a refused text about which its owner is asked; the unit decides who is",
    "deliveries.find_shown": "what its own chat has seen, which an answer there points at",
    "deliveries.list_shown_at": "as `list_requests`, at one place",
    "deliveries.list_requests": "messages that say what became of a request, where they showed it",
    "sessions.list_rows": OWN,
    "runs.find": LOOKED_UP,
    "runs.find_shown": LOOKED_UP,
    "runs.find_ends": OWN,
    "runs.find_in_log": OWN,
    "runs.find_active": OWN,
    "runs.find_queued": OWN,
    "runs.find_parked": OWN,
    "runs.find_first": OWN,
}
"""Functions that return content and take neither, with the reason."""


def modules() -> Iterator[types.ModuleType]:
    for module in pkgutil.iter_modules(antiphon.store.__path__):
        yield importlib.import_module(f"antiphon.store.{module.name}")


def open_functions(module: types.ModuleType) -> Iterator[str]:
    """Public functions of the module that return content, and take neither a reach nor a grant."""
    for name, function in inspect.getmembers(module, inspect.isfunction):
        if name.startswith("_") or function.__module__ != module.__name__:
            continue
        if next(iter(inspect.signature(function).parameters), None) not in ("query", "tx"):
            continue  # it carries out no statement
        hints = get_type_hints(function)
        returned = hints.pop("return", None)
        if holds_content(returned) and not any(hint in (Reach, Grant) for hint in hints.values()):
            yield f"{module.__name__.rpartition('.')[2]}.{name}"


def holds_content(hint: Any, within: frozenset[Any] = frozenset()) -> bool:
    """Whether a value of the type is or has content, or may be anything."""
    if hint in within:
        return False
    if isinstance(hint, TypeVar):
        return True
    within |= {hint}
    parts = list(get_args(hint))
    if isinstance(hint, type) and hint.__module__.startswith("antiphon."):
        if issubclass(hint, CONTENT):
            return True
        parts += get_type_hints(cast(Any, hint)).values()
    return any(holds_content(part, within) for part in parts)


def test_content_is_told_by_reach_or_grant() -> None:
    assert {name for module in modules() for name in open_functions(module)} == WITHOUT_REACH.keys()


def test_a_function_without_either_is_found() -> None:
    async def tell(query: Query, session: SessionRow) -> dict[RunId, list[Event]]:
        raise NotImplementedError

    async def count(query: Query, session: SessionRow) -> int:
        raise NotImplementedError

    async def ask(query: Query, grant: Grant) -> list[Event]:
        raise NotImplementedError

    planted = types.ModuleType("antiphon.store.planted")
    functions: tuple[Callable[..., Any], ...] = (tell, count, ask)
    for function in functions:
        function.__module__ = planted.__name__
        setattr(planted, function.__name__, function)
    assert list(open_functions(planted)) == ["planted.tell"]


@requirement("visibility:4", "access:1")
async def test_every_list_keeps_to_its_reach(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        sessions: dict[str, Session] = {}
        for name in ("shared", "hidden"):
            parent = sessions[name] = await open_peer(app, name)
            child = await open_peer(app, f"{name}-child", parent=parent.row)
            for session in (parent, child):
                run = await wait_end(app, (await post(app, str(session.key), "hello")).run_id)
                await app.database.run(_queue_text, session, run.id)
            if name == "shared":
                await app.database.run(_let_in, (parent.row, child.row))
        for root in sessions.values():
            await post(app, str(root.key), "!sleep 60")
        await Story(app).until_work(lambda work: work.total == len(sessions))
        guests = authorize(standing_of(GUEST), UNLIMITED, Act.READ)
        assert isinstance(guests, Reach)
        shared = await app.database.read(_seen, guests, tuple(sessions.values()))
        everything = await app.database.read(_seen, SYSTEM_REACH, tuple(sessions.values()))
        for what, seen in shared.items():
            assert seen == [name for name in everything[what] if "shared" in name], what
            assert len(everything[what]) == 2 * len(seen) > 0, what


@requirement("list:2", "flow:3")
async def test_children_are_filtered_before_they_are_cut(open_home: OpenHome) -> None:
    async with open_home(settings()) as app:
        parent = await open_peer(app, "parent")
        seen = await open_peer(app, "seen", parent=parent.row)
        await open_peer(app, "hidden", parent=parent.row, taint=Classification(Level.RESTRICTED))
        viewer = Viewer(session=parent, visibility=Visibility.TREE, agent_to_agent=AgentToAgent())
        reach = Reach(act=Act.LIST, viewer=viewer)
        children = await app.database.read(rows.list_children, reach, [parent.row], 1)
        assert [child.key for child in children] == [str(seen.key)]


async def _let_in(tx: Transaction, sessions: tuple[SessionRow, ...]) -> None:
    for session in sessions:
        await rows.add_participant(tx, session, str(GUEST))


async def _queue_text(tx: Transaction, session: Session, run_id: RunId) -> None:
    delivery = deliveries.NewDelivery(
        name=f"{session.row:020}",
        session=session.row,
        incarnation=session.id,
        run_id=run_id,
        place=DeliveryContext(channel="nowhere", to=str(session.row)),
        text="hello",
        made_of=PUBLIC,
    )
    await deliveries.insert(tx, delivery, at_ms=1)


async def _seen(query: Query, reach: Reach, roots: tuple[Session, ...]) -> dict[str, list[str]]:
    """The keys of what each list of the store has in the reach."""
    places = [TreeRoot(root.row, root.depth) for root in roots]
    listed = await rows.list_page(query, reach, SessionFilter(), limit=9, after=None)
    by_row = {
        session.row: str(session.key)
        for session in await rows.list_rows(query, [SessionRow(row) for row in range(1, 9)])
    }
    children = await trees.list_children(query, reach, dict.fromkeys(places, 9), include_inactive=False)
    found = [
        await deliveries.find(query, reach, each.id)
        for each in await deliveries.list_page(query, SYSTEM_REACH, DeliveryFilter(), 9)
    ]
    seen: dict[str, list[str]] = {
        "sessions": [str(session.key) for session in listed],
        "children": [child.key for child in await rows.list_children(query, reach, [r.row for r in roots], 9)],
        "runs": [run.session_key for run in await ledger.list_page(query, reach, RunFilter(), limit=9)],
        "deliveries": [
            each.session_key or "" for each in await deliveries.list_page(query, reach, DeliveryFilter(), 9)
        ],
        "delivery": [each.session_key or "" for each in found if each is not None],
        "roots": [str(root.key) for root in await trees.list_roots(query, reach, include_inactive=False, limit=9)],
        "descendants": [
            str(session.key)
            for session in await trees.list_descendants(query, reach, places, include_inactive=False, limit=9)
        ],
        "children in trees": [str(session.key) for each in children.values() for session in each],
        "counts": [by_row[row] for row in await trees.count_children(query, reach, places, include_inactive=False)],
        "sums": [by_row[row] for row in await trees.sum_below(query, reach, places, include_inactive=False)],
        "last runs": [
            by_row[row] for row in await activities.find_last_runs(query, reach, [place.row for place in places])
        ],
    }
    busy = await activities.list_activities(query, SYSTEM_REACH, limit=9)
    requests = await activities.read_requests(query, reach, busy.activities)
    page = await activities.list_activities(query, reach, limit=9)
    assert page.total == len(page.activities)
    seen["activities"] = [each.session_key for each in page.activities]
    seen["requests"] = [each.session_key for each in busy.activities if each.run in requests]
    return {what: sorted(names) for what, names in seen.items()}
