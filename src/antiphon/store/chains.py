"""What led to a run, and what it caused: each run names the one that caused it."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from msgspec import Struct

from antiphon.domain.actor import Principal
from antiphon.domain.approval import ApprovalState
from antiphon.domain.ids import ApprovalId, RunId
from antiphon.domain.run import Run
from antiphon.policy.reach import Reach
from antiphon.store import codec
from antiphon.store.database import Query
from antiphon.store.scopes import ANY, Condition, all_of, any_of, flow, when, within
from antiphon.store.select_list import SelectList

MOST_ABOVE = 100
"""How many runs are followed from a run to its cause, the cause of that, and so on."""


class CausedBelow(Struct, frozen=True, kw_only=True):
    """The runs that a run caused, directly or through others."""

    runs: int = 0
    unfinished: int = 0
    """Those that are queued, at work, or wait."""
    tokens: int = 0
    cost_microusd: int | None = None
    """The sum of known costs; None if none is known."""
    unpriced_tokens: int = 0
    """The tokens of runs whose cost is not known."""

    def __add__(self, other: "CausedBelow") -> "CausedBelow":
        costs = [each for each in (self.cost_microusd, other.cost_microusd) if each is not None]
        return CausedBelow(
            runs=self.runs + other.runs,
            unfinished=self.unfinished + other.unfinished,
            tokens=self.tokens + other.tokens,
            cost_microusd=sum(costs) if costs else None,
            unpriced_tokens=self.unpriced_tokens + other.unpriced_tokens,
        )


NOTHING = CausedBelow()


class AskedApproval(Struct, frozen=True, kw_only=True):
    """A request for approval of a run's calls, without the calls."""

    id: ApprovalId
    run: RunId
    state: ApprovalState
    asked_at: datetime
    decided_at: datetime | None
    decided_by: Principal | None


_ASKED = SelectList(
    AskedApproval,
    "a.id, a.run, a.state, a.asked_at, a.decided_at, a.decided_by",
    state=codec.member_of(ApprovalState),
    asked_at=codec.moment,
    decided_at=codec.moment,
    decided_by=codec.stored_principal,
)


async def list_above(query: Query, run_id: RunId) -> list[RunId]:
    """The run's cause, the cause of that, and so on; at most `MOST_ABOVE`, whoever may see them."""
    rows = await query.fetch_all(
        "WITH RECURSIVE above(id, distance) AS (SELECT r.cause, 1 FROM runs r WHERE r.id = ? UNION ALL "
        "SELECT r.cause, a.distance + 1 FROM above a JOIN runs r ON r.id = a.id WHERE a.distance < ?) "
        "SELECT id FROM above WHERE id IS NOT NULL ORDER BY distance",
        (run_id, MOST_ABOVE),
    )
    return [RunId(row[0]) for row in rows]


class Branches(Struct, frozen=True, kw_only=True):
    """What a run caused, and what some of the runs did that it caused directly."""

    total: CausedBelow
    by_run: Mapping[RunId, CausedBelow]
    """For each of these runs that caused anything, what is below it."""


async def sum_branches(query: Query, reach: Reach, top: RunId, shown: Sequence[Run]) -> Branches:
    """What the run caused in the reach, and what each of the `shown` runs did, which it caused directly.

    A run outside the reach hides what it caused. The usage of runs that do not flow to the clearance is left out.
    """
    inside, readable = await within(query, reach, "r.session"), _readable(reach)
    joined = "" if readable is ANY else " LEFT JOIN incarnations i ON i.id = r.incarnation"
    used = "r.input_tokens + r.output_tokens"
    sums = [
        Condition("CASE WHEN r.ended_at IS NULL OR r.is_parked = 1 THEN 1 ELSE 0 END"),
        when(readable, used, "0"),
        when(readable, "r.cost_microusd"),
        when(all_of([readable, Condition("r.cost_microusd IS NULL")]), used, "0"),
    ]
    columns, values = ", ".join(each.text for each in sums), [value for each in sums for value in each.values]
    marks = ", ".join("?" * len(shown))
    branch = f"CASE WHEN r.id IN ({marks}) THEN r.id END" if shown else "CAST(NULL AS TEXT)"
    rows = await query.fetch_all(
        "WITH RECURSIVE below(branch, id, level, unfinished, tokens, cost, unpriced) AS ("
        f"SELECT {branch}, r.id, 0, {columns} FROM runs r{joined} WHERE r.cause = ? AND {inside.text} UNION ALL "
        f"SELECT b.branch, r.id, 1, {columns} FROM below b JOIN runs r ON r.cause = b.id{joined} WHERE {inside.text}) "
        "SELECT branch, level, COUNT(*), SUM(unfinished), SUM(tokens), SUM(cost), SUM(unpriced) FROM below "
        "GROUP BY branch, level",
        (*(run.id for run in shown), *values, top, *inside.values, *values, *inside.values),
    )
    found = [(branch, level, _below(*sums)) for branch, level, *sums in rows]
    return Branches(
        total=sum((below for *_, below in found), NOTHING),
        by_run={RunId(branch): below for branch, level, below in found if branch is not None and level},
    )


def _readable(reach: Reach) -> Condition:
    """The usage flows to the reader: what an unfinished run shows is made of all that its incarnation holds."""
    ended, unfinished = flow("r.", reach.clearance), flow("i.taint_", reach.clearance)
    if ended is ANY:
        return ANY
    return any_of(
        [
            all_of([Condition("r.ended_at IS NOT NULL"), ended]),
            all_of([Condition("r.ended_at IS NULL"), unfinished]),
        ]
    )


async def count_caused(query: Query, reach: Reach, runs: Sequence[RunId]) -> dict[RunId, int]:
    """How many runs in the reach each of the runs caused directly, if any."""
    if not runs:
        return {}
    inside = await within(query, reach, "r.session")
    rows = await query.fetch_all(
        f"SELECT r.cause, COUNT(*) FROM runs r WHERE r.cause IN ({', '.join('?' * len(runs))}) AND {inside.text} "
        "GROUP BY r.cause",
        (*runs, *inside.values),
    )
    return {RunId(cause): int(count) for cause, count in rows}


async def list_asked(query: Query, reach: Reach, runs: Sequence[RunId]) -> Mapping[RunId, list[AskedApproval]]:
    """The requests for approval of these runs, oldest first, where what their sessions hold flows to the clearance."""
    if not runs:
        return {}
    inside = await within(query, reach, "a.session")
    readable = all_of([inside, flow("i.taint_", reach.clearance)])
    rows = await query.fetch_all(
        f"SELECT {_ASKED.text} FROM approvals a JOIN incarnations i ON i.id = a.incarnation "
        f"WHERE a.run IN ({', '.join('?' * len(runs))}) AND {readable.text} ORDER BY a.id",
        (*runs, *readable.values),
    )
    found: dict[RunId, list[AskedApproval]] = {}
    for asked in map(_ASKED.read, rows):
        found.setdefault(asked.run, []).append(asked)
    return found


def _below(runs: int, unfinished: int, tokens: int, *costs: int | None) -> CausedBelow:
    cost, unpriced = (None if value is None else int(value) for value in costs)
    return CausedBelow(
        runs=int(runs),
        unfinished=int(unfinished),
        tokens=int(tokens),
        cost_microusd=cost,
        unpriced_tokens=unpriced or 0,
    )
