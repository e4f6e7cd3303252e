"""Everything of the bots. Importing this module imports the client library: only programs with a bot do it."""

import anyio

from antiphon.channels.discord.channel import DiscordChannel
from antiphon.channels.discord.client import FAILURES, DiscordApplication, DiscordClient
from antiphon.channels.discord.loop import DiscordLoop, trouble_text
from antiphon.channels.discord.settings import NAME, DiscordSettings
from antiphon.channels.greetings import FoundAccount
from antiphon.channels.kind import Inside
from antiphon.channels.platform import PlatformChannel
from antiphon.clock import Clock
from antiphon.domain.check_result import CheckResult, Grade

_PERMISSIONS = 1 << 10 | 1 << 11 | 1 << 15 | 1 << 16 | 1 << 35 | 1 << 38
"""View channels, send messages and files, read the history, create public threads, send messages in threads."""
_INVITATION = f"https://discord.com/oauth2/authorize?client_id={{}}&scope=bot&permissions={_PERMISSIONS}"
"""Where an admin of a server adds the bot."""
_PORTAL = "https://discord.com/developers/applications"


class DiscordBots(PlatformChannel):
    """The bots of this process with their connections."""

    channel, title = NAME, "Discord"
    failures = FAILURES

    def __init__(self, bots: tuple[DiscordSettings, ...], clock: Clock) -> None:
        self._clients = {each.account: DiscordClient(each) for each in bots}
        self.accounts = (*self._clients,)
        self.senders = tuple(DiscordChannel(each, clock) for each in self._clients.values())

    async def serve(self, inside: Inside) -> None:
        async with anyio.create_task_group() as tasks:
            for client in self._clients.values():
                loop = DiscordLoop(client, inside.reception, inside.accounts, clock=inside.services.clock)
                tasks.start_soon(loop.run)

    async def find(self, account: str) -> FoundAccount:
        me = await self._clients[account].open()
        return FoundAccount(name=me.username, link=_INVITATION.format(me.id))

    async def look(self, account: str) -> list[CheckResult]:
        """Who the bot is, and what is set in the developer portal; no session is begun."""
        client = self._clients[account]
        me = await client.open()
        application = await client.ask("GET", "/oauth2/applications/@me", DiscordApplication)
        servers = await client.ask("GET", "/users/@me/guilds", list[object])
        found = [CheckResult("", Grade.OK, f"{me.username}, in {len(servers)} server(s)")]
        if not application.may_read:
            said = "the message content intent is off: in channels the bot reads only messages that mention it"
            remedy = f"{_PORTAL}: Bot, Privileged Gateway Intents, Message Content Intent. Then restart the gateway."
            found.append(CheckResult("intent", Grade.WARNING, said, remedy))
        if application.interactions_endpoint_url is not None:
            said = "presses of buttons are posted to another address, so nobody can decide by them here"
            remedy = f"{_PORTAL}: General Information, delete the Interactions Endpoint URL."
            found.append(CheckResult("buttons", Grade.WARNING, said, remedy))
        return found

    def trouble_text(self, error: Exception) -> str | None:
        return trouble_text(error)
