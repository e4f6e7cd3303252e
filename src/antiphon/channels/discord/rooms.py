"""What is known of Discord's channels: which are threads of which, and what they are called."""

from typing import Annotated, Final

from msgspec import Meta, Struct
from msgspec.structs import replace

from antiphon.channels.remembered import Remembered

DIRECT: Final = 1
THREADS: Final = (10, 11, 12)
"""The types of threads: of an announcement channel, public, private."""


Snowflake = Annotated[str, Meta(pattern=r"^[0-9]{1,20}$")]
"""An id of Discord, which grows with time."""


class DiscordUser(Struct, frozen=True, kw_only=True):
    id: Snowflake
    username: str = ""
    global_name: str | None = None
    bot: bool = False
    system: bool = False


class DiscordRoom(Struct, frozen=True, kw_only=True):
    """A channel of Discord: one of a server, a thread in one, or the direct messages with a person."""

    id: Snowflake
    type: int = 0
    name: str | None = None
    guild_id: Snowflake | None = None
    parent_id: Snowflake | None = None
    """Of a thread, the channel that it is in; of a channel, its category."""
    recipients: tuple[DiscordUser, ...] = ()
    last_message_id: str | None = None

    @property
    def is_direct(self) -> bool:
        return self.type == DIRECT

    @property
    def is_thread(self) -> bool:
        return self.type in THREADS


class _RoleTags(Struct, frozen=True, kw_only=True):
    bot_id: str | None = None


class _GuildRole(Struct, frozen=True, kw_only=True):
    id: str
    name: str = ""
    tags: _RoleTags = _RoleTags()


class DiscordGuild(Struct, frozen=True, kw_only=True):
    """A server, as it comes after a connection began."""

    id: Snowflake
    name: str = ""
    roles: tuple[_GuildRole, ...] = ()
    channels: tuple[DiscordRoom, ...] = ()
    threads: tuple[DiscordRoom, ...] = ()


class DiscordRooms:
    """Those of one bot: the channels of its servers, and what was met of threads and direct messages."""

    def __init__(self) -> None:
        self._met = Remembered[DiscordRoom]()
        self._direct = Remembered[str]()
        self._guilds: dict[str, dict[str, DiscordRoom]] = {}
        self._roles: dict[str, str] = {}
        self.own_roles: set[str] = set()
        """The roles that servers give the bot by itself, by which people mention it."""

    def find(self, id: str) -> DiscordRoom | None:
        return self._met.get(id) or next((rooms[id] for rooms in self._guilds.values() if id in rooms), None)

    def direct_with(self, person: str) -> str | None:
        """The channel of direct messages with the person."""
        return self._direct.get(person)

    def role_name(self, id: str) -> str | None:
        return self._roles.get(id)

    def note(self, room: DiscordRoom) -> None:
        if room.guild_id in self._guilds and not room.is_thread:
            self._guilds[room.guild_id or ""][room.id] = room
            return
        self._met.put(room.id, room)
        for person in room.recipients if room.is_direct else ():
            self._direct.put(person.id, room.id)

    def note_guild(self, guild: DiscordGuild, bot: str) -> None:
        self.own_roles |= {role.id for role in guild.roles if role.tags.bot_id == bot}
        self._roles |= {role.id: role.name for role in guild.roles}
        self._guilds[guild.id] = {}
        for room in (*guild.channels, *guild.threads):
            self.note(replace(room, guild_id=guild.id))

    def forget(self, id: str) -> None:
        for rooms in self._guilds.values():
            rooms.pop(id, None)

    def forget_guild(self, guild: str) -> list[DiscordRoom]:
        """The channels that it had."""
        return [*self._guilds.pop(guild, {}).values()]
