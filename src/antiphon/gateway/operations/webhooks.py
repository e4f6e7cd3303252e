"""Receives webhook messages. They carry no token: each is signed. Contract: channels 1."""

from antiphon.gateway.bodies import WEBHOOK_BYTES, body_too_large
from antiphon.gateway.operations.operation import Ask, Http, Params, operation
from antiphon.wire.runs import PostedShape


class ReceiveMessage(Params, frozen=True, kw_only=True):
    name: str
    """The name of the configured webhook."""


@operation(
    "webhooks.receive",
    Http(
        "POST /channels/webhook/{name}",
        statuses={202: "Stored."},
        max_body_bytes=WEBHOOK_BYTES,
        reads_body=True,
        is_lenient=True,
        is_only=True,
    ),
    scope=None,
)
async def receive_message(ask: Ask, params: ReceiveMessage) -> PostedShape:
    """Accepts a signed message: `{messageId, peer, text, threadId?, sender?, wait?}`."""
    webhooks = ask.gateway.webhooks
    headers = {key.lower(): value for key, value in ask.request.headers.items()}
    webhooks.check_form(headers)
    return await webhooks.receive(params.name, headers, await read_body(ask))


async def read_body(ask: Ask) -> bytes:
    """The body as it was sent. It must be small, because the sender is not proved yet."""
    body = bytearray()
    async for part in ask.request.stream():
        body += part
        if len(body) > WEBHOOK_BYTES:
            raise body_too_large(WEBHOOK_BYTES)
    return bytes(body)
