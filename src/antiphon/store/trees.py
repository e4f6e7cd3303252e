"""Sessions with all their descendants, and the usage of them all.

A session that is not listed (deleted, or inactive if only others are requested) does not hide its descendants:
they are listed under their nearest listed ancestor, or as roots.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.ids import SessionRow
from antiphon.domain.session import Session
from antiphon.policy.reach import Reach
from antiphon.store import sessions as rows
from antiphon.store.activities import BUSY_SESSIONS
from antiphon.store.database import Query
from antiphon.store.scopes import ANY, MAX_DEPTH, Condition, all_of, flow, when, within

_NEWEST = "s.updated_at DESC, s.id DESC"
_LISTED = "s.status <> 'inactive'"


class Below(Struct, frozen=True, kw_only=True):
    """A summary of the sessions under a session, at any depth."""

    listed: int = 0
    busy: int = 0
    """Sessions with a run that has not ended, or that waits for children before it is continued."""
    tokens: int = 0
    """Of all sessions that are not deleted, listed or not."""
    cost_microusd: int | None = None
    """The sum of known costs; None if none is known."""


class Roots(StrEnum):
    """Which roots a list shows; all but archived ones are listed sessions."""

    ALL = "all"
    CHATS = "chats"
    """People's chats, and after them the sessions of programs."""
    SCHEDULED = "scheduled"
    ARCHIVED = "archived"
    """Inactive sessions that nobody spawned."""


_ROOTS: dict[Roots, tuple[str, ...]] = {
    Roots.ALL: ("1 = 1",),
    Roots.CHATS: ("s.kind NOT IN ('cron', 'hook', 'node')", "s.kind IN ('hook', 'node')"),
    Roots.SCHEDULED: ("s.kind = 'cron'",),
    Roots.ARCHIVED: ("s.status = 'inactive' AND s.ancestor_0 IS NULL",),
}
"""Their conditions; those of a later one follow all of an earlier one."""


class TreeRoot(NamedTuple):
    """A session as the root of the tree under it."""

    row: SessionRow
    depth: int


async def list_roots(
    query: Query, reach: Reach, *, include_inactive: bool, limit: int, which: Roots = Roots.ALL
) -> list[Session]:
    """Listed sessions without a listed ancestor, newest first."""
    order: dict[SessionRow, int] = {}
    for kind in _ROOTS[which]:
        if len(order) < limit:
            where = await _roots(query, reach, which, kind, include_inactive=include_inactive)
            found = await query.fetch_all(
                f"SELECT s.id FROM sessions s WHERE s.deleted_at IS NULL AND {where.text} ORDER BY {_NEWEST} LIMIT ?",
                (*where.values, limit - len(order)),
            )
            order |= {SessionRow(row): len(order) + place for place, (row,) in enumerate(found)}
    return sorted(await rows.list_rows(query, list(order)), key=lambda session: order[session.row])


async def count_roots(query: Query, reach: Reach, which: Roots, *, most: int) -> int:
    """How many there are, up to `most`."""
    count = 0
    for kind in _ROOTS[which]:
        where = await _roots(query, reach, which, kind, include_inactive=False)
        row = await query.fetch_one(
            f"SELECT COUNT(*) FROM (SELECT 1 FROM sessions s WHERE s.deleted_at IS NULL AND {where.text} LIMIT ?) r",
            (*where.values, most),
        )
        assert row is not None
        count += int(row[0])
    return min(count, most)


async def _roots(query: Query, reach: Reach, which: Roots, kind: str, *, include_inactive: bool) -> Condition:
    listed = ANY if which is Roots.ARCHIVED else _directly_below(0, include_inactive=include_inactive)
    return all_of([await within(query, reach, "s.id"), Condition(kind), listed])


async def list_descendants(
    query: Query, reach: Reach, roots: Sequence[TreeRoot], *, include_inactive: bool, limit: int
) -> list[Session]:
    """Listed sessions under one of `roots`: for each root those at work first, then by depth, then newest first.

    The roots share the limit, so that one root with many leaves room for the others.
    """
    inside = await within(query, reach, "s.id")
    found: list[tuple[int, Session]] = []
    for depth, places in _by_depth(roots).items():
        where = all_of([inside, _under(depth, places), _listed(include_inactive=include_inactive)])
        placed = _placed(depth, where, f"{_at_work_first(depth)}, s.depth, {_NEWEST}")
        first = await query.fetch_all(
            f"SELECT id, place FROM ({placed}) p ORDER BY place LIMIT ?", (*where.values, limit)
        )
        order = {SessionRow(session): int(place) for session, place in first}
        found += [(order[session.row], session) for session in await rows.list_rows(query, list(order))]
    found.sort(key=lambda each: (each[0], each[1].row))
    return [session for _, session in found[:limit]]


