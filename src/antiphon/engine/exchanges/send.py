"""Sends messages to other sessions, and waits for the reply of the very run that answers.

Contract: send 1 to 8, answers 2, flow 4.
"""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import NamedTuple

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock, time_left
from antiphon.domain.classification import PUBLIC, Classification, Integrity
from antiphon.domain.errors import REFUSALS, Conflict, Denied, Invalid, NotFound, TooLarge, Unavailable
from antiphon.domain.exchange import BLIND, REPLY_SKIP, Exchange, ExchangeState
from antiphon.domain.ids import AgentId, MessageId, RunId, SessionId, SessionRow
from antiphon.domain.invisible import is_blank
from antiphon.domain.message import ExchangeStage, ExchangeStep, UserMessage, text_content
from antiphon.domain.run import Purpose, Run, RunStatus
from antiphon.domain.session import Session
from antiphon.domain.silence import is_silent
from antiphon.domain.targets import NamedTarget, RelativeTarget, Target
from antiphon.engine.access.allowances import refuse_run
from antiphon.engine.access.caller import Caller, context_of, find_origin, hold_outside, refuse_called_off
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.access.mains import NewMain, new_main
from antiphon.engine.access.reach import NOBODY, Rights, find_by_label, find_reach, find_target
from antiphon.engine.access.releases import decide_released
from antiphon.engine.access.send_policy import may_send
from antiphon.engine.exchanges.turns import Sides, provenance_of
from antiphon.engine.ledger.append import Arrival, words_from
from antiphon.engine.ledger.cycles import waits_for
from antiphon.engine.ledger.queue import new_run_id, queue_run
from antiphon.engine.ledger.waits import LONGEST_WAIT, Waits
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.flow import decide_write, is_held, is_public, is_write_down
from antiphon.policy.standing import Standing
from antiphon.store import exchanges as rows_of_exchanges
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.codec import milliseconds
from antiphon.store.database import Database, Named, Query, SqlValue, Transaction
from antiphon.store.people import find_standing
from antiphon.store.runs import NewRun
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

LEAVING_SECONDS = 10.0
"""How long it may take to store that a caller has left."""
MAX_MESSAGE_BYTES = 1024 * 1024


class Address(Struct, frozen=True, kw_only=True):
    """The recipient of a message: a session by its target or by its label."""

    target: Target | None = None
    label: str | None = None
    agent_id: AgentId | None = None
    """The agent of the labelled session; None for any."""
    name: str
    """As the caller wrote it."""


OpenMain = Callable[[Transaction, NewMain], Awaitable[Session]]
"""Opens an agent's main session, in the unit that decided that."""


class SendMessage(Struct, frozen=True, kw_only=True):
    caller: Caller
    address: Address
    text: str
    timeout: timedelta
    open_main: OpenMain


class SendAnswer(Struct, frozen=True, kw_only=True):
    """The result of a send."""

    run_id: RunId
    status: str
    """`accepted | ok | timeout | error`."""
    reply: str | None = None
    is_withheld: bool = False
    code: str | None = None
    error: str | None = None
    note: str | None = None
    integrity: Integrity = Integrity.TRUSTED
    """Of the target's words in it."""


class Sent(Struct, frozen=True):
    exchange: Exchange
    is_cyclic: bool = False
    """Whether waiting would never end, because the target waits for the caller."""
    is_repeated: bool = False
    """Whether the same call had sent it before."""


