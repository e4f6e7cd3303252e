"""A new session that begins as a copy of another's log. Contract: sessions 8."""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.actor import Principal
from antiphon.domain.classification import Classification, join_all
from antiphon.domain.errors import Conflict
from antiphon.domain.event import Event, EventType, NewEvent
from antiphon.domain.ids import Ids, RunId, SessionId
from antiphon.domain.keys import SessionKey, parse_key
from antiphon.domain.left_out import moved
from antiphon.domain.message import AssistantMessage, JsonObject, Message, ToolResult, UserMessage
from antiphon.domain.run import Run
from antiphon.domain.session import DeliveryContext, Session
from antiphon.domain.session_ids import parse_session_id
from antiphon.domain.targets import NamedTarget
from antiphon.domain.transcript import Input, OpenCall, Summary, Transcript
from antiphon.engine.access.allowances import refuse_bytes, refuse_session
from antiphon.engine.access.ceilings import find_place_clearance, refuse_above
from antiphon.engine.access.reach import find_target, reach_of
from antiphon.engine.ledger.append import append_copies
from antiphon.engine.ledger.run_log import closing_result
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.rules import Rules
from antiphon.engine.sessions.sessions import OpenSession, SessionAttributes, create_session, refuse_agent
from antiphon.policy.acts import Act
from antiphon.policy.flow import ceiling
from antiphon.policy.reach import Grant
from antiphon.policy.shown import shown_session
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import incarnations
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.people import find_standing

PAGE_EVENTS = 1000


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
    new_session_id: SessionId
    rules: Rules
    at_ms: int
    opening: ForkOpening | None = None
    """Where a fork for a chat belongs; None for a session of its own."""


