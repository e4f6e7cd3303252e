"""A new session that begins as a copy of another's log. Contract: sessions 8."""

from collections.abc import Sequence

import anyio
from anyio import to_thread
from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.classification import Classification, join_all
from antiphon.domain.errors import Conflict
from antiphon.domain.event import Event, EventType, NewEvent
from antiphon.domain.ids import Ids, ProcessId, RunId, SessionId, SessionRow
from antiphon.domain.keys import SessionKey, parse_key
from antiphon.domain.left_out import moved
from antiphon.domain.message import AssistantMessage, JsonObject, Message, ToolResult, UserMessage
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext, Session, Source
from antiphon.domain.targets import NamedTarget
from antiphon.domain.transcript import Input, OpenCall, Summary, Transcript
from antiphon.engine.access.allowances import refuse_bytes, refuse_session
from antiphon.engine.access.ceilings import find_place_clearance, refuse_above
from antiphon.engine.access.reach import Found, find_target, reach_of
from antiphon.engine.ledger.append import append_copies
from antiphon.engine.ledger.run_log import closing_result
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.sessions import (
    OpenSession,
    SessionAttributes,
    add_maker,
    create_session,
    id_from_key,
    refuse_agent,
    started_event,
)
from antiphon.policy.acts import Act
from antiphon.policy.flow import ceiling, may_hold
from antiphon.policy.reach import Grant
from antiphon.policy.shown import shown_session
from antiphon.policy.standing import Standing
from antiphon.policy.system import system_grant
from antiphon.store import copies, incarnations, log_hashes, runner_states
from antiphon.store import events as log
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.events import Addition
from antiphon.store.log_hashes import ForkPoint
from antiphon.store.people import find_standing
from antiphon.store.runner_states import StateName

PAGE_EVENTS = 100
"""Read at once: on PostgreSQL nothing else is done while they are decoded."""
PAGE_BYTES = 1024 * 1024
"""The most that one unit copies; larger forks are made of several."""
FIRST_COPY = 2
"""The number of the first copy in a new session, after `session_started`."""
ATTEMPTS = 3
"""How often a fork in pages is begun, if what it copies changes meanwhile; then one unit makes it."""


class ForkOpening(Struct, frozen=True, kw_only=True):
    """A fork as a conversation of a chat."""

    key: SessionKey
    label: str
    place: DeliveryContext


class ForkSession(Struct, frozen=True, kw_only=True):
    principal: Principal
    target: NamedTarget
    seq: int | None
    """The last event to keep; None for all."""
    new_segment: str
    rules: Rules
    opening: ForkOpening | None = None
    """Where a fork for a chat belongs; None for a session of its own."""


class ForkBasis(Struct, frozen=True, kw_only=True):
    """All that the copies of a fork depend on; they are made anew where it changed meanwhile."""

    session: SessionRow
    incarnation: SessionId
    first_seq: int
    up_to: int
    clearance: Classification
    base: Classification


class PreparedFork(Struct, frozen=True, kw_only=True):
    """What a fork copies."""

    basis: ForkBasis
    events: list[Event]
    size: int
    """Of the events, as they are stored."""
    made_of: Classification
    """The join of the events."""


class StagedFork(Struct, frozen=True, kw_only=True):
    """A session that nobody sees yet, into which the copies go."""

    row: SessionRow
    process: ProcessId
    """The process that makes it."""
    incarnation: SessionId
    prepared: PreparedFork

    @property
    def claim(self) -> tuple[int, str]:
        return self.row, self.process


class _Judged(Struct, frozen=True, kw_only=True):
    standing: Standing
    found: Found
    basis: ForkBasis


