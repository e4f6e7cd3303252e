"""The ledger's rows. `engine/runs/lifecycle` decides which status may follow which, and the consequences."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache
from operator import attrgetter
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.actor import Asker, Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.ids import AgentId, ApprovalId, RunId, SessionId, SessionRow, TaskId
from antiphon.domain.message import NO_USAGE, Cut, Usage
from antiphon.domain.person import person_of, person_principal
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import PlaceGot, Purpose, Run, RunStatus, followed
from antiphon.domain.session import DeliveryContext
from antiphon.domain.telling import Told
from antiphon.policy.reach import Reach
from antiphon.policy.shown import shown_run
from antiphon.store import codec
from antiphon.store.claims import Claims, assigned
from antiphon.store.database import Query, Row, SqlValue, Transaction
from antiphon.store.people import PRESENT
from antiphon.store.scopes import Condition, flow, when, within
from antiphon.store.select_list import Combined, SelectList
from antiphon.store.sessions import SHOWS_CLASSIFIED, LogEnd, delivery_context

CLAIMS = Claims("runs", "id", "fence", held="status = 'running'")
_FIRST_OF_ENDS = -1_000
"""Above it are numbers that other units wake for other readers."""


def ends_of(session: SessionRow) -> SessionRow:
    """What a unit wakes when work of the session may be over, for those who need not hear of its other events."""
    return SessionRow(_FIRST_OF_ENDS - session)


def _run_ids(text: str | None) -> tuple[RunId, ...]:
    return () if text is None else tuple(RunId(run_id) for run_id in text.split(","))


_RUN = SelectList(
    Run,
    """r.id, r.session, s.key AS session_key, r.incarnation AS session_id, r.agent_id, r.seq, r.newest_seq, r.status,
