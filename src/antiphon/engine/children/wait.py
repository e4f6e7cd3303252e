"""Waiting for several runs, and ending a turn until they are over. Contract: spawn 8, runs 1, 3."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from antiphon.clock import Clock, time_left
from antiphon.domain.classification import PUBLIC, Classification, Integrity
from antiphon.domain.errors import REFUSALS, Conflict, NotFound
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.message import UserMessage
from antiphon.domain.report import Report
from antiphon.domain.run import Outcome, Run, RunStatus
from antiphon.domain.session import Session
from antiphon.engine.access.caller import Caller, find_origin
from antiphon.engine.access.ceilings import find_ceiling
from antiphon.engine.approvals.answering import withdraw_results
from antiphon.engine.deliveries.outbox import answers_to
from antiphon.engine.ledger.cycles import waits_for
from antiphon.engine.ledger.waits import Waits
from antiphon.engine.reports import quarantined
from antiphon.engine.reports.settle import take
from antiphon.engine.runs.ends import end_queued_run
from antiphon.policy.flow import is_held, may_hold
from antiphon.policy.sinks import Sinks
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import exchanges, spawns
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.codec import milliseconds
from antiphon.store.database import Database, Query, Transaction

MARGIN = timedelta(seconds=60)
"""Children are kept for this long after a wait's deadline, so that the wait can still answer."""
TAKEN = Outcome(
    status=RunStatus.CANCELLED, error="sessions_wait has already returned the result for this run.", code="taken"
)


class AwaitedRun(Struct, frozen=True, kw_only=True):
    """An awaited run as it stands when the wait ends."""

    run_id: RunId
    run: Run
    is_withheld: bool
    """Whether its end (status, reply, error, code) may not flow to the caller, who did not accept it."""


class Joined(Struct, frozen=True, kw_only=True):
    is_complete: bool
    """Whether the awaited runs ended before the time was over."""
    runs: list[AwaitedRun]
    """In the order of the call."""
    accepted: Classification = PUBLIC
    """What the caller accepted beyond what its session held."""
    integrity: Integrity = Integrity.TRUSTED
    """The worst of what the runs said."""


class WaitForRuns(Struct, frozen=True, kw_only=True):
    caller: Caller
    run_ids: tuple[RunId, ...]
    for_all: bool
    """Whether it waits for all of them, instead of for one."""
    accepts: bool
    """Whether it takes in what is above it, and rises. Contract: flow 6."""
    until: datetime


class Begun(Struct, frozen=True):
    until: datetime
    sessions: tuple[SessionRow, ...]
    is_over: bool
    """Whether all runs are over, so that there is nothing to wait for."""


class ChildWaits:
    """How a session waits for the work it began."""

    def __init__(self, database: Database, waits: Waits, sinks: Sinks, clock: Clock) -> None:
        self._database = database
        self._waits = waits
        self._sinks = sinks
        self._clock = clock

    async def wait(
        self,
        caller: Caller,
        run_ids: Sequence[RunId],
        timeout: timedelta,
        *,
        for_all: bool,
        accepts: bool = False,
    ) -> Joined:
        """Waits for one of the runs, or all; the caller's run holds no slot meanwhile. Its deadline survives restarts.

        Results returned here are not announced. A run that `accepts` gets results above its session too, up to the
        session's ceiling. Raises `NotFound` for a run that belongs to none of the caller's children or requests,
        `Conflict` if waiting would never end (`wait_cycle`), and for an acceptance from outside a run (`no_run`).
        """
        if accepts and caller.run is None:
            raise Conflict(
                "Call comes from outside a run, so no turn could read what it accepts. Leave out 'accept'.",
                code="no_run",
            )
        until = self._clock.now() + timeout
        command = WaitForRuns(
            caller=caller, run_ids=tuple(dict.fromkeys(run_ids)), for_all=for_all, accepts=accepts, until=until
        )
        # Two waits for one another that begin at once must see each other, so neither unit may pass the other.
        awaited = await self._database.read(find_awaited_sessions, command)
        begun = await self._database.run(begin_wait, command, sessions=(caller.session, *awaited))
        left = time_left(begun.until, self._clock.now(), timeout)
        wait = self._waits.wait_several if caller.run is None else caller.run.wait_several_released
        if not begun.is_over:
            await wait(command.run_ids, begun.sessions, left, for_all=for_all)
        return await self._database.run(end_wait, command, self._sinks, sessions=(caller.session, *awaited))

    async def yield_(self, caller: Caller) -> list[RunId]:
        """Ends the caller's run after this step, until its children are done; returns the children's runs.

        Raises `Conflict`: `no_run` from outside a run, `nothing_to_wait_for` without children at work.
        """
        return await self._database.run(note_yield, caller, sessions=(caller.session,))