class Forks:
    """Large copies are made in pages: other units are stored between them. Nobody sees the session before its end."""

    def __init__(self, database: Database, rules: Rules, ids: Ids, *, process: ProcessId) -> None:
        self._database = database
        self._rules = rules
        self._process = process
        self._ids = ids
        self._copying = anyio.Lock()
        self._under_way: set[SessionRow] = set()

    async def fork(self, principal: Principal, target: NamedTarget, seq: int | None) -> Session:
        """A new session with the messages up to `seq`, at their classifications. An ended id can be forked too.

        Only what the principal may read is copied. The messages are renumbered in the order in which models saw them,
        so that later turns continue from there.
        Raises `NotFound`, `Conflict` if `seq` lies in a pruned range or above the log, and `Denied` for a person who
        may not open sessions with its agent, or store as much again.
        """
        command = self._command(principal, target, seq)
        if await self._database.read(size_of_fork, command) > PAGE_BYTES:
            async with self._copying:  # one at a time: a commit holds one page, and memory one log
                for _ in range(ATTEMPTS):
                    if (forked := await self._fork_in_pages(command)) is not None:
                        return forked
                    command = self._command(principal, target, seq)
        return await self._database.run(fork_session, command, sessions=(target,))

    def _command(self, principal: Principal, target: NamedTarget, seq: int | None) -> ForkSession:
        return ForkSession(
            principal=principal,
            target=target,
            seq=seq,
            new_segment=self._ids.random_hex(12),
            rules=self._rules,
        )

    async def _fork_in_pages(self, command: ForkSession) -> Session | None:
        """None if what is copied changed meanwhile; nothing is left of it."""
        prepared = await self._database.read(prepare_fork, command)
        pages = await to_thread.run_sync(_pages_of, prepared.events)
        begin = (command, prepared, self._process)
        staged = await self._database.run(begin_fork, *begin, sessions=(command.target,))
        if staged is None:
            return None
        self._under_way.add(staged.row)
        forked: Session | None = None
        try:
            first = FIRST_COPY
            for page in pages:
                if not await self._database.run(store_page, staged, page, first, sessions=(staged.row,)):
                    return None
                first += len(page)
            made = [copy for page in pages for copy in page]
            finish = (command, staged, made)
            forked = await self._database.run(finish_fork, *finish, sessions=(command.target, staged.row))
            return forked
        finally:
            if forked is None:
                with anyio.CancelScope(shield=True):
                    await self._remove(staged.row)
            self._under_way.discard(staged.row)

    async def remove_left(self) -> None:
        """Removes what is left of forks that did not come to their end: of processes that are gone, and of its own."""
        for session in await self._database.read(copies.list_left, self._process):
            if session not in self._under_way:
                await self._remove(session)

    async def _remove(self, session: SessionRow) -> None:
        while await self._database.run(remove_page, session, self._process, sessions=(session,)):
            pass


async def size_of_fork(query: Query, command: ForkSession) -> int:
    """How many bytes the fork copies, without reading them."""
    judged = await _judge(query, command, command.seq)
    return await _size_of(query, judged, command.rules)


async def prepare_fork(query: Query, command: ForkSession) -> PreparedFork:
    """All that the fork copies."""
    judged = await _judge(query, command, command.seq)
    return await _prepare(query, judged, command.rules)


async def begin_fork(
    tx: Transaction, command: ForkSession, prepared: PreparedFork, process: ProcessId
) -> StagedFork | None:
    """Makes the session that nobody sees yet, and counts what it will hold for who makes it."""
    judged = await _judge_prepared(tx, command, prepared)
    if judged is None:
        return None
    source, key = judged.found.session, _key_of(command, judged.found.session)
    await refuse_bytes(tx, judged.standing, prepared.size, command.rules.shares)
    refuse_above(await _taint_of(tx, judged, prepared), ceiling(source))
    incarnation = id_from_key(key)
    assert incarnation is not None
    new = rows.NewSession(
        key=key,
        agent_id=source.agent_id,
        id=incarnation,
        source=_origin_of(command, source),
        metadata={},
        columns={} if (point := await _fork_point(tx, prepared)) is None else point.columns,
    )
    row = await rows.insert_hidden(tx, new, tx.now_ms)
    staged = StagedFork(row=row, process=process, incarnation=incarnation, prepared=prepared)
    await _store_staged(tx, staged, [started_event(judged.standing.principal, incarnation)], FIRST_COPY - 1)
    await add_maker(tx, row, judged.standing)
    await rows.add_stored_bytes(tx, row, str(judged.standing.principal), prepared.size)
    await copies.begin(tx, row, process)
    return staged


