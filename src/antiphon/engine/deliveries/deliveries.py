"""The outbox: claiming deliveries, recording their outcome, and the owner's view of it.

Contract: channels 1, send policy 3, flow 7.
"""

from msgspec import Struct
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.actor import Principal
from antiphon.domain.delivery import (
    FLOW,
    NOT_CLEARED,
    Delivery,
    DeliveryFailed,
    DeliveryStatus,
    is_given_up,
    wait_before_next,
)
from antiphon.domain.errors import Conflict, NotFound
from antiphon.domain.event import EventType
from antiphon.domain.ids import ProcessId
from antiphon.domain.message import JsonObject
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.access.recipients import may_leave
from antiphon.engine.access.send_policy import may_deliver
from antiphon.engine.deliveries.outbox import Origin, tell
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.policy.decision import Deny
from antiphon.policy.system import SYSTEM_REACH
from antiphon.store import deliveries as outbox
from antiphon.store import sessions as rows
from antiphon.store.codec import moment
from antiphon.store.database import Database, Query, SqlValue, Transaction
from antiphon.store.deliveries import DeliveryFilter

DEAD = "delivery_dead"
SUPPRESSED = "send_denied"


class Deliveries:
    """The owner's view of the outbox, and retries."""

    def __init__(self, database: Database, rules: Rules, clock: Clock) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock

    async def list(self, principal: Principal, where: DeliveryFilter, *, limit: int) -> list[Delivery]:
        """Newest first. Raises `Denied` for anyone but the owner."""
        return accepted(await self._database.read(_list, Rights(principal, self._rules), where, limit))

    async def get(self, principal: Principal, id: str) -> Delivery:
        """Raises `NotFound`, also for anyone but the owner."""
        return accepted(await self._database.read(_find, Rights(principal, self._rules), id))

    async def retry(self, principal: Principal, id: str) -> Delivery:
        """Queues a dead or suppressed text again under its id; makes a waiting one due now.

        Raises `NotFound`, and `Conflict` for a text that was sent or is being sent.
        """
        found = await self.get(principal, id)
        rights, at_ms = Rights(principal, self._rules), self._clock.now_ms()
        return accepted(await self._database.run(retry_delivery, rights, id, at_ms, sessions=(found.session,)))


async def _list(query: Query, rights: Rights, where: DeliveryFilter, limit: int) -> list[Delivery] | Refusal:
    reach = await find_reach(query, rights, Act.DELIVER)
    return reach if isinstance(reach, Refusal) else await outbox.list_page(query, reach, where, limit)


async def _find(query: Query, rights: Rights, id: str) -> Delivery | Refusal:
    reach = await find_reach(query, rights, Act.DELIVER)
    found = None if isinstance(reach, Refusal) else await outbox.find(query, reach, id)
    return Refusal(_not_found(id)) if found is None else found


async def retry_delivery(tx: Transaction, rights: Rights, id: str, at_ms: int) -> Delivery | Refusal:
    delivery = await _find(tx, rights, id)
    if isinstance(delivery, Refusal):
        return delivery
    if delivery.status is DeliveryStatus.SENT:
        return Refusal(Conflict(f"Delivery was already sent: {id!r}. Post the text again.", code="delivery_sent"))
    is_being_sent = delivery.status is DeliveryStatus.CLAIMED
    if is_being_sent or not await outbox.queue_anew(tx, delivery, at_ms):
        return Refusal(Conflict(f"Delivery is being sent: {id!r}. Wait for its outcome.", code="delivery_busy"))
    return await _find(tx, rights, id)


class ClaimDelivery(Struct, frozen=True, kw_only=True):
    id: str
    process: ProcessId
    rules: Rules
    at_ms: int


async def claim_delivery(tx: Transaction, command: ClaimDelivery) -> Delivery | None:
    """The text, claimed for the process; None if it is not its turn, or if policy suppressed it.

    It is checked again here: since it was queued, the place may have lost its clearance. Contract: flow 7.
    """
    claimed = await outbox.claim(tx, SYSTEM_REACH, command.id, process=command.process, now_ms=command.at_ms)
    if claimed is None:
        return None
    session = await rows.find_by_row(tx, claimed.session)
    assert session is not None
    denied = may_deliver(session, claimed.place, command.rules)
    if isinstance(denied, Deny):
        await _suppress(tx, claimed, Deny(SUPPRESSED, denied.reason), command.at_ms)
        return None
    if not await may_leave(tx, claimed.made_of, claimed.place, command.rules.sinks):
        await _suppress(tx, claimed, Deny(FLOW, NOT_CLEARED), command.at_ms)
        return None
    return claimed


async def _suppress(tx: Transaction, claimed: Delivery, denied: Deny, at_ms: int) -> None:
    columns: dict[str, SqlValue] = {
        "status": DeliveryStatus.SUPPRESSED.value,
        "ended_at": at_ms,
        "code": denied.rule,
        "error": denied.reason,
    }
    assert await outbox.settle(tx, claimed, columns)
    data: JsonObject = {**_named(claimed), "code": denied.rule, "error": denied.reason}
    await _tell(tx, claimed, EventType.DELIVERY_SUPPRESSED, data, at_ms=at_ms)


async def settle_sent(tx: Transaction, claimed: Delivery, platform_id: str | None, at_ms: int) -> bool:
    """Records, also in the session's log, that the platform has the text; False if the claim was taken over."""
    columns: dict[str, SqlValue] = {
        "status": DeliveryStatus.SENT.value,
        "ended_at": at_ms,
        "platform_id": platform_id,
        "error": None,
        "code": None,
    }
    if not await outbox.settle(tx, claimed, columns):
        return False
    data = _named(claimed)
    if platform_id is not None:
        data["platformId"] = platform_id
    await _tell(tx, claimed, EventType.DELIVERED, data, at_ms=at_ms)
    return True


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


async def settle_failed(tx: Transaction, claimed: Delivery, failure: DeliveryFailure, at_ms: int) -> Delivery | None:
    """Queues the text for later, or gives it up, visibly for the owner; None if the claim was taken over."""
    is_dead = is_given_up(claimed, moment(at_ms), is_permanent=failure.is_permanent)
    columns: dict[str, SqlValue] = {"code": failure.code, "error": failure.error}
    if is_dead:
        columns |= {"status": DeliveryStatus.DEAD.value, "ended_at": at_ms}
    else:
        columns |= {"status": DeliveryStatus.QUEUED.value, "due_at": at_ms + failure.wait_ms, "process": None}
    if not await outbox.settle(tx, claimed, columns):
        return None
    if is_dead:
        data: JsonObject = {"code": DEAD, **_named(claimed), "error": failure.error, "reason": failure.code}
        await _tell(tx, claimed, EventType.ERROR, data, at_ms=at_ms)
        return replace(claimed, status=DeliveryStatus.DEAD, code=failure.code, error=failure.error)
    due_at = moment(at_ms + failure.wait_ms)
    return replace(claimed, status=DeliveryStatus.QUEUED, code=failure.code, error=failure.error, due_at=due_at)


def _named(delivery: Delivery) -> JsonObject:
    return {"deliveryId": delivery.id, "channel": delivery.place.channel, "to": delivery.place.to}


async def _tell(tx: Transaction, delivery: Delivery, type: EventType, data: JsonObject, *, at_ms: int) -> None:
    origin = Origin(session=delivery.session, incarnation=delivery.session_id, run_id=delivery.run_id)
    await tell(tx, origin, type, data, made_of=delivery.made_of, at_ms=at_ms)


def _not_found(id: str) -> NotFound:
    return NotFound(f"Delivery not found: {id!r}. `deliveries list` shows them.")
