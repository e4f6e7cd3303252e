"""The client library, set up for Antiphon. Importing this module imports the library: only configured bots do it."""

import json
import logging
from datetime import timedelta
from typing import Any, Final, TypeVar
from urllib.parse import quote

import httpx
import msgspec
from msgspec import Struct
from telegram import Bot
from telegram.error import (
    BadRequest,
    ChatMigrated,
    Conflict,
    Forbidden,
    InvalidToken,
    NetworkError,
    RetryAfter,
    TelegramError,
    TimedOut,
)
from telegram.request import HTTPXRequest

from antiphon.channels.files import FileTooLarge
from antiphon.channels.telegram.settings import WANTED, TelegramSettings
from antiphon.channels.telegram.updates import Me
from antiphon.domain.delivery import BUSY, GONE, THREAD_GONE, DeliveryFailed

REQUEST_SECONDS: Final = 20.0
"""How long a request may take that does not wait for anything."""
POLL_SECONDS: Final = 25
"""How long Telegram waits for an update before it answers that there is none."""
MAX_CONNECTIONS: Final = 16
LONGEST_WISH: Final = timedelta(hours=1)
"""How long Telegram may ask to wait."""
TOO_MANY: Final = 429
_TALKATIVE: Final = ("httpx", "httpcore")
"""Loggers whose lines can hold the token; a filter does not hold for loggers below."""
TELEGRAM: Final = "https://api.telegram.org"


class _BotRequests(HTTPXRequest):
    """Requests whose answers are not logged: they are what people write."""

    async def fetch(self, url: str, most_bytes: int) -> bytes:
        """The content; stops reading beyond `most_bytes`. Raises `TelegramError` and `FileTooLarge`."""
        found = bytearray()
        try:
            # As it is sent: a few compressed bytes could become many.
            async with self._client.stream("GET", url, headers={"Accept-Encoding": "identity"}) as answer:
                if answer.is_client_error and answer.status_code != TOO_MANY:
                    raise BadRequest("File cannot be fetched")
                if not answer.is_success:
                    raise NetworkError("File cannot be fetched now")
                async for piece in answer.aiter_raw():
                    found += piece
                    if len(found) > most_bytes:
                        raise FileTooLarge
        except httpx.HTTPError as error:
            raise NetworkError("File did not come") from error
        return bytes(found)

    @staticmethod
    def parse_json_payload(payload: bytes) -> dict[str, Any]:
        try:
            found = json.loads(payload.decode("utf-8", "replace"))
        except (ValueError, RecursionError) as error:
            raise TelegramError("Answer is not JSON") from error
        if not isinstance(found, dict) or not found.keys() & {"result", "description"}:
            raise TelegramError("Answer is not of the Bot API")
        return found  # pyright: ignore[reportUnknownVariableType]


class _WithoutToken(logging.Filter):
    """Drops log lines of libraries that contain the token: it is part of every address."""

    def __init__(self, token: str) -> None:
        super().__init__()
        self._token = token

    def filter(self, record: logging.LogRecord) -> bool:
        return self._token not in record.getMessage()


class _Bot(Bot):
    async def ask(self, method: str, asked: dict[str, object], read_seconds: float = REQUEST_SECONDS) -> object:
        """The answer as it came: the library refuses a whole list of updates if it cannot read one of them."""
        return await self._post(method, asked, read_timeout=read_seconds)

    async def _post(self, *given: Any, **named: Any) -> Any:
        try:
            return await super()._post(*given, **named)
        except TelegramError:
            raise
        except Exception as error:  # the library fails in its own ways if an answer makes no sense
            raise TelegramError("Answer could not be read") from error


class WebhookState(Struct, frozen=True, kw_only=True):
    """Where Telegram posts updates, as it says itself."""

    url: str = ""
    last_error_message: str | None = None


class _FilePlace(Struct, frozen=True, kw_only=True):
    file_path: str


Read = TypeVar("Read")
_REFUSALS = {
    "chat not found": GONE,
    "message thread not found": THREAD_GONE,
    "topic_closed": THREAD_GONE,
    "topic_deleted": THREAD_GONE,
}
"""What Telegram says of places that take no text."""


