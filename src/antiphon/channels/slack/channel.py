"""Sends texts to Slack. Contract: channels 1."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from datetime import timedelta
from typing import Final, cast

from msgspec import Struct
from msgspec.structs import replace

from antiphon.channels.json_facts import Json, find_object, words
from antiphon.channels.markup import DrawnText, render, verbatim
from antiphon.channels.remembered import Remembered
from antiphon.channels.slack.blocks import blocks_of, defuse, escape
from antiphon.channels.slack.client import LIMITED, SlackClient, SlackError, failure_of
from antiphon.channels.slack.section import NAME, REACTIONS
from antiphon.domain.attachments import Attachment
from antiphon.domain.channel_form import ChannelForm, DeliveryPart, Streaming
from antiphon.domain.delivery import Delivery
from antiphon.domain.session import DeliveryContext

FORM: Final = ChannelForm(
    longest=3_800, streaming=Streaming.EDIT, has_buttons=True, files=1024 * 1024 * 1024, table_width=80
)
GROUP_INTERVAL_MS: Final = 3_000
"""The least time between two changes in a channel with its threads: Slack allows about 50 edits a minute."""
LONGEST_NOTICE: Final = 500
"""Characters of a text in notifications, and where blocks cannot be shown."""
MARK: Final = "antiphon_delivery"
"""The kind of the metadata by which a message is found that Slack took without saying so."""
LOOK_BACK: Final = timedelta(hours=1)
"""How long before its delivery was made a message is looked for: a reply that was streamed began earlier."""
MOST_LOOKED: Final = 400
_ENDED: Final = ("message_not_in_streaming_state", "stopped_by_user", "message_not_found", "message_not_owned_by_app")
"""What Slack says of a stream that takes no more words: it ends by itself after some minutes."""
_REACTED: Final = ("already_reacted", "no_reaction", "message_not_found", "channel_not_found")
"""What Slack says of reactions if nothing is to change, or the message is gone."""
_NO_STREAMS: Final = ("unknown_method", "channel_type_not_supported", "invalid_arguments", "missing_recipient_user_id")


class _StreamedMessage(Struct):
    """A message that this process streams, or streamed."""

    text: str
    is_open: bool = True
    is_sure: bool = True
    """Whether Slack has said that the message holds just this text."""


class _SlackPlace(Struct, frozen=True):
    """A place as Slack names it."""

    channel: str
    thread: str | None


class SlackChannel:
    """Implements `LiveChannel` and `ThreadedChannel` for one app in one workspace."""

    timeout_seconds = 45.0
    name = NAME

    def __init__(self, client: SlackClient, account: str, interval_ms: int) -> None:
        interval = max(GROUP_INTERVAL_MS, interval_ms)
        self.account: str = account
        self.form = replace(FORM, stream_interval_ms=interval_ms, group_interval_ms=interval)
        self._client = client
        self._direct = Remembered[str]()
        """The ids of direct chats, by the person."""
        self._streams = Remembered[_StreamedMessage]()
        """By the id of the message."""

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        """Sends the part, or replaces the message that it names. A text that is sent again is looked for first."""
        with _failing():
            where, shown = await self._find_place(delivery.place), part.replaces
            if part.file is not None:
                return await self._send_file(where, delivery, part.file)
            if shown is None and delivery.attempts > 1:
                since = (delivery.created_at - LOOK_BACK).timestamp()
                shown = await self._find(where, since, lambda each: _shows(each, delivery, part))
            if shown is not None:
                await self._replace(where, part, shown)
                return shown
            return await self._begin(where, delivery, part)

    async def draft(self, place: DeliveryContext, draft_id: int, text: str) -> None:
        """There are none: replies are streamed in threads, and edited elsewhere."""

    async def typing(self, place: DeliveryContext) -> None:
        """Slack has no such sign for apps."""

    async def withdraw(self, place: DeliveryContext, platform_id: str) -> None:
        with _failing():
            where = await self._find_place(place)
            await self._end_stream(where, platform_id)
            try:
                await self._client.call("chat.delete", channel=where.channel, ts=platform_id)
            except SlackError as error:
                if error.code != "message_not_found":
                    raise

    async def react(self, place: DeliveryContext, platform_id: str, emoji: str, *, is_shown: bool) -> None:
        channel, _, ts = platform_id.rpartition(":")
        method = f"reactions.{'add' if is_shown else 'remove'}"
        try:
            await self._client.call(method, channel=channel, timestamp=ts, name=REACTIONS[emoji])
        except SlackError as error:
            if error.code not in _REACTED:
                raise failure_of(error) from error

    async def open_thread(self, place: DeliveryContext, message_id: str | None, title: str) -> str:
        """Under the message, unless that stands in a thread itself: then under a message that says the title."""
        with _failing():
            where = await self._find_place(place)
            channel, _, ts = (message_id or "").rpartition(":")
            top, mark, is_there = (
                replace(where, thread=None),
                _mark(f"thread {message_id}", 0),
                channel == where.channel,
            )
            if is_there and where.thread is None:
                return ts
            if is_there and (found := await self._find(top, float(ts), lambda each: _is_marked(each, mark))):
                return found
            words = _words(DeliveryPart(index=0, text=title, spans=()))
            return _ts_of(await self._client.call("chat.postMessage", channel=top.channel, **words, metadata=mark))

    async def tell(self, place: DeliveryContext, person: str, text: str) -> None:
        """Shows the text there to that person alone."""
        where, user = await self._find_place(place), person.rpartition(".")[2]
        said = escape(text)
        await self._client.call(
            "chat.postEphemeral", channel=where.channel, thread_ts=where.thread, user=user, text=said
        )

    def note_direct(self, person: str, channel: str) -> None:
        """Notes in which chat the person writes to the app."""
        self._direct.put(person, channel)

    async def aclose(self) -> None:
        await self._client.aclose()

    async def _begin(self, where: _SlackPlace, delivery: Delivery, part: DeliveryPart) -> str:
        """The id of the new message."""
        is_direct = where.channel.startswith("D")
        if part.is_growing and where.thread is not None and (is_direct or part.asker is not None):
            try:
                return await self._begin_stream(where, part, None if is_direct else part.asker)
            except SlackError as error:
                if error.code not in _NO_STREAMS:
                    raise
        words, at = _words(part), {"channel": where.channel, "thread_ts": where.thread}
        # For a preview Slack fetches the address: words of a reply must not reach servers that the reply names.
        sent = await self._client.call(
            "chat.postMessage",
            **at,
            **words,
            metadata=_mark(delivery.id, part.index),
            unfurl_links=False,
            unfurl_media=False,
        )
        ts = _ts_of(sent)
        self._streams.put(ts, _StreamedMessage("", is_open=False))
        return ts

    async def _send_file(self, where: _SlackPlace, delivery: Delivery, file: Attachment) -> str | None:
        """Slack shows it some time after it says that it has it, so that its message has no name yet.

        Nothing can be said with it by which it would be found again: one of its name and size is taken for it.
        """
        client, since = self._client, delivery.created_at.timestamp() - self._client.skew - 1
        if delivery.attempts > 1 and (found := await self._find(where, since, lambda each: _holds(each, file))):
            return found
        made = await client.call("files.getUploadURLExternal", filename=file.name, length=len(file.data))
        await client.upload(str(made.get("upload_url")), file.data)
        files, at = [{"id": made.get("file_id"), "title": file.name}], {"thread_ts": where.thread}
        await client.call("files.completeUploadExternal", files=files, channel_id=where.channel, **at)
        return None

    async def _begin_stream(self, where: _SlackPlace, part: DeliveryPart, asker: str | None) -> str:
        """`asker` is named in channels."""
        to: dict[str, str] = {}
        if asker is not None:
            me, (team, _, user) = await self._client.me(), asker.rpartition(".")
            to = {"recipient_team_id": me.team_id if team == me.home else team, "recipient_user_id": user}
        at, text = {"channel": where.channel, "thread_ts": where.thread}, defuse(part.text)
        ts = _ts_of(await self._client.call("chat.startStream", **at, **to, markdown_text=text))
        self._streams.put(ts, _StreamedMessage(part.text))
        return ts

    async def _replace(self, where: _SlackPlace, part: DeliveryPart, ts: str) -> None:
        """Shows the part in that message: goes on with its stream if the text goes on, else edits it."""
        stream = self._streams.get(ts)
        if stream is not None and stream.is_open and stream.is_sure and part.text.startswith(stream.text):
            if await self._go_on(where, part, ts, stream):
                return
        elif where.thread is not None and part.spans is None:
            await self._end_stream(where, ts)  # a process that died may have left it open
        # What is left out would stay: the blocks of a stream.
        await self._client.call("chat.update", channel=where.channel, ts=ts, **_words(part))

    async def _go_on(self, where: _SlackPlace, part: DeliveryPart, ts: str, stream: _StreamedMessage) -> bool:
        """Adds what the message lacks, and ends it with the last words; False if it takes no more."""
        words = defuse(part.text)[len(defuse(stream.text)) :] or None
        if part.is_growing and words is None:
            return True
        stream.is_sure = False
        method = "chat.appendStream" if part.is_growing else "chat.stopStream"
        try:
            await self._client.call(method, channel=where.channel, ts=ts, markdown_text=words)
        except SlackError as error:
            stream.is_sure = error.code == LIMITED
            if error.code not in _ENDED:
                raise
            stream.is_open = False
            return False
        stream.text, stream.is_sure, stream.is_open = part.text, True, part.is_growing
        return True

    async def _end_stream(self, where: _SlackPlace, ts: str) -> None:
        """Ends the message's stream, if it has one."""
        stream = self._streams.get(ts)
        if where.thread is None or (stream is not None and not stream.is_open):
            return
        try:
            await self._client.call("chat.stopStream", channel=where.channel, ts=ts)
        except SlackError as error:
            if error.is_passing:
                raise
        self._streams.put(ts, _StreamedMessage("", is_open=False))

    async def _find(self, where: _SlackPlace, since: float, is_it: Callable[[Json], bool]) -> str | None:
        """The message of the bot there that is the one, if Slack has it."""
        me, looked, method = await self._client.me(), 0, f"conversations.{'replies' if where.thread else 'history'}"
        at: dict[str, object] = {"channel": where.channel, "ts": where.thread, "oldest": f"{since:.6f}"}
        try:
            async for message in self._client.pages(method, "messages", include_all_metadata=True, **at):
                looked += 1
                if message.get("user") == me.user_id and is_it(message):
                    return str(message.get("ts"))
                if looked >= MOST_LOOKED:
                    break
        except SlackError as error:
            if error.is_passing:
                raise
        return None

    async def _find_place(self, place: DeliveryContext) -> _SlackPlace:
        """A person's direct chat is opened if need be."""
        channel = to = place.to or ""
        if "." in to:
            channel = self._direct.get(to)
            if channel is None:
                opened = await self._client.call("conversations.open", users=to.rpartition(".")[2])
                channel = str(find_object(opened, "channel").get("id"))
                self.note_direct(to, channel)
        return _SlackPlace(channel, place.thread_id)


