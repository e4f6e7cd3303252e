"""Advances exchanges when a run ends, in the transaction that ends it. Contract: send 3 to 8.

`domain/exchange` decides the next step. This module carries it out: it appends to the other side's log and queues
its run.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.classification import EVERYTHING, PUBLIC, Classification
from antiphon.domain.exchange import (
    Action,
    Announce,
    Exchange,
    ExchangeState,
    ExchangeTransition,
    ExchangeTurn,
    RecordWords,
    RunEnd,
    Side,
    Surroundings,
    on_announce_ended,
    on_request_ended,
    on_requester_ended,
    on_turn_ended,
)
from antiphon.domain.ids import MessageId, RunId, SessionId
from antiphon.domain.message import (
    ExchangeStage,
    ExchangeStep,
    Part,
    Provenance,
    ProvenanceKind,
    TextPart,
    UserMessage,
    text_content,
)
from antiphon.domain.run import PlaceGot, Purpose, Run, RunStatus
from antiphon.domain.session import DeliveryContext, Session
from antiphon.engine.access.facts import Acting, facts_of
from antiphon.engine.deliveries import outbox
from antiphon.engine.deliveries.outbox import ExitCheck, Outgoing
from antiphon.engine.deliveries.refused import send_or_ask
from antiphon.engine.ledger.append import append_words, derived_id, made_by, words_from
from antiphon.engine.ledger.queue import queue_run
from antiphon.engine.rules import Rules
from antiphon.policy.flow import may_tell
from antiphon.policy.written.fields import Action as RuleAction
from antiphon.policy.written.fields import Hook
from antiphon.store import exchanges as rows_of_exchanges
from antiphon.store import incarnations
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.codec import moment
from antiphon.store.database import Query, Transaction
from antiphon.store.people import find_standing
from antiphon.store.runs import NewRun

SOURCE_TOOL = "sessions_send"
_PURPOSES = {ExchangeStage.TURN: Purpose.EXCHANGE_TURN, ExchangeStage.ANNOUNCE: Purpose.EXCHANGE_ANNOUNCE}
_DELETED = RunEnd(RunStatus.ERROR, "", "The session was deleted.")
WITHHELD = (
    "[A reply is waiting that this session may not read: it is classified higher. If it is the first, sessions_wait "
    "with the runId of the send and accept returns it if this session may hold it.]"
)


async def follow_run(tx: Transaction, run: Run, open_calls: Collection[str], *, check: ExitCheck | None = None) -> None:
    """Advances the exchange that the ended run belongs to, and those whose requests it sent.

    `open_calls` names the run's calls whose results were never stored. With `check`, a text for a channel is checked
    now, too.
    """
    if run.exchange is not None:
        await _advance(tx, run, run.exchange, check=check)
    if run.has_sent:
        answered = await rows_of_exchanges.list_answered(tx, run.id)
        _hold_sides(tx, answered)
        for exchange in answered:
            sides = await _find_sides(tx, exchange)
            if sides is None:
                continue
            call = exchange.origin if exchange.is_awaited else run.wait_call  # a wait has brought what a send did not
            has_result = call not in open_calls
            said = Said(Side.TARGET, PUBLIC if has_result else await _first_reply_made_of(tx, exchange))
            around = await _look_around(tx, exchange, sides, said)
            step = on_requester_ended(exchange, around, has_result=has_result)
            await _carry_out(tx, step, sides, said)


async def fail_requests_to(tx: Transaction, target: Session) -> None:
    """Records in the logs of requesters that do not wait that the target is about to be deleted.

    A requester that it has risen above does not learn that it is gone. Contract: sessions 7, flow 4.
    """
    unanswered = await rows_of_exchanges.list_unanswered(tx, target.row)
    _hold_sides(tx, unanswered)
    for exchange in unanswered:
        sides = await _find_sides(tx, exchange)
        if sides is None:
            continue
        around = await _look_around(tx, exchange, sides, Said(Side.TARGET, target.taint))
        if around.may_flow:
            fixed = Said(Side.TARGET, PUBLIC)
            await _carry_out(tx, on_request_ended(exchange, _DELETED, around), sides, fixed)


async def _first_reply_made_of(query: Query, exchange: Exchange) -> Classification:
    run = (await ledger.find_ends(query, [exchange.request_run])).get(exchange.request_run)
    return EVERYTHING if run is None else run.made_of


class Said(Struct, frozen=True):
    """What a side said last, as far as it decides where it may go."""

    side: Side
    made_of: Classification
    """The context of the run that said it."""
    is_reset: bool = False
    """Whether its conversation is ending in this unit: nothing of it goes on."""


class Sides(Struct, frozen=True):
    """Both sessions of an exchange, as they are now."""

    requester: Session
    target: Session

    def of(self, side: Side) -> Session:
        return self.target if side is Side.TARGET else self.requester

    def other(self, side: Side) -> Session:
        return self.requester if side is Side.TARGET else self.target


def _hold_sides(tx: Transaction, exchanges: Sequence[Exchange]) -> None:
    tx.hold(*(side for exchange in exchanges for side in (exchange.requester, exchange.target)))


async def _find_sides(tx: Transaction, exchange: Exchange) -> Sides | None:
    _hold_sides(tx, [exchange])
    requester = await rows.find_by_row(tx, exchange.requester)
    target = await rows.find_by_row(tx, exchange.target)
    return None if requester is None or target is None else Sides(requester, target)


async def _advance(tx: Transaction, run: Run, exchange_id: str, *, check: ExitCheck | None) -> None:
    exchange = await rows_of_exchanges.find(tx, exchange_id)
    if exchange is None or exchange.stage is ExchangeState.DONE:
        return
    sides = await _find_sides(tx, exchange)
    if sides is None:
        return
    ended = RunEnd(run.status, run.reply or "", run.error)
    said = Said(exchange.side(run.session), run.made_of, is_reset=run.code == "reset")
    rules, turned = None if check is None else check.rules, _Turned(exchange, sides, said)
    match exchange.stage:
        case ExchangeState.REQUEST:
            around = await _ruled(tx, await _look_around(tx, exchange, sides, said), turned, rules)
            around = await _let_waiter_take(tx, exchange, sides.requester, around)
            step = on_request_ended(exchange, ended, around)
        case ExchangeState.TURN:
            around = await _ruled(tx, await _look_around(tx, exchange, sides, said), turned, rules)
            step = on_turn_ended(exchange, ended, around)
        case _:
            done, announcement = on_announce_ended(exchange, ended)
            await rows_of_exchanges.update(tx, done, tx.now_ms)
            await _announce(tx, run, announcement, sides.target.delivery, check=check)
            return
    await _carry_out(tx, step, sides, said)


async def _announce(
    tx: Transaction, run: Run, text: str | None, place: DeliveryContext, *, check: ExitCheck | None
) -> None:
    """Queues the text about the exchange. If the turn failed, nobody at the place has asked for one."""
    got = PlaceGot.MARKER if run.status is RunStatus.OK else PlaceGot.WITHDRAWN
    if text is not None:
        outgoing = Outgoing(text=text, made_of=run.made_of, check=check)
        queued = await send_or_ask(tx, run, place, outgoing)
        got = got if queued is None else queued.got
    if place.is_outside:
        await ledger.change(tx, run.id, {"place_got": got.value})


async def _look_around(query: Query, exchange: Exchange, sides: Sides, said: Said) -> Surroundings:
    requester, target = sides.requester, sides.target
    gone = said.side if said.is_reset else None
    has_requester = requester.id == exchange.requester_incarnation and gone is not Side.REQUESTER
    has_target = target.id == exchange.target_incarnation and gone is not Side.TARGET
    spent = await ledger.spent_in_chain(query, exchange.chain)
    origin = None if exchange.origin_run is None else await ledger.find(query, exchange.origin_run)
    place = target.delivery
    own_place = requester.delivery if origin is None or origin.place is None else origin.place
    return Surroundings(
        is_taken=exchange.is_awaited and _is_waiting(exchange, origin, query.now_ms),
        may_flow=may_tell(said.made_of, await _clearance_of_other(query, exchange, sides, said.side)),
        may_go_on=has_requester and has_target and spent < exchange.max_chain_tokens,
        can_announce=has_target and outbox.is_external(place) and place != own_place,
    )


class _Turned(NamedTuple):
    """What a further turn would follow."""

    exchange: Exchange
    sides: Sides
    said: Said


async def _ruled(query: Query, around: Surroundings, turned: _Turned, rules: Rules | None) -> Surroundings:
    """The same; no further turn begins if written rules block it. Contract: flow 9."""
    if rules is None or not around.may_go_on or not rules.written.asks(Hook.AGENT_INVOCATION):
        return around
    exchange, sides, said = turned
    speaker, other = sides.of(said.side), sides.other(said.side)
    acting = Acting(speaker, await find_standing(query, exchange.principal), said.made_of, moment(query.now_ms))
    facts = facts_of(acting, rules) | {"act": "turn", "target.agent": other.agent_id}
    is_blocked = rules.written.decide(Hook.AGENT_INVOCATION, facts).action in (
        RuleAction.BLOCK,
        RuleAction.APPROVE,
    )
    return replace(around, may_go_on=not is_blocked)


async def _let_waiter_take(
    tx: Transaction, exchange: Exchange, requester: Session, around: Surroundings
) -> Surroundings:
    """A run of the requester that waits for the answer takes it, if the call that sent the request does not."""
    if around.is_taken:
        return around
    active = await ledger.find_active(tx, requester.row)
    if active is None or active.session_id != exchange.requester_incarnation:
        return around
    if exchange.request_run not in active.waiting_for:
        return around
    await ledger.change(tx, active.id, {"has_sent": 1})
    return replace(around, is_taken=True, waiter=active.id)


async def _clearance_of_other(query: Query, exchange: Exchange, sides: Sides, side: Side) -> Classification:
    """What the other side's incarnation in the exchange may have: late words go there even after a reset."""
    other = sides.other(side)
    incarnation = exchange.requester_incarnation if side is Side.TARGET else exchange.target_incarnation
    if other.id == incarnation:
        return other.taint
    ended = await incarnations.find(query, incarnation)
    return PUBLIC if ended is None else ended.taint


