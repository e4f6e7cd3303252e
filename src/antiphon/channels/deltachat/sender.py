"""Sends texts through the core, which keeps them until the mail server has them."""

from collections.abc import Mapping
from contextlib import suppress
from time import monotonic
from typing import Any, Final

import anyio
from anyio import TemporaryDirectory
from msgspec.structs import replace

from antiphon.channels.deltachat.core import Core, CoreFailed
from antiphon.channels.deltachat.messages import LAST_SPECIAL, SELF
from antiphon.channels.deltachat.section import NAME
from antiphon.channels.join_window import JoinWindow
from antiphon.channels.kind import Admit, JoinLink
from antiphon.clock import Clock
from antiphon.domain.channel_form import ChannelForm, DeliveryPart, Streaming
from antiphon.domain.delivery import Delivery, DeliveryFailed
from antiphon.domain.errors import Unavailable
from antiphon.domain.session import DeliveryContext

CONNECT_SECONDS = 15.0
SEND_SECONDS = 60.0
RECONNECT_SECONDS = 10.0
SETTLE_SECONDS = 10.0
LARGEST_FILE = 20 * 1024 * 1024
"""Bytes that usual mail servers take, with what encryption adds; the core itself has no limit."""
FORM = ChannelForm(longest=4_000, files=LARGEST_FILE, streaming=Streaming.EDIT, group_interval_ms=6_000)
_FAILED: Final = 24
_DELIVERED: Final = (26, 28)
_LOOKED_AT = 30
"""Messages of a chat among which one is sought: of people by its id, or one that was given to the core before the
process died."""


