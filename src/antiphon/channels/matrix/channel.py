"""Sends texts to Matrix. Contract: channels 1."""

from hashlib import sha256
from mimetypes import guess_type
from uuid import uuid4

from msgspec.structs import replace

from antiphon.channels.bridges import Bridge
from antiphon.channels.html import render, verbatim
from antiphon.channels.json_facts import Json, find
from antiphon.channels.matrix.client import NO_KEYS, RELATIONS_API, MatrixClient, MatrixError, of, quoted
from antiphon.channels.matrix.events import message_id, split_id
from antiphon.channels.matrix.rooms import Rooms
from antiphon.channels.matrix.settings import LONGEST_TEXT, NAME, USER_ID, MatrixSettings
from antiphon.domain.attachments import Attachment
from antiphon.domain.channel_form import ChannelForm, DeliveryPart, Streaming
from antiphon.domain.delivery import BUSY, GONE, Delivery, DeliveryFailed
from antiphon.domain.session import DeliveryContext

FORM = ChannelForm(longest=LONGEST_TEXT, streaming=Streaming.EDIT, files=50 * 1024 * 1024)
"""Files as large as homeservers usually take; one that takes less refuses them."""
TYPING = {"typing": True, "timeout": 5_000}
PICTURES = ("image/png", "image/jpeg", "image/gif", "image/webp")
LONGEST_PREVIEW = 200
"""Characters of a changed text for programs that show no changes."""


class MatrixChannel:
    """Implements `LiveChannel`, `ThreadedChannel` and `TiedChannel`, for the account itself or for a bridge of it."""

    timeout_seconds = 60.0

    def __init__(self, settings: MatrixSettings, client: MatrixClient, rooms: Rooms, bridge: Bridge | None) -> None:
        self.name = NAME if bridge is None else bridge.channel
        self.account = settings.account if bridge is None else NAME
        interval = settings.stream_interval_ms
        self.form = replace(FORM, stream_interval_ms=interval, group_interval_ms=2 * interval)
        self._settings, self._client, self._rooms, self._bridge = settings, client, rooms, bridge

    @property
    def sends_here(self) -> bool:
        return self._client.is_listening

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        """Sends the part, or replaces the message that it names. The transaction makes a repetition the same event."""
        is_final, place = not part.is_growing, delivery.place
        try:
            if part.replaces is not None:
                room, event = split_id(part.replaces)
                if is_final and await self._words_of(room, event) is None:
                    raise DeliveryFailed("The message was deleted.", code="channel_refused", is_permanent=True)
                await self._change(room, event, part)
                return part.replaces
            room, transaction, file = await self._room(place), f"{delivery.id}.{part.index}", part.file
            content = _content(part) if file is None else await self._uploaded(room, file)
            if place.thread_id is not None:
                content["m.relates_to"] = _in_thread(place.thread_id)
            event = await self._client.send_event(room, content, transaction)
            if is_final and part.index == 0 and delivery.run_id is not None and file is None:
                # It may be the reply's beginning, whose answer was lost.
                said = await self._words_of(room, event)
                if said is None:
                    event = await self._client.send_event(room, content, f"{transaction}.new")
                elif said != part.text:
                    await self._change(room, event, part)
            return message_id(room, event)
        except MatrixError as error:
            raise failure_of(error) from error

    async def _uploaded(self, room: str, file: Attachment) -> Json:
        """What the event with the file says. What was uploaded and is named by no event, after a kill, stays there."""
        mime = file.mime_type or guess_type(file.name)[0] or "application/octet-stream"
        info = {"size": len(file.data), "mimetype": mime}
        said = {"msgtype": "m.image" if mime in PICTURES else "m.file", "body": file.name, "info": info}
        return {**said, "m.mentions": {}, **await self._client.upload(room, file.data)}

    async def _words_of(self, room: str, event: str) -> str | None:
        """What the event said first; None for one that was deleted."""
        found = await self._client.find_event(room, event)
        return None if found is None else found["content"].get("body")

    async def _change(self, room: str, event: str, part: DeliveryPart) -> None:
        shown: Json = {"msgtype": "m.text", "body": f"* {part.text[:LONGEST_PREVIEW]}", "m.mentions": {}}
        changed = {"m.new_content": _content(part), "m.relates_to": {"rel_type": "m.replace", "event_id": event}}
        await self._client.send_event(room, {**shown, **changed}, uuid4().hex)

    async def draft(self, place: DeliveryContext, draft_id: int, text: str) -> None:
        """There are none: replies are shown by changes."""

    async def typing(self, place: DeliveryContext) -> None:
        try:
            room = await self._room(place, may_make=False)
            await self._client.ask("PUT", f"{of(room)}/typing/{quoted(self._settings.user)}", TYPING)
        except MatrixError as error:
            raise failure_of(error) from error

    async def withdraw(self, place: DeliveryContext, platform_id: str) -> None:
        room, event = split_id(platform_id)
        try:
            await self._client.ask("PUT", f"{of(room)}/redact/{quoted(event)}/{uuid4().hex}", {})
        except MatrixError as error:
            if error.status != 404:
                raise failure_of(error) from error

    async def react(self, place: DeliveryContext, platform_id: str, emoji: str, *, is_shown: bool) -> None:
        """It is taken away by deleting the events that show it."""
        (room, event), me = split_id(platform_id), self._settings.user
        related, around = {"rel_type": "m.annotation", "event_id": event, "key": emoji}, quoted(event)
        try:
            if is_shown:
                await self._client.ask("PUT", f"{of(room)}/send/m.reaction/{uuid4().hex}", {"m.relates_to": related})
                return
            path = f"{RELATIONS_API}{of(room)}/relations/{around}/m.annotation/m.reaction"
            for each in (await self._client.ask("GET", path, query={"limit": 100}))["chunk"]:
                if each["sender"] == me and find(each, "content", "m.relates_to", "key") == emoji:
                    await self.withdraw(place, message_id(room, each["event_id"]))
        except MatrixError as error:
            if error.code != "M_DUPLICATE_ANNOTATION" and error.status != 404:
                raise failure_of(error) from error

    async def open_thread(self, place: DeliveryContext, message_id: str | None, title: str) -> str:
        """Any message can begin a thread, whose id is the message's; but none that is in a thread."""
        try:
            asked = await self._room(place)
            room, event = (asked, "") if message_id is None else split_id(message_id)
            if event and room == asked:
                found = await self._client.find_event(room, event)
                if found is not None and find(found, "content", "m.relates_to", "rel_type") != "m.thread":
                    return event
            name = uuid4().hex if message_id is None else sha256(message_id.encode()).hexdigest()
            content: Json = {"msgtype": "m.text", "body": title, "m.mentions": {}}
            return await self._client.send_event(asked, content, f"thread.{name}")
        except MatrixError as error:
            raise failure_of(error) from error

    async def _room(self, place: DeliveryContext, *, may_make: bool = True) -> str:
        """The room of the place; for a person, the private one, which is made if there was none.

        Raises `DeliveryFailed` for what is not of this channel, and `MatrixError`.
        """
        to, rooms, client = place.to or "", self._rooms, self._client
        if (known := rooms.known.get(to)) is not None and rooms.bridge_of(known) != self._bridge:
            raise _gone("The room belongs to another channel.")
        if to.startswith("!"):
            return to
        shown = self._settings.bridge_of(to)
        if not USER_ID.fullmatch(to) or shown != self._bridge or (shown is not None and not shown.owns(to)):
            raise _gone("Nobody here has this id: it must be that of a room, or of a person of the channel.")
        kept = f"/user/{quoted(self._settings.user)}/account_data/m.direct"
        if client.is_listening:
            found = rooms.private_with(to)
        else:
            rooms.direct = await client.find_kept(kept)
            found = next(reversed(rooms.direct.get(to, [])), None)
        if found is not None:
            return found
        if to in rooms.direct or not may_make:
            raise _gone("The person has left the room, or has removed the account from it.")
        asked: Json = {"preset": "trusted_private_chat", "is_direct": True, "invite": [to]}
        made = (await client.ask("POST", "/createRoom", asked))["room_id"]
        rooms.use(to, made)
        await client.ask("PUT", kept, rooms.direct)
        return made

    async def aclose(self) -> None:
        await self._client.aclose()