def _is_waiting(exchange: Exchange, origin: Run | None, at_ms: int) -> bool:
    if exchange.origin_run is None:
        return exchange.wait_until is not None and moment(at_ms) <= exchange.wait_until
    return origin is not None and origin.status.is_active


class _Text(Struct, frozen=True, kw_only=True):
    """A text of an exchange, for one of its sides."""

    exchange: Exchange
    side: Side
    step: ExchangeStep
    content: tuple[Part, ...]
    made_of: Classification


async def _carry_out(tx: Transaction, transition: ExchangeTransition, sides: Sides, said: Said) -> None:
    exchange = transition.exchange
    await rows_of_exchanges.update(tx, exchange, tx.now_ms)
    for action in transition.actions:
        text = _text_from_action(exchange, action, sides, said)
        if isinstance(action, RecordWords):
            await _record(tx, text, sides)
        else:
            await _queue(tx, text, sides)


def _text_from_action(exchange: Exchange, action: Action, sides: Sides, said: Said) -> _Text:
    """The text, made of what was said; one that repeats nothing of it was made of nothing secret."""
    made_of = said.made_of
    match action:
        case ExchangeTurn(number, side, words):
            content = text_content(words) if words else ()
            made_of = made_of if words else PUBLIC
            step = ExchangeStep(
                id=exchange.id,
                stage=ExchangeStage.TURN,
                turn=number,
                of=exchange.max_turns,
                asked_by=exchange.origin_run,
            )
        case Announce():
            texts = (exchange.request, exchange.first_reply or "", exchange.latest_reply or "")
            content, side = tuple(TextPart(text=text) for text in texts), Side.TARGET
            made_of = made_by(sides.target)  # which holds all these texts
            step = ExchangeStep(id=exchange.id, stage=ExchangeStage.ANNOUNCE)
        case RecordWords(side, words, is_error):
            text = WITHHELD if words is None else f"The request failed: {words}" if is_error else words
            content = text_content(text)
            made_of = PUBLIC if words is None else made_of
            step = ExchangeStep(id=exchange.id, stage=ExchangeStage.RECORD)
    return _Text(exchange=exchange, side=side, step=step, content=content, made_of=made_of)


