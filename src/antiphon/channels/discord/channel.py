"""Sends texts to Discord. Contract: channels 1."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final
from uuid import uuid4

from discord.errors import HTTPException
from msgspec import Struct
from msgspec.structs import replace

from antiphon.channels.discord.client import (
    CHANNEL,
    FAILURES,
    MESSAGE,
    MESSAGES,
    THREAD_EXISTS,
    UNKNOWN_CHANNEL,
    UNKNOWN_MESSAGE,
    DiscordClient,
    failure_of,
)
from antiphon.channels.discord.events import snowflake_of
from antiphon.channels.discord.markup import drawn, rows_of
from antiphon.channels.discord.rooms import DiscordRoom, DiscordUser, Snowflake
from antiphon.channels.discord.settings import LONGEST_TEXT, NAME
from antiphon.clock import Clock
from antiphon.domain.channel_form import ChannelForm, DeliveryPart, LengthUnit, Streaming
from antiphon.domain.delivery import Delivery, DeliveryFailed
from antiphon.domain.session import DeliveryContext
from antiphon.domain.text import one_line

FORM: Final = ChannelForm(
    longest=LONGEST_TEXT,
    unit=LengthUnit.UTF16,
    streaming=Streaming.EDIT,
    files=10 * 1024 * 1024,  # everywhere; servers that pay get more
    has_buttons=True,
    table_width=44,
)
GROUP_INTERVAL_MS: Final = 2_500
"""The least time between two changes in a channel, which has one budget for all who write and edit there."""
TIMEOUT_SECONDS: Final = 45.0
NO_PREVIEW: Final = 1 << 2
"""For a preview Discord fetches the address: words of a reply must not reach servers that the reply names."""
KNOWN_FOR: Final = timedelta(seconds=60)
"""How long Discord surely knows a nonce; it says "a few minutes"."""
SKEW: Final = timedelta(seconds=30)
"""Between our clock and Discord's."""
MOST_PAGES: Final = 5
PAGE: Final = 100
LONGEST_TITLE: Final = 100
ARCHIVE_MINUTES: Final = 1_440
_NOBODY: Final[Mapping[str, object]] = {"parse": []}
"""Whom a text notifies by its mentions."""


class DiscordSentFile(Struct, frozen=True, kw_only=True):
    """A file as Discord keeps it: the name in letters of ASCII, and, if that is another, as it was, unextended."""

    size: int
    filename: str
    title: str | None = None


class DiscordSent(Struct, frozen=True, kw_only=True):
    """A message in a channel."""

    id: Snowflake
    content: str = ""
    nonce: str | int | None = None
    author: DiscordUser | None = None
    attachments: tuple[DiscordSentFile, ...] = ()


