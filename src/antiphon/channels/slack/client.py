"""The client library, set up for Antiphon. Importing this module imports the library: only configured apps do it."""

import json
import logging
import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from datetime import timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final, TypeVar, cast
from urllib.parse import urlsplit

import aiohttp
import anyio
import msgspec
from slack_sdk.errors import SlackApiError, SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from antiphon.channels.files import PIECE, read_at_most
from antiphon.channels.json_facts import Json, find_object
from antiphon.channels.signature import MAX_AGE_SECONDS
from antiphon.channels.slack.events import SlackBot
from antiphon.channels.slack.section import SlackAccount
from antiphon.clock import Clock
from antiphon.domain.delivery import BUSY, GONE, THREAD_GONE, DeliveryFailed

REQUEST_SECONDS: Final = 20.0
"""How long a request may take."""
LONGEST_WISH: Final = timedelta(hours=1)
"""How long Slack may ask to wait."""
USUAL_WISH: Final = timedelta(seconds=30)
"""How long is waited if Slack does not say how long."""
PAGE: Final = 200
SLACK: Final = "https://slack.com/api/"

TRANSPORT: Final = "unreachable"
"""The code of a request that Slack may or may not have received, like the next two."""
SLOW: Final = "timeout"
UNREADABLE: Final = "unreadable"
LIMITED: Final = "ratelimited"
SKEWED: Final = "clock_skew"
_REVOKED: Final = (
    "invalid_auth|not_authed|token_(revoked|expired)|account_inactive|not_allowed_token_type|team_not_found"
)
_FAILURES: Final = (
    (_REVOKED, "channel_failed", "Slack does not accept the bot's token."),
    (SLOW, "channel_timeout", "Slack did not answer in time; it may have received the text."),
    (TRANSPORT, "channel_unreachable", "Slack cannot be reached."),
    (UNREADABLE, "channel_failed", "Slack's answer could not be read."),
    (
        "(internal|fatal)_error|service_unavailable|request_timeout|accesslimited",
        "channel_failed",
        "Slack fails: {code}.",
    ),
    ("missing_scope", "channel_failed", "The app lacks a right: {needed}. Add it, and install the app again."),
)
"""After these the same text may be taken later: how they are called, a code of ours, and what it means."""
_GONE: Final = (
    ("(thread_not_found|invalid_thread_ts|cannot_reply_to_message|.*thread_locked)", THREAD_GONE),
    (
        "(channel|user)_not_found|not_in_channel|is_archived|user_disabled|cannot_dm_bot|restricted_.*|(?!file_).*_disabled",
        GONE,
    ),
)
"""What Slack says of places that take no texts."""

Read = TypeVar("Read")


class SlackError(Exception):
    """Slack refused a request, or gave no answer. Holds no token and no text of anybody."""

    def __init__(self, code: str, *, needed: str = "", wish: timedelta | None = None) -> None:
        super().__init__(f"Slack says: {code}")
        self.code = code
        self.needed = needed
        """The right that is missing."""
        self.wish = wish
        """How long Slack asks to wait."""
        self.is_of_app = False
        """Whether it concerns the token of the app, and not the bot's."""

    @property
    def is_passing(self) -> bool:
        """Whether Slack may answer if it is asked again; until then, nobody knows what it did."""
        return self.code in (TRANSPORT, SLOW, UNREADABLE, LIMITED)

    @property
    def is_of_token(self) -> bool:
        """Whether the token is worth nothing."""
        return re.fullmatch(_REVOKED, self.code) is not None


