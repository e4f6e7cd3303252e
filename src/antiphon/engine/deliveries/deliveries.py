"""The outbox: claiming deliveries, recording their outcome, and the owner's view of it.

Contract: channels 1, send policy 3, flow 7.
"""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import Principal
from antiphon.domain.channel_form import ChannelForm
from antiphon.domain.delivery import (
    FLOW,
    GONE,
    THREAD_GONE,
    Delivery,
    DeliveryFailed,
    DeliveryStatus,
    data_of_files,
    is_given_up,
    wait_before_next,
    words_of_files,
)
from antiphon.domain.errors import Conflict, Denied, NotFound
from antiphon.domain.event import EventType
from antiphon.domain.ids import ApprovalId, ProcessId, SessionRow
from antiphon.domain.message import JsonObject
from antiphon.domain.run import PlaceGot
from antiphon.domain.voice import TellErrors
from antiphon.engine.access.bindings import release_thread
from antiphon.engine.access.exits import Leaving, leave
from antiphon.engine.access.foreseen import ForeseenCall
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.access.releases import decide_released
from antiphon.engine.deliveries.outbox import ExitCheck, Origin, enqueue_notice, queue_withdrawal, tell
from antiphon.engine.deliveries.output_rules import decide_claimed, denied_by, is_asked, look_at_files
from antiphon.engine.deliveries.questions import is_question, question_as_claimed, show_decision
from antiphon.engine.deliveries.refused import ask_release, note_got, refuse_without_files
from antiphon.engine.deliveries.requests import as_claimed, show_answer
from antiphon.engine.deliveries.saying import tell_owners
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.decision import ALLOW, Deny
from antiphon.policy.releases import OUTDATED
from antiphon.policy.rights import SUSPENDED
from antiphon.policy.written.fields import Action
from antiphon.policy.written.rule_set import NOTHING_SAID, RuleDecision
from antiphon.store import approvals
from antiphon.store import deliveries as outbox
from antiphon.store import sessions as rows
from antiphon.store.codec import json_text, moment
from antiphon.store.database import Database, Query, SqlValue, Transaction
from antiphon.store.deliveries import DeliveryFilter

DEAD = "delivery_dead"
SUPPRESSED = "send_denied"


def sessions_of(session: SessionRow | None) -> tuple[SessionRow, ...]:
    """The sessions that a unit on a delivery of that session writes to."""
    return () if session is None else (session,)