class DiscordChannel:
    """Implements `LiveChannel` and `ThreadedChannel` for one bot."""

    def __init__(self, client: DiscordClient, clock: Clock) -> None:
        interval_ms = client.settings.stream_interval // timedelta(milliseconds=1)
        self._form = replace(
            FORM, stream_interval_ms=interval_ms, group_interval_ms=max(GROUP_INTERVAL_MS, interval_ms)
        )
        self._client = client
        self._rooms = client.rooms
        self._clock = clock

    @property
    def name(self) -> str:
        return NAME

    @property
    def account(self) -> str | None:
        return self._client.settings.account

    @property
    def timeout_seconds(self) -> float:
        return TIMEOUT_SECONDS

    @property
    def form(self) -> ChannelForm:
        return self._form

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        """Sends the part, or replaces the message that it names."""
        try:
            channel = await self._channel_of(delivery.place)
            if part.replaces is not None and part.replaces.isdecimal():
                await self._edit(channel, part.replaces, part)
                return part.replaces
            return await self._send(channel, delivery, part)
        except FAILURES as error:
            in_thread, is_file = delivery.place.thread_id is not None, part.file is not None
            raise failure_of(error, in_thread=in_thread, is_file=is_file) from error

    async def draft(self, place: DeliveryContext, draft_id: int, text: str) -> None:
        """There are none: replies are shown by edits."""

    async def typing(self, place: DeliveryContext) -> None:
        try:
            await self._client.ask("POST", f"{CHANNEL}/typing", object, channel_id=await self._channel_of(place))
        except FAILURES as error:
            raise failure_of(error, in_thread=place.thread_id is not None) from error

    async def withdraw(self, place: DeliveryContext, platform_id: str) -> None:
        try:
            channel = await self._channel_of(place)
            await self._client.ask("DELETE", MESSAGE, object, channel_id=channel, message_id=platform_id)
        except FAILURES as error:
            if not (isinstance(error, HTTPException) and error.code == UNKNOWN_MESSAGE):
                raise failure_of(error, in_thread=place.thread_id is not None) from error

    async def react(self, place: DeliveryContext, platform_id: str, emoji: str, *, is_shown: bool) -> None:
        _, channel, message = platform_id.rsplit(":", 2)
        method, path = "PUT" if is_shown else "DELETE", f"{MESSAGE}/reactions/{{emoji}}/@me"
        try:
            await self._client.ask(method, path, object, channel_id=channel, message_id=message, emoji=emoji)
        except FAILURES as error:
            if not (isinstance(error, HTTPException) and error.status == 404):
                raise failure_of(error) from error

    async def open_thread(self, place: DeliveryContext, message_id: str | None, title: str) -> str:
        """The thread under the message, whose id is the message's."""
        name = one_line(title, LONGEST_TITLE).strip() or "…"
        asked = {"name": name, "auto_archive_duration": ARCHIVE_MINUTES}
        where, message = "", ""
        try:
            channel = await self._channel_of(replace(place, thread_id=None))
            if message_id is not None:
                _, where, message = message_id.rsplit(":", 2)
            if where != channel:  # in a thread there can be none
                part = DeliveryPart(index=0, text=name, spans=())
                nonce = nonce_of(f"{channel} {message_id or uuid4().hex} {name}", 0)
                message = (await self._post(channel, part, nonce)).id
            path = f"{MESSAGE}/threads"
            await self._client.ask("POST", path, DiscordRoom, json=asked, channel_id=channel, message_id=message)
        except FAILURES as error:
            if not (isinstance(error, HTTPException) and error.code == THREAD_EXISTS):
                raise failure_of(error) from error
        return message

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _send(self, channel: str, delivery: Delivery, part: DeliveryPart) -> str:
        nonce = nonce_of(delivery.id, part.index)
        if delivery.attempts > 1 and self._clock.now() - delivery.created_at > KNOWN_FOR:
            found = await self._find(channel, nonce, part, delivery.created_at - SKEW)
            if found is not None:
                return found
        sent = await self._post(channel, part, nonce)
        if sent.content.strip() != drawn(part).strip():  # it was there already, with the first words of the text
            await self._edit(channel, sent.id, part)
        return sent.id

    async def _post(self, channel: str, part: DeliveryPart, nonce: str) -> DiscordSent:
        asked = {**_content(part), "nonce": nonce, "enforce_nonce": True}
        return await self._client.ask("POST", MESSAGES, DiscordSent, json=asked, file=part.file, channel_id=channel)

    async def _edit(self, channel: str, message: str, part: DeliveryPart) -> None:
        await self._client.ask("PATCH", MESSAGE, object, json=_content(part), channel_id=channel, message_id=message)

    async def _find(self, channel: str, nonce: str, part: DeliveryPart, since: datetime) -> str | None:
        """The bot's message with the part, sent since then; None if it is not there, or cannot be looked for."""
        me, after = await self._client.open(), str(snowflake_of(since))
        for _ in range(MOST_PAGES):
            try:
                asked = {"after": after, "limit": PAGE}
                page = await self._client.ask("GET", MESSAGES, list[DiscordSent], params=asked, channel_id=channel)
            except HTTPException as error:
                if error.status == 403:
                    return None  # without the right to read the history, a text may be seen twice
                raise
            own = [each for each in page if each.author is not None and each.author.id == me.id]
            for each in sorted(own, key=lambda sent: int(sent.id)):
                if each.nonce == nonce or (each.nonce is None and _shows(each, part)):
                    return each.id
            if len(page) < PAGE:
                return None
            after = max((each.id for each in page), key=int)
        return None

    async def _channel_of(self, place: DeliveryContext) -> str:
        """The channel to which texts for the place go. Raises `DeliveryFailed` for names that no place has."""
        to, thread = place.to or "", place.thread_id
        if not to.isdecimal() or not (thread is None or thread.isdecimal()):
            raise DeliveryFailed(
                "Discord has no such place: the recipient must be the id of a person or channel.",
                code="channel_refused",
                is_permanent=True,
            )
        if thread is not None:
            return thread
        if (direct := self._rooms.direct_with(to)) is not None:
            return direct
        if self._rooms.find(to) is not None:
            return to
        return await self._ask_for(to)

    async def _ask_for(self, to: str) -> str:
        """Ids of channels and of people look alike."""
        try:
            room = await self._client.ask("GET", CHANNEL, DiscordRoom, channel_id=to)
        except HTTPException as error:
            if error.code != UNKNOWN_CHANNEL:
                raise
            room = await self._client.ask("POST", "/users/@me/channels", DiscordRoom, json={"recipient_id": to})
        self._rooms.note(room)
        return room.id


def nonce_of(delivery: str, part: int) -> str:
    """By which Discord recognises a part that is sent again."""
    return sha256(f"{delivery}.{part}".encode()).hexdigest()[:24]


def _shows(sent: DiscordSent, part: DeliveryPart) -> bool:
    file = part.file
    if file is None:
        return sent.content.strip() == drawn(part).strip() and not sent.attachments
    found = [each for each in sent.attachments if file.name.startswith(each.title or each.filename)]
    return any(each.size == len(file.data) for each in found)


def _content(part: DeliveryPart) -> dict[str, object]:
    return {
        "content": drawn(part),
        "allowed_mentions": _NOBODY,
        "flags": NO_PREVIEW,
        "components": rows_of(part.buttons),
    }