class SlackClient:
    """Connections to the Web API for one app; opened when first used, closed by `aclose`."""

    def __init__(self, settings: SlackAccount, clock: Clock) -> None:
        logging.getLogger("slack_sdk").setLevel(logging.WARNING)  # below that, it logs what is sent
        self._token, self._app_token = settings.key() or "", settings.app_key() or ""
        self._is_slacks = settings.api_base is None
        self._base = f"{(settings.api_base or SLACK).rstrip('/')}/"
        self._clock = clock
        self._session: aiohttp.ClientSession | None = None
        self._busy_until = 0.0
        self._me: SlackBot | None = None
        self.scopes: frozenset[str] = frozenset()
        """The rights of the bot, as the newest answer names them."""
        self.skew = 0.0
        """Seconds by which this machine's clock is off from Slack's, as the newest answer is dated."""

    async def aclose(self) -> None:
        if self._session is not None:
            await self._session.close()
        self._session = None

    async def call(self, method: str, **parameters: object) -> Json:
        """The answer of a method of the Web API. Raises `SlackError`.

        A message (`chat.*`) is not even sent while Slack asks to wait: messages and their changes share one budget.
        """
        is_message, as_app = method.startswith("chat."), method.startswith("apps.")
        if is_message and (left := self._busy_until - self._clock.monotonic()) > 0:
            raise SlackError(LIMITED, wish=timedelta(seconds=left))
        form = {
            name: value if isinstance(value, str) else json.dumps(value)
            for name, value in parameters.items()
            if value is not None
        }
        try:
            answer = await self._web(as_app=as_app).api_call(method, data=form)  # pyright: ignore[reportUnknownMemberType]
        except (SlackClientError, aiohttp.ClientError, TimeoutError, ValueError) as error:
            failed = _read_error(error)
            failed.is_of_app = as_app
            if is_message and failed.wish is not None:
                self._busy_until = self._clock.monotonic() + failed.wish.total_seconds()
            raise failed from None  # the library's own error holds what was sent
        headers, data = cast("tuple[Mapping[str, str], Json]", (answer.headers, answer.data))  # pyright: ignore
        if not as_app and (granted := headers.get("x-oauth-scopes")):
            self.scopes = frozenset(each.strip() for each in granted.split(","))
        with suppress(ValueError):
            self.skew = self._clock.now().timestamp() - parsedate_to_datetime(headers.get("date", "")).timestamp()
        return data

    def check_clock(self) -> None:
        """Raises `SlackError` if the clocks are so far apart that what Slack signs would seem too old, or too new."""
        if abs(self.skew) > MAX_AGE_SECONDS:
            raise SlackError(SKEWED)

    async def pages(self, method: str, name: str, **parameters: object) -> AsyncIterator[Json]:
        """The things that the method lists under that name, page after page; waits as Slack asks."""
        cursor: str | None = None
        while True:
            try:
                answer = await self.call(method, limit=PAGE, cursor=cursor, **parameters)
            except SlackError as error:
                if error.wish is None:
                    raise
                await anyio.sleep(error.wish.total_seconds())
                continue
            for each in cast("list[Json]", answer.get(name) or []):
                yield each
            cursor = find_object(answer, "response_metadata").get("next_cursor")
            if not cursor:
                return

    async def find_me(self) -> SlackBot:
        """Who the app's bot is. Raises `SlackError`."""
        self._me = read(await self.call("auth.test"), SlackBot)
        return self._me

    async def me(self) -> SlackBot:
        """The same, asked once."""
        return self._me or await self.find_me()

    async def connect(self) -> aiohttp.ClientWebSocketResponse:
        """A new connection of socket mode. Raises `SlackError`."""
        opened, web = await self.call("apps.connections.open"), self._web(as_app=True)
        try:
            return await self._opened().ws_connect(str(opened.get("url")), heartbeat=REQUEST_SECONDS, proxy=web.proxy)
        except (aiohttp.ClientError, TimeoutError, ValueError) as error:
            raise SlackError(TRANSPORT) from error

    async def download(self, url: str, most: int) -> bytes | None:
        """The file; None if Slack does not give it. Raises `SlackError`, and `FileTooLarge` once more bytes have come.

        It is asked for with the token, so only a server of Slack is asked, and no redirection is followed.
        """
        if not self._is_ours(url):
            return None
        headers = {"Authorization": f"Bearer {self._token}", "Accept-Encoding": "identity"}
        patience = aiohttp.ClientTimeout(total=None, sock_read=REQUEST_SECONDS)
        try:
            async with self._opened().get(url, headers=headers, allow_redirects=False, timeout=patience) as answer:
                if answer.status >= 500 or answer.status == 429:
                    raise SlackError(TRANSPORT)
                if answer.status != 200 or answer.content_type == "text/html":  # a page for signing in
                    return None
                return await read_at_most(answer.content.iter_chunked(PIECE), most)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SlackError(TRANSPORT) from error

    async def upload(self, url: str, data: bytes) -> None:
        """Gives the file to the address that Slack has named for it. Raises `SlackError`."""
        if not self._is_ours(url):
            raise SlackError(UNREADABLE)
        patience = aiohttp.ClientTimeout(total=None, sock_read=REQUEST_SECONDS)
        try:
            async with self._opened().post(url, data=data, allow_redirects=False, timeout=patience) as answer:
                if answer.status != 200:
                    raise SlackError(TRANSPORT)
        except (aiohttp.ClientError, TimeoutError) as error:
            raise SlackError(TRANSPORT) from error

    def _is_ours(self, url: str) -> bool:
        try:
            asked, base = urlsplit(url), urlsplit(self._base)
            if not self._is_slacks:
                return asked[:2] == base[:2]
            return asked.scheme == "https" and f".{asked.hostname}".endswith(".slack.com") and asked.port is None
        except ValueError:
            return False

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=REQUEST_SECONDS)
            # The proxies of the environment are meant for Slack, not for a server that the settings name.
            self._session = aiohttp.ClientSession(timeout=timeout, trust_env=self._is_slacks)
        return self._session

    def _web(self, *, as_app: bool) -> AsyncWebClient:
        """Without the library's own repetition: it would send a message again whose answer was lost."""
        token = self._app_token if as_app else self._token
        web = AsyncWebClient(token, self._base, session=self._opened(), retry_handlers=[])
        web.proxy = web.proxy if self._is_slacks else None
        return web


