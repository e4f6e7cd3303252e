"""The client library, set up for Antiphon. Importing this module imports the library: only configured bots do it."""

import asyncio
import logging
from collections.abc import Mapping
from datetime import timedelta
from json import dumps, loads
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit
from urllib.request import getproxies

import aiohttp
import msgspec
from discord import utils
from discord.errors import DiscordException, HTTPException, LoginFailure, RateLimited
from discord.http import HTTPClient, Ratelimit, Route
from msgspec import Struct

from antiphon.channels.discord.rooms import DiscordRooms
from antiphon.channels.discord.settings import API, FILE_HOSTS, UNREACHABLE, WRONG_TOKEN, DiscordSettings
from antiphon.channels.files import PIECE, read_at_most
from antiphon.channels.json_facts import all_whole
from antiphon.domain.attachments import Attachment
from antiphon.domain.delivery import BUSY, GONE, THREAD_GONE, DeliveryFailed

REQUEST_SECONDS: Final = 40.0
"""How long a request may take, with what the library repeats."""
LONGEST_PAUSE: Final = 10.0
"""Seconds that a request waits for a free budget; beyond, it fails and is tried again later."""
LONGEST_WISH: Final = timedelta(hours=1)
"""How long Discord may ask to wait."""
MAX_CONNECTIONS: Final = 16
TOO_MANY: Final = 429

# Paths of requests.
CHANNEL: Final = "/channels/{channel_id}"
MESSAGES: Final = f"{CHANNEL}/messages"
MESSAGE: Final = f"{MESSAGES}/{{message_id}}"

# Codes of Discord's errors.
UNKNOWN_CHANNEL: Final = 10003
UNKNOWN_MESSAGE: Final = 10008
THREAD_EXISTS: Final = 160004
LACKS_RIGHTS: Final = 50013
_NO_THREAD: Final = (50083, 160005)
"""The thread is archived and cannot be opened again, or is locked."""
_GONE: Final = (UNKNOWN_CHANNEL, 10004, 10013, 50001, 50007, LACKS_RIGHTS, 50033, 50278)
"""The channel, server or person is unknown, or the bot has no access or permission there."""

Answer = TypeVar("Answer")


class UnreadableAnswer(Exception):
    """Discord's answer, or that of something before it, makes no sense."""


class DiscordMe(Struct, frozen=True, kw_only=True):
    """The bot itself."""

    id: str
    username: str = ""


class DiscordApplication(Struct, frozen=True, kw_only=True):
    """What the developer portal says about the bot."""

    flags: int = 0
    interactions_endpoint_url: str | None = None

    @property
    def may_read(self) -> bool:
        """Whether it may have the intent for the content of messages, all of it or as a bot of few servers."""
        return bool(self.flags & (1 << 18 | 1 << 19))


class RequestBudget(Ratelimit):
    """The budget of one kind of request, from the headers of answers.

    Waits before a request. The library's own waits after the one that used the budget up, before it returns the answer.
    """

    def __init__(self) -> None:
        super().__init__(LONGEST_PAUSE)
        self._freed = asyncio.Event()
        self._is_known = False

    async def acquire(self) -> None:
        loop = asyncio.get_running_loop()
        self._last_request = loop.time()
        while True:
            if self.is_expired():
                self.reset()
            if self.remaining > 0:
                break
            pause = None if self.expires is None else self.expires - loop.time()
            if pause is not None and pause > LONGEST_PAUSE:
                raise RateLimited(pause)
            freed = self._freed
            try:
                await asyncio.wait_for(freed.wait(), None if pause is None else pause + 0.01)
            except TimeoutError:
                continue
        self.remaining -= 1
        self.outgoing += 1

    def update(self, response: aiohttp.ClientResponse, *, use_clock: bool = False) -> None:
        """Answers come in another order than Discord counts in, and what is on its way is in none of them."""
        left, limit = self.remaining, self.limit if self._is_known else None
        super().update(response, use_clock=use_clock)
        self._is_known = True
        self.remaining = min(self.remaining, left) if limit == self.limit else self.remaining - self.outgoing + 1

    async def __aexit__(self, *_: object) -> None:
        self.outgoing -= 1
        if self.expires is None:
            self.reset()
        freed, self._freed = self._freed, asyncio.Event()
        freed.set()


class _DiscordRequests(HTTPClient):
    def get_ratelimit(self, key: str) -> Ratelimit:
        if key not in self._buckets:
            self._buckets[key] = RequestBudget()
            self._try_clear_expired_ratelimits()
        return self._buckets[key]

    def go_on(self) -> None:
        """Ends a pause of all requests: the one that would have ended it was cancelled."""
        if self._global_over:
            self._global_over.set()