async def find_awaited_sessions(query: Query, command: WaitForRuns) -> tuple[SessionRow, ...]:
    """The other sessions whose runs are awaited; none if the wait is to be refused."""
    try:
        runs = await _find_own(query, command.caller, command.run_ids)
    except REFUSALS:
        return ()
    return tuple({SessionRow(run.session): None for run in runs if run.session != command.caller.session})


async def begin_wait(tx: Transaction, command: WaitForRuns) -> Begun:
    caller = command.caller
    origin = await find_origin(tx, caller)
    runs = await _find_own(tx, caller, command.run_ids)
    sessions = tuple(SessionRow(run.session) for run in runs)
    is_repeated = origin is not None and origin.wait_call == caller.call_id and origin.wait_until is not None
    for run in runs if origin is not None and not is_repeated else ():
        if not run.is_over and await waits_for(tx, SessionRow(run.session), caller.session):
            raise Conflict(
                f"Run waits for this session: {run.id!r}. End this turn, or call sessions_yield; "
                "then that run continues.",
                code="wait_cycle",
            )
    # Otherwise a child that ends meanwhile could be deleted before its result is read.
    await spawns.keep_until(tx, sessions, milliseconds(command.until + MARGIN))
    is_over = all(run.is_over for run in runs)
    if origin is None:
        return Begun(command.until, sessions, is_over)
    if is_repeated and origin.wait_until is not None:
        return Begun(origin.wait_until, sessions, is_over)
    await ledger.change(
        tx,
        origin.id,
        {
            "waiting_for": ledger.run_ids_text(command.run_ids),
            "wait_until": milliseconds(command.until),
            "wait_call": caller.call_id,
        },
    )
    return Begun(command.until, sessions, is_over)


async def _find_own(query: Query, caller: Caller, run_ids: Sequence[RunId]) -> list[Run]:
    """The runs; each belongs to a child of the caller's session or answers one of its requests. Contract: answers 2."""
    found = await ledger.find_ends(query, run_ids)
    runs: list[Run] = []
    for run_id in run_ids:
        run = found.get(run_id)
        if not await _is_own(query, caller, run) or run is None:
            raise NotFound(
                f"Run not found: {run_id[:80]!r}. This session can wait for runs of its own children and requests; "
                "subagents lists them. The runs of a deleted child are gone, also after cleanup; its "
                "results are in this session's history."
            )
        runs.append(run)
    return runs


async def _is_own(query: Query, caller: Caller, run: Run | None) -> bool:
    """False for a missing run, after the same statements. Nobody may wait for a sealed request. Contract: flow 4."""
    report = await spawns.find_report(query, "" if run is None else run.report or "")
    exchange = await exchanges.find(query, "" if run is None else run.exchange or "")
    if run is None:
        return False
    if exchange is not None and exchange.is_blind:
        return False
    return (report is not None and report.requester == caller.session) or (
        exchange is not None and exchange.requester == caller.session and exchange.request_run == run.id
    )


