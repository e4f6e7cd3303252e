"""Receives updates of Telegram. They carry no token of Antiphon: each has the secret that Telegram was given.

Contract: channels 1.
"""

from antiphon.domain.errors import Unproven
from antiphon.gateway.bodies import WEBHOOK_BYTES
from antiphon.gateway.operations.operation import Ask, Http, Params, operation
from antiphon.gateway.operations.webhooks import read_body
from antiphon.wire.encoding import Shape


class ReceiveUpdate(Params, frozen=True, kw_only=True):
    account: str
    """The account of the channel; `default` is the only one."""


class UpdateAnswer(Shape, frozen=True, kw_only=True):
    ok: bool


@operation(
    "telegram.receive",
    Http(
        "POST /channels/telegram/{account}",
        statuses={200: "Stored."},
        max_body_bytes=WEBHOOK_BYTES,
        reads_body=True,
        is_lenient=True,
        is_only=True,
    ),
    scope=None,
)
async def receive_update(ask: Ask, params: ReceiveUpdate) -> UpdateAnswer:
    """Accepts an update that Telegram posts; needs `channels.telegram.mode = "webhook"`."""
    bot = ask.gateway.telegram
    headers = {key.lower(): value for key, value in ask.request.headers.items()}
    if bot is None or not bot.is_proved(params.account, headers):
        raise Unproven("Secret is not valid: only Telegram may post updates here.", code="bad_signature")
    await bot.receive(await read_body(ask))
    return UpdateAnswer(ok=True)
