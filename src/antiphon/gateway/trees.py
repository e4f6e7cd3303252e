"""Routes of trees of sessions, and of who is at work."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from antiphon import wire
from antiphon.gateway.context import Json, gateway_of, principal_of

MAX_LIMIT = 1000
MAX_ROOTS = 200

router = APIRouter(tags=["trees"])

Limit = Annotated[
    int, Query(ge=1, description="Sessions shown under the roots, which are not counted; clamped to what is allowed.")
]
Roots = Annotated[int, Query(ge=1, description="Roots shown; clamped to what is allowed.")]
IncludeInactive = Annotated[bool, Query(alias="includeInactive")]


@router.get("/sessions/{key}/tree")
async def get_tree(
    request: Request, key: str, limit: Limit = 300, include_inactive: IncludeInactive = False
) -> Response:
    """The session, with all that it spawned, and what these spawned."""
    gateway = gateway_of(request)
    services = gateway.services
    tree = await services.trees.under(
        principal_of(request),
        services.sessions.target(key),
        include_inactive=include_inactive,
        limit=min(limit, MAX_LIMIT),
    )
    return Json(wire.tree(tree, gateway.default_model))


@router.get("/tree")
async def list_trees(
    request: Request, roots: Roots = 30, limit: Limit = 300, include_inactive: IncludeInactive = False
) -> Response:
    """The sessions that nobody spawned and that changed last, each with what it spawned."""
    gateway = gateway_of(request)
    tree = await gateway.services.trees.recent(
        principal_of(request),
        include_inactive=include_inactive,
        roots=min(roots, MAX_ROOTS),
        limit=min(limit, MAX_LIMIT),
    )
    return Json(wire.tree(tree, gateway.default_model))


@router.get("/who")
async def who(request: Request, limit: Annotated[int, Query(ge=1)] = 100) -> Response:
    """The sessions with a run that has not ended, and the processes that there are."""
    activities = gateway_of(request).services.activities
    work = await activities.now(principal_of(request), limit=min(limit, MAX_ROOTS))
    return Json(wire.work(work))