def _words(part: DeliveryPart) -> dict[str, object]:
    """Antiphon's own text stays as it is; an agent's is rendered."""
    drawn: DrawnText = render(part.text) if part.spans is None else verbatim(part.text, part.spans)
    return {"text": escape(drawn.text[:LONGEST_NOTICE]), "blocks": blocks_of(drawn, part.buttons)}


def _mark(id: str, index: int) -> Json:
    return {"event_type": MARK, "event_payload": {"id": id, "part": index}}


def _is_marked(message: Json, mark: Json) -> bool:
    return all(find_object(message, "metadata").get(name) == value for name, value in mark.items())


def _holds(message: Json, file: Attachment) -> bool:
    found = cast("list[Json]", message.get("files") or [])
    return any((each.get("name"), each.get("size")) == (file.name, len(file.data)) for each in found)


def _shows(message: Json, delivery: Delivery, part: DeliveryPart) -> bool:
    """Whether the message is the part, by its mark; streams have none, and show a beginning of the text."""
    if find_object(message, "metadata").get("event_type") == MARK:
        return _is_marked(message, _mark(delivery.id, part.index))
    shown = _letters(words(message, "text"))
    return part.index == 0 and part.spans is None and bool(shown) and _letters(part.text).startswith(shown)


def _ts_of(answer: Json) -> str:
    if not answer.get("ts"):
        raise SlackError("no_ts")
    return str(answer["ts"])


def _letters(text: str) -> str:
    return "".join(each for each in text if each.isalnum())


@contextmanager
def _failing() -> Generator[None]:
    """Errors of Slack as failures of the text."""
    try:
        yield
    except SlackError as error:
        raise failure_of(error) from error