r.mode, r.purpose, r.principal, r.attempt, r.fence, r.process, r.created_at, r.started_at, r.ended_at, r.deadline,
r.place, r.exchange, r.partner, r.chain, r.hops, r.is_sandboxed, r.has_sent, r.report, r.announces, r.has_spawned,
r.has_attachments, r.time_limit, r.waiting_for, r.wait_until, r.wait_call, r.approval, r.delay,
r.is_yielding, r.is_parked, r.continues, r.continued_by, r.cancel_requested AS is_cancel_requested, r.reply, r.error,
r.code, r.cut, r.level AS made_of_level, r.compartments AS made_of_compartments, r.integrity AS made_of_integrity,
r.person AS made_of_person, r.is_favoured, r.place_got, r.model, r.cause, r.task, r.input_tokens, r.output_tokens,
r.cached_tokens, r.cost_microusd, r.steps, r.estimated_tokens""",
    status=codec.member_of(RunStatus),
    mode=codec.member_of(QueueMode),
    purpose=codec.member_of(Purpose),
    principal=codec.stored_principal,
    is_favoured=bool,
    created_at=codec.moment,
    started_at=codec.moment,
    ended_at=codec.moment,
    deadline=codec.moment,
    place=codec.place,
    is_sandboxed=bool,
    has_sent=bool,
    has_spawned=bool,
    has_attachments=bool,
    time_limit=codec.duration,
    waiting_for=Combined(_run_ids, text="waiting_for"),
    wait_until=codec.moment,
    delay=codec.delay,
    cut=codec.member_of(Cut),
    is_yielding=bool,
    is_parked=bool,
    is_cancel_requested=bool,
    made_of=codec.combined_classification("made_of"),
    usage=codec.RUN_USAGE,
    place_got=codec.member_of(PlaceGot),
)
_FROM = "FROM runs r JOIN sessions s ON s.id = r.session"
_FROM_WITH_END = f"{_FROM} LEFT JOIN incarnations i ON i.id = r.incarnation"
_SELECT = f"SELECT {_RUN.text} {_FROM}"
_SELECT_SHOWN = (
    "SELECT "
    + _RUN.text.replace("r.level ", "COALESCE(CASE WHEN r.ended_at IS NULL THEN i.taint_level END, r.level) ")
    .replace("r.compartments ", "COALESCE(CASE WHEN r.ended_at IS NULL THEN i.taint_compartments END, r.compartments) ")
    .replace("r.person ", "COALESCE(CASE WHEN r.ended_at IS NULL THEN i.taint_person END, r.person) ")
    + f" {_FROM_WITH_END}"
)
"""As readers see runs: one that has not ended is made of all that its incarnation holds."""
_SUSPENDED = (
    f"EXISTS (SELECT 1 FROM {PRESENT} WHERE p.id = SUBSTR(r.principal, 8) "
    "AND SUBSTR(r.principal, 1, 7) = 'person:' AND q.is_suspended = 1)"
)
_WITH_END = (
    "s.delivery_channel, s.delivery_to, s.delivery_account_id, s.delivery_thread_id, s.depth, s.last_seq, "
    f"s.incarnation, {SHOWS_CLASSIFIED}, s.pending_approvals, s.turn_count - s.covered_turns, s.source_kind, s.told, "
    f"s.head, {codec.classification_columns('s.base_')}, "
    f"{codec.classification_columns('i.taint_')}, {codec.classification_columns('i.workspace_')}, {_RUN.text} "
    f"{_FROM_WITH_END}"
)

DAY_MS = 86_400_000
_ACTIVE = "r.status IN ('running', 'awaiting_approval') AND r.is_parked = 0"
"""The run that holds its session."""
_UNFINISHED = "r.status IN ('queued', 'running', 'awaiting_approval')"
_AT_WORK = f"{_ACTIVE} AND r.status = 'running'"
"""A worker works on it, or will take it over; the first condition is that of an index."""
_QUEUED_IN = "FROM runs r WHERE r.session = ? AND r.status = 'queued'"
_ACTIVE_IN = f"FROM runs r WHERE r.session = ? AND {_ACTIVE}"
# Queued runs and the active one are looked for apart: each has an index of its own, which holds no ended runs. One
# condition for both would read all runs that the session ever had.
_OTHERS = "SELECT 1 FROM runs r WHERE r.session = ? AND r.is_favoured >= f.is_favoured"
_FIND_RANK = (
    f"SELECT f.person, f.is_favoured, CASE WHEN EXISTS ({_OTHERS} AND r.status = 'queued') "
    f"OR EXISTS ({_OTHERS} AND {_AT_WORK}) THEN 1 ELSE 0 END FROM (SELECT MAX(q.id) AS person, "
    "COALESCE(MAX(CASE WHEN q.role = 'owner' AND q.is_suspended = 0 THEN 1 ELSE 0 END), 0) AS is_favoured "
    f"FROM {PRESENT} WHERE p.id = ?) f"
)
_FIND_IN_LOG = f"SELECT {_WITH_END} WHERE r.id = ?"
_FIND_FIRST = (
    f"SELECT {_SUSPENDED}, {_WITH_END} WHERE r.id = COALESCE((SELECT r.id {_ACTIVE_IN}), (SELECT r.id {_QUEUED_IN} "
    "ORDER BY CASE r.mode WHEN 'interrupt' THEN 0 ELSE 1 END, r.seq LIMIT 1))"
)


class NewRun(Struct, frozen=True, kw_only=True, gc=False):
    """A run to be queued; `None` and zero for absent values."""

    id: RunId
    purpose: Purpose
    incarnation: SessionId
    agent_id: AgentId
    principal: Principal
    mode: QueueMode = QueueMode.ENQUEUE
    place: DeliveryContext | None = None
    partner: SessionRow | None = None
    exchange: str | None = None
    chain: str | None = None
    hops: int = 0
    is_sandboxed: bool = False
    report: str | None = None
    announces: str | None = None
    continues: RunId | None = None
    cause: RunId | None = None
    has_spawned: bool = False
    has_attachments: bool = False
    deadline: datetime | None = None
    time_limit: timedelta | None = None
    approval: ApprovalId | None = None
    task: TaskId | None = None


async def insert(tx: Transaction, session: SessionRow, run: NewRun, *, is_favoured: bool, seq: int, at_ms: int) -> None:
    """Queues the run after the message of that `seq`."""
    place = None if run.place is None else codec.place_text(run.place)
    more = _more_columns(run) if any(_more_of(run)) else {}
    await tx.execute(
        _insert(tuple(more)),
        (
            *(run.id, session, run.incarnation, run.agent_id, seq, seq, RunStatus.QUEUED.value, run.mode.value),
            *(run.purpose.value, str(run.principal), int(is_favoured), at_ms, place),
            *more.values(),
        ),
    )


class EndedRun(Struct, frozen=True, kw_only=True):
    """Work beside the line of its session, which is noted once it has ended."""

    id: RunId
    purpose: Purpose
    incarnation: SessionId
    agent_id: AgentId
    principal: Principal
    status: RunStatus
    seq: int
    started_at: datetime
    reply: str | None = None
    error: str | None = None
    code: str | None = None
    made_of: Classification = PUBLIC
    model: str | None = None
    usage: Usage = NO_USAGE


async def insert_ended(tx: Transaction, session: SessionRow, run: EndedRun, at_ms: int) -> None:
    started_at = codec.milliseconds(run.started_at)
    columns: dict[str, SqlValue] = {
        "id": run.id,
        "session": session,
        "incarnation": run.incarnation,
        "agent_id": run.agent_id,
        "seq": run.seq,
        "newest_seq": run.seq,
        "status": run.status.value,
        "mode": QueueMode.ENQUEUE.value,
        "purpose": run.purpose.value,
        "principal": str(run.principal),
        "is_favoured": 0,
        "created_at": started_at,
        "started_at": started_at,
        "ended_at": at_ms,
        "ended_on": at_ms // DAY_MS,
        "reply": run.reply,
        "error": run.error,
        "code": run.code,
        "model": run.model,
        "input_tokens": run.usage.input_tokens,
        "output_tokens": run.usage.output_tokens,
        "cached_tokens": run.usage.cached_tokens,
        "cost_microusd": run.usage.cost_microusd,
        "steps": run.usage.steps,
        "estimated_tokens": run.usage.estimated_tokens,
        **made_of_columns(run.made_of),
    }
    await tx.execute(
        f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", tuple(columns.values())
    )


def _more_columns(run: NewRun) -> dict[str, SqlValue]:
    values = {
        **{name: getattr(run, name) for name in _MORE},
        "is_sandboxed": int(run.is_sandboxed),
        "has_spawned": int(run.has_spawned),
        "has_attachments": int(run.has_attachments),
        "deadline": None if run.deadline is None else codec.milliseconds(run.deadline),
        "time_limit": codec.optional_milliseconds(run.time_limit),
    }
    return {name: value for name, value in values.items() if value or (name == "time_limit" and value is not None)}


_MORE = (
    *("partner", "exchange", "chain", "hops", "is_sandboxed", "report", "announces", "continues", "has_spawned"),
    *("has_attachments", "deadline", "time_limit", "approval", "cause", "task"),
)
"""What most runs do not have: they answer a person's message."""
_more_of = attrgetter(*_MORE)
_COMMON = "id session incarnation agent_id seq newest_seq status mode purpose principal is_favoured created_at place"


