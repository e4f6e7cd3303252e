"""Serves a bot: takes in what its connection brings, and after an outage what was written meanwhile.

Contract: channels 1.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import anyio
import msgspec
from discord.errors import HTTPException
from msgspec import Struct, ValidationError

from antiphon.channels.account_loop import PAUSES, AccountLoop, Pauses, PlatformTrouble
from antiphon.channels.catch_up import CatchUp
from antiphon.channels.discord.client import (
    CHANNEL,
    FAILURES,
    MESSAGE,
    MESSAGES,
    DiscordApplication,
    DiscordClient,
    is_wrong_token,
    wished_pause,
)
from antiphon.channels.discord.events import (
    DiscordMessage,
    DiscordPress,
    DiscordReader,
    chat_of,
    convert_message,
    read_message,
    read_press,
    snowflake_of,
)
from antiphon.channels.discord.gateway import DiscordGateway, StartsSpent, code_of
from antiphon.channels.discord.rooms import DIRECT, DiscordGuild, DiscordRoom, Snowflake
from antiphon.channels.discord.settings import (
    FLOODED,
    INTENTS_REFUSED,
    NAME,
    STARTS_SPENT,
    TOO_MANY_SERVERS,
    UNREACHABLE,
    WRONG_TOKEN,
)
from antiphon.channels.json_facts import all_whole
from antiphon.clock import Clock
from antiphon.domain.inbound import ChangeKind, ChatChange, Inbound, SentFile
from antiphon.engine.chats.accounts import AccountLease, Accounts
from antiphon.engine.chats.reception import Reception

logger = logging.getLogger(__name__)

MOST_WAITING: Final = 5_000
"""Events in memory that are not taken in yet."""
GUILD_SECONDS: Final = 3.0
"""How long the servers' channels may take to come after a connection began."""
PAGE: Final = 100
LONGEST_TOAST: Final = 200
EPHEMERAL: Final = 1 << 6
_SHOW, _NOTHING = 4, 6
"""The types of answers to a press: a message, nothing."""
_CODES: Final = {4004: WRONG_TOKEN, 4011: TOO_MANY_SERVERS, 4013: INTENTS_REFUSED, 4014: INTENTS_REFUSED}


class EventFlood(Exception):
    """More events wait than memory should hold."""


class _LostGuild(Struct, frozen=True, kw_only=True):
    id: Snowflake
    unavailable: bool = False
    """Of a server that the bot is still in."""


class _SessionReady(Struct, frozen=True, kw_only=True):
    guilds: tuple[_LostGuild, ...] = ()


