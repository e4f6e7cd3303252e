"""Sends texts to Telegram. Contract: channels 1."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import TypeVar

from msgspec.structs import replace
from telegram import (
    InlineKeyboardButton,
    InlineKeyboardMarkup,
    LinkPreviewOptions,
    Message,
    MessageEntity,
)
from telegram.error import BadRequest, ChatMigrated, TelegramError

from antiphon.channels.markup import DrawnText, StyledSpan, render, verbatim
from antiphon.channels.telegram.client import TelegramClient, failure_of
from antiphon.channels.telegram.settings import ACCOUNT, LONGEST_TEXT, NAME
from antiphon.domain.attachments import Attachment
from antiphon.domain.channel_form import Button, ChannelForm, DeliveryPart, LengthUnit, Streaming
from antiphon.domain.delivery import Delivery, DeliveryFailed
from antiphon.domain.session import DeliveryContext

TABLE_WIDTH = 44
"""Columns of monospaced text that a phone shows without a break."""
LARGEST_DOCUMENT = 50 * 1000 * 1000
"""Bytes of a file that a bot may send: "50 MB"."""
FORM = ChannelForm(
    longest=LONGEST_TEXT,
    unit=LengthUnit.UTF16,
    streaming=Streaming.DRAFT,
    has_buttons=True,
    table_width=TABLE_WIDTH,
    files=LARGEST_DOCUMENT,
)
LONGEST_TOPIC = 128
"""The longest name of a topic, in characters."""
MOST_IN_ROW = 3
"""Buttons side by side."""
GROUP_INTERVAL_MS = 6_000
"""The least time between two changes in a group: Telegram allows 20 messages a minute there."""
TIMEOUT_SECONDS = 45.0
_NO_PREVIEW = LinkPreviewOptions(is_disabled=True)
"""For a preview Telegram fetches the address: words of a reply must not reach servers that the reply names."""
_BAD_MARKUP = ("can't parse", "entity", "entities", "wrong http url", "url host is empty")
"""How Telegram describes markup that it does not take."""


Shown = TypeVar("Shown")
_Act = Callable[[str, Sequence[StyledSpan]], Awaitable[Shown]]


class TelegramChannel:
    """Implements `LiveChannel` for one bot."""

    def __init__(self, client: TelegramClient, stream_interval: timedelta = timedelta(milliseconds=1500)) -> None:
        interval_ms = stream_interval // timedelta(milliseconds=1)
        self._form = replace(
            FORM, stream_interval_ms=interval_ms, group_interval_ms=max(GROUP_INTERVAL_MS, interval_ms)
        )
        self._client = client
        self._bot = client.bot

    @property
    def name(self) -> str:
        return NAME

    @property
    def account(self) -> str | None:
        return ACCOUNT

    @property
    def timeout_seconds(self) -> float:
        return TIMEOUT_SECONDS

    @property
    def form(self) -> ChannelForm:
        return self._form

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        """Sends the part, or replaces the message that it names."""
        place = _place_of(delivery.place)
        if part.file is not None:
            return await self._send_file(place, part.file)
        if part.replaces is not None and part.replaces.isdecimal():
            message = place[0], int(part.replaces)
            try:
                await self._show(_drawn(part), lambda text, spans: self._edit(message, text, spans, part.buttons))
                return part.replaces
            except BadRequest as error:
                if "not modified" in error.message.lower():
                    return part.replaces
                raise failure_of(error) from error
            except TelegramError as error:
                raise failure_of(error) from error
        try:
            sent = await self._show(_drawn(part), lambda text, spans: self._send(place, text, spans, part.buttons))
        except TelegramError as error:
            raise failure_of(error) from error
        return str(sent.message_id)

    async def draft(self, place: DeliveryContext, draft_id: int, text: str) -> None:
        chat, thread = _place_of(place)
        shown = _end_of(text)
        if not shown.strip():
            return
        try:
            await self._show(
                render(shown),
                lambda text, spans: self._bot.send_message_draft(
                    chat, draft_id, text, message_thread_id=thread, entities=_entities(spans)
                ),
            )
        except TelegramError as error:
            raise failure_of(error) from error

    async def typing(self, place: DeliveryContext) -> None:
        chat, thread = _place_of(place)
        try:
            await self._bot.send_chat_action(chat, "typing", message_thread_id=thread)
        except TelegramError as error:
            raise failure_of(error) from error

    async def withdraw(self, place: DeliveryContext, platform_id: str) -> None:
        try:
            await self._bot.delete_message(_place_of(place)[0], int(platform_id))
        except BadRequest as error:
            if not _is_gone(error):
                raise failure_of(error) from error
        except TelegramError as error:
            raise failure_of(error) from error

    async def react(self, place: DeliveryContext, platform_id: str, emoji: str, *, is_shown: bool) -> None:
        _, chat, message = platform_id.rsplit(":", 2)
        try:
            await self._bot.set_message_reaction(int(chat), int(message), emoji if is_shown else None)
        except TelegramError as error:
            if not (isinstance(error, BadRequest) and _is_gone(error)):
                raise failure_of(error) from error

    async def open_thread(self, place: DeliveryContext, message_id: str | None, title: str) -> str:
        """A topic, which stands under no message; only groups with topics, and chats with them, have any."""
        try:
            topic = await self._bot.create_forum_topic(_place_of(place)[0], title[:LONGEST_TOPIC])
        except TelegramError as error:
            raise failure_of(error) from error
        return str(topic.message_thread_id)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _show(self, drawn: DrawnText, act: _Act[Shown]) -> Shown:
        """Acts with markup; if Telegram refuses the markup, acts once more with the text as it was written."""
        try:
            return await act(drawn.text, drawn.spans)
        except BadRequest as error:
            if not drawn.spans or not any(word in error.message.lower() for word in _BAD_MARKUP):
                raise
            return await act(drawn.written, [])

    async def _send(
        self, place: tuple[int, int | None], text: str, spans: Sequence[StyledSpan], buttons: Sequence[Button]
    ) -> Message:
        chat, thread = place
        try:
            return await self._bot.send_message(
                chat,
                text,
                message_thread_id=thread,
                entities=_entities(spans),
                reply_markup=_keyboard(buttons),
                link_preview_options=_NO_PREVIEW,
            )
        except ChatMigrated as moved:
            return await self._send((moved.new_chat_id, thread), text, spans, buttons)

    async def _send_file(self, place: tuple[int, int | None], file: Attachment) -> str:
        chat, thread = place
        try:
            sent = await self._bot.send_document(
                chat,
                file.data,
                filename=file.name,
                message_thread_id=thread,
                disable_content_type_detection=True,
                write_timeout=TIMEOUT_SECONDS,
            )
        except ChatMigrated as moved:
            return await self._send_file((moved.new_chat_id, thread), file)
        except TelegramError as error:
            raise failure_of(error) from error
        return str(sent.message_id)

    async def _edit(
        self, message: tuple[int, int], text: str, spans: Sequence[StyledSpan], buttons: Sequence[Button]
    ) -> Message | bool:
        chat, message_id = message
        return await self._bot.edit_message_text(
            text,
            chat,
            message_id,
            entities=_entities(spans),
            reply_markup=_keyboard(buttons),
            link_preview_options=_NO_PREVIEW,
        )


def _place_of(place: DeliveryContext) -> tuple[int, int | None]:
    """The chat and the topic. Raises `DeliveryFailed` for names that no chat has."""
    thread = place.thread_id
    try:
        return int(place.to or ""), None if thread is None else int(thread)
    except ValueError as error:
        raise DeliveryFailed(
            "Telegram has no such chat: the recipient must be the number of a chat.",
            code="channel_refused",
            is_permanent=True,
        ) from error


def _drawn(part: DeliveryPart) -> DrawnText:
    """Antiphon's own text stays as it is; an agent's is rendered."""
    return render(part.text) if part.spans is None else verbatim(part.text, part.spans)


def _entities(spans: Sequence[StyledSpan]) -> list[MessageEntity] | None:
    if not spans:
        return None
    return [MessageEntity(each.kind, each.offset, each.length, url=each.url, language=each.language) for each in spans]


def _keyboard(buttons: Sequence[Button]) -> InlineKeyboardMarkup | None:
    """The buttons in one row, or in rows of two if there are more than fit side by side on a phone."""
    if not buttons:
        return None
    keys = [InlineKeyboardButton(each.label, callback_data=each.data) for each in buttons]
    if len(keys) <= MOST_IN_ROW:
        return InlineKeyboardMarkup([keys])
    return InlineKeyboardMarkup([keys[at : at + 2] for at in range(0, len(keys), 2)])


def _is_gone(error: BadRequest) -> bool:
    """Whether the message that was to be changed does not exist any more."""
    said = error.message.lower()
    return ("not found" in said and "chat" not in said) or "can't be edited" in said or "can't be deleted" in said


def _end_of(text: str) -> str:
    """The end of a long text, which is being written."""
    units = text.encode("utf-16-le", "surrogatepass")
    if len(units) <= 2 * LONGEST_TEXT:
        return text
    return "…" + units[-2 * (LONGEST_TEXT - 1) :].decode("utf-16-le", "ignore")