@cache
def _insert(more: tuple[str, ...]) -> str:
    columns = (*_COMMON.split(), *more)
    return f"INSERT INTO runs ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})"


async def spent_in_chain(query: Query, chain: str) -> int:
    """Tokens that the runs of a chain of sends have used so far. Contract: send 7."""
    row = await query.fetch_one(
        "SELECT COALESCE(SUM(input_tokens + output_tokens), 0) FROM runs WHERE chain = ?", (chain,)
    )
    return 0 if row is None else int(row[0])


async def list_awaited_sessions(query: Query, session: SessionRow) -> list[SessionRow]:
    """The sessions working on runs that the session's active run awaits, directly or through parked runs."""
    row = await query.fetch_one(f"SELECT r.waiting_for FROM runs r WHERE r.session = ? AND {_ACTIVE}", (session,))
    if row is None or row[0] is None:
        return []
    ids = list(_run_ids(row[0]))
    found: list[SessionRow] = []
    while ids:
        marks = ", ".join("?" * len(ids))
        rows = await query.fetch_all(
            f"SELECT session, status, is_parked, id, continued_by FROM runs WHERE id IN ({marks})", ids
        )
        found += [session for session, status, *_ in rows if not RunStatus(status).is_terminal]
        parked = [run_id for _, _, is_parked, run_id, _ in rows if is_parked]
        if parked:
            marks = ", ".join("?" * len(parked))
            children = await query.fetch_all(
                f"SELECT child FROM reports WHERE waiter IN ({marks}) AND stage = 'open'", parked
            )
            found += [child for (child,) in children]
        ids = [continued_by for *_, continued_by in rows if continued_by is not None]
    return found