class DiscordLoop(AccountLoop):
    title = "Discord"

    def __init__(
        self,
        client: DiscordClient,
        reception: Reception,
        accounts: Accounts,
        *,
        clock: Clock,
        pauses: Pauses = PAUSES,
    ) -> None:
        super().__init__(reception, accounts, clock, name=(NAME, client.settings.account), pauses=pauses)
        self._settings = client.settings
        self._client = client
        self._rooms = client.rooms
        self._bot: DiscordReader | None = None
        self._events: asyncio.Queue[tuple[str, Any] | Exception] = asyncio.Queue()
        self._presses: asyncio.Queue[object] = asyncio.Queue()
        self._awaited: set[str] = set()
        self._are_guilds_known = asyncio.Event()

    async def begin(self, lease: AccountLease) -> None:
        me = await self._client.open()
        self._bot = DiscordReader(me=me, account=self.account, rooms=self._rooms)
        await self.store_name(lease, platform_id=me.id, name=me.username)

    async def listen(self, lease: AccountLease) -> None:
        """Until the connection ends for good. What is not taken in then is caught up with by the next one."""
        application = await self._client.ask("GET", "/oauth2/applications/@me", DiscordApplication)
        self._events, self._presses = asyncio.Queue(), asyncio.Queue()
        gateway = DiscordGateway(self._client, self._sort, may_read=application.may_read)
        ended: Exception | None = None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._follow, gateway)
            tasks.start_soon(self._take_presses, lease)
            ended = await self._take_events(lease)
            tasks.cancel_scope.cancel()
        if ended is not None:
            raise ended

    async def _follow(self, gateway: DiscordGateway) -> None:
        try:
            await gateway.run()
        except Exception as error:
            self._events.put_nowait(error)

    def _sort(self, name: str, data: object) -> None:
        """Puts what has to be taken in behind what waits, and learns what channels there are."""
        data = all_whole(data)
        try:
            match name:
                case "INTERACTION_CREATE":
                    self._presses.put_nowait(data)
                case "READY":
                    self._begin_session(msgspec.convert(data, _SessionReady))
                case "GUILD_CREATE" | "GUILD_UPDATE" | "GUILD_DELETE":
                    self._note_guild(name, data)
                case "MESSAGE_CREATE":
                    self._events.put_nowait((name, data))
                case "RESUMED":
                    self._events.put_nowait((name, None))
                case _:
                    self._note_room(name, msgspec.convert(data, DiscordRoom))
        except ValidationError as error:
            logger.warning("Event cannot be read", extra={"action": "event_unread", "event": name, "error": str(error)})
        if self._events.qsize() + self._presses.qsize() > MOST_WAITING:
            raise EventFlood

    def _begin_session(self, ready: _SessionReady) -> None:
        self._awaited = {each.id for each in ready.guilds}
        self._are_guilds_known = asyncio.Event()
        if not self._awaited:
            self._are_guilds_known.set()
        self._events.put_nowait(("READY", self._are_guilds_known))

    def _note_guild(self, name: str, data: object) -> None:
        assert self._bot is not None
        if name == "GUILD_CREATE":
            guild = msgspec.convert(data, DiscordGuild)
            self._rooms.note_guild(guild, self._bot.me.id)
            self._awaited.discard(guild.id)
            if not self._awaited:
                self._are_guilds_known.set()
        elif name == "GUILD_DELETE" and not (gone := msgspec.convert(data, _LostGuild)).unavailable:
            for room in self._rooms.forget_guild(gone.id):
                self._change(ChangeKind.LEFT, room)

    def _note_room(self, name: str, room: DiscordRoom) -> None:
        known = self._rooms.find(room.id)
        if name == "CHANNEL_DELETE":
            self._rooms.forget(room.id)
            return self._change(ChangeKind.LEFT, room)
        self._rooms.note(room)
        if known is not None and known.name != room.name and not room.is_thread:
            self._change(ChangeKind.RENAMED, room)
        return None

    def _change(self, kind: ChangeKind, room: DiscordRoom) -> None:
        assert self._bot is not None
        change = ChatChange(kind=kind, place=self._bot.place(room, ""), title=self._bot.title(room))
        self._events.put_nowait(("CHANGE", change))

    async def _take_events(self, lease: AccountLease) -> Exception:
        """Returns what has ended the connection, once all that came before is taken in."""
        while True:
            event = await self._events.get()
            if isinstance(event, Exception):
                return event
            try:
                await self._take(*event, lease)
            except FAILURES as error:
                return error

    async def _take(self, name: str, data: Any, lease: AccountLease) -> None:
        match name:
            case "READY":
                await self.works()
                with anyio.move_on_after(GUILD_SECONDS):
                    await data.wait()
                await self._catch_up(lease)
            case "RESUMED":
                await self.works()
            case "CHANGE":
                await self.intake.take(lambda: data, lease, name=name)
            case _:
                await self._take_message(data, lease)

    async def _take_message(self, data: object, lease: AccountLease) -> None:
        message = self.intake.read(lambda: convert_message(data))
        if message is not None and message.is_persons:
            direct = DiscordRoom(id=message.channel_id, type=DIRECT)
            room = direct if message.guild_id is None else await self._room(message.channel_id)
            if room is not None:
                await self._enter(message, room, lease)

    async def _enter(self, message: DiscordMessage, room: DiscordRoom, lease: AccountLease) -> None:
        bot = self._bot
        assert bot is not None
        if room.is_direct:
            self._rooms.note(DiscordRoom(id=room.id, type=DIRECT, recipients=(message.author,)))
        await self.intake.take(lambda: read_message(message, room, bot), lease, name=message.id)

    async def _room(self, id: str) -> DiscordRoom | None:
        """None for a channel that is gone meanwhile, or that the bot may not see."""
        room = self._rooms.find(id)
        if room is None:
            try:
                room = await self._client.ask("GET", CHANNEL, DiscordRoom, channel_id=id)
            except HTTPException as error:
                if error.status not in (403, 404):
                    raise
                return None
            self._rooms.note(room)
        return room

    async def _take_presses(self, lease: AccountLease) -> None:
        while True:
            data = await self._presses.get()
            press = self.intake.read(lambda data=data: msgspec.convert(data, DiscordPress))
            try:
                if press is not None:
                    await self._take_press(press, lease)
            except FAILURES as error:
                failed = {"action": "press_unanswered", "error": type(error).__name__}
                logger.debug("Press was not answered", extra=failed)

    async def _take_press(self, press: DiscordPress, lease: AccountLease) -> None:
        """Answers once it is decided; Discord waits three seconds for that."""
        bot, id = self._bot, press.channel_id
        assert bot is not None
        if id is None:
            return
        direct = DiscordRoom(id=id, type=DIRECT)
        room = direct if press.guild_id is None else press.channel or await self._room(id)
        received = None
        if room is not None:
            received = await self.intake.take(lambda: read_press(press, room, bot), lease, name=press.id)
        toast = "" if received is None else (received.toast or "")[:LONGEST_TOAST]
        shown = {"content": toast, "flags": EPHEMERAL, "allowed_mentions": {"parse": list[str]()}}
        answer: dict[str, object] = {"type": _SHOW, "data": shown} if toast else {"type": _NOTHING}
        path = "/interactions/{interaction_id}/{token}/callback"
        await self._client.ask("POST", path, object, json=answer, interaction_id=press.id, token=press.token)

    async def _catch_up(self, lease: AccountLease) -> None:
        """Takes in what was written meanwhile in the chats that are known. What came already is recognised."""
        positions = await self.accounts.positions(lease)
        look = CatchUp(self._settings.catch_up, self.reception, self.accounts, self.clock, lease=lease)
        for chat in sorted(positions, key=lambda each: int(positions[each]), reverse=True):  # the liveliest first
            id, is_direct = chat_of(chat)
            known = self._rooms.find(id)
            if known is not None and _is_read(known, positions[chat]):
                continue
            try:
                written = await self._written_since(id, positions[chat])
            except HTTPException as error:
                if error.status not in (403, 404):
                    raise
                continue
            room = DiscordRoom(id=id, type=DIRECT) if is_direct or not written else await self._room(id)
            if room is not None:
                await self._take_missed(written, room, lease, look=look)

    async def _take_missed(
        self, written: Sequence[DiscordMessage], room: DiscordRoom, lease: AccountLease, *, look: CatchUp
    ) -> None:
        bot = self._bot
        assert bot is not None

        async def take(inbound: Inbound) -> None:
            await self.intake.take(lambda: inbound, lease, name=inbound.platform_id)

        await look.take([each for one in written if (each := read_message(one, room, bot)) is not None], take)

    async def _written_since(self, channel: str, position: str) -> list[DiscordMessage]:
        """What was written since then, in order: the newest, as far as any of it may be taken in."""
        oldest = snowflake_of(self.clock.now() - self._settings.catch_up.oldest)
        found, params = list[DiscordMessage](), dict[str, object]()
        while True:
            asked = {"limit": PAGE, **params}
            page = await self._client.ask("GET", MESSAGES, list[object], params=asked, channel_id=channel)
            read = [message for each in page if (message := _message_of(each)) is not None]
            found += (each for each in read if each.is_persons and int(each.id) > int(position))
            last = int(read[-1].id) if read else 0
            if len(page) < PAGE or last < max(int(position), oldest) or len(found) > self._settings.catch_up.messages:
                return sorted(found, key=lambda each: int(each.id))
            params = {"before": str(last)}

    async def fetch(self, file: SentFile, most: int) -> bytes | None:
        """By the message, whose addresses of files Discord renews."""
        channel, message, id = file.file_id.split("/")
        try:
            found = await self._client.ask("GET", MESSAGE, DiscordMessage, channel_id=channel, message_id=message)
            files = [*found.attachments, *(each for one in found.message_snapshots for each in one.message.attachments)]
            url = next((each.url for each in files if each.id == id), None)
            return None if url is None else await self._client.download(url, most)
        except FAILURES:
            return None

    def trouble_of(self, error: Exception) -> PlatformTrouble | None:
        text = trouble_text(error)
        if text is None:
            return None
        pause = timedelta(seconds=error.seconds) if isinstance(error, StartsSpent) else wished_pause(error)
        return PlatformTrouble(text, pause)


def trouble_text(error: Exception) -> str | None:
    """Why the bot is not served; None for an error of another kind."""
    if is_wrong_token(error):
        return WRONG_TOKEN
    if isinstance(error, StartsSpent):
        return STARTS_SPENT
    if isinstance(error, EventFlood):
        return FLOODED
    if not isinstance(error, FAILURES):
        return None
    return _CODES.get(code_of(error) or 0, UNREACHABLE)


def _is_read(room: DiscordRoom, position: str) -> bool:
    last = room.last_message_id
    return last is not None and last.isdecimal() and int(last) <= int(position)


def _message_of(data: object) -> DiscordMessage | None:
    try:
        return convert_message(data)
    except ValidationError:
        return None