def read(answer: object, type: type[Read]) -> Read:
    """Raises `SlackError` for an answer of another form."""
    try:
        return msgspec.convert(answer, type)
    except msgspec.ValidationError as error:
        raise SlackError(UNREADABLE) from error


def _read_error(error: Exception) -> SlackError:
    if isinstance(error, TimeoutError):
        return SlackError(SLOW)
    if not isinstance(error, SlackApiError):
        return SlackError(UNREADABLE if isinstance(error, ValueError) else TRANSPORT)
    response = cast("Any", error.response)  # pyright: ignore[reportUnknownMemberType]
    status = getattr(response, "status_code", None) or getattr(response, "status", 0)
    data: object = getattr(response, "data", None)
    facts = cast("Json", data) if isinstance(data, dict) else {}
    code = str(facts.get("error") or "")
    if status == 429 or code in (LIMITED, "rate_limited", "message_limit_exceeded"):
        said = str(getattr(response, "headers", {}).get("Retry-After", ""))
        is_number = said.isdecimal() and len(said) < 10
        return SlackError(LIMITED, wish=min(timedelta(seconds=int(said)), LONGEST_WISH) if is_number else USUAL_WISH)
    if not code:
        return SlackError(UNREADABLE if status == 200 else TRANSPORT)
    return SlackError(code[:100], needed=str(facts.get("needed") or "")[:200])


def failure_of(error: SlackError) -> DeliveryFailed:
    """What the error means for a text that was to be sent."""
    if error.code == LIMITED:
        return DeliveryFailed("Slack asks to wait.", code=BUSY, retry_after=error.wish)
    for form, code, said in _FAILURES:
        if re.fullmatch(form, error.code):
            return DeliveryFailed(said.format(code=error.code, needed=error.needed), code=code)
    code = next((code for form, code in _GONE if re.fullmatch(form, error.code)), "channel_refused")
    return DeliveryFailed(f"Slack refuses the message: {error.code}.", code=code, is_permanent=True)