async def find_ends(query: Query, run_ids: Sequence[RunId]) -> dict[RunId, Run]:
    """The end of each run that exists: that of its last continuation, if it has one."""
    known: dict[RunId, Run] = {}
    missing = list(dict.fromkeys(run_ids))
    while missing:
        found: list[Run] = []
        for start in range(0, len(missing), 500):
            part = missing[start : start + 500]
            rows = await query.fetch_all(f"{_SELECT} WHERE r.id IN ({', '.join('?' * len(part))})", part)
            found += map(_RUN.read, rows)
        known |= {run.id: run for run in found}
        missing = [run.continued_by for run in found if run.continued_by is not None and run.continued_by not in known]
    return {run_id: followed(known[run_id], _last(known, run_id)) for run_id in run_ids if run_id in known}


def _last(known: Mapping[RunId, Run], run_id: RunId) -> Run:
    run = known[run_id]
    while run.continued_by is not None and run.continued_by in known:
        run = known[run.continued_by]
    return run


async def find_shown(query: Query, run_id: RunId) -> Run | None:
    """Like `find`, for readers: what an unfinished run shows is made of all that its incarnation holds."""
    row = await query.fetch_one(f"{_SELECT_SHOWN} WHERE r.id = ?", (run_id,))
    return None if row is None else _RUN.read(row)


async def find(query: Query, run_id: RunId) -> Run | None:
    row = await query.fetch_one(f"{_SELECT} WHERE r.id = ?", (run_id,))
    return None if row is None else _RUN.read(row)


class InLog(NamedTuple):
    """A run, and facts about its session."""

    run: Run
    place: DeliveryContext
    """The place of the session's answers."""
    depth: int
    """The session's depth."""
    end: LogEnd
    """The end of the session's log."""
    pending_approvals: int
    """How many requests of the session are open."""
    uncovered_turns: int
    """Completed turns of the session that no checkpoint covers."""
    source_kind: str
    """Where the session came from."""
    told: tuple[Told, ...]
    """What places of the session were told since a turn succeeded there."""


class FirstRun(NamedTuple):
    """The run of a session that a worker looks at first."""

    in_log: InLog
    is_suspended: bool
    """Whether the person with whose rights it acts is suspended."""


async def find_in_log(query: Query, run_id: RunId) -> InLog | None:
    row = await query.fetch_one(_FIND_IN_LOG, (run_id,))
    return None if row is None else _in_log(row)


async def find_active(query: Query, session: SessionRow) -> Run | None:
    """The run that holds the session; there is at most one."""
    row = await query.fetch_one(f"{_SELECT} WHERE r.session = ? AND {_ACTIVE}", (session,))
    return None if row is None else _RUN.read(row)


async def newest_principal(query: Query, session: SessionRow) -> str | None:
    """The principal of the session's newest run, as text."""
    row = await query.fetch_one(
        "SELECT principal FROM runs WHERE session = ? AND purpose <> 'checkpoint' ORDER BY seq DESC LIMIT 1",
        (session,),
    )
    return None if row is None else row[0]


