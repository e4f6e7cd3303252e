"""Resetting: the same key, a new incarnation. Contract: sessions 6."""

from msgspec.structs import replace

from antiphon.domain.actor import SYSTEM, Principal
from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.errors import Denied
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import SessionId
from antiphon.domain.keys import SessionKind
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.session import Session
from antiphon.domain.session_ids import next_session_id
from antiphon.domain.targets import NamedTarget
from antiphon.engine.access.ceilings import find_place_clearance
from antiphon.engine.access.facts import Acting, facts_of
from antiphon.engine.access.places import rules_of
from antiphon.engine.access.reach import Rights, find_session
from antiphon.engine.access.recipients import account_of
from antiphon.engine.approvals.answering import withdraw_all
from antiphon.engine.checkpoints.queue import queue_checkpoint
from antiphon.engine.ledger.append import append_events, keep_taint
from antiphon.engine.rules import ResetRule, Rules
from antiphon.engine.runs.ends import call_off, end_parked_run, end_queued_run
from antiphon.engine.sessions.sessions import base_columns, data_of_group_at
from antiphon.policy.acts import Act
from antiphon.policy.chats import ChatData
from antiphon.policy.decision import ALLOW, Decision, Deny
from antiphon.policy.flow import may_hold
from antiphon.policy.rights import may_clear, may_reset
from antiphon.policy.shown import shown_session
from antiphon.policy.written.fields import RULE, Action, Hook
from antiphon.store import incarnations, quarantine, runner_states, spawns
from antiphon.store import runs as ledger
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query, SqlValue, Transaction
from antiphon.store.events import Addition
from antiphon.store.people import find_standing
from antiphon.store.sessions import SessionHead


