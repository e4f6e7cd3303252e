"""Signing a browser in: the code of a printed link becomes a cookie. Contract: gateway 6."""

from typing import Annotated, Any

from fastapi import APIRouter, Depends, Request, Response

from antiphon.domain.errors import Denied
from antiphon.engine.signin import BROWSER_LIFE, LINK_LIFE
from antiphon.gateway.context import gateway_of, principal_of
from antiphon.gateway.guard import COOKIE, cookie_of
from antiphon.gateway.requests import CODE, NONCE, CodeBody, NonceBody
from antiphon.owner_token import identity_proof, token_hash

router = APIRouter(tags=["sign-in"])


@router.post("/auth/link")
async def new_link(request: Request) -> dict[str, Any]:
    """A new code for a sign-in link, for the owner."""
    if not principal_of(request).is_owner:
        raise Denied("Sign-in links are for the owner only")
    code = await gateway_of(request).services.sign_in.new_link_code()
    return {"code": code, "expiresInSeconds": int(LINK_LIFE.total_seconds())}


@router.post("/auth/exchange", status_code=204, openapi_extra=CODE.described())
async def exchange(request: Request, body: Annotated[CodeBody, Depends(CODE)], response: Response) -> None:
    """Takes the code of a link, once, and sets the cookie."""
    secret = await gateway_of(request).services.sign_in.exchange(body.code)
    if secret is None:
        raise Denied("Link was used or is too old. `antiphon open` prints another.", code="bad_code")
    response.set_cookie(
        COOKIE, secret, max_age=int(BROWSER_LIFE.total_seconds()), httponly=True, samesite="strict", path="/"
    )


@router.post("/auth/prove", openapi_extra=NONCE.described())
async def prove(request: Request, body: Annotated[NonceBody, Depends(NONCE)]) -> dict[str, Any]:
    """Proves that this is the home's gateway, to a client that knows the owner's token and has not sent it."""
    host, port = request.scope["server"]
    key = token_hash(gateway_of(request).settings.owner_token)
    return {"proof": identity_proof(key, body.nonce, host, port)}


@router.post("/auth/sign-out", status_code=204)
async def sign_out(request: Request, response: Response) -> None:
    secret = cookie_of({"cookie": request.headers.get("cookie", "")})
    if secret is not None:
        await gateway_of(request).services.sign_in.sign_out(secret)
    response.delete_cookie(COOKIE, path="/")