async def is_active(query: Query, session: SessionRow) -> bool:
    """Whether a run holds the session."""
    return await query.fetch_one(f"SELECT 1 FROM runs r WHERE r.session = ? AND {_ACTIVE}", (session,)) is not None


async def is_busy(query: Query, session: SessionRow) -> bool:
    """Whether the session has a run that has not ended, also one that waits for an approval beside others."""
    row = await query.fetch_one(
        f"SELECT 1 WHERE EXISTS (SELECT 1 {_QUEUED_IN}) OR EXISTS (SELECT 1 {_ACTIVE_IN}) "
        "OR EXISTS (SELECT 1 FROM runs r WHERE r.session = ? AND r.is_parked = 1 AND r.status = 'awaiting_approval')",
        (session, session, session),
    )
    return row is not None


class RunRank(NamedTuple):
    """Whose a new run is, and how it stands among the session's others."""

    principal: Principal
    """The one as whom its principal acts now."""
    is_favoured: bool
    """Whether its principal is an owner now."""
    is_delivered: bool
    """Whether an unfinished run that is no less favoured has told a worker of the session already."""


async def find_rank(query: Query, session: SessionRow, principal: Principal) -> RunRank:
    """The rank of a run of the principal that is queued now."""
    row = await query.fetch_one(_FIND_RANK, (session, session, person_of(principal)))
    assert row is not None
    person, is_favoured, is_delivered = row
    present = principal if person is None else person_principal(person)
    return RunRank(present, bool(is_favoured), bool(is_delivered))


async def is_queued(query: Query, session: SessionRow) -> bool:
    """Whether a run of the session waits for its turn."""
    row = await query.fetch_one("SELECT 1 FROM runs WHERE session = ? AND status = 'queued' LIMIT 1", (session,))
    return row is not None


async def list_answered(query: Query, session: SessionRow, sender: Principal, *, limit: int) -> list[tuple[int, int]]:
    """When the newest messages of the sender came that were answered, and when each was, the newest first."""
    found = await query.fetch_all(
        "SELECT created_at, ended_at FROM runs WHERE session = ? AND purpose = 'message' AND principal = ? "
        "AND ended_at IS NOT NULL ORDER BY seq DESC LIMIT ?",
        (session, str(sender), limit),
    )
    return [(asked, answered) for asked, answered in found]


async def find_queued(query: Query, session: SessionRow) -> list[Run]:
    """Queued runs of the session in starting order: interrupts first, then by `seq`."""
    rows = await query.fetch_all(
        f"{_SELECT} WHERE r.session = ? AND r.status = 'queued' "
        "ORDER BY CASE r.mode WHEN 'interrupt' THEN 0 ELSE 1 END, r.seq",
        (session,),
    )
    return [_RUN.read(row) for row in rows]


async def call_off_announcement(tx: Transaction, child: SessionRow, report: str) -> bool:
    """Cancels the child's turn that was to word the result; False if it has begun or does not exist."""
    values = (child, report)
    return (
        await tx.change(
            "UPDATE runs SET cancel_requested = 1 WHERE session = ? AND announces = ? AND status = 'queued'", values
        )
        > 0
    )


async def find_first(query: Query, session: SessionRow) -> FirstRun | None:
    """The run that holds the session, else the queued run that starts next."""
    row = await query.fetch_one(_FIND_FIRST, (session, session))
    return None if row is None else FirstRun(_in_log(row[1:]), bool(row[0]))


async def oldest_unfinished_seq(query: Query, session: SessionRow) -> int | None:
    """The lowest `seq` that a run of the session still needs; counts runs that have not ended or are parked.

    A continuation that has not begun needs the run that it continues, whose calls it may repeat.
    """
    row = await query.fetch_one(
        "SELECT MIN(COALESCE(p.seq, r.seq)) FROM runs r LEFT JOIN runs p ON p.id = r.continues WHERE r.session = ? "
        f"AND (r.status = 'queued' OR r.is_parked = 1 OR ({_ACTIVE}))",
        (session,),
    )
    return None if row is None else row[0]