class Exchanges:
    """Messages from session to session."""

    def __init__(self, database: Database, waits: Waits, rules: Rules, *, open_main: OpenMain, clock: Clock) -> None:
        self._database = database
        self._waits = waits
        self._rules = rules
        self._open_main = open_main
        self._clock = clock
        means = "A reply to somebody who has left is shown only to a repetition of their call."
        self._leaving = Trouble(logger, "Giving up a wait", action="wait_left", means=means)

    async def send(self, caller: Caller, address: Address, text: str, timeout: timedelta) -> SendAnswer:
        """Stores the message in the target's log and queues its run; then waits up to `timeout` for the reply.

        An agent's main session that nobody has opened yet is opened for it, by the rights with which a post opens it.
        Repeating the same call rejoins what the first call began. Raises `NotFound` for a target that the caller may
        not see, `Denied` (`write_down`, `send_denied`, `chain_too_long`, `chain_too_costly`), `Invalid` (`self_send`,
        `ambiguous_label`, `empty_message`). A message to a requester that the caller's session does not see any more is
        `accepted`, and nothing comes back. Contract: flow 4.
        """
        command = self._command(caller, address, text, timeout)
        sides = (caller.session, await self._locked(command))
        sent = await self._database.run(send_message, command, self._rules, sessions=sides)
        if sent.is_repeated:
            return await self._rejoin(caller, sent.exchange, text)
        if sent.is_cyclic:
            return SendAnswer(
                run_id=sent.exchange.request_run,
                status="accepted",
                note="The target waits for this session, directly or through others; its reply comes later.",
            )
        return await self._wait(caller, sent.exchange)

    async def foresee(self, caller: Caller, address: Address, text: str, timeout: timedelta) -> ForeseenCall:
        """The session that would get the message, and whether it may have it. Raises as `send` does if there is none.

        Of a requester that the caller's session does not see any more, it says nothing.
        """
        return await self._database.read(foresee_send, self._command(caller, address, text, timeout), self._rules)

    def _command(self, caller: Caller, address: Address, text: str, timeout: timedelta) -> SendMessage:
        _check_text(text)
        return SendMessage(caller=caller, address=address, text=text, timeout=timeout, open_main=self._open_main)

    async def _locked(self, command: SendMessage) -> Named:
        """The second session, which the unit must name beforehand; looks up labels and relations for that."""
        target = command.address.target
        if isinstance(target, NamedTarget):
            return target
        found = await self._database.read(_resolve, command, self._rules)
        return found.target.row if isinstance(found, Sides) else command.caller.session

    async def _rejoin(self, caller: Caller, exchange: Exchange, text: str) -> SendAnswer:
        if exchange.request != text:
            raise Conflict(
                "Idempotency-Key was used for another message. Use a new one.", code="idempotency_key_reused"
            )
        if caller.run is not None and exchange.is_awaited and exchange.stage is ExchangeState.REQUEST:
            await caller.run.note_waiting(exchange.request_run, self._left(exchange))
        if caller.run is None and not exchange.is_awaited and self._left(exchange):
            sides = (SessionRow(exchange.requester), SessionRow(exchange.target))
            exchange = await self._database.run(wait_again, exchange, sessions=sides)
        return await self._wait(caller, exchange)

    def _left(self, exchange: Exchange) -> timedelta:
        until = exchange.wait_until
        return timedelta(0) if until is None else time_left(until, self._clock.now(), LONGEST_WAIT)

    async def _wait(self, caller: Caller, exchange: Exchange) -> SendAnswer:
        if not exchange.is_awaited and exchange.wait_until is None:
            return SendAnswer(run_id=exchange.request_run, status="accepted")
        left = self._left(exchange)
        if left:
            try:
                if caller.run is None:
                    await self._wait_outside(exchange, left)
                else:
                    await caller.run.wait_released(exchange.request_run, left, SessionRow(exchange.target))
            except NotFound:
                return _gone(exchange)
        answer = await self._database.read(_find_answer, exchange)
        if answer is None:
            sides = (SessionRow(exchange.requester), SessionRow(exchange.target))
            answer = await self._database.run(give_up, exchange, sessions=sides)
        return answer

    async def _wait_outside(self, exchange: Exchange, timeout: timedelta) -> None:
        """Waits for a call from outside; if its caller leaves, the reply arrives by itself."""
        is_over = False
        try:
            await self._waits.wait(exchange.request_run, timeout, SessionRow(exchange.target))
            is_over = True
        finally:
            if not is_over:
                await self._leave(exchange)

    async def _leave(self, exchange: Exchange) -> None:
        sides = (SessionRow(exchange.requester), SessionRow(exchange.target))
        with anyio.move_on_after(LEAVING_SECONDS, shield=True):
            try:
                await self._database.run(give_up, exchange, sessions=sides)
            except Unavailable as error:
                self._leaving.failed(error)
            else:
                self._leaving.worked()


def _check_text(text: str) -> None:
    if is_blank(text):
        raise Invalid("Message is empty. Write some text.", code="empty_message")
    size = len(text.encode())
    if size > MAX_MESSAGE_BYTES:
        raise TooLarge(
            f"Message is too large: {size} bytes, at most {MAX_MESSAGE_BYTES}. Send a part, or say where to find it.",
            code="message_too_large",
        )


