"""One request as a tree of runs: what led to a run, and what it caused, by sends, spawns and continuations."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.errors import NotFound
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.run import Run
from antiphon.domain.session import Session
from antiphon.domain.text import one_line
from antiphon.engine.access.reach import NOBODY, Rights, admit_head, find_reach
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.reach import Reach
from antiphon.policy.shown import shown_run, shown_session
from antiphon.store import activities, chains
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.chains import NOTHING, AskedApproval, CausedBelow
from antiphon.store.database import Database, Query

LONGEST_REQUEST = 200
"""Longest excerpt of the message that a run answers, in characters."""


class TreeRun(Struct, frozen=True, kw_only=True):
    """A run in the tree of a request."""

    run: Run
    session: Session
    request: str
    """The beginning of the message that it answers; empty if that does not flow to the reader, or is very long."""
    waits_for: Sequence[Session]
    """The sessions on whose runs it waits now, as far as the reader sees them."""
    approvals: Sequence[AskedApproval]
    """Its requests for approval, oldest first."""
    caused: int
    """How many runs it caused directly."""
    below: CausedBelow | None
    """What all the runs used that it caused, directly or through others; None in the chain above a run."""


class RunTree(Struct, frozen=True, kw_only=True):
    """A run, with the chain that led to it and a part of the runs that it caused."""

    above: Sequence[TreeRun]
    """The cause of the run last, its cause before it, and so on, as far as the reader may see them."""
    top: TreeRun
    caused: Sequence[TreeRun]
    """The runs that it caused directly, oldest first."""
    next: RunId | None
    """The last of these, if there are more; the next part begins after it."""


class RunTrees:
    """Each answer is one snapshot, read by a number of statements that does not grow with the tree."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def tree(self, principal: Principal, run_id: RunId, *, after: RunId | None = None, limit: int) -> RunTree:
        """The run with at most `limit` of those that it caused, those after `after`.

        Runs of sessions that the reader may not see are missing, with all that they caused. Raises `Denied` for
        guests, and `NotFound`.
        """
        part = _Part(after=after, limit=limit)
        return await self._database.read(_tree, Rights(principal, self._rules), run_id, part)


class _Part(Struct, frozen=True, kw_only=True):
    """Which of the runs that one caused an answer shows."""

    after: RunId | None
    limit: int


async def _tree(query: Query, rights: Rights, run_id: RunId, part: _Part) -> RunTree:
    readable = await find_reach(query, rights, Act.READ)
    run = await ledger.find_shown(query, run_id)
    found = await admit_head(query, readable, await rows.find_head(query, run.session if run else NOBODY))
    if run is None or found is None:
        raise NotFound(f"Run not found: {run_id!r}")
    reach = await find_reach(query, rights, Act.LIST_RUNS)
    run = shown_run(run, reach.clearance)
    above = await _above(query, reach, run)
    caused = await ledger.list_caused(query, reach, run.id, after=part.after, limit=part.limit + 1)
    shown = caused[: part.limit]
    branches = await chains.sum_branches(query, reach, run.id, shown)
    below = {run.id: branches.total, **{each.id: branches.by_run.get(each.id, NOTHING) for each in shown}}
    members = await _members(query, reach, [*above, run, *shown], below)
    return RunTree(
        above=[members[each.id] for each in above if each.id in members],
        top=members[run.id],
        caused=[members[each.id] for each in shown if each.id in members],
        next=shown[-1].id if len(caused) > part.limit else None,
    )


async def _above(query: Query, reach: Reach, run: Run) -> list[Run]:
    """The chain that led to the run, from its beginning, as far as the reader sees it without a gap."""
    ids = await chains.list_above(query, run.id)
    seen = await ledger.list_named(query, reach, ids)
    found: list[Run] = []
    for each in ids:
        if each not in seen:
            break
        found.append(seen[each])
    return found[::-1]


async def _members(
    query: Query, reach: Reach, runs: Sequence[Run], below: Mapping[RunId, CausedBelow]
) -> dict[RunId, TreeRun]:
    """The runs whose sessions are not deleted, by their ids."""
    ids = [run.id for run in runs]
    awaited = await ledger.list_named(query, reach, [each for run in runs for each in run.waiting_for])
    places = [(SessionRow(run.session), run.seq) for run in runs]
    texts = await activities.read_texts(query, reach, places)
    sessions = await _sessions(query, reach, [*runs, *awaited.values()])
    asked = await chains.list_asked(query, reach, ids)
    counts = await chains.count_caused(query, reach, ids)
    return {
        run.id: TreeRun(
            run=run,
            session=sessions[run.session],
            request=one_line(texts.get(place, ""), LONGEST_REQUEST),
            waits_for=_waits_for(run, awaited, sessions),
            approvals=asked.get(run.id, ()),
            caused=counts.get(run.id, 0),
            below=below.get(run.id),
        )
        for run, place in zip(runs, places, strict=True)
        if run.session in sessions
    }


async def _sessions(query: Query, reach: Reach, runs: Sequence[Run]) -> dict[SessionRow, Session]:
    wanted = dict.fromkeys(SessionRow(run.session) for run in runs)
    return {each.row: shown_session(each, reach.clearance) for each in await rows.list_rows(query, list(wanted))}


def _waits_for(run: Run, awaited: Mapping[RunId, Run], sessions: Mapping[SessionRow, Session]) -> list[Session]:
    rows = dict.fromkeys(awaited[each].session for each in run.waiting_for if each in awaited)
    return [sessions[row] for row in rows if row in sessions]
