"""Operations on trees of sessions, and on work in progress."""

from typing import Annotated, TypeAlias

from msgspec import Meta

from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import OperationRequest, Params, TargetKind, operation
from antiphon.gateway.operations.sessions import NamedSession
from antiphon.wire import trees as wire

MAX_LIMIT = 1000
MAX_ROOTS = 200

Members: TypeAlias = Annotated[
    int, Meta(ge=1, lt=10**18, description="How many sessions to show under the roots; clamped to what is allowed.")
]
Roots: TypeAlias = Annotated[
    int, Meta(ge=1, lt=10**18, description="How many roots to show; clamped to what is allowed.")
]


class ReadTree(NamedSession, frozen=True, kw_only=True):
    limit: Members = 300
    include_inactive: bool = False


class ListTrees(Params, frozen=True, kw_only=True):
    roots: Roots = 30
    limit: Members = 300
    include_inactive: bool = False


class ListWork(Params, frozen=True, kw_only=True):
    limit: Annotated[int, Meta(ge=1, lt=10**18)] = 100


@operation("sessions.tree", "GET /sessions/{key}/tree", scope=TokenScope.READ, target=TargetKind.SESSION)
async def read_tree(request: OperationRequest, params: ReadTree) -> wire.TreeShape:
    """Returns the session and its descendants."""
    tree = await request.services.trees.under(
        request.principal,
        request.target(params.key),
        include_inactive=params.include_inactive,
        limit=min(params.limit, MAX_LIMIT),
    )
    return wire.tree(tree, request.gateway.default_model)


@operation("trees.list", "GET /tree", scope=TokenScope.READ)
async def list_trees(request: OperationRequest, params: ListTrees) -> wire.TreeShape:
    """Returns the sessions without a parent that changed last, each with its descendants."""
    tree = await request.services.trees.recent(
        request.principal,
        include_inactive=params.include_inactive,
        roots=min(params.roots, MAX_ROOTS),
        limit=min(params.limit, MAX_LIMIT),
    )
    return wire.tree(tree, request.gateway.default_model)


@operation("activities.list", "GET /who", scope=TokenScope.READ)
async def list_work(request: OperationRequest, params: ListWork) -> wire.WorkShape:
    """Lists the sessions with an unfinished run, and the processes."""
    return wire.work(await request.services.activities.now(request.principal, limit=min(params.limit, MAX_ROOTS)))