async def count_queued_by(query: Query, principal: Principal, limit: int) -> int:
    """How many runs of the principal wait; counts up to the limit. The index has no runs that were an owner's."""
    row = await query.fetch_one(
        "SELECT COUNT(*) FROM (SELECT 1 FROM runs WHERE principal = ? AND status = 'queued' "
        "AND is_favoured = 0 LIMIT ?) queued",
        (str(principal), limit),
    )
    return 0 if row is None else int(row[0])


async def list_busy_sessions(query: Query) -> list[SessionRow]:
    """Every session with a run that is queued or at work."""
    rows = await query.fetch_all(
        f"SELECT r.session FROM runs r WHERE r.status = 'queued' UNION SELECT r.session FROM runs r WHERE {_AT_WORK}"
    )
    return [row[0] for row in rows]


def _next_of(session: str) -> str:
    """Subqueries, each a step in an index; the first with a row finds the run that speaks for the session."""
    at_work = f"SELECT r.id FROM runs r WHERE r.session = {session} AND {_AT_WORK}"
    queued = f"SELECT r.id FROM runs r WHERE r.session = {session} AND r.status = 'queued'"
    first, favoured = "ORDER BY r.seq LIMIT 1", "AND r.is_favoured = 1"
    return f"({at_work} {favoured}), ({queued} {favoured} {first}), ({at_work}), ({queued} {first})"


async def find_askers(query: Query, sessions: Sequence[SessionRow]) -> dict[SessionRow, Asker]:
    """The asker of each session that has work: a favoured one if a run has one, else the next run's."""
    found: dict[SessionRow, Asker] = {}
    for start in range(0, len(sessions), 500):
        part = sessions[start : start + 500]
        rows = await query.fetch_all(
            f"SELECT r.session, r.principal, r.is_favoured FROM (SELECT s.id, COALESCE({_next_of('s.id')}) AS next "
            f"FROM sessions s WHERE s.id IN ({', '.join('?' * len(part))})) f JOIN runs r ON r.id = f.next",
            part,
        )
        found |= {
            SessionRow(session): Asker(codec.stored_principal(principal), bool(is_favoured))
            for session, principal, is_favoured in rows
        }
    return found


async def find_called_off(query: Query, claims: Sequence[tuple[RunId, int]]) -> list[RunId]:
    """The running runs that must be cancelled, or were taken over since the claim with that fence."""
    found: list[RunId] = []
    for start in range(0, len(claims), 500):
        part = claims[start : start + 500]
        rows = await query.fetch_all(
            f"SELECT id, fence, cancel_requested FROM runs WHERE id IN ({', '.join('?' * len(part))})",
            [run_id for run_id, _ in part],
        )
        standing = {run_id: fence for run_id, fence, is_cancelled in rows if not is_cancelled}
        found += [run_id for run_id, fence in part if standing.get(run_id) != fence]
    return found


class RunFilter(Struct, frozen=True, kw_only=True):
    session: SessionRow | None = None
    statuses: frozenset[RunStatus] | None = None
    is_kept: bool = False
    """Only runs of sub-agents whose result has no recipient."""
    before: RunId | None = None
    """Ids sort by time; a page begins after the last id of the previous one."""
    ids: tuple[RunId, ...] | None = None
    """Only these, at most 500."""


