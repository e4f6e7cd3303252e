"""Routes of tokens that are bound to a session, for the owner. Contract: access 2."""

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request

from antiphon.domain.errors import Denied
from antiphon.engine.access.tokens import SessionToken
from antiphon.gateway.context import gateway_of, principal_of
from antiphon.gateway.requests import TokenBody

router = APIRouter(tags=["tokens"])


@router.get("/tokens")
async def list_tokens(request: Request) -> dict[str, Any]:
    """Tokens that are valid, without their secrets."""
    _check_owner(request)
    found = await gateway_of(request).services.tokens.list()
    return {"count": len(found), "tokens": [_row(token) for token in found]}


@router.post("/tokens", status_code=201)
async def create_token(request: Request, body: TokenBody) -> dict[str, Any]:
    """A token that calls tools as the session, and does nothing else. It is shown this once."""
    _check_owner(request)
    services = gateway_of(request).services
    token, secret = await services.tokens.create(
        principal_of(request),
        services.sessions.target(body.session_key),
        name=body.name,
        life=None if body.days is None else timedelta(days=body.days),
    )
    return {**_row(token), "token": secret}


@router.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(request: Request, token_id: str) -> None:
    """The next call with it is refused, on open connections too."""
    _check_owner(request)
    await gateway_of(request).services.tokens.revoke(token_id)


def _check_owner(request: Request) -> None:
    if not principal_of(request).is_owner:
        raise Denied("Tokens are for the owner only")


def _row(token: SessionToken) -> dict[str, Any]:
    row: dict[str, Any] = {"id": token.id, "sessionKey": token.session_key, "createdAt": token.created_at_ms}
    if token.name is not None:
        row["name"] = token.name
    if token.expires_at_ms is not None:
        row["expiresAt"] = token.expires_at_ms
    return row
