"""Receives messages of hooks. They carry no token: each is signed. Contract: keys 1, channels 1."""

from antiphon.gateway.bodies import WEBHOOK_BYTES
from antiphon.gateway.operations.operation import Ask, Http, Params, operation
from antiphon.gateway.operations.webhooks import read_body
from antiphon.wire.runs import PostedShape


class ReceiveHook(Params, frozen=True, kw_only=True):
    name: str
    """The name of the configured hook."""


@operation(
    "hooks.receive",
    Http(
        "POST /hooks/{name}",
        statuses={202: "Stored."},
        max_body_bytes=WEBHOOK_BYTES,
        reads_body=True,
        is_lenient=True,
        is_only=True,
    ),
    scope=None,
)
async def receive_hook(ask: Ask, params: ReceiveHook) -> PostedShape:
    """Accepts a signed message of a program and starts a run: any JSON, or `{text, messageId?, data?, wait?}`."""
    hooks = ask.gateway.hooks
    headers = {key.lower(): value for key, value in ask.request.headers.items()}
    hooks.check_form(headers)
    return await hooks.receive(params.name, headers, await read_body(ask))
