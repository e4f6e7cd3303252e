"""Everything of the bots. Importing this module imports the client library: only programs with a bot do it."""

import anyio
from msgspec import Struct
from msgspec.structs import replace

from antiphon.channels.discord.channel import DiscordChannel
from antiphon.channels.discord.client import FAILURES, DiscordApplication, DiscordClient
from antiphon.channels.discord.loop import DiscordLoop, trouble_text
from antiphon.channels.discord.rooms import Snowflake
from antiphon.channels.discord.settings import NAME, UNREACHABLE, DiscordLook, DiscordSettings
from antiphon.channels.kind import Greeting, Inside, OpenChannel
from antiphon.clock import Clock
from antiphon.domain.actor import OWNER
from antiphon.engine.services import Services

_NAME_SECONDS = 5.0
_PERMISSIONS = 1 << 10 | 1 << 11 | 1 << 16 | 1 << 35 | 1 << 38
"""View channels, send messages, read the history, create public threads, send messages in threads."""


class _JoinedServer(Struct, frozen=True):
    id: Snowflake


class DiscordBots(OpenChannel):
    """The bots of this process with their connections."""

    def __init__(self, bots: tuple[DiscordSettings, ...], clock: Clock) -> None:
        self._clients = [DiscordClient(each) for each in bots]
        self.senders = tuple(DiscordChannel(each, clock) for each in self._clients)

    async def serve(self, inside: Inside) -> None:
        async with anyio.create_task_group() as tasks:
            for client in self._clients:
                loop = DiscordLoop(client, inside.reception, inside.accounts, clock=inside.services.clock)
                tasks.start_soon(loop.run)

    async def greet(self, services: Services, *, command: str, may_show_code: bool) -> list[Greeting]:
        """How to reach each bot; with a code for the owner's account, until one is linked."""
        greetings = list[Greeting]()
        for client in self._clients:
            settings, look = client.settings, await _look(client)
            if look is None or look.trouble is not None:
                text = f"Discord does not answer for {settings.account} yet; `antiphon doctor` says why."
                greetings.append(Greeting(text, is_warning=True))
                continue
            link = invitation_of(client)
            if await services.links.has_owner(NAME, settings.account):
                greetings.append(Greeting(f"Discord: {look.name}", link))
            elif may_show_code:
                code = (await services.links.make_code(OWNER)).code
                text = f"Discord (good once, for an hour): add {look.name}, and send it `/link {code} yes` directly."
                greetings.append(Greeting(text, link))
            else:
                text = f"Discord: no owner yet. `{command}` prints a code; send `/link CODE yes` to {look.name}."
                greetings.append(Greeting(text))
        return greetings

    async def look(self) -> list[tuple[str, DiscordLook]]:
        """What Discord says about each bot, by account; nothing is changed."""
        return [
            (each.settings.account, await _look(each) or DiscordLook(trouble=UNREACHABLE)) for each in self._clients
        ]

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()


async def _look(client: DiscordClient) -> DiscordLook | None:
    """None if Discord does not answer soon."""
    look = DiscordLook()
    with anyio.move_on_after(_NAME_SECONDS) as scope:
        try:
            me = await client.open()
            application = await client.ask("GET", "/oauth2/applications/@me", DiscordApplication)
            servers = await client.ask("GET", "/users/@me/guilds", list[_JoinedServer])
            look = replace(
                look,
                name=me.username,
                reads_channels=application.may_read,
                interactions_url=application.interactions_endpoint_url,
                servers=len(servers),
            )
        except FAILURES as error:
            return replace(look, trouble=trouble_text(error))
    return None if scope.cancelled_caught else look


def invitation_of(client: DiscordClient) -> str:
    """Where an admin of a server adds the bot, with the permissions that it needs."""
    id = "" if client.me is None else client.me.id
    return f"https://discord.com/oauth2/authorize?client_id={id}&scope=bot&permissions={_PERMISSIONS}"
