"""Operations on the outbox, for the owner. Contract: channels 1."""

from antiphon.domain.delivery import DeliveryStatus
from antiphon.domain.tokens import TokenScope
from antiphon.engine.deliveries.deliveries import DeliveryFilter
from antiphon.gateway.operations.operation import OperationRequest, Params, TargetKind, operation
from antiphon.gateway.operations.sessions import Limit
from antiphon.wire import deliveries as wire

MAX_LIMIT = 200


class ListDeliveries(Params, frozen=True, kw_only=True):
    status: list[DeliveryStatus] | None = None
    told: bool = False
    limit: Limit = 50
    before: str | None = None


class NamedDelivery(Params, frozen=True, kw_only=True):
    delivery_id: str


@operation("deliveries.list", "GET /deliveries", scope=TokenScope.READ)
async def list_deliveries(request: OperationRequest, params: ListDeliveries) -> wire.DeliveryList:
    """Lists texts that leave or left through channels, newest first; `before` is the last `deliveryId` of a page.

    With `told`, lists only those that say why there is no reply.
    """
    statuses = None if params.status is None else frozenset(params.status)
    where = DeliveryFilter(statuses=statuses, before=params.before, is_told=params.told)
    limit = min(max(params.limit, 1), MAX_LIMIT)
    found = await request.services.deliveries.list(request.principal, where, limit=limit)
    return wire.DeliveryList(count=len(found), deliveries=[wire.delivery(delivery) for delivery in found])


@operation("deliveries.get", "GET /deliveries/{delivery_id}", scope=TokenScope.READ, target=TargetKind.DELIVERY)
async def get_delivery(request: OperationRequest, params: NamedDelivery) -> wire.DeliveryShape:
    """Returns one delivery."""
    return wire.delivery(await request.services.deliveries.get(request.principal, params.delivery_id))


@operation(
    "deliveries.retry", "POST /deliveries/{delivery_id}/retry", scope=TokenScope.WRITE, target=TargetKind.DELIVERY
)
async def retry_delivery(request: OperationRequest, params: NamedDelivery) -> wire.DeliveryShape:
    """Queues a dead or suppressed delivery again, under the same id; a waiting one becomes due now."""
    return wire.delivery(await request.services.deliveries.retry(request.principal, params.delivery_id))