async def list_page(query: Query, reach: Reach, where: RunFilter, *, limit: int) -> list[Run]:
    """Runs of sessions in the reach, newest first, as far as they flow to its clearance."""
    inside = await within(query, reach, "r.session")
    conditions, values = [inside.text], list(inside.values)
    if where.session is not None:
        conditions.append("r.session = ?")
        values.append(where.session)
    if where.statuses is not None:
        shown = _shown_status(reach.clearance)
        conditions.append(f"{shown.text} IN ({', '.join('?' * len(where.statuses))})")
        values.extend((*shown.values, *sorted(where.statuses)))
    if where.is_kept:
        conditions.append("r.id IN (SELECT run FROM reports WHERE stage = 'kept')")
    if where.before is not None:
        conditions.append("r.id < ?")
        values.append(where.before)
    if where.ids is not None:
        conditions.append(f"r.id IN ({', '.join('?' * len(where.ids))})")
        values.extend(where.ids)
    rows = await query.fetch_all(
        f"{_SELECT_SHOWN} WHERE {' AND '.join(conditions)} ORDER BY r.id DESC LIMIT ?", (*values, limit)
    )
    return [shown_run(_RUN.read(row), reach.clearance) for row in rows]


async def list_caused(query: Query, reach: Reach, cause: RunId, *, after: RunId | None, limit: int) -> list[Run]:
    """The runs in the reach that this one caused, oldest first, as far as they flow to its clearance."""
    inside = await within(query, reach, "r.session")
    rows = await query.fetch_all(
        f"{_SELECT_SHOWN} WHERE r.cause = ? AND r.id > ? AND {inside.text} ORDER BY r.id LIMIT ?",
        (cause, after or "", *inside.values, limit),
    )
    return [shown_run(_RUN.read(row), reach.clearance) for row in rows]


async def list_named(query: Query, reach: Reach, ids: Sequence[RunId]) -> dict[RunId, Run]:
    """Those of the named runs that belong to sessions in the reach, as far as they flow to its clearance."""
    if not ids:
        return {}
    inside = await within(query, reach, "r.session")
    rows = await query.fetch_all(
        f"{_SELECT_SHOWN} WHERE r.id IN ({', '.join('?' * len(ids))}) AND {inside.text}", (*ids, *inside.values)
    )
    return {run.id: run for run in (shown_run(_RUN.read(row), reach.clearance) for row in rows)}


def _shown_status(clearance: Classification) -> Condition:
    """As `policy/shown` shows it: a run that ended above the reader looks as if it had ended well. Contract: flow 4."""
    return when(flow("r.", clearance), "r.status", f"CASE WHEN {_UNFINISHED} THEN r.status ELSE 'ok' END")


async def change(tx: Transaction, run_id: RunId, columns: Mapping[str, SqlValue]) -> None:
    """Sets columns of the row."""
    await tx.execute(_change(tuple(columns)), (*columns.values(), run_id))


@cache
def _change(columns: tuple[str, ...]) -> str:
    return f"UPDATE runs SET {assigned(columns)} WHERE id = ?"


def made_of_columns(made_of: Classification) -> dict[str, SqlValue]:
    """The columns that say what a run was made of; none for public data, which the row says without them."""
    if made_of == PUBLIC:
        return {}
    names = ("level", "compartments", "integrity", "person")
    return dict(zip(names, codec.classification_values(made_of), strict=True))


async def pause(tx: Transaction, run_id: RunId, columns: Mapping[str, SqlValue]) -> bool:
    """Sets columns; returns whether the run is to be cancelled, also by a unit that committed since it was read."""
    row = await tx.fetch_one(
        f"UPDATE runs SET {assigned(columns)} WHERE id = ? RETURNING cancel_requested", (*columns.values(), run_id)
    )
    return row is not None and bool(row[0])


async def is_unfinished_in(query: Query, session: SessionRow, incarnation: SessionId) -> bool:
    """Whether a run of the incarnation has not ended."""
    row = await query.fetch_one(
        f"SELECT 1 FROM runs r WHERE r.session = ? AND r.incarnation = ? AND {_UNFINISHED} LIMIT 1",
        (session, incarnation),
    )
    return row is not None


async def find_parked(query: Query, session: SessionRow) -> list[Run]:
    """Runs of the session that others continue: they wait for its children, or for an approval."""
    rows = await query.fetch_all(f"{_SELECT} WHERE r.session = ? AND r.is_parked = 1", (session,))
    return [_RUN.read(row) for row in rows]


