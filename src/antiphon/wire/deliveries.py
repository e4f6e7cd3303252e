"""Deliveries, as the owner sees them. Contract: channels 1."""

from collections.abc import Sequence

from antiphon.domain.codes import without_codes
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.domain.telling import Cause
from antiphon.wire.encoding import Shape, milliseconds, optional_milliseconds


class DeliveryShape(Shape, frozen=True, kw_only=True):
    delivery_id: str
    session_key: str | None = None
    """Absent for words of Antiphon that belong to no session."""
    run_id: str | None = None
    channel: str | None = None
    to: str | None = None
    account_id: str | None = None
    thread_id: str | None = None
    text: str
    """Words of Antiphon are shown without their codes."""
    status: DeliveryStatus
    attempts: int
    due_at: int | None = None
    """For a delivery that waits."""
    platform_id: str | None = None
    error: str | None = None
    code: str | None = None
    cause: Cause | None = None
    """Why it stands in the place of a reply; absent for all other texts."""
    created_at: int
    ended_at: int | None = None


class DeliveryList(Shape, frozen=True, kw_only=True):
    count: int
    deliveries: Sequence[DeliveryShape]


def delivery(delivery: Delivery) -> DeliveryShape:
    place = delivery.place
    return DeliveryShape(
        delivery_id=delivery.id,
        session_key=delivery.session_key,
        run_id=delivery.run_id,
        channel=place.channel,
        to=place.to,
        account_id=place.account_id,
        thread_id=place.thread_id,
        text=without_codes(delivery.text) if delivery.session is None else delivery.text,
        status=delivery.status,
        attempts=delivery.attempts,
        due_at=milliseconds(delivery.due_at) if delivery.status is DeliveryStatus.QUEUED else None,
        platform_id=delivery.platform_id,
        error=delivery.error,
        code=delivery.code,
        cause=delivery.cause,
        created_at=milliseconds(delivery.created_at),
        ended_at=optional_milliseconds(delivery.ended_at),
    )
