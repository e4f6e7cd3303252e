"""Signing a browser in: the code of a printed link becomes a cookie and a page's secret. Contract: gateway 6."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from antiphon.domain.errors import Denied
from antiphon.domain.user_agents import browser_name
from antiphon.engine.access.signin import LINK_LIFE
from antiphon.gateway.authentication import PAGE_HEADER, browser_cookie, read_cookie
from antiphon.gateway.context import browser_of, gateway_of, outlive_credential, principal_of
from antiphon.gateway.requests import CODE, NONCE, CodeBody, NonceBody
from antiphon.owner_token import identity_proof

router = APIRouter(tags=["sign-in"])


@router.post("/auth/link")
async def new_link(request: Request) -> dict[str, Any]:
    """A new code for a sign-in link, for the owner."""
    code = await gateway_of(request).services.sign_in.new_link_code(principal_of(request))
    return {"code": code, "expiresInSeconds": int(LINK_LIFE.total_seconds())}


@router.post("/auth/exchange", openapi_extra=CODE.described())
async def exchange(request: Request, body: Annotated[CodeBody, Depends(CODE)], response: Response) -> dict[str, Any]:
    """Takes the code of a link, once: sets the cookie, and answers the page's secret, which goes with it."""
    sign_in = gateway_of(request).services.sign_in
    found = await sign_in.exchange(body.code, browser_name(request.headers.get("user-agent", "")))
    if found is None:
        raise Denied("Link was used or is too old. `antiphon open` prints another.", code="bad_code")
    scheme = request.scope["scheme"]
    before = read_cookie(request.headers, scheme), request.headers.get(PAGE_HEADER)
    if before[0] and before[1] and (browser := await sign_in.find(before[0], before[1])):
        await sign_in.sign_out(browser)
    response.headers["Set-Cookie"] = browser_cookie(request.headers, scheme, found.cookie)
    response.headers["Cache-Control"] = "no-store"
    return {"browserId": found.browser.id, "pageSecret": found.page, "expiresAt": found.browser.expires_at_ms}


@router.post("/auth/prove", openapi_extra=NONCE.described())
async def prove(request: Request, body: Annotated[NonceBody, Depends(NONCE)]) -> dict[str, Any]:
    """Proves that this is the home's gateway, to a client that knows the owner's token and has not sent it."""
    host, port = request.scope["server"]
    key = await gateway_of(request).services.ownership.proof_key()
    return {"proof": identity_proof(key, body.nonce, host, port)}


@router.post("/auth/sign-out", status_code=204)
async def sign_out(request: Request, response: Response) -> None:
    """Ends the browser that asks; its open streams end with it."""
    browser = browser_of(request)
    if browser is None:
        raise Denied("Only a browser signs out. Replace the owner's token by `antiphon tokens rotate`.")
    outlive_credential(request)
    await gateway_of(request).services.sign_in.sign_out(browser)
    response.headers["Set-Cookie"] = browser_cookie(request.headers, request.scope["scheme"], None)
