"""Updates that Telegram posts to the gateway. Contract: channels 1."""

import hmac
import json
from collections.abc import Mapping

from anyio import Lock
from telegram.error import TelegramError

from antiphon.channels.telegram.client import TelegramClient
from antiphon.channels.telegram.intake import TelegramIntake
from antiphon.channels.telegram.kind import ADDRESS, UpdateAnswer
from antiphon.channels.telegram.settings import ACCOUNT, SECRET_HEADER
from antiphon.channels.telegram.updates import Me
from antiphon.domain.errors import Invalid, Unavailable
from antiphon.engine.chats.reception import Reception


class TelegramWebhook:
    """Implements `Receiver`: the secret that Telegram was given proves an update."""

    def __init__(self, client: TelegramClient, reception: Reception, secret: str) -> None:
        self._client = client
        self._intake = TelegramIntake(client, reception)
        self._secret = secret
        self._me: Me | None = None
        self._lock = Lock()

    def check(self, account: str, headers: Mapping[str, str]) -> None:
        given = headers.get(SECRET_HEADER, "")
        if not hmac.compare_digest(given.encode(), self._secret.encode()) or account != ACCOUNT:
            raise ADDRESS.unproven()

    async def receive(self, account: str, headers: Mapping[str, str], body: bytes) -> UpdateAnswer:
        try:
            update: object = json.loads(body)
        except (ValueError, RecursionError) as error:
            raise Invalid("Body is not JSON. Send the update as Telegram does.", code="not_json") from error
        me = await self._find_me()
        async with self._lock:  # one after the other, as they came
            await self._intake.take(update, me, None)
        return UpdateAnswer(ok=True)

    async def _find_me(self) -> Me:
        if self._me is None:
            try:
                self._me = await self._client.find_me()
            except TelegramError as error:
                raise Unavailable("Telegram cannot be reached. Send it again.", code="channel_unreachable") from error
        return self._me