class DiscordClient:
    """Requests by one bot. The library logs in with the first."""

    def __init__(self, settings: DiscordSettings) -> None:
        setattr(utils, "_from_json", loads)  # noqa: B010  (orjson, if there is one, fails at halves of characters)
        logging.getLogger("discord").setLevel(logging.CRITICAL)  # its lines hold addresses with tokens, and texts
        self.settings = settings
        self.rooms = DiscordRooms()
        self._base = settings.api_base
        Route.BASE = settings.api_base or API
        self._http: _DiscordRequests | None = None
        self._files: aiohttp.ClientSession | None = None
        self._lock = asyncio.Lock()
        self.me: DiscordMe | None = None

    @property
    def proxy(self) -> str | None:
        """The proxies of the environment are meant for Discord, not for a server that the settings name."""
        return getproxies().get("https") if self._base is None else None

    async def open(self) -> DiscordMe:
        """Who the bot is; logs in unless that is done. Raises what `ask` raises."""
        async with self._lock:
            if self.me is None:
                await self.aclose()
                connector = aiohttp.TCPConnector(limit=MAX_CONNECTIONS)
                self._http = _DiscordRequests(
                    asyncio.get_running_loop(), connector, proxy=self.proxy, max_ratelimit_timeout=30.0
                )
                self.me = read(await self._within(self._http.static_login(self.settings.token)), DiscordMe)
        return self.me

    async def ask(
        self,
        method: str,
        path: str,
        kind: type[Answer],
        *,
        json: Mapping[str, object] | None = None,
        params: Mapping[str, object] | None = None,
        file: Attachment | None = None,
        **names: str,
    ) -> Answer:
        """The answer; a file goes with `json`. Raises `FAILURES`."""
        await self.open()
        assert self._http is not None
        given: dict[str, Any] = {} if json is None else {"json": json}
        if params is not None:
            given["params"] = params
        if file is not None:
            words = {"name": "payload_json", "value": dumps(given.pop("json"))}
            given["form"] = [words, {"name": "files[0]", "value": file.data, "filename": file.name}]
        return read(await self._within(self._http.request(Route(method, path, **names), **given)), kind)

    async def _within(self, request: Any) -> object:
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                return await request
        except (asyncio.CancelledError, TimeoutError):
            if self._http is not None:
                self._http.go_on()
            raise
        except (DiscordException, aiohttp.ClientError, OSError):
            raise
        except Exception as error:  # the library fails in its own ways if an answer makes no sense
            raise UnreadableAnswer from error

    async def download(self, url: str, most_bytes: int) -> bytes:
        """The file; stops reading beyond `most_bytes`. Raises like `ask`, and `FileTooLarge`."""
        host = urlsplit(url).hostname
        if host not in FILE_HOSTS and (self._base is None or host != urlsplit(self._base).hostname):
            raise UnreadableAnswer
        if self._files is None:
            self._files = aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False)
        async with self._files.get(url, proxy=self.proxy, allow_redirects=False, raise_for_status=True) as answer:
            return await read_at_most(answer.content.iter_chunked(PIECE), most_bytes)

    async def aclose(self) -> None:
        if self._http is not None:
            await self._http.close()
        if self._files is not None:
            await self._files.close()
        self._http, self._files, self.me = None, None, None


def read(answer: object, kind: type[Answer]) -> Answer:
    """The answer in that form. Raises `UnreadableAnswer`."""
    try:
        return msgspec.convert(all_whole(answer), kind)
    except msgspec.ValidationError as error:
        raise UnreadableAnswer from error


FAILURES: Final = (DiscordException, aiohttp.ClientError, TimeoutError, OSError, UnreadableAnswer)
"""What `DiscordClient` raises."""


def wished_pause(error: Exception) -> timedelta | None:
    """How long Discord asks to wait, within reason; None if it does not say."""
    seconds: float | None = None
    if isinstance(error, RateLimited):
        seconds = error.retry_after
    elif isinstance(error, HTTPException) and error.status == TOO_MANY:
        try:
            seconds = float(error.response.headers.get("Retry-After", ""))
        except ValueError:
            seconds = None
    return None if seconds is None else timedelta(seconds=min(max(seconds, 0), LONGEST_WISH.total_seconds()))


def is_wrong_token(error: Exception) -> bool:
    return isinstance(error, LoginFailure) or (isinstance(error, HTTPException) and error.status == 401)


def failure_of(error: Exception, *, in_thread: bool = False, is_file: bool = False) -> DeliveryFailed:
    """What the error means for a text that was to be sent. The message holds no token and no text of anybody."""
    if is_wrong_token(error):
        return DeliveryFailed(WRONG_TOKEN, code="channel_failed")
    match error:
        case RateLimited() | HTTPException(status=429):
            return DeliveryFailed("Discord asks to wait.", code=BUSY, retry_after=wished_pause(error))
        case HTTPException(code=code) if in_thread and code in (UNKNOWN_CHANNEL, *_NO_THREAD):
            return DeliveryFailed("The thread takes no texts.", code=THREAD_GONE, is_permanent=True)
        case HTTPException(code=code) if is_file and code == LACKS_RIGHTS:
            said = "Discord refuses the file: give the bot the permission Attach Files there."
            return DeliveryFailed(said, code="channel_refused", is_permanent=True)
        case HTTPException(code=code) if code in _GONE:
            said = f"Discord refuses: the bot has no access there, or may not write to the person ({code})."
            return DeliveryFailed(said, code=GONE, is_permanent=True)
        case HTTPException(status=status, code=code) if 400 <= status < 500:
            said = f"Discord refuses the message ({status}, {code})."
            return DeliveryFailed(said, code="channel_refused", is_permanent=True)
        case TimeoutError():
            said = "Discord did not answer in time; it may have received the text."
            return DeliveryFailed(said, code="channel_timeout")
        case UnreadableAnswer():
            return DeliveryFailed("Discord's answer could not be read.", code="channel_failed")
        case _:
            return DeliveryFailed(UNREACHABLE, code="channel_unreachable")