class TelegramClient:
    """OpenChannels to the Bot API for one bot; opened by `open`, closed by `aclose`."""

    def __init__(self, settings: TelegramSettings) -> None:
        for name in _TALKATIVE:
            logging.getLogger(name).addFilter(_WithoutToken(settings.token))
        logging.getLogger("telegram").setLevel(logging.WARNING)  # below that, it logs what is sent
        base = settings.api_base
        # The proxies of the environment are meant for Telegram, not for a server that the settings name.
        options: dict[str, Any] = {"httpx_kwargs": {"trust_env": base is None}}
        waits = {"read_timeout": REQUEST_SECONDS, "write_timeout": REQUEST_SECONDS, "pool_timeout": REQUEST_SECONDS}
        self._polling = _BotRequests(connection_pool_size=1, **waits, **options)
        self._requests = _BotRequests(connection_pool_size=MAX_CONNECTIONS, **waits, **options)
        root = base or TELEGRAM
        self._files = f"{root}/file/bot{settings.token}"
        self.bot = _Bot(
            settings.token,
            f"{root}/bot",
            f"{root}/file/bot",
            request=self._requests,
            get_updates_request=self._polling,
        )

    async def open(self) -> None:
        await self._polling.initialize()
        await self.bot.request.initialize()

    async def aclose(self) -> None:
        await self._polling.shutdown()
        await self.bot.request.shutdown()

    async def find_me(self) -> Me:
        """Who the bot is. Raises `TelegramError`."""
        return _read(await self.bot.ask("getMe", {}), Me)

    async def find_hook(self) -> WebhookState:
        """The webhook that is set for the bot. Raises `TelegramError`."""
        return _read(await self.bot.ask("getWebhookInfo", {}), WebhookState)

    async def download(self, file_id: str, most_bytes: int) -> bytes:
        """The file, from the server. Raises `TelegramError`, and `FileTooLarge` once more bytes than that have come.

        The library reads the file of this machine instead, if there is one at the path that the server names.
        """
        place = _read(await self.bot.ask("getFile", {"file_id": file_id}), _FilePlace)
        return await self._requests.fetch(f"{self._files}/{quote(place.file_path)}", most_bytes)

    async def fetch_updates(self, offset: int | None, *, wait_seconds: int = POLL_SECONDS) -> list[object]:
        """The updates from the offset on, as they came; waits for the first one. Raises `TelegramError`."""
        asked: dict[str, object] = {"timeout": wait_seconds, "allowed_updates": list(WANTED)}
        if offset is not None:
            asked["offset"] = offset
        found = await self.bot.ask("getUpdates", asked, wait_seconds + REQUEST_SECONDS)
        if not isinstance(found, list):
            raise TelegramError("Answer is not a list of updates")
        return found  # pyright: ignore[reportUnknownVariableType]


def _read(answer: object, type: type[Read]) -> Read:
    try:
        return msgspec.convert(answer, type)
    except msgspec.ValidationError as error:
        raise TelegramError("Answer is not of the Bot API") from error


def wished_pause(error: RetryAfter) -> timedelta:
    """How long Telegram asks to wait, within reason."""
    wish = error.retry_after
    seconds = wish.total_seconds() if isinstance(wish, timedelta) else float(wish)
    return timedelta(seconds=min(seconds, LONGEST_WISH.total_seconds()) if seconds > 0 else 0)


def failure_of(error: TelegramError) -> DeliveryFailed:
    """What the error means for a text that was to be sent. The message holds no token and no text of anybody."""
    match error:
        case RetryAfter():
            return DeliveryFailed("Telegram asks to wait.", code=BUSY, retry_after=wished_pause(error))
        case Forbidden():
            return DeliveryFailed(
                "Telegram refuses: the bot was blocked there, or is no member of the group.",
                code=GONE,
                is_permanent=True,
            )
        case InvalidToken():
            return DeliveryFailed("Telegram does not accept the bot's token.", code="channel_failed")
        case TimedOut():
            return DeliveryFailed(
                "Telegram did not answer in time; it may have received the text.", code="channel_timeout"
            )
        case BadRequest():
            said = error.message[:200]
            code = next((code for words, code in _REFUSALS.items() if words in said.lower()), "channel_refused")
            return DeliveryFailed(f"Telegram refuses the message: {said}.", code=code, is_permanent=True)
        case Conflict() | ChatMigrated():
            return DeliveryFailed("Telegram could not take the message now.", code="channel_failed")
        case NetworkError():
            return DeliveryFailed("Telegram cannot be reached.", code="channel_unreachable")
        case _:
            return DeliveryFailed("Telegram's answer could not be read.", code="channel_failed")
