"""How much work the database holds: unfinished runs, and texts for channels. For metrics."""

from collections.abc import Mapping

from msgspec import Struct

from antiphon.store.database import Query

_RUNS = (
    "SELECT 'queued', COUNT(*) FROM runs WHERE status = 'queued' "
    "UNION ALL SELECT 'running', COUNT(*) FROM runs "
    "WHERE status IN ('running', 'awaiting_approval') AND is_parked = 0 AND status = 'running' "
    "UNION ALL SELECT 'awaiting_approval', COUNT(*) FROM runs "
    "WHERE status IN ('running', 'awaiting_approval') AND is_parked = 0 AND status = 'awaiting_approval' "
    "UNION ALL SELECT 'parked', COUNT(*) FROM runs WHERE is_parked = 1"
)
"""Each part uses the index of the unfinished runs of its kind, so ended runs are not read."""
_DELIVERIES = " UNION ALL ".join(
    f"SELECT '{status}', COUNT(*) FROM deliveries WHERE status = '{status}'"
    for status in ("streaming", "queued", "claimed", "dead")
)


class Workload(Struct, frozen=True, kw_only=True):
    """Of all processes of the database."""

    runs: Mapping[str, int]
    """Unfinished runs by status, and parked ones."""
    deliveries: Mapping[str, int]
    """Texts that were not sent, by status."""


async def read_workload(query: Query) -> Workload:
    """In two statements, at a cost in proportion to the unfinished work."""
    runs, deliveries = await query.fetch_all(_RUNS), await query.fetch_all(_DELIVERIES)
    return Workload(runs=dict(runs), deliveries=dict(deliveries))