async def store_page(tx: Transaction, staged: StagedFork, page: Sequence[NewEvent], first: int) -> bool:
    """Stores some of the copies, numbered from `first`; False if the copy was given up meanwhile."""
    if not await copies.advance(tx, staged.claim, first + len(page) - 1):
        return False
    await _store_staged(tx, staged, page, first)
    return True


async def _store_staged(tx: Transaction, staged: StagedFork, events: Sequence[NewEvent], first: int) -> None:
    addition = Addition(incarnation=staged.incarnation, events=events, at_ms=tx.now_ms)
    base, before = staged.prepared.basis.base, await log_hashes.find_head(tx, staged.row)
    head = await log.store(tx, staged.row, addition, first=first, base=base, before=before)
    await log.set_head(tx, staged.row, head)


async def _fork_point(query: Query, prepared: PreparedFork) -> ForkPoint | None:
    return await log_hashes.find_fork_point(query, prepared.basis.session, prepared.basis.up_to)


async def finish_fork(
    tx: Transaction, command: ForkSession, staged: StagedFork, made: Sequence[NewEvent]
) -> Session | None:
    """Judges the fork anew, as if nothing of it were stored, and lets everybody see it.

    None if what was copied is not what would be copied now.
    """
    prepared = staged.prepared
    if not await copies.hold(tx, staged.claim):
        return None
    await tx.keep(copies.uncount, staged.row)
    judged = await _judge_prepared(tx, command, prepared)
    if judged is None:
        return None
    if await incarnations.find(tx, staged.incarnation) is not None:
        return None
    await refuse_bytes(tx, judged.standing, prepared.size, command.rules.shares)
    forked = await _store(tx, command, judged, prepared, stored=made)
    await copies.end(tx, staged.row)
    return forked


async def remove_page(tx: Transaction, session: SessionRow, process: ProcessId) -> bool:
    """Removes a part of a copy that is given up; whether there is more. The process that made it cannot go on then."""
    return await copies.take(tx, session, process) and await copies.remove_page(tx, session, PAGE_BYTES)


async def fork_session(tx: Transaction, command: ForkSession) -> Session:
    """The whole fork in one unit."""
    judged = await _judge(tx, command, command.seq)
    prepared = await _prepare(tx, judged, command.rules)
    return await _store(tx, command, judged, prepared)


async def _judge(query: Query, command: ForkSession, seq: int | None) -> _Judged:
    judged = await _judge_rights(query, command, seq)
    source, incarnation, up_to = judged.found.session, judged.found.incarnation, judged.basis.up_to
    end = incarnation.last_seq or source.last_seq
    if not judged.basis.first_seq <= up_to <= end:
        raise Conflict(
            f"Event is not in the log: {up_to}. The log goes from {incarnation.first_seq} to {end}.",
            code="seq_out_of_range",
        )
    return judged


async def _judge_prepared(query: Query, command: ForkSession, prepared: PreparedFork) -> _Judged | None:
    """None if the same fork would copy something else now."""
    judged = await _judge_rights(query, command, prepared.basis.up_to)
    return None if judged.basis != prepared.basis else judged


async def _judge_rights(query: Query, command: ForkSession, seq: int | None) -> _Judged:
    standing = await find_standing(query, command.principal)
    reach = reach_of(standing, Act.READ)
    found = await find_target(query, reach, command.target)
    source, incarnation = found.session, found.incarnation
    refuse_agent(standing, source.agent_id, command.rules)
    await refuse_session(query, standing, command.rules.shares)
    basis = ForkBasis(
        session=source.row,
        incarnation=incarnation.id,
        first_seq=max(incarnation.first_seq, source.first_seq),
        up_to=(incarnation.last_seq or source.last_seq) if seq is None else seq,
        clearance=found.grant.clearance,
        base=source.base,
    )
    return _Judged(standing=standing, found=found, basis=basis)


async def _size_of(query: Query, judged: _Judged, rules: Rules) -> int:
    basis = judged.basis
    size = await log.size_of_incarnation(query, judged.found.grant, basis.incarnation, basis.up_to)
    await refuse_bytes(query, judged.standing, size, rules.shares)
    return size


