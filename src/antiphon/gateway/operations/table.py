"""The table of all operations. Contract: access 5."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from antiphon.gateway.operations import (
    access,
    agents,
    approvals,
    commands,
    compartments,
    costs,
    deliveries,
    groups,
    health,
    hooks,
    incarnations,
    memory,
    messages,
    metrics,
    pairings,
    people,
    routes,
    runs,
    search,
    sessions,
    tasks,
    telegram,
    tools,
    trees,
    webhooks,
)
from antiphon.gateway.operations.operation import AnyOperation


def table_of(operations: Iterable[AnyOperation]) -> Mapping[str, AnyOperation]:
    """The operations by name. Two with the same name, or at the same place over HTTP, are an error."""
    table: dict[str, AnyOperation] = {}
    places: dict[tuple[str, str, str | None], str] = {}
    for operation in operations:
        http = operation.http
        place = (http.method, http.path, http.when)
        if operation.name in table or place in places:
            raise ValueError(f"Operation is listed twice: {operation.name!r}, {http.method} {http.path}")
        table[operation.name] = operation
        places[place] = operation.name
    return MappingProxyType(table)


TABLE = table_of(
    (
        *sessions.OPERATIONS,
        *messages.OPERATIONS,
        *incarnations.OPERATIONS,
        *commands.OPERATIONS,
        *search.OPERATIONS,
        *trees.OPERATIONS,
        *runs.OPERATIONS,
        *tasks.OPERATIONS,
        *costs.OPERATIONS,
        *agents.OPERATIONS,
        *approvals.OPERATIONS,
        *deliveries.OPERATIONS,
        *tools.OPERATIONS,
        *memory.OPERATIONS,
        *people.OPERATIONS,
        *pairings.OPERATIONS,
        *groups.OPERATIONS,
        *routes.OPERATIONS,
        *compartments.OPERATIONS,
        *access.OPERATIONS,
        *webhooks.OPERATIONS,
        *hooks.OPERATIONS,
        *telegram.OPERATIONS,
        *health.OPERATIONS,
        *metrics.OPERATIONS,
    )
)