class _Unseen(Struct, frozen=True):
    """The caller's requester, which has risen above the caller and may have been deleted since."""

    source: Session
    """The caller's own session."""
    requester: SessionRow


async def _resolve(query: Query, command: SendMessage, rules: Rules, main: NewMain | None = None) -> Sides | _Unseen:
    """The caller's session and the one that it names, if that is within reach or its requester.

    `main` is what it names, if that is a main session; the target, as it will be, if it does not exist yet.
    """
    reach = await find_reach(query, Rights(command.caller, rules), Act.SEND)
    address = command.address
    assert reach.viewer is not None
    own = reach.viewer.session
    try:
        if address.target is not None:
            new = None if main is None else main.session_at(query.now)
            found = await find_target(query, reach, address.target, address.name, new=new)
        else:
            assert address.label is not None
            found = await find_by_label(query, reach, address.label, address.agent_id)
    except REFUSALS:
        if own.parent is not None and _names_requester(address, own):
            return _Unseen(own, own.parent)
        raise
    return Sides(own, found.session)


def _names_requester(address: Address, own: Session) -> bool:
    """By its key or as `parent`. Its session id and its label name only what the caller sees."""
    match address.target:
        case RelativeTarget.PARENT:
            return True
        case NamedTarget(key=key) if key is not None:
            return str(key) == own.parent_key
        case _:
            return False


async def send_message(tx: Transaction, command: SendMessage, rules: Rules) -> Sent:
    """Stores message, run and exchange in one unit, after every check. Contract: send 2 to 7."""
    caller = await hold_outside(tx, command.caller)
    origin = await find_origin(tx, caller)
    if made := await rows_of_exchanges.find_by_origin(tx, caller.call_id):
        return Sent(made, is_repeated=True)
    refuse_called_off(origin)
    standing = await find_standing(tx, caller.principal)
    judged = await _judge(tx, command, standing, rules)
    if isinstance(denied := judged.decision, Deny):
        raise Denied(denied.reason, code=denied.rule)
    main, sides = judged.main, judged.sides
    id = tx.new_id("xch")
    chain, hops = _chain_of(origin, id)
    await _refuse_chain(tx, chain, hops, rules)
    await refuse_run(tx, standing, rules.shares)
    # The caller's own principal may have been merged since its run began.
    command = replace(command, caller=replace(caller, principal=standing.principal))
    if isinstance(sides, _Unseen):
        return await _send_sealed(tx, sides, command, origin=origin, rules=rules)
    if main is not None and sides.target.row == NOBODY:
        sides = Sides(sides.requester, await command.open_main(tx, main))
    source, target = sides.requester, sides.target
    is_cyclic = bool(command.timeout) and origin is not None and await waits_for(tx, target.row, source.row)
    exchange = Exchange(
        id=id,
        origin=caller.call_id,
        origin_run=None if origin is None else origin.id,
        requester=source.row,
        requester_incarnation=SessionId(source.id),
        target=target.row,
        target_incarnation=SessionId(target.id),
        principal=standing.principal,
        chain=chain,
        hops=hops,
        is_sandboxed=caller.is_sandboxed or rules.are_sandboxed(source, target),
        task=caller.task,
        request=command.text,
        request_run=new_run_id(tx),
        stage=ExchangeState.REQUEST,
        max_turns=rules.exchanges.max_turns if origin is not None else 0,
        max_chain_tokens=rules.exchanges.max_chain_tokens,
        is_awaited=bool(command.timeout) and not is_cyclic,
        wait_until=tx.now + command.timeout if command.timeout and not is_cyclic else None,
    )
    await _store(tx, exchange, sides, command, made_of=judged.made_of)
    if origin is not None:
        await _mark_origin(tx, origin, exchange)
    return Sent(exchange, is_cyclic)


