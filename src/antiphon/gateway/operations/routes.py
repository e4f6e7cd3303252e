"""Operations on routes, for owners. Contract: channels 2."""

from typing import Annotated

from msgspec import Meta

from antiphon.domain.ids import AgentId
from antiphon.domain.keys import SessionKey
from antiphon.domain.session import DEFAULT_ACCOUNT
from antiphon.domain.tokens import TokenScope
from antiphon.engine.access.places import ChatAddress
from antiphon.gateway.operations.operation import Http, NoParams, OperationRequest, Params, TargetKind, operation
from antiphon.wire import routes as wire

Name = Annotated[str, Meta(min_length=1, max_length=200)]
Version = Annotated[int, Meta(ge=0, lt=10**15)]


class NamedRoute(Params, frozen=True, kw_only=True):
    channel: Name
    account: Name = DEFAULT_ACCOUNT
    peer: Annotated[str, Meta(pattern=r"^(direct|group):.{1,190}$(?!\n)", max_length=200)]
    """`direct:<platform id>` or `group:<group id>`."""
    thread: Annotated[str, Meta(max_length=200)] | None = None
    """A thread or topic of the chat; absent for the chat itself."""
    version: Version | None = None
    """The version that was read: the route is changed only if it is still that one. 0 if there was none."""

    @property
    def address(self) -> ChatAddress:
        return ChatAddress(channel=self.channel, account=self.account, peer=self.peer, thread=self.thread or "")


class SetRoute(NamedRoute, frozen=True, kw_only=True):
    agent_id: str | None = None
    """The agent of the settings unless set."""
    session_key: str | None = None
    """The chat's own session unless set."""


@operation("routes.list", "GET /routes", scope=TokenScope.ADMIN)
async def list_routes(request: OperationRequest, params: NoParams) -> wire.RouteList:
    """Lists the chats for which somebody chose an agent or a session."""
    found = await request.services.routes.list(request.principal)
    return wire.RouteList(count=len(found), routes=[wire.route(each) for each in found])


@operation("routes.set", "POST /routes", scope=TokenScope.ADMIN, target=TargetKind.SESSION)
async def set_route(request: OperationRequest, params: SetRoute) -> wire.RouteShape:
    """Chooses the agent and the session of a chat's next message.

    People who write in the chat then take part in a chosen session: they can read and write in it, as `note` says.
    """
    agent = None if params.agent_id is None else AgentId(params.agent_id)
    key = await _key_of(request, params.session_key)
    chosen = await request.services.routes.set(
        request.principal, params.address, agent_id=agent, session_key=key, version=params.version
    )
    return wire.route(chosen)


@operation(
    "routes.clear",
    Http("DELETE /routes", query=("channel", "account", "peer", "thread", "version")),
    scope=TokenScope.ADMIN,
)
async def clear_route(request: OperationRequest, params: NamedRoute) -> wire.RouteShape:
    """Lets a chat follow the settings again."""
    return wire.route(await request.services.routes.set(request.principal, params.address, version=params.version))


async def _key_of(request: OperationRequest, name: str | None) -> SessionKey | None:
    """The key of an existing session, by key or id. Raises `NotFound`, `Invalid`."""
    if name is None:
        return None
    return (await request.services.sessions.get(request.principal, request.target(name))).session.key