async def _prepare(query: Query, judged: _Judged, rules: Rules) -> PreparedFork:
    size = await _size_of(query, judged, rules)
    events = await _read_all(query, judged.found.grant, judged.found.incarnation, judged.basis.up_to)
    made_of = join_all(event.classification for event in events)
    return PreparedFork(basis=judged.basis, events=events, size=size, made_of=made_of)


async def _store(
    tx: Transaction,
    command: ForkSession,
    judged: _Judged,
    prepared: PreparedFork,
    *,
    stored: Sequence[NewEvent] | None = None,
) -> Session:
    """Opens the session with the copies, which may be stored already."""
    standing, source, up_to = judged.standing, judged.found.session, prepared.basis.up_to
    incarnation, taint = judged.found.incarnation, await _taint_of(tx, judged, prepared)
    opening = command.opening
    clearance = await find_place_clearance(tx, command.rules.sinks, opening and opening.place)
    refuse_above(taint, ceiling(source, clearance))
    label, place = (None, None) if opening is None else (opening.label, opening.place)
    forked_from: JsonObject = {"sessionKey": str(source.key), "sessionId": incarnation.id, "seq": up_to}
    session = await create_session(
        tx,
        OpenSession(
            principal=standing.principal,
            target=NamedTarget(_key_of(command, source), None),
            agent_id=source.agent_id,
            source=_origin_of(command, source),
            base=source.base,
            attributes=SessionAttributes(label=label, clearance=source.clearance, metadata={"forkedFrom": forked_from}),
            place=place,
            forked_at=await _fork_point(tx, prepared) if stored is None else None,
            is_stored=stored is not None,
        ),
        standing,
    )
    made = _copied(prepared.events, session.last_seq + 1) if stored is None else stored
    is_stored = stored is not None
    await append_copies(tx, session, made, is_described=True, taint=taint, is_stored=is_stored)
    await rows.add_stored_bytes(tx, session.row, str(standing.principal), prepared.size)
    await _copy_state(tx, judged, session)
    forked = await rows.find_by_row(tx, session.row)
    assert forked is not None
    return shown_session(forked, judged.found.grant.clearance)


async def _copy_state(tx: Transaction, judged: _Judged, session: Session) -> None:
    """What the runner of the agent had kept by then goes along. Contract: foreign_agents 1."""
    source, basis = judged.found.session, judged.basis
    state = await runner_states.find(tx, StateName(source.row, basis.incarnation, source.agent_id))
    if state is None or state.seq > basis.up_to or not may_hold(state.made_of, judged.found.grant.clearance):
        return
    await runner_states.put(tx, StateName(session.row, session.id, source.agent_id), state)


def _key_of(command: ForkSession, source: Session) -> SessionKey:
    opening = command.opening
    return parse_key(f"agent:{source.agent_id}:fork:{command.new_segment}") if opening is None else opening.key


def _origin_of(command: ForkSession, source: Session) -> Source:
    if command.opening is not None:
        return source.source
    return replace(source.source, kind="api", platform=None, trigger_id=None)


def _pages_of(events: list[Event]) -> list[list[NewEvent]]:
    """The copies, numbered as in a new session, in pages of about `PAGE_BYTES`, each with one at least."""
    pages = list[list[NewEvent]]()
    page: list[NewEvent] = []
    size = 0
    for copy in _copied(events, FIRST_COPY):
        grown = log.size_of(copy)
        if page and size + grown > PAGE_BYTES:
            pages.append(page)
            page, size = [], 0
        page.append(copy)
        size += grown
    return [*pages, page] if page else pages


async def _taint_of(query: Query, judged: _Judged, prepared: PreparedFork) -> Classification:
    """What the copy is made of: the join of its events if the conversation rose only after them.

    Otherwise that of the conversation, also where the events do not say so. Contract: sessions 8, flow 8.
    """
    base, incarnation, up_to = prepared.basis.base, judged.found.incarnation, prepared.basis.up_to
    if await log.is_raised_after(query, system_grant(incarnation.session), incarnation.id, up_to):
        return base.join(prepared.made_of)
    return base.join(incarnation.taint)


