"""The table of all operations. Contract: access 5."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType

from antiphon.gateway import operations
from antiphon.gateway.operations import channels
from antiphon.gateway.operations.operation import AnyOperation, declared_in


def table_of(declared: Iterable[AnyOperation]) -> Mapping[str, AnyOperation]:
    """The operations by name. Two with the same name, or at the same place over HTTP, are an error."""
    table: dict[str, AnyOperation] = {}
    places: dict[tuple[str, str, str | None], str] = {}
    for operation in declared:
        http = operation.http
        place = (http.method, http.path, http.when)
        if operation.name in table or place in places:
            raise ValueError(f"Operation is listed twice: {operation.name!r}, {http.method} {http.path}")
        table[operation.name] = operation
        places[place] = operation.name
    return MappingProxyType(table)


TABLE = table_of((*declared_in(operations), *channels.OPERATIONS))
