"""Operations on groups of channels, for owners. Contract: groups 1."""

from typing import Annotated

from msgspec import Meta

from antiphon.domain.session import DEFAULT_ACCOUNT
from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import NoParams, OperationRequest, Params, TargetKind, operation
from antiphon.wire import groups as wire

Name = Annotated[str, Meta(min_length=1, max_length=200)]


class NamedGroup(Params, frozen=True, kw_only=True):
    group_id: Name
    """Its id, or its present one on the platform."""
    channel: Name
    account: Name = DEFAULT_ACCOUNT


@operation("groups.list", "GET /groups", scope=TokenScope.ADMIN)
async def list_groups(request: OperationRequest, params: NoParams) -> wire.GroupList:
    """Lists the groups that this home's bots are or were in, and whether they may answer there."""
    found = await request.services.groups.list(request.principal)
    return wire.GroupList(count=len(found), groups=[wire.group(each) for each in found])


@operation("groups.allow", "POST /groups/{group_id}/allow", scope=TokenScope.ADMIN, target=TargetKind.GROUP)
async def allow_group(request: OperationRequest, params: NamedGroup) -> wire.GroupShape:
    """Lets the bot answer in a group, from the next message on."""
    return wire.group(
        await request.services.groups.allow(request.principal, params.channel, params.account, params.group_id)
    )


@operation("groups.refuse", "POST /groups/{group_id}/refuse", scope=TokenScope.ADMIN, target=TargetKind.GROUP)
async def refuse_group(request: OperationRequest, params: NamedGroup) -> wire.GroupShape:
    """Keeps the bot silent in a group; nothing that is written there is stored."""
    return wire.group(
        await request.services.groups.refuse(request.principal, params.channel, params.account, params.group_id)
    )