class Resets:
    """Resets by people. Resets by configured policy happen when a message arrives."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def reset(self, principal: Principal, target: NamedTarget) -> Session:
        """The session in its new incarnation. Ends its queued runs and cancels its active one."""
        return await self._database.run(reset_session, Rights(principal, self._rules), target, sessions=(target,))


async def reset_session(tx: Transaction, rights: Rights, target: NamedTarget) -> Session:
    found = await find_session(tx, rights, Act.CHANGE, target)
    standing = await find_standing(tx, rights.principal)
    if not may_reset(standing, found.session.source.type):
        raise Denied("Only owners may reset a session of a group", code="forbidden")
    await refuse_reset(tx, found.session, rights.rules, actor=standing.principal, reason="reset")
    renewed = await begin_anew(tx, found.session, rights.rules, actor=standing.principal, reason="reset")
    if not may_clear(standing):
        renewed = replace(renewed, taint=await keep_taint(tx, SessionId(found.session.id), SessionId(renewed.id)))
    return shown_session(renewed, found.grant.clearance)


async def begin_anew_if_stale(tx: Transaction, head: SessionHead, rules: Rules) -> SessionHead:
    """The session, in a new incarnation if its reset rule says that the present one is over."""
    if rules.resets.is_off:
        return head
    session = await rows.find_by_row(tx, head.row)
    assert session is not None
    rule = _rule_for(session, rules)
    if not rule.is_stale(started_at=session.started_at, interacted_at=session.interacted_at, now=tx.now):
        return head
    if session.pending_approvals or await ledger.is_busy(tx, session.row) or await spawns.is_expecting(tx, session.row):
        return head  # the awaited work belongs to this conversation
    if isinstance(await decide_reset(tx, session, rules, actor=SYSTEM, reason=rule.mode.value), Deny):
        return head
    await begin_anew(tx, session, rules, actor=SYSTEM, reason=rule.mode.value)
    renewed = await rows.find_head(tx, head.row)
    assert renewed is not None
    return renewed


async def decide_reset(tx: Transaction, session: Session, rules: Rules, *, actor: Principal, reason: str) -> Decision:
    """Whether written rules let the session begin anew. Contract: flow 9."""
    if not rules.written.asks(Hook.SESSION_RESET):
        return ALLOW
    acting = Acting(session, await find_standing(tx, actor), session.taint, tx.now)
    facts = facts_of(acting, rules) | {"cause": reason, "by": str(actor)}
    said = rules.written.decide(Hook.SESSION_RESET, facts)
    if said.action is not Action.BLOCK:
        return ALLOW
    return Deny(RULE, f"{said.message or 'A rule keeps this session as it is.'} (Rule {', '.join(said.rules)}.)")


async def refuse_reset(tx: Transaction, session: Session, rules: Rules, *, actor: Principal, reason: str) -> None:
    """Raises `Denied` (`rule`) if a rule keeps the session as it is."""
    decision = await decide_reset(tx, session, rules, actor=actor, reason=reason)
    if isinstance(decision, Deny):
        raise Denied(decision.reason, code=decision.rule)


async def begin_anew(tx: Transaction, session: Session, rules: Rules, *, actor: Principal, reason: str) -> Session:
    """Ends the incarnation with its runs, and starts the next one at the base classification.

    A checkpoint of the ended conversation is queued. Contract: sessions 6, checkpoints 1.
    """
    at_ms = tx.now_ms
    outcome = Outcome(status=RunStatus.CANCELLED, error="The session was reset.", code="reset")
    if active := await ledger.find_active(tx, session.row):
        await ledger.change(tx, active.id, {"code": "reset"})
        await call_off(tx, active, outcome)
    waiting = await ledger.find_parked(tx, session.row)
    for parked in waiting:
        await call_off(tx, parked, outcome)
    await withdraw_all(tx, session.row)
    await quarantine.delete_of_session(tx, session.row)
    await runner_states.delete_of_session(tx, session.row)
    for run in await ledger.find_queued(tx, session.row):
        await end_queued_run(tx, run, outcome)
    is_channels = session.source.kind == "channel" or session.key.channel is not None
    random = tx.random_hex(12)
    rest = f"{tx.now:%Y%m%d}-{random}" if is_channels else random
    new_id = next_session_id(session.id, rest)
    current = await rows.find_by_row(tx, session.row)
    assert current is not None
    await queue_checkpoint(tx, current, rules)
    base = await _base_of_next(tx, session, rules)
    if base != session.base:
        await rows.update(tx, session.row, base_columns(base))
    await incarnations.end(tx, session.id, last_seq=current.last_seq, at_ms=at_ms)
    first_seq = current.last_seq + 1
    await incarnations.start(tx, session.row, new_id, first_seq=first_seq, at_ms=at_ms, workspace_seq=first_seq)
    started = NewEvent(
        type=EventType.SESSION_STARTED,
        actor=str(actor),
        classification=base,
        data={"sessionId": new_id, "reason": reason, "previousSessionId": session.id},
    )
    changes: dict[str, SqlValue] = {
        "incarnation": new_id,
        "interacted_at": at_ms,
        "preview": None,
        "description": None,
        "description_source": None,
        "message_count": 0,
        "turn_count": 0,
        "context_tokens": 0,
        "checkpoint_at": None,
        "covered_turns": 0,
        "untriggered_count": 0,
    }
    addition = Addition(incarnation=new_id, events=[started], at_ms=at_ms, set=changes)
    await append_events(tx, session.row, addition)
    for parked in waiting:
        await end_parked_run(tx, parked.id)
    renewed = await rows.find_by_row(tx, session.row)
    assert renewed is not None
    return renewed


async def _base_of_next(query: Query, session: Session, rules: Rules) -> Classification:
    """The base of the next incarnation: of a group that may not have its own any more, what its members share now."""
    if rules.chats.data is ChatData.OPEN or session.key.kind is not SessionKind.GROUP:
        return session.base
    place = session.delivery
    if may_hold(session.base, await find_place_clearance(query, rules.sinks, place)):
        return session.base
    agent = rules.agents.get(session.agent_id)
    named = PUBLIC if agent is None else agent.classification
    route = rules_of(rules, place.channel or "", account_of(place)).classification
    return named.join(route).join(await data_of_group_at(query, place, rules))


def _rule_for(session: Session, rules: Rules) -> ResetRule:
    channel = session.key.channel or session.delivery.channel or ""
    by_channel = rules.resets.by_channel.get(channel)
    return by_channel or rules.resets.by_type.get(_chat_kind(session)) or rules.resets.common


def _chat_kind(session: Session) -> str:
    if session.key.thread_parent is not None:
        return "thread"
    return "group" if session.key.kind is SessionKind.GROUP else "direct"
