"""Routes of tokens that are bound to a session, of signed-in browsers and of the owner's token. Contract: access 2."""

from datetime import timedelta
from typing import Any

from fastapi import APIRouter, Request

from antiphon.engine.access.signin import Browser
from antiphon.engine.access.tokens import SessionToken
from antiphon.gateway.context import browser_of, gateway_of, outlive_credential, principal_of
from antiphon.gateway.requests import TokenBody

router = APIRouter(tags=["tokens"])


@router.get("/tokens")
async def list_tokens(request: Request) -> dict[str, Any]:
    """Tokens that are valid and browsers that are signed in, without their secrets."""
    services, principal = gateway_of(request).services, principal_of(request)
    rows = [_row(token) for token in await services.tokens.list(principal)]
    rows += [_browser_row(browser, browser_of(request)) for browser in await services.sign_in.list(principal)]
    return {"count": len(rows), "tokens": rows}


@router.post("/tokens", status_code=201)
async def create_token(request: Request, body: TokenBody) -> dict[str, Any]:
    """A token that calls tools as the session, and does nothing else. It is shown this once."""
    services = gateway_of(request).services
    token, secret = await services.tokens.create(
        principal_of(request),
        services.sessions.target(body.session_key),
        name=body.name,
        life=None if body.days is None else timedelta(days=body.days),
    )
    return {**_row(token), "token": secret}


@router.post("/tokens/rotate")
async def rotate_owner_token(request: Request) -> dict[str, Any]:
    """Replaces the owner's token in the home's file, and ends the browsers and links that it let in."""
    outlive_credential(request)
    return {"ok": True, "file": await gateway_of(request).rotate_owner_token(principal_of(request))}


@router.delete("/tokens/{token_id}", status_code=204)
async def revoke_token(request: Request, token_id: str) -> None:
    """Ends a token or a browser: the next request with it is refused, and open ones end within a second."""
    browser = browser_of(request)
    if browser is not None and browser.id == token_id:
        outlive_credential(request)
    await gateway_of(request).services.tokens.revoke(principal_of(request), token_id)


def _row(token: SessionToken) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": token.id,
        "kind": "session",
        "sessionKey": token.session_key,
        "createdAt": token.created_at_ms,
    }
    if token.name is not None:
        row["name"] = token.name
    if token.expires_at_ms is not None:
        row["expiresAt"] = token.expires_at_ms
    return row


def _browser_row(browser: Browser, asking: Browser | None) -> dict[str, Any]:
    return {
        "id": browser.id,
        "kind": "browser",
        "name": browser.name,
        "createdAt": browser.created_at_ms,
        "lastUsedAt": browser.last_used_at_ms,
        "expiresAt": browser.expires_at_ms,
        **({"isThis": True} if asking is not None and asking.id == browser.id else {}),
    }