class Deliveries:
    """The owner's view of the outbox, and retries."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def list(self, principal: Principal, where: DeliveryFilter, *, limit: int) -> list[Delivery]:
        """Newest first. Raises `Denied` for anyone but the owner."""
        return await self._database.read(_list, Rights(principal, self._rules), where, limit)

    async def get(self, principal: Principal, id: str) -> Delivery:
        """Raises `NotFound`, also for anyone but owners, and `Denied` for a suspended person."""
        return await self._database.read(_find, Rights(principal, self._rules), id)

    async def retry(self, principal: Principal, id: str) -> Delivery:
        """Queues a dead or suppressed text again under its id; makes a waiting one due now.

        Raises `NotFound`, and `Conflict` for a text that was sent or is being sent, or whose files are gone.
        """
        found = await self.get(principal, id)
        rights = Rights(principal, self._rules)
        return await self._database.run(retry_delivery, rights, id, sessions=sessions_of(found.session))


async def _list(query: Query, rights: Rights, where: DeliveryFilter, limit: int) -> list[Delivery]:
    reach = await find_reach(query, rights, Act.DELIVER)
    return await outbox.list_page(query, reach, where, limit)


async def _find(query: Query, rights: Rights, id: str) -> Delivery:
    try:
        reach = await find_reach(query, rights, Act.DELIVER)
    except Denied as denied:
        raise denied if denied.code == SUSPENDED.rule else _not_found(id) from None
    found = await outbox.find(query, reach, id)
    if found is None:
        raise _not_found(id)
    return found


async def retry_delivery(tx: Transaction, rights: Rights, id: str) -> Delivery:
    delivery = await _find(tx, rights, id)
    if delivery.status is DeliveryStatus.SENT:
        raise Conflict(f"Delivery was already sent: {id!r}. Post the text again.", code="delivery_sent")
    is_being_sent = delivery.status in (DeliveryStatus.CLAIMED, DeliveryStatus.STREAMING)
    if not is_being_sent:
        await refuse_without_files(tx, delivery)
    if is_being_sent or not await outbox.queue_anew(tx, delivery, tx.now_ms):
        raise Conflict(f"Delivery is being sent: {id!r}. Wait for its outcome.", code="delivery_busy")
    await note_got(tx, delivery, PlaceGot.SENT if delivery.cause is None else PlaceGot.TOLD)
    return await _find(tx, rights, id)


class ClaimDelivery(Struct, frozen=True, kw_only=True):
    id: str
    process: ProcessId
    form: ChannelForm
    """What one message of the channel holds."""
    rules: Rules


async def claim_delivery(tx: Transaction, command: ClaimDelivery) -> Delivery | None:
    """The text, claimed for the process; None if it is not its turn, or if policy suppressed it.

    It is checked again here: since it was queued, the place may have lost its clearance. Contract: flow 7.
    """
    claimed = await outbox.claim(tx, command.id, process=command.process, now_ms=tx.now_ms)
    if claimed is None:
        return None
    if claimed.is_withdrawal:
        return claimed
    if claimed.approval is not None:
        if is_question(claimed.approval):
            request = await question_as_claimed(tx, claimed)
        else:
            request = await as_claimed(tx, claimed, command.form, command.rules)
        if request is None:
            await outbox.CLAIMS.delete(tx, claimed.claim)
        return request
    session = None if claimed.session is None else await rows.find_by_row(tx, claimed.session)
    denied = await leave(tx, Leaving(session, claimed.place, claimed.made_of), command.rules)
    if isinstance(denied, Deny) and denied.rule == FLOW and claimed.release is not None:
        call = ForeseenCall(claimed.meant_for, denied, claimed.text, claimed.made_of, words_of_files(claimed.files))
        denied = await decide_released(tx, call, claimed.release, command.rules)
    if isinstance(denied, Deny):
        await _suppress(tx, claimed, denied)
        if denied.rule in _OF_FLOW:
            await ask_release(tx, claimed, ExitCheck(rules=command.rules))
        return None
    if claimed.cause is not None and not await _may_tell(tx, claimed, command):
        return None
    said = await decide_claimed(tx, claimed, command.rules, tx.now_ms)
    return await carry_out_rules(tx, claimed, said, command.rules)


async def carry_out_rules(tx: Transaction, claimed: Delivery, said: RuleDecision, rules: Rules) -> Delivery | None:
    """The claimed text as rules or checks let it go, changed in its row too; None if they hold it back.

    Where they want somebody to be asked, an owner may release these very words. Contract: flow 9, 11.
    """
    said = await look_at_files(tx, claimed, said)
    if said.action is not Action.BLOCK:
        claimed = await _redact(tx, claimed, said)  # an owner is asked about what is left, too
    if is_asked(said) and claimed.release is not None:
        call = ForeseenCall(claimed.meant_for, ALLOW, claimed.text, claimed.made_of, words_of_files(claimed.files))
        is_released = not isinstance(await decide_released(tx, call, claimed.release, rules), Deny)
    else:
        is_released = False
    denied = None if is_released else denied_by(said)
    if denied is not None:
        await _suppress(tx, claimed, denied, decided=said)
        if is_asked(said):
            await ask_release(tx, claimed, ExitCheck(rules=rules))
        elif rules.voices.at(claimed.place).tell_errors is TellErrors.ASKER:
            await enqueue_notice(tx, claimed.place, said.message or KEPT_BACK, name=f"rule {claimed.id}")
        return None
    return claimed


async def _redact(tx: Transaction, claimed: Delivery, said: RuleDecision) -> Delivery:
    """The text without what rules or checks take out of it, in its row too."""
    left = said.redact(claimed.text)
    if not left.stretches:
        return claimed
    assert await outbox.CLAIMS.write(tx, claimed.claim, {"text": left.text})
    data: JsonObject = {**_named(claimed), "decided": said.data(), "text": left.text}
    await _tell(tx, claimed, EventType.DELIVERY_REDACTED, data)
    return replace(claimed, text=left.text)


class CheckedText(Struct, frozen=True):
    """A claimed text, and what checks say of it."""

    claimed: Delivery
    said: RuleDecision
    rules: Rules


async def settle_checked(tx: Transaction, checked: CheckedText) -> Delivery | None:
    """The text as checks let it go; None if they hold it back, or if the claim was taken over."""
    if not await outbox.CLAIMS.write(tx, checked.claimed.claim, {"process": checked.claimed.process}):
        return None
    return await carry_out_rules(tx, checked.claimed, checked.said, checked.rules)


async def _may_tell(tx: Transaction, claimed: Delivery, command: ClaimDelivery) -> bool:
    """Whether its place hears why there is no reply; if only owners do, they are told in their private chats."""
    match command.rules.voices.at(claimed.place).tell_errors:
        case TellErrors.ASKER:
            return True
        case TellErrors.NONE:
            await _suppress(tx, claimed, NOT_TOLD)
        case TellErrors.OWNER:
            is_told = await tell_owners(tx, claimed)
            await _suppress(tx, claimed, OWNERS_TOLD if is_told else NO_OWNER_TOLD, is_dead=not is_told)
    return False


_OF_FLOW = (FLOW, OUTDATED.rule)
KEPT_BACK = "A rule of this installation does not let the answer be sent here."
NOT_TOLD = Deny("not_told", "The channel's setting `tell_errors` is `none`.")
OWNERS_TOLD = Deny("owner_told", "The channel's setting `tell_errors` is `owner`: owners were told in their own chats.")
NO_OWNER_TOLD = Deny("owner_told", "The channel's setting `tell_errors` is `owner`, and no owner has a private chat.")


async def _suppress(
    tx: Transaction, claimed: Delivery, denied: Deny, *, is_dead: bool = False, decided: RuleDecision = NOTHING_SAID
) -> None:
    """Keeps the text where it is; a dead one is shown to owners as not delivered."""
    status = DeliveryStatus.DEAD if is_dead else DeliveryStatus.SUPPRESSED
    columns: dict[str, SqlValue] = {
        "status": status.value,
        "ended_at": tx.now_ms,
        "code": denied.rule,
        "error": denied.reason,
    }
    if claimed.replaces is not None:
        columns["platform_id"] = None
    assert await outbox.CLAIMS.write(tx, claimed.claim, columns)
    await note_got(tx, claimed, PlaceGot.FLOW if denied.rule in _OF_FLOW else PlaceGot.DENIED)
    await queue_withdrawal(tx, claimed)
    data: JsonObject = {**_named(claimed), "code": denied.rule, "error": denied.reason}
    if decided is not NOTHING_SAID:
        data["decided"] = decided.data()
    await _tell(tx, claimed, EventType.DELIVERY_SUPPRESSED, data)


async def settle_part(tx: Transaction, claimed: Delivery, parts: tuple[str, ...]) -> bool:
    """Records the parts that the platform has so far; False if the claim was taken over."""
    return await outbox.CLAIMS.write(tx, claimed.claim, _parts_columns(parts))


async def settle_sent(tx: Transaction, claimed: Delivery, parts: tuple[str, ...]) -> bool:
    """Records, also in the session's log, that the platform has all parts; False if the claim was taken over."""
    columns: dict[str, SqlValue] = {
        "status": DeliveryStatus.SENT.value,
        "ended_at": tx.now_ms,
        **_parts_columns(parts),
        "error": None,
        "code": None,
    }
    if not await outbox.CLAIMS.write(tx, claimed.claim, columns):
        return False
    if claimed.approval is not None and is_question(claimed.approval):
        await show_decision(tx, claimed.approval)  # it may have been decided on the way
    elif claimed.approval is not None:
        approval = await approvals.find(tx, ApprovalId(claimed.approval))
        if approval is not None:
            await show_answer(tx, approval)  # it may have been answered on the way
    platform_id = columns["platform_id"]
    await outbox.delete_files(tx, claimed)
    data = _named(claimed)
    if platform_id is not None:
        data["platformId"] = str(platform_id)
    await _tell(tx, claimed, EventType.DELIVERED, data)
    return True


