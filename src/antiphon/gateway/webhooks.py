"""Where webhooks post. They send no token: each message is signed. Contract: channels 1."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import ValidationError

from antiphon.domain.errors import TooLarge
from antiphon.gateway.context import gateway_of

PREFIX = "/channels/webhook/"
MAX_BODY_BYTES = 1024 * 1024

router = APIRouter(tags=["channels"])


@router.post("/channels/webhook/{name}", status_code=202)
async def receive_message(request: Request, name: str) -> dict[str, Any]:
    """Takes a signed message in: `{messageId, peer, text, threadId?, sender?, wait?}`."""
    webhooks = gateway_of(request).webhooks
    headers = {key.lower(): value for key, value in request.headers.items()}
    webhooks.check_form(headers)
    body = await _read_body(request)
    try:
        return await webhooks.receive(name, headers, body)
    except ValidationError as error:
        problems = [{**problem, "loc": ("body", *problem["loc"])} for problem in error.errors()]
        raise RequestValidationError(problems) from error


async def _read_body(request: Request) -> bytes:
    """The body as it was sent. Nobody has proved anything yet, so it may not be large."""
    if int(request.headers.get("content-length", 0)) > MAX_BODY_BYTES:
        raise _too_large()
    body = bytearray()
    async for part in request.stream():
        body += part
        if len(body) > MAX_BODY_BYTES:
            raise _too_large()
    return bytes(body)


def _too_large() -> TooLarge:
    return TooLarge(f"Body is larger than {MAX_BODY_BYTES} bytes, the most that is taken.", code="body_too_large")
