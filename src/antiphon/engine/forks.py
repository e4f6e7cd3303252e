"""A new session that begins as a copy of another's log. Contract: sessions 8."""

from bisect import bisect_right
from dataclasses import dataclass

from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.actor import Principal
from antiphon.domain.classification import join_all
from antiphon.domain.errors import Conflict
from antiphon.domain.event import Event, EventType, NewEvent
from antiphon.domain.ids import Ids, SessionId
from antiphon.domain.keys import parse_key
from antiphon.domain.message import AssistantMessage, JsonValue, ToolResult
from antiphon.domain.session import Session
from antiphon.domain.session_ids import parse_session_id
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access import find_session
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.sessions import OpenSession, create_session
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Transaction

PAGE_EVENTS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ForkSession:
    principal: Principal
    target: NamedTarget
    seq: int | None
    """The last event to keep; None for all."""
    new_segment: str
    new_session_id: SessionId
    at_ms: int


class Forks:
    def __init__(self, database: Database, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids

    async def fork(self, principal: Principal, target: NamedTarget, seq: int | None) -> Session:
        """A new session with the messages up to `seq`, renumbered, at their classifications; also of an ended id.

        Raises `NotFound`, `Conflict` where `seq` lies in a pruned range or above the log.
        """
        segment = self._ids.random_hex(12)
        command = ForkSession(
            principal=principal,
            target=target,
            seq=seq,
            new_segment=segment,
            new_session_id=parse_session_id(f"api:{self._ids.random_hex(12)}"),
            at_ms=self._clock.now_ms(),
        )
        return accepted(await self._database.run(fork_session, command))


async def fork_session(tx: Transaction, command: ForkSession) -> Session | Refusal:
    found = await find_session(tx, command.principal, command.target)
    if isinstance(found, Refusal):
        return found
    source, incarnation = found.session, found.incarnation
    end = incarnation.last_seq or source.last_seq
    up_to = end if command.seq is None else command.seq
    if not max(incarnation.first_seq, source.first_seq) <= up_to <= end:
        return Refusal(
            Conflict(
                f"Event is not in the log: {up_to}. It goes from {incarnation.first_seq} to {end}.",
                code="seq_out_of_range",
            )
        )
    events = await _read_all(tx, source, incarnation, up_to)
    key = parse_key(f"agent:{source.agent_id}:fork:{command.new_segment}")
    copied = [event for event in events if event.message is not None or event.type == EventType.COMPACTED]
    session = await create_session(
        tx,
        OpenSession(
            principal=command.principal,
            target=NamedTarget(key, None),
            agent_id=source.agent_id,
            source=replace(source.source, kind="api", platform=None, trigger_id=None),
            metadata={"forkedFrom": {"sessionKey": str(source.key), "sessionId": incarnation.id, "seq": up_to}},
            new_session_id=command.new_session_id,
            at_ms=command.at_ms,
        ),
    )
    await rows.set_taint(tx, session.id, join_all([session.base, *(event.classification for event in copied)]))
    numbers = _Numbers(copied, session.last_seq + 1)
    await log.append(
        tx,
        session.row,
        session.id,
        [_renumbered(event, numbers) for event in copied],
        at_ms=command.at_ms,
        set={"description": source.description, "preview": source.preview, "description_source": "fallback"},
        add={"message_count": sum(event.message is not None for event in copied)},
    )
    forked = await rows.find_by_row(tx, session.row)
    assert forked is not None
    return forked


async def _read_all(tx: Transaction, source: Session, incarnation: rows.Incarnation, up_to: int) -> list[Event]:
    events: list[Event] = []
    after = incarnation.first_seq - 1
    while page := await log.read_incarnation_after(tx, source.row, incarnation.id, after, PAGE_EVENTS):
        events.extend(event for event in page if event.seq <= up_to)
        after = page[-1].seq
        if after >= up_to or len(page) < PAGE_EVENTS:
            break
    return events


class _Numbers:
    """Where each copied event's number went."""

    def __init__(self, events: list[Event], first: int) -> None:
        self._old = [event.seq for event in events]
        self._first = first

    def of(self, seq: int) -> int:
        """The new number of the event, or of the last copied one before it."""
        return self._first + bisect_right(self._old, seq) - 1


def _renumbered(event: Event, numbers: _Numbers) -> NewEvent:
    """The event with its references to other events' numbers brought along."""
    message, data = event.message, event.data
    match message:
        case AssistantMessage(saw=saw):
            message = replace(message, saw=numbers.of(saw))
        case ToolResult(call_seq=call_seq):
            message = replace(message, call_seq=numbers.of(call_seq))
        case _:
            pass
    if event.type == EventType.COMPACTED:
        data = {**data, **{name: numbers.of(_int(data[name])) for name in ("throughSeq", "fromSeq")}}
    return NewEvent(
        type=EventType(event.type),
        actor=event.actor,
        classification=event.classification,
        message=message,
        data=data,
        occurred_at=event.created_at,
    )


def _int(value: JsonValue) -> int:
    assert isinstance(value, int)
    return value