def _content(part: DeliveryPart) -> Json:
    """Antiphon's own text stays as it is; an agent's is rendered."""
    html = render(part.text) if part.spans is None else verbatim(part.text, part.spans)
    marked = {} if html is None else {"format": "org.matrix.custom.html", "formatted_body": html}
    return {"msgtype": "m.text", "body": part.text, "m.mentions": {}, **marked}


def _in_thread(root: str) -> Json:
    return {"rel_type": "m.thread", "event_id": root, "is_falling_back": True, "m.in_reply_to": {"event_id": root}}


def _gone(said: str) -> DeliveryFailed:
    return DeliveryFailed(said, code=GONE, is_permanent=True)


def failure_of(error: MatrixError) -> DeliveryFailed:
    """What the error means for a text that was to be sent. The message holds no token and no text of anybody."""
    if error.code == NO_KEYS:
        return DeliveryFailed("The room is encrypted, and this process has no keys for it.")
    match error.status:
        case 0:
            said = "The homeserver did not answer; it may have the text."
            return DeliveryFailed(said, code="channel_unreachable")
        case 429:
            return DeliveryFailed("The homeserver asks to wait.", code=BUSY, retry_after=error.wish)
        case 403 | 404 if error.code in ("M_FORBIDDEN", "M_NOT_FOUND"):
            return _gone("The homeserver refuses: the account is not in the room, or may not write there.")
        case 400 | 413:
            said = f"The homeserver refuses the message: {error.code}."
            return DeliveryFailed(said, code="channel_refused", is_permanent=True)
        case _:
            return DeliveryFailed(f"The homeserver could not take the message: {error.code}.")