def _parts_columns(parts: tuple[str, ...]) -> dict[str, SqlValue]:
    return {"parts": json_text(parts), "platform_id": parts[0] or None}


async def settle_withdrawn(tx: Transaction, claimed: Delivery) -> bool:
    """Forgets a withdrawal that was carried out, or given up; False if the claim was taken over."""
    return await outbox.CLAIMS.delete(tx, claimed.claim)


class DeliveryFailure(Struct, frozen=True, kw_only=True):
    """The parts of a `DeliveryFailed` that a unit needs."""

    code: str
    error: str
    is_permanent: bool
    wait_ms: int


def failure_of(claimed: Delivery, failed: DeliveryFailed) -> DeliveryFailure:
    wait = wait_before_next(claimed.attempts, failed.retry_after)
    return DeliveryFailure(
        code=failed.code,
        error=failed.message,
        is_permanent=failed.is_permanent,
        wait_ms=int(wait.total_seconds() * 1000),
    )


async def settle_failed(tx: Transaction, claimed: Delivery, failure: DeliveryFailure) -> Delivery | None:
    """Queues the text for later, or gives it up, visibly for the owner; None if the claim was taken over.

    If its thread takes no texts, the whole text is queued for the chat itself.
    """
    is_moved = failure.code == THREAD_GONE and claimed.place.thread_id is not None and not claimed.is_withdrawal
    is_dead = not is_moved and is_given_up(claimed, moment(tx.now_ms), is_permanent=failure.is_permanent)
    if is_dead and claimed.is_withdrawal:
        await settle_withdrawn(tx, claimed)
        return None
    columns: dict[str, SqlValue] = {"code": failure.code, "error": failure.error}
    if is_moved:
        columns |= {"thread_id": None, "moved_from": claimed.place.thread_id, "parts": None, "platform_id": None}
        columns |= {"status": DeliveryStatus.QUEUED.value, "due_at": tx.now_ms, "process": None}
    elif is_dead:
        columns |= {"status": DeliveryStatus.DEAD.value, "ended_at": tx.now_ms}
    else:
        columns |= {"status": DeliveryStatus.QUEUED.value, "due_at": tx.now_ms + failure.wait_ms, "process": None}
    if not await outbox.CLAIMS.write(tx, claimed.claim, columns):
        return None
    if is_moved and claimed.session is not None:
        await release_thread(tx, claimed.session, claimed.place.thread_id)
    if is_dead:
        await note_got(tx, claimed, PlaceGot.DENIED)
    is_known = is_dead and failure.code == GONE and await outbox.is_known_broken(tx, claimed, GONE)
    if is_dead and not is_known:
        data: JsonObject = {"code": DEAD, **_named(claimed), "error": failure.error, "reason": failure.code}
        await _tell(tx, claimed, EventType.ERROR, data)
    if is_dead:
        return replace(claimed, status=DeliveryStatus.DEAD, code=failure.code, error=failure.error)
    due_at = moment(tx.now_ms + failure.wait_ms)
    return replace(claimed, status=DeliveryStatus.QUEUED, code=failure.code, error=failure.error, due_at=due_at)


def _named(delivery: Delivery) -> JsonObject:
    named: JsonObject = {"deliveryId": delivery.id, "channel": delivery.place.channel, "to": delivery.place.to}
    if delivery.files:
        named["files"] = data_of_files(delivery.files)
    return named


async def _tell(tx: Transaction, delivery: Delivery, type: EventType, data: JsonObject) -> None:
    if delivery.session is None or delivery.session_id is None:
        return
    origin = Origin(session=delivery.session, incarnation=delivery.session_id, run_id=delivery.run_id)
    await tell(tx, origin, type, data, made_of=delivery.made_of)


def _not_found(id: str) -> NotFound:
    return NotFound(f"Delivery not found: {id!r}. `deliveries list` shows them.")