async def end_wait(tx: Transaction, command: WaitForRuns, sinks: Sinks) -> Joined:
    """The results so far; those returned here count as taken."""
    caller, run_ids = command.caller, command.run_ids
    origin = await find_origin(tx, caller)
    if origin is not None:
        # The deadline stays: the call is repeated if the process dies before its result is stored.
        await tx.keep(ledger.change, origin.id, {"waiting_for": None})  # it is over, whatever became of the runs
    runs = await _find_own(tx, caller, run_ids)
    session = await rows.find_by_row(tx, caller.session)
    assert session is not None
    awaited: list[AwaitedRun] = []
    above = [run for run in runs if run.is_over and not is_held(run.made_of, session.taint)]
    taken_in: Sequence[Run] = ()
    if command.accepts and above:
        ceiling = await find_ceiling(tx, session, sinks, place=None if origin is None else origin.place)
        taken_in = await _find_accepted(tx, session, above, ceiling)
        await withdraw_results(tx, [run.report for run in taken_in if run.report is not None])
    accepted = PUBLIC
    for run_id, run in zip(run_ids, runs, strict=True):
        is_withheld, told = run in above and run not in taken_in, run
        if run.is_over and run.report is not None:
            report = await spawns.find_report(tx, run.report)
            if report is not None and not is_withheld:
                told = await _told(tx, report, run)
            # A call from outside takes nothing from the run that will get the result.
            if report is not None and origin is not None:
                await take(tx, report)
        awaited.append(AwaitedRun(run_id=run_id, run=told, is_withheld=is_withheld))
        accepted = accepted.join(told.made_of) if run in taken_in else accepted
    if origin is not None:
        await _call_off_answers(tx, caller.session)
    over = sum(run.is_over for run in runs)
    return Joined(
        is_complete=over == len(runs) or (over > 0 and not command.for_all),
        runs=awaited,
        accepted=accepted,
        integrity=max(
            (each.run.made_of.integrity for each in awaited if each.run.is_over and not each.is_withheld),
            default=Integrity.TRUSTED,
        ),
    )


async def _told(tx: Transaction, report: Report, run: Run) -> Run:
    """The run as its requester may see it: of a child in quarantine, values alone."""
    told = await quarantined.find_told(tx, report, run.made_of)
    return run if told is None else quarantined.told_run(run, await quarantined.tell(tx, told, run), told.chosen)


async def _find_accepted(query: Query, session: Session, runs: Sequence[Run], ceiling: Classification) -> Sequence[Run]:
    """Those of the runs that the session may rise to: begun by its present incarnation, and not above its ceiling."""
    return [run for run in runs if may_hold(run.made_of, ceiling) and await _incarnation_for(query, run) == session.id]


async def _incarnation_for(query: Query, run: Run) -> SessionId | None:
    """The incarnation that waits for the result of the run."""
    report = await spawns.find_report(query, run.report or "")
    if report is not None:
        return report.requester_incarnation
    exchange = await exchanges.find(query, run.exchange or "")
    return None if exchange is None else exchange.requester_incarnation


async def _call_off_answers(tx: Transaction, session: SessionRow) -> None:
    """Ends runs that were queued to answer results which another run now has, before they can begin."""
    for run in await ledger.find_queued(tx, session):
        if run.continues is not None or run.newest_seq > run.seq:  # a person's message joined it
            continue
        events = await log.read_run(tx, system_grant(session), run.id, from_seq=run.seq)
        message = events[0].message if events else None
        answers = message.report.answers if isinstance(message, UserMessage) and message.report is not None else ()
        reports = await spawns.list_reports(tx, answers)
        if answers and len(reports) == len(answers) and all(report.is_taken for report in reports):
            await end_queued_run(tx, run, TAKEN)


async def note_yield(tx: Transaction, caller: Caller) -> list[RunId]:
    """Also continues with results that came before and were not taken: a child that ends early is no error."""
    origin = await find_origin(tx, caller)
    if origin is None:
        raise Conflict(
            "Call comes from outside a run, so there is no run that could end. Use sessions_wait.", code="no_run"
        )
    session = await rows.find_by_row(tx, caller.session)
    assert session is not None
    children = await spawns.list_open(tx, origin, answers_to(origin, session.delivery))
    has_come = any(not report.is_taken for report in await spawns.list_recorded(tx, origin.id))
    if not (children or origin.is_yielding or has_come):
        raise Conflict(
            "There is nothing to wait for: no child at work will give its result to this turn. Children that other "
            "runs wait for, or that were spawned for somebody else, do not count. Continue without waiting.",
            code="nothing_to_wait_for",
        )
    await ledger.change(tx, origin.id, {"is_yielding": 1})
    return [RunId(report.id) for report in children]