class Forks:
    def __init__(self, database: Database, rules: Rules, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock
        self._ids = ids

    async def fork(self, principal: Principal, target: NamedTarget, seq: int | None) -> Session:
        """A new session with the messages up to `seq`, at their classifications. An ended id can be forked too.

        Only what the principal may read is copied. The messages are renumbered in the order in which models saw them,
        so that later turns continue from there.
        Raises `NotFound`, `Conflict` if `seq` lies in a pruned range or above the log, and `Denied` for a person who
        may not open sessions with its agent, or store as much again.
        """
        segment = self._ids.random_hex(12)
        command = ForkSession(
            principal=principal,
            target=target,
            seq=seq,
            new_segment=segment,
            new_session_id=parse_session_id(f"api:{self._ids.random_hex(12)}"),
            rules=self._rules,
            at_ms=self._clock.now_ms(),
        )
        return accepted(await self._database.run(fork_session, command, sessions=(target,)))


async def fork_session(tx: Transaction, command: ForkSession) -> Session | Refusal:
    standing = await find_standing(tx, command.principal)
    reach = reach_of(standing, Act.READ)
    found = reach if isinstance(reach, Refusal) else await find_target(tx, reach, command.target)
    if isinstance(found, Refusal):
        return found
    source, incarnation = found.session, found.incarnation
    if refusal := refuse_agent(standing, source.agent_id, command.rules):
        return refusal
    if refusal := await refuse_session(tx, standing, command.rules.shares):
        return refusal
    end = incarnation.last_seq or source.last_seq
    up_to = end if command.seq is None else command.seq
    if not max(incarnation.first_seq, source.first_seq) <= up_to <= end:
        return Refusal(
            Conflict(
                f"Event is not in the log: {up_to}. The log goes from {incarnation.first_seq} to {end}.",
                code="seq_out_of_range",
            )
        )
    size = await log.size_of_incarnation(tx, found.grant, incarnation.id, up_to)
    if refusal := await refuse_bytes(tx, standing, size, command.rules.shares):
        return refusal
    events = await _read_all(tx, found.grant, incarnation, up_to)
    taint = source.base.join(await _taint_of(tx, incarnation, events, up_to=up_to))
    opening = command.opening
    clearance = None if opening is None else await find_place_clearance(tx, command.rules.sinks, opening.place)
    if refusal := refuse_above(taint, ceiling(source, clearance)):
        return refusal
    key = parse_key(f"agent:{source.agent_id}:fork:{command.new_segment}") if opening is None else opening.key
    origin = replace(source.source, kind="api", platform=None, trigger_id=None) if opening is None else source.source
    label, place = (None, None) if opening is None else (opening.label, opening.place)
    forked_from: JsonObject = {"sessionKey": str(source.key), "sessionId": incarnation.id, "seq": up_to}
    session = await create_session(
        tx,
        OpenSession(
            principal=standing.principal,
            target=NamedTarget(key, None),
            agent_id=source.agent_id,
            source=origin,
            base=source.base,
            attributes=SessionAttributes(label=label, clearance=source.clearance, metadata={"forkedFrom": forked_from}),
            place=place,
            new_session_id=command.new_session_id,
            at_ms=command.at_ms,
        ),
        standing,
    )
    copies = _copied(events, session.last_seq + 1)
    await append_copies(tx, session, copies, command.at_ms, is_described=True, taint=taint)
    await rows.add_stored_bytes(tx, session.row, str(standing.principal), size)
    forked = await rows.find_by_row(tx, session.row)
    assert forked is not None
    return shown_session(forked, found.grant.clearance)


async def _taint_of(
    tx: Transaction, incarnation: incarnations.Incarnation, events: list[Event], *, up_to: int
) -> Classification:
    """What the copy is made of: the join of its events if the conversation rose only after them.

    Otherwise that of the conversation, also where the events do not say so. Contract: sessions 8, flow 8.
    """
    if await log.is_raised_after(tx, system_grant(incarnation.session), incarnation.id, up_to):
        return join_all(event.classification for event in events)
    return incarnation.taint


async def size_of_copy(query: Query, source: Session, origin: Run | None) -> int:
    """How many bytes `copy_conversation` stores, without reading them."""
    up_to = source.last_seq if origin is None else origin.newest_seq
    return await log.size_of_incarnation(query, system_grant(source.row), SessionId(source.id), up_to)


async def copy_conversation(
    tx: Transaction, source: Session, into: Session, *, origin: Run | None, at_ms: int
) -> Session:
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
    await append_copies(tx, into, _copied(events, into.last_seq + 1), at_ms)
    copied = await rows.find_by_row(tx, into.row)
    assert copied is not None
    return copied


async def _read_all(tx: Transaction, grant: Grant, incarnation: incarnations.Incarnation, up_to: int) -> list[Event]:
    events: list[Event] = []
    after = incarnation.first_seq - 1
    while page := await log.read_incarnation_after(tx, grant, incarnation.id, after, limit=PAGE_EVENTS):
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
    copies: list[NewEvent] = []
    numbers: dict[int, int] = {}

    def copy(event: Event, message: Message | None, data: JsonObject | None = None) -> None:
        copies.append(
            NewEvent(
                type=EventType(event.type) if not isinstance(message, ToolResult) else EventType.TOOL_RESULT,
                actor=event.actor,
                classification=event.classification,
                message=message,
                data=data,
                occurred_at=event.created_at,
            )
        )

    for entry in transcript.prompt_for(RunId("")):
        assert not isinstance(entry, Summary)
        event, number = by_seq[entry.seq], first + len(copies)
        numbers[entry.seq] = number
        if isinstance(entry, Input):
            copy(event, event.message)
            continue
        copy(event, replace(entry.message, saw=number - 1))
        for result in entry.results:
            if isinstance(result, OpenCall):
                copy(event, replace(closing_result(result, f"fork-{number}-{result.index}"), call_seq=number))
            else:
                copy(results[entry.seq, result.call_index], replace(result, call_seq=number))
    for event in events:
        if isinstance(event.message, UserMessage | AssistantMessage) and event.seq not in numbers:
            numbers[event.seq] = first + len(copies)
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
    return copies
