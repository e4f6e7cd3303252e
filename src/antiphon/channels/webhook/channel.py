"""The channel `webhook`: texts leave as signed POST requests. Contract: channels 1."""

from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import urlsplit

import httpx
from msgspec import MsgspecError, Struct
from msgspec.json import Decoder

from antiphon.channels.signature import ID_HEADER, SIGNATURE_HEADER, TIME_HEADER, Direction, sign
from antiphon.channels.webhook.settings import NAME, WebhookSettings
from antiphon.clock import Clock
from antiphon.domain.channel_form import PLAIN_FORM, ChannelForm, DeliveryPart
from antiphon.domain.delivery import BUSY, Delivery, DeliveryFailed
from antiphon.wire.encoding import compact_json, milliseconds

MAX_ANSWER_BYTES = 16 * 1024
MAX_PLATFORM_ID = 200
PASSING = frozenset({408, 409, 425, 429})
"""Answers that another attempt may not get."""


class WebhookChannel:
    """Implements `Channel` for one webhook that has an address."""

    def __init__(self, settings: WebhookSettings, clock: Clock) -> None:
        assert settings.url is not None
        self._settings = settings
        self._url = settings.url
        self._host = urlsplit(settings.url).netloc.rpartition("@")[2]
        self._clock = clock
        self._client: httpx.AsyncClient | None = None

    @property
    def name(self) -> str:
        return NAME

    @property
    def account(self) -> str | None:
        return self._settings.name

    @property
    def timeout_seconds(self) -> float:
        return self._settings.timeout_seconds

    @property
    def form(self) -> ChannelForm:
        return PLAIN_FORM

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        """Posts the text, always in one part. Uses only the answer's status, and its `id` if it is a JSON object."""
        body = body_of(delivery, part, self._settings.name)
        timestamp = int(self._clock.now().timestamp())
        headers = {
            "Content-Type": "application/json",
            "User-Agent": "antiphon",
            ID_HEADER: delivery.id,
            TIME_HEADER: str(timestamp),
            SIGNATURE_HEADER: sign(
                self._settings.secret, Direction.OUT, self._settings.name, timestamp=timestamp, body=body
            ),
        }
        try:
            async with self._open_client().stream("POST", self._url, content=body, headers=headers) as answer:
                if answer.is_success:
                    return _platform_id(await _read(answer))
                raise self._refusal(answer)
        except httpx.TimeoutException as error:
            raise DeliveryFailed(
                f"{self._host} did not answer in time; it may have received the text.", code="channel_timeout"
            ) from error
        except httpx.HTTPError as error:
            raise DeliveryFailed(
                f"{self._host} cannot be reached ({type(error).__name__}).", code="channel_unreachable"
            ) from error

    async def aclose(self) -> None:
        if self._client is not None:
            await self._client.aclose()

    def _open_client(self) -> httpx.AsyncClient:
        if self._client is None:
            # Ignores proxies and passwords that the environment or a .netrc holds for other programs.
            self._client = httpx.AsyncClient(
                timeout=self._settings.timeout_seconds, follow_redirects=False, trust_env=False
            )
        return self._client

    def _refusal(self, answer: httpx.Response) -> DeliveryFailed:
        status = answer.status_code
        is_permanent = 400 <= status < 500 and status not in PASSING
        hint = " Redirects are not followed; set url to the final address." if answer.is_redirect else ""
        wish = retry_after(answer.headers.get("Retry-After"), self._clock.now())
        is_busy = status == 429 or wish is not None
        return DeliveryFailed(
            f"{self._host} answered with HTTP {status}.{hint}",
            code="channel_refused" if is_permanent else BUSY if is_busy else "channel_failed",
            is_permanent=is_permanent,
            retry_after=wish,
        )


def retry_after(value: str | None, now: datetime) -> timedelta | None:
    """The delay that a `Retry-After` of seconds or of a date gives; None for any other value."""
    if value is None:
        return None
    text = value.strip()
    if text.isascii() and text.isdigit():
        return timedelta(seconds=int(text[:9]))
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return max(timedelta(0), (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - now)


def body_of(delivery: Delivery, part: DeliveryPart, name: str) -> bytes:
    """What the webhook with that name is posted. Antiphon's own text is marked as one that holds no markup."""
    shown: dict[str, Any] = {
        "id": delivery.id,
        "channel": NAME,
        "account": name,
        "to": delivery.place.to,
        "threadId": delivery.place.thread_id,
        "text": part.text,
        "isVerbatim": None if part.spans is None else True,
        "sessionKey": delivery.session_key,
        "runId": delivery.run_id,
        "createdAt": milliseconds(delivery.created_at),
    }
    return compact_json({key: value for key, value in shown.items() if value is not None})


async def _read(answer: httpx.Response) -> bytes:
    """The raw answer; empty if it is long."""
    body = b""
    async for part in answer.aiter_raw():
        body += part
        if len(body) > MAX_ANSWER_BYTES:
            return b""
    return body


class _PeerAnswer(Struct):
    id: str | None = None


_decode = Decoder(_PeerAnswer).decode


def _platform_id(body: bytes) -> str | None:
    try:
        found = _decode(body).id
    except MsgspecError:
        return None
    return found if found and len(found) <= MAX_PLATFORM_ID and found.isprintable() else None
