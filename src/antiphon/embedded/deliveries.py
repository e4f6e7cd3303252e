"""The texts that leave an embedded system through channels."""

from collections.abc import Collection

from antiphon.domain.actor import OWNER
from antiphon.domain.delivery import Delivery, DeliveryStatus
from antiphon.embedded.arguments import checked, rows
from antiphon.embedded.lease import Lease
from antiphon.engine.deliveries.deliveries import DeliveryFilter

LISTED = 50


class DeliveryHandles:
    """`app.deliveries`."""

    def __init__(self, lease: Lease) -> None:
        self._lease = lease

    @checked
    async def list(
        self,
        *,
        status: Collection[DeliveryStatus] | None = None,
        told: bool = False,
        before: str | None = None,
        limit: int = LISTED,
    ) -> list[Delivery]:
        """Deliveries, newest first; `before` is the id of the last one of the previous page.

        With `told`, only texts that say why there is no reply.
        """
        statuses = None if status is None else frozenset(status)
        where = DeliveryFilter(statuses=statuses, before=before, is_told=told)
        return await self._lease.services.deliveries.list(OWNER, where, limit=rows(limit))

    @checked
    async def get(self, delivery_id: str) -> Delivery:
        """Raises `NotFound`."""
        return await self._lease.services.deliveries.get(OWNER, delivery_id)

    @checked
    async def retry(self, delivery_id: str) -> Delivery:
        """Queues a dead or suppressed text again. Raises `NotFound`, and `Conflict` for a text that was sent."""
        return await self._lease.services.deliveries.retry(OWNER, delivery_id)