async def list_children(
    query: Query, reach: Reach, parents: Mapping[TreeRoot, int], *, include_inactive: bool
) -> dict[SessionRow, list[Session]]:
    """Listed sessions directly under each of `parents`, as many as its number in the mapping.

    Sessions at work, or with one at work below them, come first; each group is newest first.
    """
    inside = await within(query, reach, "s.id")
    found: dict[SessionRow, list[tuple[int, Session]]] = {place.row: [] for place in parents}
    for depth, places in _by_depth(list(parents)).items():
        where = all_of([inside, _under(depth, places), _directly_below(depth + 1, include_inactive=include_inactive)])
        most = max(parents[place] for place in places)
        placed = _placed(depth, where, f"{_at_work_first(depth)}, {_NEWEST}")
        first = await query.fetch_all(f"SELECT id, place FROM ({placed}) p WHERE place <= ?", (*where.values, most))
        order = {SessionRow(session): int(place) for session, place in first}
        for session in await rows.list_rows(query, list(order)):
            parent = session.ancestors[depth]
            assert parent is not None
            found[parent].append((order[session.row], session))
    return {
        place.row: [session for _, session in sorted(found[place.row], key=lambda each: each[0])[:limit]]
        for place, limit in parents.items()
    }


async def count_children(
    query: Query, reach: Reach, parents: Sequence[TreeRoot], *, include_inactive: bool
) -> dict[SessionRow, int]:
    """The number of listed sessions directly under each of `parents` that has any."""
    inside = await within(query, reach, "s.id")
    found: dict[SessionRow, int] = {}
    for depth, places in _by_depth(parents).items():
        where = all_of([inside, _under(depth, places), _directly_below(depth + 1, include_inactive=include_inactive)])
        counted = await query.fetch_all(
            f"SELECT s.ancestor_{depth}, COUNT(*) FROM sessions s WHERE s.deleted_at IS NULL AND {where.text} "
            f"GROUP BY s.ancestor_{depth}",
            where.values,
        )
        found |= {SessionRow(root): int(count) for root, count in counted}
    return found


async def sum_below(
    query: Query, reach: Reach, roots: Sequence[TreeRoot], *, include_inactive: bool
) -> dict[SessionRow, Below]:
    """The summary for each of `roots` that has descendants; without the usage of those that rose above the reach."""
    is_listed = "1 = 1" if include_inactive else _LISTED
    inside = await within(query, reach, "s.id")
    used = all_of([flow("s.base_", reach.clearance), flow("i.taint_", reach.clearance)])
    tokens, cost = when(used, "s.input_tokens + s.output_tokens", "0"), when(used, "s.cost_microusd")
    joined = "" if used is ANY else "JOIN incarnations i ON i.id = s.incarnation "
    found: dict[SessionRow, Below] = {}
    for depth, places in _by_depth(roots).items():
        under = all_of([inside, _under(depth, places)])
        summed = await query.fetch_all(
            f"SELECT s.ancestor_{depth}, SUM(CASE WHEN {is_listed} THEN 1 ELSE 0 END), "
            f"SUM(CASE WHEN s.id IN ({BUSY_SESSIONS}) THEN 1 ELSE 0 END), "
            f"SUM({tokens.text}), SUM({cost.text}) FROM sessions s {joined}"
            f"WHERE s.deleted_at IS NULL AND {under.text} GROUP BY s.ancestor_{depth}",
            (*tokens.values, *cost.values, *under.values),
        )
        for row, listed, busy, tokens_below, cost_below in summed:
            found[SessionRow(row)] = Below(
                listed=int(listed),
                busy=int(busy),
                tokens=int(tokens_below),
                cost_microusd=None if cost_below is None else int(cost_below),
            )
    return found


def _at_work_first(depth: int) -> str:
    """Orders sessions under roots of that depth: those at work and their ancestors first."""
    places = ("id", *(f"ancestor_{each}" for each in range(depth + 1, MAX_DEPTH)))
    at_work = " UNION ALL ".join(
        f"SELECT b.{place} FROM sessions b WHERE b.id IN ({BUSY_SESSIONS})" for place in places
    )
    return f"CASE WHEN s.id IN ({at_work}) THEN 0 ELSE 1 END"


def _placed(depth: int, where: Condition, order: str) -> str:
    """Sessions under roots of that depth, numbered in that order for each root."""
    return (
        f"SELECT s.id, ROW_NUMBER() OVER (PARTITION BY s.ancestor_{depth} ORDER BY {order}) AS place "
        f"FROM sessions s WHERE s.deleted_at IS NULL AND {where.text}"
    )


def _by_depth(places: Sequence[TreeRoot]) -> dict[int, list[TreeRoot]]:
    """Roots that may have descendants, by depth; each depth has its own index."""
    found: dict[int, list[TreeRoot]] = {}
    for place in places:
        if place.depth < MAX_DEPTH:
            found.setdefault(place.depth, []).append(place)
    return dict(sorted(found.items()))


def _under(depth: int, places: Sequence[TreeRoot]) -> Condition:
    return Condition(f"s.ancestor_{depth} IN ({', '.join('?' * len(places))})", tuple(place.row for place in places))


def _listed(*, include_inactive: bool) -> Condition:
    return Condition("1 = 1" if include_inactive else _LISTED)


def _directly_below(depth: int, *, include_inactive: bool) -> Condition:
    """The condition: listed, without a listed ancestor from that depth on."""
    conditions = [_listed(include_inactive=include_inactive)]
    if depth < MAX_DEPTH:
        ancestors = ", ".join(f"s.ancestor_{each}" for each in range(depth, MAX_DEPTH))
        hidden = "" if include_inactive else " AND a.status <> 'inactive'"
        conditions.append(Condition(f"NOT EXISTS (SELECT 1 FROM sessions a WHERE a.id IN ({ancestors}){hidden})"))
    return all_of(conditions)