async def _send_sealed(
    tx: Transaction, unseen: _Unseen, command: SendMessage, *, origin: Run | None, rules: Rules
) -> Sent:
    """Stores the request without looking for its target; `sealed` puts it into the log. Contract: flow 4.

    The caller could otherwise tell from what this unit does whether its requester still exists.
    """
    caller, source = command.caller, unseen.source
    id = tx.new_id("xch")
    chain, hops = _chain_of(origin, id)
    exchange = Exchange(
        id=id,
        origin=caller.call_id,
        origin_run=None if origin is None else origin.id,
        requester=source.row,
        requester_incarnation=SessionId(source.id),
        target=unseen.requester,
        target_incarnation=SessionId(""),
        principal=caller.principal,
        chain=chain,
        hops=hops,
        is_sandboxed=caller.is_sandboxed or rules.are_sandboxed(source),
        task=caller.task,
        request=command.text,
        request_run=new_run_id(tx),
        stage=ExchangeState.SEALED,
        max_turns=0,
        max_chain_tokens=rules.exchanges.max_chain_tokens,
        is_awaited=False,
        code=BLIND,
    )
    await rows_of_exchanges.insert(tx, exchange, tx.now_ms)
    if origin is not None:
        await _mark_origin(tx, origin, exchange)
    tx.wake(rows_of_exchanges.SEALED)
    return Sent(exchange)


class _ToSession(NamedTuple):
    """The sessions of a message, and whether it may go from one to the other."""

    sides: Sides | _Unseen
    main: NewMain | None
    """The main session that the address names, which may not exist yet."""
    decision: Decision
    made_of: Classification = PUBLIC
    """What the target gets: the caller's context, or what an owner has let go of it."""


async def foresee_send(query: Query, command: SendMessage, rules: Rules) -> ForeseenCall:
    judged = await _judge(query, command, await find_standing(query, command.caller.principal), rules)
    if not isinstance(judged.sides, Sides):
        return ForeseenCall(None, judged.decision)
    target = judged.sides.target
    is_open = not isinstance(may_send(target, rules), Deny)
    return ForeseenCall(target, judged.decision, command.text if is_open else None, judged.made_of)


async def _judge(query: Query, command: SendMessage, standing: Standing, rules: Rules) -> _ToSession:
    """Finds the target and decides. Raises `NotFound`, `Invalid` (`self_send`, `ambiguous_label`)."""
    main = new_main(command.address.target, standing, rules)
    sides = await _resolve(query, command, rules, main)
    if not isinstance(sides, Sides):
        return _ToSession(sides, main, ALLOW)
    if sides.target.row == sides.requester.row:
        raise Invalid("Session cannot send to itself. Write it in the reply.", code="self_send")
    context, release = context_of(command.caller, sides.requester), command.caller.release
    decision = _decide(sides.target, context, rules)
    if release is None or not is_write_down(decision):
        return _ToSession(sides, main, decision, context)
    call = ForeseenCall(sides.target, decision, command.text, context)
    decision, context = await decide_released(query, call, release, rules), context.released(sides.target.taint)
    return _ToSession(
        sides, main, decision if isinstance(decision, Deny) else _decide(sides.target, context, rules), context
    )


def _decide(target: Session, context: Classification, rules: Rules) -> Decision:
    name = repr(str(target.key))
    if isinstance(denied := decide_write(context, target.taint), Deny):
        return Deny(denied.rule, f"Message may not be sent to {name}: {denied.reason}")
    if isinstance(denied := may_send(target, rules), Deny):
        return Deny("send_denied", f"Message may not be sent to {name}: {denied.reason}")
    return ALLOW


def _chain_of(origin: Run | None, exchange: str) -> tuple[str, int]:
    if origin is None:
        return exchange, 1
    return origin.chain or origin.id, origin.hops + 1


async def _refuse_chain(query: Query, chain: str, hops: int, rules: Rules) -> None:
    limits = rules.exchanges
    spent = await ledger.spent_in_chain(query, chain)
    if hops > limits.max_hops:
        raise Denied(
            f"Message exceeds the limit: one request may cause {limits.max_hops} sends in a row. "
            "Answer instead; the owner can raise session.agentToAgent.maxHops.",
            code="chain_too_long",
        )
    if spent > limits.max_chain_tokens:
        raise Denied(
            f"Message exceeds the limit: the sends of one request may use {limits.max_chain_tokens} tokens. "
            "Answer instead; the owner can raise session.agentToAgent.maxChainTokens.",
            code="chain_too_costly",
        )