class ReportWork(NamedTuple):
    """The work done for a report, over a run and all its continuations."""

    usage: Usage
    started_at: datetime | None
    is_public: bool
    """Whether all of it was made of public data."""


async def work_for(query: Query, report: str) -> ReportWork:
    row = await query.fetch_one(
        "SELECT SUM(input_tokens), SUM(output_tokens), SUM(cached_tokens), SUM(cost_microusd), SUM(steps), "
        "MIN(started_at), MAX(CASE WHEN level > 0 OR compartments <> 0 OR person IS NOT NULL THEN 1 ELSE 0 END) "
        "FROM runs WHERE report = ?",
        (report,),
    )
    assert row is not None
    *sums, started_at, is_classified = row
    tokens_in, tokens_out, cached, cost, steps = (None if value is None else int(value) for value in sums)
    return ReportWork(
        Usage(tokens_in or 0, tokens_out or 0, cached or 0, cost, steps or 0),
        codec.optional_moment(started_at),
        is_public=not is_classified,
    )


async def list_sessions_of_agent(query: Query, agent: AgentId) -> list[SessionRow]:
    """The session of each of its runs that has not ended."""
    rows = await query.fetch_all("SELECT session FROM runs WHERE agent_id = ? AND ended_at IS NULL", (agent,))
    return [SessionRow(session) for (session,) in rows]


async def made_of_before(query: Query, run: Run) -> Classification:
    """What the runs that it continues were made of."""
    made_of, before = PUBLIC, run.continues
    while before is not None and (earlier := await find(query, before)) is not None:
        made_of, before = made_of.join(earlier.made_of), earlier.continues
    return made_of


class UsedBefore(Struct, frozen=True):
    """The usage of the runs that a run continues."""

    usage: Usage = NO_USAGE
    model_calls: int = 0
    tool_calls: int = 0


async def used_before(query: Query, run: Run) -> UsedBefore:
    usage, model_calls, tool_calls = NO_USAGE, 0, 0
    before = run.continues
    while before is not None:
        earlier = await find(query, before)
        if earlier is None:
            break
        usage = usage + earlier.usage
        row = await query.fetch_one(
            "SELECT COUNT(CASE WHEN type = 'assistant_message' THEN 1 END), COUNT(CASE WHEN type = 'tool_result' "
            "THEN 1 END) FROM events WHERE session = ? AND seq > ? AND seq < ? AND run_id = ?",
            (run.session, earlier.seq, run.seq, earlier.id),
        )
        assert row is not None
        models, tools = row
        model_calls, tool_calls = model_calls + models, tool_calls + tools
        before = earlier.continues
    return UsedBefore(usage, model_calls, tool_calls)


async def add_usage(tx: Transaction, run_id: RunId, usage: Usage, model: str | None) -> None:
    """Adds to the run's usage; `model` is the one that it used, None to leave the one before."""
    await tx.execute(
        f"UPDATE runs SET model = COALESCE(?, model), estimated_tokens = estimated_tokens + ?, {codec.USAGE_ADDED} "
        "WHERE id = ?",
        (model, usage.estimated_tokens, *codec.usage_added(usage), run_id),
    )


async def delete_all(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM runs WHERE session = ?", (session,))


def _in_log(row: Row) -> InLog:
    channel, to, account_id, thread_id, depth = row[:5]
    last_seq, incarnation, shows_classified, pending, turns, source, told, head = row[5:13]
    base = codec.classification(*row[13:17])
    taint = None if row[17] is None else codec.classification(*row[17:21])
    workspace = None if row[21] is None else codec.classification(*row[21:25])
    place = delivery_context(channel, to, account_id, thread_id)
    end = LogEnd(last_seq, incarnation, base, taint, workspace, bool(shows_classified), head)
    return InLog(_RUN.read(row[25:]), place, depth, end, pending, turns, source, codec.told(told))


def run_ids_text(run_ids: Sequence[RunId]) -> str | None:
    """The value of the column `waiting_for`; ids contain no comma."""
    return ",".join(run_ids) or None
