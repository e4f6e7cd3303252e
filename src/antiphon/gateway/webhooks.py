"""Where webhooks post. They send no token: each message is signed. Contract: channels 1."""

from typing import Any

from fastapi import APIRouter, Request

from antiphon.gateway.bodies import WEBHOOK_BYTES, body_too_large
from antiphon.gateway.context import gateway_of

PREFIX = "/channels/webhook/"

router = APIRouter(tags=["channels"])


@router.post("/channels/webhook/{name}", status_code=202)
async def receive_message(request: Request, name: str) -> dict[str, Any]:
    """Takes a signed message in: `{messageId, peer, text, threadId?, sender?, wait?}`."""
    webhooks = gateway_of(request).webhooks
    headers = {key.lower(): value for key, value in request.headers.items()}
    webhooks.check_form(headers)
    return await webhooks.receive(name, headers, await _read_body(request))


async def _read_body(request: Request) -> bytes:
    """The body as it was sent. Nobody has proved anything yet, so it may not be large."""
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > WEBHOOK_BYTES:
            raise body_too_large(WEBHOOK_BYTES)
    return bytes(body)