class DeltaChatChannel:
    """Implements `LiveChannel` and `TiedChannel` for one account."""

    name = NAME
    timeout_seconds = SEND_SECONDS

    def __init__(self, account: str, clock: Clock, stream_interval_ms: int) -> None:
        self.account = account
        self.form = replace(
            FORM, stream_interval_ms=stream_interval_ms, group_interval_ms=max(6_000, stream_interval_ms)
        )
        self._core: Core | None = None
        self.window = JoinWindow(clock, self._withdraw_link, self._settle)
        self._is_online = anyio.Event()
        self._connected_at = -RECONNECT_SECONDS
        self._waiting: dict[int, anyio.Event] = {}
        self._chats: dict[str, int] = {}
        """Of people, by their fingerprints."""

    @property
    def sends_here(self) -> bool:
        return self._core is not None

    async def connect(self, core: Core) -> None:
        self._core = core
        await self._withdraw_link()
        self._is_online.set()

    def disconnect(self) -> None:
        self._core = None
        self._is_online = anyio.Event()
        for event in self._waiting.values():
            event.set()

    def core(self) -> Core:
        """Raises `CoreFailed` while none runs."""
        if self._core is None:
            raise CoreFailed("The core does not run.")
        return self._core

    def note(self, message: int) -> None:
        """The core has sent the message, or has failed to."""
        if (event := self._waiting.get(message)) is not None:
            event.set()

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None:
        """What was given to the core is not given again: it goes on sending it, under the same id."""
        core = await self._online()
        try:
            if part.replaces is not None:
                await core.call("send_edit_request", int(part.replaces), part.text)
                return part.replaces
            name = f"ui.antiphon.{delivery.id}.{part.index}"
            given = await core.call("get_config", name) if delivery.attempts > 1 else None
            chat = await self._chat_of(core, delivery.place)
            message = int(given) if given else await self._find_given(core, chat, delivery, part)
            if message is None:
                message = await self._give(core, chat, part)
            await core.call("set_config", name, str(message))
            if given:
                await self._connect_anew(core)
            await self._until_sent(core, message)
            await core.call("set_config", name, None)
        except CoreFailed as error:
            raise DeliveryFailed(f"Delta Chat did not take the text. {error}", code="channel_unreachable") from error
        return str(message)

    async def _find_given(self, core: Core, chat: int, delivery: Delivery, part: DeliveryPart) -> int | None:
        """The message of a process that died between giving it to the core and noting so."""
        if delivery.attempts < 2:
            return None
        found = await core.call("get_message_ids", chat, False, False)
        for each in reversed(found[-_LOOKED_AT:]):
            message = await core.call("get_message", each)
            is_new = message["timestamp"] >= int(delivery.created_at.timestamp())
            if message["fromId"] == SELF and message["text"] == part.text and is_new and _has_file(message, part):
                return int(each)
        return None

    async def _give(self, core: Core, chat: int, part: DeliveryPart) -> int:
        """Gives the part to the core, which copies the file before it answers."""
        if part.file is None:
            return int(await core.call("send_msg", chat, {"text": part.text, "viewtype": "Text"}))
        async with TemporaryDirectory() as folder:  # private; core and adapter run on one machine
            path = anyio.Path(folder) / "file"
            await path.write_bytes(part.file.data)
            asked = {"viewtype": "File", "file": str(path), "filename": part.file.name}
            return int(await core.call("send_msg", chat, asked))

    async def _connect_anew(self, core: Core) -> None:
        """The core sends one text after the other: a mail server that hangs would hold up all of them."""
        if monotonic() - self._connected_at > RECONNECT_SECONDS:
            self._connected_at = monotonic()
            await core.call("stop_io")
            await core.call("start_io")

    async def _until_sent(self, core: Core, message: int) -> None:
        event = self._waiting[message] = anyio.Event()
        try:
            state = await self._state_of(core, message)
            if state not in (*_DELIVERED, _FAILED):
                await event.wait()
                state = await self._state_of(core, message)
        finally:
            del self._waiting[message]
        if state == _FAILED:
            raise DeliveryFailed(
                "The mail server refuses the text, or the key of the recipient is not known.",
                code="channel_refused",
                is_permanent=True,
            )
        if state not in _DELIVERED:
            raise CoreFailed("The core ended while it was sending.")

    async def _state_of(self, core: Core, message: int) -> int:
        return int((await core.call("get_message", message))["state"])

    async def draft(self, place: DeliveryContext, draft_id: int, text: str) -> None:
        """There are none: replies are shown by edits."""

    async def typing(self, place: DeliveryContext) -> None:
        """Delta Chat does not show it."""

    async def react(self, place: DeliveryContext, platform_id: str, emoji: str, *, is_shown: bool) -> None:
        core = await self._online()
        try:
            found = await core.call("get_message_ids", await self._chat_of(core, place), False, False)
            for each in reversed(found[-_LOOKED_AT:]):
                if (await core.call("get_message_info_object", each))["rfc724Mid"] == platform_id:
                    shown = await core.call("get_message_reactions", each)
                    if bool(shown and str(SELF) in shown["reactionsByContact"]) is not is_shown:
                        await core.call("send_reaction", each, [emoji] if is_shown else [])
                    return
        except CoreFailed as error:
            raise DeliveryFailed(f"The message has no reaction. {error}", code="channel_unreachable") from error

    async def invite(self, admit: Admit) -> JoinLink:
        """Opens a window in which one person may join."""
        try:
            core = await self._online()
            return await self.window.open(admit, lambda: core.call("get_chat_securejoin_qr_code", None))
        except (CoreFailed, DeliveryFailed) as error:
            raise Unavailable("Delta Chat does not run now. Try again later.", code="channel_unreachable") from error

    async def _withdraw_link(self) -> None:
        """Does nothing while no core runs: the next one begins with it."""
        with suppress(CoreFailed):
            link = await self.core().call("get_chat_securejoin_qr_code", None)
            await self.core().call("check_qr", link)
            await self.core().call("set_config_from_qr", link)

    async def _settle(self) -> None:
        """Raises `CoreFailed` if what has happened is not taken in soon."""
        reached = self.core().mark()
        with anyio.move_on_after(SETTLE_SECONDS):
            await reached.wait()
            return
        raise CoreFailed("What has happened is still taken in.")

    async def withdraw(self, place: DeliveryContext, platform_id: str) -> None:
        core = await self._online()
        try:
            await core.call("delete_messages_for_all", [int(platform_id)])
        except CoreFailed as error:
            raise DeliveryFailed(f"The message was not deleted. {error}", code="channel_unreachable") from error

    async def _online(self) -> Core:
        with anyio.move_on_after(CONNECT_SECONDS):
            await self._is_online.wait()
        if self._core is None:
            raise DeliveryFailed("The core of Delta Chat does not run here.", code="channel_unreachable")
        return self._core

    async def _chat_of(self, core: Core, place: DeliveryContext) -> int:
        to = place.to or ""
        if to.startswith("group-") and to[6:].isdecimal():
            return int(to[6:])
        if to not in self._chats:
            for contact in await core.call("get_contact_ids", 0, None):
                if contact > LAST_SPECIAL:
                    fingerprint = await core.fingerprint(contact)
                    if fingerprint == to:
                        self._chats[to] = int(await core.call("create_chat_by_contact_id", contact))
        if to not in self._chats:
            raise DeliveryFailed("Delta Chat knows nobody with this key.", code="channel_refused", is_permanent=True)
        return self._chats[to]

    async def aclose(self) -> None:
        """The core ends with the loop that runs it."""


def _has_file(message: Mapping[str, Any], part: DeliveryPart) -> bool:
    return (message.get("fileName") or None) == (None if part.file is None else part.file.name)
