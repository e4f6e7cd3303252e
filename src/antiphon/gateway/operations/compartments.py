"""Operations on compartments, for owners. Contract: flow 1."""

from typing import Annotated

from msgspec import Meta

from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import NoParams, OperationRequest, Params, operation
from antiphon.wire import compartments as wire


class CreateCompartment(Params, frozen=True, kw_only=True):
    name: Annotated[str, Meta(min_length=1, max_length=64)]
    """Its name, of a-z, 0-9 and _ . : @ + -, beginning with a letter or digit."""


@operation("compartments.list", "GET /compartments", scope=TokenScope.ADMIN)
async def list_compartments(request: OperationRequest, params: NoParams) -> wire.CompartmentList:
    """Lists the names that classifications may use, in the order in which they were created."""
    return wire.compartment_list(await request.services.compartments.list(request.principal))


@operation("compartments.create", "POST /compartments", scope=TokenScope.ADMIN)
async def create_compartment(request: OperationRequest, params: CreateCompartment) -> wire.CompartmentShape:
    """Creates a compartment. Its name is never reused, and there can be at most 62."""
    return wire.compartment(await request.services.compartments.create(request.principal, params.name), params.name)
