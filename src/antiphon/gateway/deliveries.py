"""Routes of the outbox, for the owner. Contract: channels 1."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request

from antiphon import wire
from antiphon.domain.delivery import DeliveryStatus
from antiphon.engine.deliveries.deliveries import DeliveryFilter
from antiphon.gateway.context import gateway_of, principal_of

router = APIRouter(tags=["deliveries"])


@router.get("/deliveries")
async def list_deliveries(
    request: Request,
    status: Annotated[list[DeliveryStatus] | None, Query()] = None,
    limit: int = 50,
    before: str | None = None,
) -> dict[str, Any]:
    """What has left and what is to leave by channels, newest first; `before` takes the last `deliveryId` of a page."""
    deliveries = gateway_of(request).services.deliveries
    where = DeliveryFilter(statuses=None if status is None else frozenset(status), before=before)
    found = await deliveries.list(principal_of(request), where, limit=min(max(limit, 1), 200))
    return {"count": len(found), "deliveries": [wire.delivery(delivery) for delivery in found]}


@router.get("/deliveries/{delivery_id}")
async def get_delivery(request: Request, delivery_id: str) -> dict[str, Any]:
    return wire.delivery(await gateway_of(request).services.deliveries.get(principal_of(request), delivery_id))


@router.post("/deliveries/{delivery_id}/retry")
async def retry_delivery(request: Request, delivery_id: str) -> dict[str, Any]:
    """Queues a dead or suppressed one anew, under the same id; one that waits is due now."""
    return wire.delivery(await gateway_of(request).services.deliveries.retry(principal_of(request), delivery_id))