async def _store(
    tx: Transaction, exchange: Exchange, sides: Sides, command: SendMessage, *, made_of: Classification
) -> None:
    source, target = sides.requester, sides.target
    message = UserMessage(
        message_id=MessageId(tx.new_id("msg")),
        content=text_content(command.text),
        provenance=provenance_of(source),
        exchange=ExchangeStep(id=exchange.id, stage=ExchangeStage.REQUEST),
    )
    run = NewRun(
        id=exchange.request_run,
        purpose=Purpose.REQUEST,
        incarnation=SessionId(target.id),
        agent_id=target.agent_id,
        principal=exchange.principal,
        exchange=exchange.id,
        partner=source.row,
        chain=exchange.chain,
        hops=exchange.hops,
        is_sandboxed=exchange.is_sandboxed,
        task=exchange.task,
        cause=exchange.origin_run,
    )
    await queue_run(
        tx,
        target,
        words_from(source, message, Arrival.POSTED, classification=made_of),
        run,
    )
    await rows_of_exchanges.insert(tx, exchange, tx.now_ms)


async def _mark_origin(tx: Transaction, origin: Run, exchange: Exchange) -> None:
    """Records in the requester's run that it has sent, the chain it began, and the run it waits for."""
    columns: dict[str, SqlValue] = {"has_sent": 1, "chain": exchange.chain}
    if exchange.wait_until is not None:
        columns["waiting_for"] = exchange.request_run
        columns["wait_until"] = milliseconds(exchange.wait_until)
    await ledger.change(tx, origin.id, columns)


async def _find_answer(query: Query, exchange: Exchange) -> SendAnswer | None:
    """The answer of the request's run; None until it has ended."""
    current = await rows_of_exchanges.find(query, exchange.id)
    run = (await ledger.find_ends(query, [exchange.request_run])).get(exchange.request_run)
    if current is None or run is None:
        return _gone(exchange)
    if not run.is_over:
        return None
    if not is_public(run.made_of):
        # Since the run ended, the caller's session may have been reset, and no longer holds what it held.
        requester = await rows.find_by_row(query, exchange.requester)
        if requester is None or not is_held(run.made_of, requester.taint):
            current = replace(current, is_withheld=True)
    return _answer(current, run)


async def give_up(tx: Transaction, exchange: Exchange) -> SendAnswer:
    """Ends the wait for the first reply, which then arrives by itself. Returns the reply if it has just come."""
    answer = await _find_answer(tx, exchange)
    if answer is not None:
        return answer
    current = await rows_of_exchanges.find(tx, exchange.id)
    assert current is not None
    await rows_of_exchanges.update(tx, replace(current, is_awaited=False), tx.now_ms)
    if current.origin_run is not None:
        await ledger.change(tx, current.origin_run, {"waiting_for": None})  # a later wait may take the reply
    return SendAnswer(
        run_id=exchange.request_run,
        status="timeout",
        code="timeout",
        error="No reply in time. The message was delivered and the run goes on; this session gets the reply later.",
    )


async def wait_again(tx: Transaction, exchange: Exchange) -> Exchange:
    """A caller from outside has come back for the first reply, which has not come yet."""
    current = await rows_of_exchanges.find(tx, exchange.id)
    if current is None or current.stage is not ExchangeState.REQUEST:
        return exchange
    current = replace(current, is_awaited=True)
    await rows_of_exchanges.update(tx, current, tx.now_ms)
    return current


def _answer(exchange: Exchange, run: Run) -> SendAnswer:
    if exchange.is_withheld and (exchange.is_awaited or run.status is not RunStatus.OK):
        return SendAnswer(run_id=run.id, status="ok", is_withheld=True)  # also that it failed says what it holds
    if run.status is not RunStatus.OK:
        return SendAnswer(
            run_id=run.id,
            status="error",
            code=run.code or "run_failed",
            error=run.error or "The target's run failed.",
            integrity=run.made_of.integrity,
        )
    if not exchange.is_awaited:  # it was given up before the reply came
        return SendAnswer(
            run_id=run.id, status="timeout", code="timeout", error="The reply came late and was added to this session."
        )
    return SendAnswer(run_id=run.id, status="ok", reply=spoken_reply(run.reply or ""), integrity=run.made_of.integrity)


def spoken_reply(reply: str) -> str:
    """The reply; empty if the target stays silent. Contract: send 3."""
    return "" if is_silent(reply, REPLY_SKIP) else reply


def _gone(exchange: Exchange) -> SendAnswer:
    return SendAnswer(
        run_id=exchange.request_run,
        status="error",
        code="session_deleted",
        error="The target session was deleted before it replied.",
    )
