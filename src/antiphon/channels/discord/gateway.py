"""The connection on which Discord sends events, resumed as long as Discord lets it. Contract: channels 1."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

import aiohttp
import anyio
from discord import Client, Intents, MemberCacheFlags
from discord.errors import ConnectionClosed
from discord.gateway import DiscordWebSocket, ReconnectWebSocket
from msgspec import Struct
from yarl import URL

from antiphon.channels.discord.client import DiscordClient

CONNECT_SECONDS: Final = 30.0
CLOSE_SECONDS: Final = 3.0
LIVELY_SECONDS: Final = 10.0
"""A connection that ended sooner counts as failed: the next one waits, longer each time."""
MOST_FAILED: Final = 3
"""So many in a row, and the session is given up."""
IDENTIFY_PAUSE: Final = 1.0
"""Seconds before a session that Discord has ended is begun anew."""
EVENTS: Final = (
    "READY",
    "RESUMED",
    "GUILD_CREATE",
    "GUILD_UPDATE",
    "GUILD_DELETE",
    "CHANNEL_CREATE",
    "CHANNEL_UPDATE",
    "CHANNEL_DELETE",
    "THREAD_CREATE",
    "THREAD_UPDATE",
    "MESSAGE_CREATE",
    "INTERACTION_CREATE",
)

Take = Callable[[str, object], None]
"""Gets the name and the data of each event, in order; not to wait."""


class StartsSpent(Exception):
    """Discord would reset the token if the bot began another session now."""

    def __init__(self, reset_after_ms: float) -> None:
        super().__init__()
        self.seconds = reset_after_ms / 1000


class _StartLimit(Struct, frozen=True, kw_only=True):
    remaining: int = 1
    reset_after: float = 0


class _GatewayPlace(Struct, frozen=True, kw_only=True):
    url: str
    session_start_limit: _StartLimit = _StartLimit()


class _EventClient(Client):
    """Keeps nothing of what Discord sends: events go to `take` as they come."""

    def __init__(self, client: DiscordClient, take: Take, *, may_read: bool) -> None:
        intents = Intents(guilds=True, guild_messages=True, dm_messages=True, message_content=may_read)
        super().__init__(
            intents=intents,
            max_messages=None,
            chunk_guilds_at_startup=False,
            member_cache_flags=MemberCacheFlags.none(),
            proxy=client.proxy,
        )
        parsers: dict[str, Callable[[Any], None]] = self._connection.parsers
        parsers.clear()
        for name in EVENTS:
            parsers[name] = lambda data, name=name: take(name, data)

    def dispatch(self, event: str, /, *args: Any, **kwargs: Any) -> None:
        """The library's own events are not used."""

    async def before_identify_hook(self, shard_id: int | None, *, initial: bool = False) -> None:
        if not initial:
            await asyncio.sleep(IDENTIFY_PAUSE)


class DiscordGateway:
    def __init__(self, client: DiscordClient, take: Take, *, may_read: bool) -> None:
        self._client = client
        self._take = take
        self._may_read = may_read

    async def run(self) -> None:
        """Connects again whenever Discord allows it. Raises what ends the connection for good, and what `ask` raises.

        `ConnectionClosed` has the code, such as 4004 for a wrong token.
        """
        found = await self._client.ask("GET", "/gateway/bot", _GatewayPlace)
        if found.session_start_limit.remaining <= 0:
            raise StartsSpent(found.session_start_limit.reset_after)
        async with _EventClient(self._client, self._take, may_read=self._may_read) as library:
            try:
                await library.http.static_login(self._client.settings.token)
                await self._follow(library, URL(found.url))
            finally:
                with anyio.move_on_after(CLOSE_SECONDS, shield=True):
                    await library.close()

    async def _follow(self, library: Client, url: URL) -> None:
        loop, failed = asyncio.get_running_loop(), 0
        session: dict[str, Any] = {"initial": True, "gateway": url}
        while True:
            socket: DiscordWebSocket | None = None
            began = loop.time()
            try:
                async with asyncio.timeout(CONNECT_SECONDS):
                    socket = await DiscordWebSocket.from_client(library, **session)
                library.ws = socket
                while True:
                    await socket.poll_event()
            except ReconnectWebSocket as ended:
                session = self._next(session, socket, url, may_resume=ended.resume)
            except (TimeoutError, OSError, aiohttp.ClientError):
                if failed:
                    raise
            failed = 0 if loop.time() - began > LIVELY_SECONDS else failed + 1
            if failed > MOST_FAILED:
                raise ConnectionError("Discord ends each connection at once")
            await asyncio.sleep(failed - 1 if failed else 0)

    def _next(
        self, session: dict[str, Any], socket: DiscordWebSocket | None, url: URL, *, may_resume: bool
    ) -> dict[str, Any]:
        """How the next connection begins."""
        if not may_resume:
            return {"initial": False, "gateway": url}
        if socket is None or socket.session_id is None:
            return session
        return {
            "initial": False,
            "resume": True,
            "gateway": socket.gateway,
            "session": socket.session_id,
            "sequence": socket.sequence,
        }


def code_of(error: Exception) -> int | None:
    """With which code Discord closed the connection; None for another error."""
    return error.code if isinstance(error, ConnectionClosed) else None