async def _record(tx: Transaction, text: _Text, sides: Sides) -> None:
    """Stores the text without a run, in the incarnation that began the exchange."""
    exchange, side = text.exchange, text.side
    incarnation = exchange.target_incarnation if side is Side.TARGET else exchange.requester_incarnation
    words = words_from(
        sides.other(side),
        _message(text, sides, tx.now_ms),
        classification=text.made_of,
        incarnation=incarnation,
    )
    await append_words(tx, sides.of(side), words)


async def _queue(tx: Transaction, text: _Text, sides: Sides) -> None:
    """Queues the prompt of a turn and the run that answers it."""
    exchange, step = text.exchange, text.step
    session, other = sides.of(text.side), sides.other(text.side)
    run = NewRun(
        id=RunId(derived_id("run", tx.now_ms, exchange.id, step.stage.value, str(step.turn))),
        purpose=_PURPOSES[step.stage],
        incarnation=SessionId(session.id),
        agent_id=session.agent_id,
        principal=exchange.principal,
        exchange=exchange.id,
        partner=other.row,
        chain=exchange.chain,
        hops=exchange.hops,
        is_sandboxed=exchange.is_sandboxed,
        task=exchange.task,
        cause=exchange.origin_run or exchange.request_run,
    )
    words = words_from(other, _message(text, sides, tx.now_ms), classification=text.made_of)
    await queue_run(tx, session, words, run)


def _message(text: _Text, sides: Sides, at_ms: int) -> UserMessage:
    exchange, side, step = text.exchange, text.side, text.step
    return UserMessage(
        message_id=MessageId(derived_id("msg", at_ms, exchange.id, side.value, step.stage.value, str(step.turn))),
        content=text.content,
        provenance=provenance_of(sides.other(side)),
        exchange=step,
    )


def provenance_of(source: Session) -> Provenance:
    """Marks a text as coming from another session. Contract: send 4, events 2."""
    return Provenance(
        kind=ProvenanceKind.INTER_SESSION,
        source_session_key=str(source.key),
        source_channel=source.delivery.channel or source.key.channel,
        source_tool=SOURCE_TOOL,
    )