async def size_of_copy(query: Query, source: Session, origin: Run | None) -> int:
    """How many bytes `copy_conversation` stores, without reading them."""
    up_to = source.last_seq if origin is None else origin.newest_seq
    return await log.size_of_incarnation(query, system_grant(source.row), SessionId(source.id), up_to)


async def copy_conversation(tx: Transaction, source: Session, into: Session, *, origin: Run | None) -> Session:
    """Begins the new session with the other's conversation, up to the input of the `origin` run; returns its row."""
    incarnation = await incarnations.find(tx, SessionId(source.id))
    assert incarnation is not None
    up_to = source.last_seq if origin is None else origin.newest_seq
    events = await _read_all(tx, system_grant(source.row), incarnation, up_to)
    if origin is not None:
        queued = {run.id for run in await ledger.find_queued(tx, source.row)}
        events = [
            event
            for event in events
            if event.run_id not in queued and (event.run_id != origin.id or isinstance(event.message, UserMessage))
        ]
    await append_copies(tx, into, _copied(events, into.last_seq + 1))
    copied = await rows.find_by_row(tx, into.row)
    assert copied is not None
    return copied


async def _read_all(query: Query, grant: Grant, incarnation: incarnations.Incarnation, up_to: int) -> list[Event]:
    events: list[Event] = []
    after = incarnation.first_seq - 1
    while page := await log.read_incarnation_after(query, grant, incarnation.id, after, limit=PAGE_EVENTS):
        events.extend(event for event in page if event.seq <= up_to)
        after = page[-1].seq
        if after >= up_to or len(page) < PAGE_EVENTS:
            break
    return events


def _copied(events: list[Event], first: int) -> list[NewEvent]:
    """The messages in the order in which models saw them, numbered from `first`, and the compactions.

    The copies belong to no run, so their numbers have to keep that order. A call without a result gets one.
    """
    by_seq = {event.seq: event for event in events}
    results = {(m.call_seq, m.call_index): event for event in events if isinstance(m := event.message, ToolResult)}
    compactions = [event for event in events if event.type == EventType.COMPACTED and not event.is_unreadable]
    transcript = Transcript()
    transcript.add(event for event in events if event.type not in (EventType.COMPACTED, EventType.LEFT_OUT))
    made: list[NewEvent] = []
    numbers: dict[int, int] = {}

    def copy(event: Event, message: Message | None, data: JsonObject | None = None) -> None:
        made.append(
            NewEvent(
                type=EventType(event.type) if not isinstance(message, ToolResult) else EventType.TOOL_RESULT,
                actor=event.actor,
                classification=event.classification,
                message=message,
                data=data,
                occurred_at=event.created_at,
                own_integrity=event.own_integrity,
            )
        )

    for entry in transcript.prompt_for(RunId("")):
        assert not isinstance(entry, Summary)
        event, number = by_seq[entry.seq], first + len(made)
        numbers[entry.seq] = number
        if isinstance(entry, Input):
            copy(event, event.message)
            continue
        decided = tuple(replace(each, seq=numbers[each.seq]) for each in entry.message.decided if each.seq in numbers)
        copy(event, replace(entry.message, saw=number - 1, decided=decided))
        for result in entry.results:
            if isinstance(result, OpenCall):
                copy(event, replace(closing_result(result, f"fork-{number}-{result.index}"), call_seq=number))
            else:
                stored = results[entry.seq, result.call_index]
                assert isinstance(stored.message, ToolResult)
                copy(stored, replace(stored.message, call_seq=number))  # as it was said, whatever prompts show of it
    for event in events:
        if isinstance(event.message, UserMessage | AssistantMessage) and event.seq not in numbers:
            numbers[event.seq] = first + len(made)
            copy(event, event.message)
    for event in events:
        if event.type == EventType.LEFT_OUT:
            copy(event, None, moved(event.data, numbers))
    for event in compactions:
        through = event.data["throughSeq"]
        assert isinstance(through, int)
        # The events that it covered may be partly or wholly pruned; the copy covers those that are left.
        covered = max((seq for seq in numbers if seq <= through), default=None)
        through_copy = first - 1 if covered is None else numbers[covered]
        copy(event, None, {**event.data, "throughSeq": through_copy, "fromSeq": through_copy})
    return made
