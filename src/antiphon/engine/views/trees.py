"""Sessions with their descendants folded under them, as the owner sees them."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.ids import SessionRow
from antiphon.domain.session import Session
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.reach import Candidate, Rights, admit, find_reach, find_session, present_incarnation
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.reach import Reach
from antiphon.policy.shown import shown_session
from antiphon.store import activities, trees
from antiphon.store import sessions as rows
from antiphon.store.activities import Activity, LastRun
from antiphon.store.database import Database, Query, reads_much
from antiphon.store.scopes import MAX_DEPTH
from antiphon.store.trees import Below, Roots, TreeRoot

NOTHING = Below()
MOST_COUNTED = 1000


class Member(Struct, frozen=True, kw_only=True):
    session: Session
    level: int
    """The number of sessions above it in this answer."""
    activity: Activity | None
    """The run that it works on or will begin next."""
    last_run: LastRun | None
    below: Below
    children: int
    """Listed sessions directly under it, shown here or not."""


class Tree(Struct, frozen=True):
    """One or more roots, each followed by the sessions under it, each of them by those under it, and so on."""

    members: Sequence[Member]
    omitted: int
    """Listed sessions under the roots that are beyond the limit or folded."""
    has_more: bool
    """Whether there are more roots."""


class Family(Struct, frozen=True):
    """A session with its neighbours in the tree."""

    parent: Session | None
    """The nearest session above it that is not deleted."""
    tree: Tree
    """The session, with as many of its children under it as the limit allows."""


class RootCounts(Struct, frozen=True):
    """How many roots the list has besides chats, each at most `MOST_COUNTED`."""

    scheduled: int
    archived: int


class _Folded(NamedTuple):
    """What a folded list shows."""

    opened: dict[SessionRow, int]
    roots: int
    which: Roots


class _Extent(Struct, frozen=True, kw_only=True):
    """How much of trees an answer shows."""

    include_inactive: bool
    roots: int = 1
    limit: int
    """Of the sessions under the roots."""


class Trees:
    """Every answer is one snapshot, read by a number of statements that does not grow with the tree.

    Each method raises `Denied` for anyone but the owner.
    """

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def under(self, principal: Principal, target: NamedTarget, *, include_inactive: bool, limit: int) -> Tree:
        """The session, active or not, with everything under it, of which at most `limit` are shown.

        Busy sessions are chosen first, then those nearest to the root, then the newest. Siblings are ordered by
        creation. Raises `NotFound`.
        """
        extent = _Extent(include_inactive=include_inactive, limit=limit)
        return await self._database.read(_under, self._rights(principal), target, extent)

    async def recent(self, principal: Principal, *, include_inactive: bool, roots: int, limit: int) -> Tree:
        """The most recently changed roots, newest first, with at most `limit` of the sessions under them."""
        extent = _Extent(include_inactive=include_inactive, roots=roots, limit=limit)
        return await self._database.read(_recent, self._rights(principal), extent)

    async def folded(
        self, principal: Principal, opened: Mapping[SessionRow, int], *, roots: int, which: Roots = Roots.ALL
    ) -> Tree:
        """The most recently changed roots, with the sessions directly under those that are `opened`.

        Roots are newest first. Under each, busy sessions come first, then the others, each group newest first.
        `opened` says how many to show of each; it may name sessions that do not exist.
        """
        shown = _Folded(dict(opened), roots, which)
        return await self._database.read(_folded, self._rights(principal), shown)

    async def counts(self, principal: Principal) -> RootCounts:
        return await self._database.read(_counts, self._rights(principal))

    async def family(self, principal: Principal, target: NamedTarget, *, limit: int) -> Family:
        """The session, its parent and at most `limit` of its children: busy ones first, then the newest.

        Raises `NotFound`.
        """
        return await self._database.read(_family, self._rights(principal), target, limit)

    def _rights(self, principal: Principal) -> Rights:
        return Rights(principal, self._rules)


async def _under(query: Query, rights: Rights, target: NamedTarget, extent: _Extent) -> Tree:
    found = await find_session(query, rights, Act.READ, target)
    reach = await find_reach(query, rights, Act.LIST_TREES)
    root, include_inactive = found.session, extent.include_inactive
    below = await trees.list_descendants(
        query, reach, [_place(root)], include_inactive=include_inactive, limit=extent.limit
    )
    return await _tree(query, reach, [root], _by_age(below), include_inactive=include_inactive)


@reads_much
async def _recent(query: Query, rights: Rights, extent: _Extent) -> Tree:
    reach = await find_reach(query, rights, Act.LIST_TREES)
    roots, include_inactive = extent.roots, extent.include_inactive
    found = await trees.list_roots(query, reach, include_inactive=include_inactive, limit=roots + 1)
    places = [_place(session) for session in found[:roots]]
    below = await trees.list_descendants(query, reach, places, include_inactive=include_inactive, limit=extent.limit)
    return await _tree(
        query, reach, found[:roots], _by_age(below), include_inactive=include_inactive, has_more=len(found) > roots
    )


async def _counts(query: Query, rights: Rights) -> RootCounts:
    reach = await find_reach(query, rights, Act.LIST_TREES)
    scheduled = await trees.count_roots(query, reach, Roots.SCHEDULED, most=MOST_COUNTED)
    return RootCounts(scheduled, await trees.count_roots(query, reach, Roots.ARCHIVED, most=MOST_COUNTED))


async def _folded(query: Query, rights: Rights, folded: _Folded) -> Tree:
    reach = await find_reach(query, rights, Act.LIST_TREES)
    opened, roots = folded.opened, folded.roots
    found = await trees.list_roots(query, reach, include_inactive=False, limit=roots + 1, which=folded.which)
    below: list[Session] = []
    shown = found[:roots]
    for _ in range(MAX_DEPTH):
        parents = {_place(session): opened[session.row] for session in shown if session.row in opened}
        if not parents:
            break
        children = await trees.list_children(query, reach, parents, include_inactive=False)
        shown = [child for each in children.values() for child in each]
        below += shown
    return await _tree(query, reach, found[:roots], below, include_inactive=False, has_more=len(found) > roots)


async def _family(query: Query, rights: Rights, target: NamedTarget, limit: int) -> Family:
    found = await find_session(query, rights, Act.READ, target)
    reach = await find_reach(query, rights, Act.LIST_TREES)
    session = found.session
    above = [row for row in session.ancestors if row is not None]
    parent = await rows.find_by_row(query, above[-1]) if above else None
    seen = await admit(query, reach, None if parent is None else Candidate(parent, present_incarnation(parent)))
    children = await trees.list_children(query, reach, {_place(session): limit}, include_inactive=False)
    tree = await _tree(query, reach, [session], children[session.row], include_inactive=False)
    return Family(None if seen is None else seen.as_named, tree)


async def _tree(
    query: Query,
    reach: Reach,
    roots: Sequence[Session],
    below: Sequence[Session],
    *,
    include_inactive: bool,
    has_more: bool = False,
) -> Tree:
    """The members in their order; siblings keep their order in `below`."""
    shown = {session.row: session for session in (*roots, *below)}
    under: dict[SessionRow | None, list[Session]] = {None: list(roots)}
    for session in below:
        under.setdefault(_nearest(session, shown), []).append(session)
    places = [_place(session) for session in shown.values()]
    sums = await trees.sum_below(query, reach, places, include_inactive=include_inactive)
    children = await trees.count_children(query, reach, places, include_inactive=include_inactive)
    working = await activities.list_activities(query, reach, limit=len(shown), sessions=list(shown))
    by_session = {activity.session: activity for activity in working.activities}
    last_runs = await activities.find_last_runs(query, reach, list(shown))
    members: list[Member] = []

    def add(session: Session, level: int) -> None:
        members.append(
            Member(
                session=shown_session(session, reach.clearance),
                level=level,
                activity=by_session.get(session.row),
                last_run=last_runs.get(session.row),
                below=sums.get(session.row, NOTHING),
                children=children.get(session.row, 0),
            )
        )
        for child in under.get(session.row, ()):
            add(child, level + 1)

    for root in roots:
        add(root, 0)
    listed = sum(sums.get(root.row, NOTHING).listed for root in roots)
    return Tree(members, omitted=listed - len(below), has_more=has_more)


def _place(session: Session) -> TreeRoot:
    return TreeRoot(session.row, session.depth)


def _nearest(session: Session, shown: Mapping[SessionRow, Session]) -> SessionRow | None:
    """The nearest shown session above it."""
    return next((row for row in reversed(session.ancestors) if row is not None and row in shown), None)


def _by_age(sessions: Sequence[Session]) -> list[Session]:
    return sorted(sessions, key=lambda session: session.row)
