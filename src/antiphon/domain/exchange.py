"""An exchange: one message from a session to another, its reply, the following turns, and the announce step.

A pure state machine. The engine passes events in and carries out the actions it returns; between two turns, only the
exchange's row exists. Contract: send 2 to 8.
"""

from datetime import datetime
from enum import StrEnum

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.ids import RunId, SessionId, SessionRow, TaskId
from antiphon.domain.run import RunStatus
from antiphon.domain.silence import is_silent


class ExchangeState(StrEnum):
    """What an exchange waits for."""

    SEALED = "sealed"
    """Its request waits to enter the target's log; the caller learns nothing more of it."""

    REQUEST = "request"
    """The target's answer to the request."""
    ANSWERED = "answered"
    """The end of the requester's run, which has the first reply as its tool's result."""
    TURN = "turn"
    """A reply-back turn: odd ones are the requester's, even ones the target's."""
    ANNOUNCE = "announce"
    """The target's text for its own channel."""
    DONE = "done"


BLIND = "blind"
"""The code of a request to a requester that the caller knows but does not see: nothing comes back."""


class Side(StrEnum):
    REQUESTER = "requester"
    TARGET = "target"


class Exchange(Struct, frozen=True, kw_only=True):
    """One row. Texts are stored as they were said; each prompt adds its own framing."""

    id: str
    origin: str
    """Identifies the call that made it; a repeated call finds it."""
    origin_run: RunId | None
    """The requester's run that called, or whose wait has brought the first reply; None for a call from outside."""
    requester: SessionRow
    requester_incarnation: SessionId
    target: SessionRow
    target_incarnation: SessionId
    principal: Principal
    """The principal that began the chain; every run of the exchange has its rights."""
    chain: str
    hops: int
    is_sandboxed: bool = False
    """Whether one of the two sessions, or a session that caused them, is sandboxed; then all of its runs are."""
    task: TaskId | None = None
    """The task that caused it, and so all of its runs."""
    request: str
    request_run: RunId
    """The target's run that answers the request."""
    stage: ExchangeState
    turn: int = 0
    """The current reply-back turn, or the last one."""
    max_turns: int
    max_chain_tokens: int
    """How many tokens the chain's runs may have used before another turn begins."""
    is_awaited: bool
    """Whether the call still waits for the first reply."""
    wait_until: datetime | None = None
    is_withheld: bool = False
    """Whether the first reply may not flow to the requester."""
    first_reply: str | None = None
    latest_reply: str | None = None
    code: str | None = None
    """Why it ended early."""

    @property
    def is_blind(self) -> bool:
        """Whether the caller learns nothing of what becomes of it. Contract: flow 4."""
        return self.code == BLIND

    def side(self, session: SessionRow) -> Side:
        return Side.TARGET if session == self.target else Side.REQUESTER


REPLY_SKIP = "REPLY_SKIP"
ANNOUNCE_SKIP = "ANNOUNCE_SKIP"


class RunEnd(Struct, frozen=True):
    """A run of the exchange has ended."""

    status: RunStatus
    reply: str
    error: str | None


class Surroundings(Struct, frozen=True, kw_only=True):
    """The facts that decide, in addition to the exchange itself."""

    is_taken: bool
    """Whether the requester's call, or another wait of it, takes the first reply as its result."""
    waiter: RunId | None = None
    """The requester's run that takes the first reply through a later wait, if that is how it is taken."""
    may_flow: bool
    """Whether the side that did not say it may read what the ended run said."""
    may_go_on: bool
    """Whether more turns may begin: both incarnations are present, and the chain has tokens left."""
    can_announce: bool
    """Whether the target has a channel other than the place of the requester's own answer."""


class ExchangeTurn(Struct, frozen=True):
    """A run of one side, with the other's words as its prompt; None if that side already has them."""

    number: int
    side: Side
    words: str | None


class RecordWords(Struct, frozen=True):
    """Words that are stored in a session's log and start no run."""

    side: Side
    words: str | None
    """None for the notice that a reply is withheld."""
    is_error: bool = False


class Announce(Struct, frozen=True):
    """A run of the target that words the text for its channel."""


Action = ExchangeTurn | RecordWords | Announce


class ExchangeTransition(Struct, frozen=True):
    """The exchange's next state, and the resulting actions, in order."""

    exchange: Exchange
    actions: tuple[Action, ...]


