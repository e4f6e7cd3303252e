"""Puts sealed requests into the logs of their targets: blind messages of children to their requesters.

Contract: flow 4.

The unit that stores a sealed request is the same whether the target exists or not. The unit here looks for the target
later, where the caller sees nothing of it.
"""

from msgspec.structs import replace

from antiphon.domain.exchange import ExchangeState
from antiphon.domain.ids import MessageId, SessionId
from antiphon.domain.message import ExchangeStage, ExchangeStep, UserMessage, text_content
from antiphon.domain.run import Purpose
from antiphon.engine.access.send_policy import may_send
from antiphon.engine.exchanges.turns import provenance_of
from antiphon.engine.ledger.append import Arrival, derived_id, made_by, words_from
from antiphon.engine.ledger.queue import queue_run
from antiphon.engine.rules import Rules
from antiphon.policy.decision import Deny
from antiphon.policy.flow import may_tell
from antiphon.store import exchanges
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction
from antiphon.store.runs import NewRun


async def open_sealed(tx: Transaction, id: str, rules: Rules) -> None:
    """Stores the request in its target's log and queues its run, if there is a target that may have it."""
    exchange = await exchanges.find(tx, id)
    if exchange is None or exchange.stage is not ExchangeState.SEALED:
        return
    await exchanges.update(tx, replace(exchange, stage=ExchangeState.DONE), tx.now_ms)
    source = await rows.find_as_in(tx, exchange.requester, exchange.requester_incarnation)
    target = await rows.find_by_row(tx, exchange.target)
    if source is None or target is None or source.parent != target.row:
        return
    if not may_tell(source.taint, target.taint) or isinstance(may_send(target, rules), Deny):
        return
    message = UserMessage(
        message_id=MessageId(derived_id("msg", tx.now_ms, exchange.id)),
        content=text_content(exchange.request),
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
        is_sandboxed=exchange.is_sandboxed or rules.are_sandboxed(target),
        task=exchange.task,
        cause=exchange.origin_run,
    )
    words = words_from(source, message, Arrival.POSTED, classification=made_by(source))
    await queue_run(tx, target, words, run)