def on_request_ended(exchange: Exchange, ended: RunEnd, around: Surroundings) -> ExchangeTransition:
    """Handles the target's answer to the request, or its failure."""
    assert exchange.stage is ExchangeState.REQUEST
    is_awaited = exchange.is_awaited and around.is_taken
    origin_run = around.waiter or exchange.origin_run
    exchange = replace(exchange, origin_run=origin_run, is_awaited=is_awaited, is_withheld=not around.may_flow)
    if ended.status is not RunStatus.OK:
        error = None if exchange.is_withheld else ended.error or "The run failed."
        record = () if around.is_taken else (RecordWords(Side.REQUESTER, error, is_error=True),)
        return ExchangeTransition(_done(exchange, "target_failed"), record)
    exchange = replace(exchange, first_reply=ended.reply, latest_reply=ended.reply)
    if exchange.is_withheld:
        notice = () if around.is_taken else (RecordWords(Side.REQUESTER, None),)
        return _finish(exchange, notice, around)
    if is_silent(ended.reply, REPLY_SKIP):
        record = () if around.is_taken else (RecordWords(Side.REQUESTER, ended.reply),)
        return ExchangeTransition(_done(exchange, None), record)
    if around.is_taken and exchange.origin_run is not None:
        return ExchangeTransition(replace(exchange, stage=ExchangeState.ANSWERED), ())
    if around.is_taken:
        return _finish(exchange, (), around)
    return _first_turn(exchange, around, words=ended.reply)


def on_requester_ended(exchange: Exchange, around: Surroundings, *, has_result: bool) -> ExchangeTransition:
    """Handles the end of the requester's run after its call was answered: turn 1 may begin.

    If the requester has the first reply as its result already, the turn has no prompt. Otherwise the first reply is the
    prompt, if it may flow to the requester.
    """
    assert exchange.stage is ExchangeState.ANSWERED
    assert exchange.first_reply is not None
    if not has_result and not around.may_flow:
        return _finish(replace(exchange, is_withheld=True), (RecordWords(Side.REQUESTER, None),), around)
    return _first_turn(exchange, around, words=None if has_result else exchange.first_reply)


def on_turn_ended(exchange: Exchange, ended: RunEnd, around: Surroundings) -> ExchangeTransition:
    """Handles the end of a turn; the other side's turn begins, or the turns are over. Contract: send 5."""
    assert exchange.stage is ExchangeState.TURN
    if ended.status is not RunStatus.OK or is_silent(ended.reply, REPLY_SKIP):
        return _finish(exchange, (), around)
    side = _side_of(exchange.turn)
    other = _side_of(exchange.turn + 1)
    if side is Side.REQUESTER and not around.may_flow:
        # A write-down. To the target it looks like a turn that was skipped. Contract: flow 4.
        return _finish(exchange, (), around)
    exchange = replace(exchange, latest_reply=ended.reply)
    if not around.may_flow:
        return _finish(exchange, (RecordWords(Side.REQUESTER, None),), around)
    if exchange.turn >= exchange.max_turns or not around.may_go_on:
        return _finish(exchange, (RecordWords(other, ended.reply),), around)
    turn = exchange.turn + 1
    return ExchangeTransition(replace(exchange, turn=turn), (ExchangeTurn(turn, other, ended.reply),))


def on_announce_ended(exchange: Exchange, ended: RunEnd) -> tuple[Exchange, str | None]:
    """The exchange, and the text for the target's channel; None for no text. Contract: send 6."""
    assert exchange.stage is ExchangeState.ANNOUNCE
    is_spoken = ended.status is RunStatus.OK and not is_silent(ended.reply, ANNOUNCE_SKIP)
    return _done(exchange, None), ended.reply if is_spoken else None


def _first_turn(exchange: Exchange, around: Surroundings, *, words: str | None) -> ExchangeTransition:
    if exchange.max_turns > 0 and around.may_go_on:
        return ExchangeTransition(
            replace(exchange, stage=ExchangeState.TURN, turn=1), (ExchangeTurn(1, Side.REQUESTER, words),)
        )
    record = () if words is None else (RecordWords(Side.REQUESTER, words),)
    return _finish(exchange, record, around)


def _finish(exchange: Exchange, actions: tuple[Action, ...], around: Surroundings) -> ExchangeTransition:
    if around.can_announce:
        return ExchangeTransition(replace(exchange, stage=ExchangeState.ANNOUNCE), (*actions, Announce()))
    return ExchangeTransition(_done(exchange, None), actions)


def _done(exchange: Exchange, code: str | None) -> Exchange:
    return replace(exchange, stage=ExchangeState.DONE, code=code)


def _side_of(turn: int) -> Side:
    return Side.REQUESTER if turn % 2 else Side.TARGET
