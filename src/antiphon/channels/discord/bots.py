"""Everything of the bots. Importing this module imports the client library: only programs with a bot do it."""

from collections.abc import Iterator
from contextlib import suppress

import anyio
from msgspec import Struct

from antiphon.channels.checks import check_people
from antiphon.channels.discord.channel import DiscordChannel
from antiphon.channels.discord.client import FAILURES, DiscordApplication, DiscordClient
from antiphon.channels.discord.loop import DiscordLoop, trouble_text
from antiphon.channels.discord.rooms import Snowflake
from antiphon.channels.discord.settings import NAME, UNREACHABLE, DiscordSettings
from antiphon.channels.kind import Greeting, Inside, OpenChannel
from antiphon.clock import Clock
from antiphon.domain.actor import OWNER
from antiphon.domain.chat_state import NO_CHATS, ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.engine.services import Services

_NAME_SECONDS = 5.0
_PERMISSIONS = 1 << 10 | 1 << 11 | 1 << 16 | 1 << 35 | 1 << 38
"""View channels, send messages, read the history, create public threads, send messages in threads."""
_INVITATION = f"https://discord.com/oauth2/authorize?client_id={{}}&scope=bot&permissions={_PERMISSIONS}"
"""Where an admin of a server adds the bot."""
_PORTAL = "https://discord.com/developers/applications"
_SILENT = "Discord does not answer for the bot yet; `antiphon doctor` says why."
_LOOK_THERE = "docs/places/DISCORD.md lists the usual mistakes."


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
            account, greeting = client.settings.account, Greeting(_SILENT, is_warning=True)
            with suppress(*FAILURES), anyio.move_on_after(_NAME_SECONDS):
                me = await client.open()
                greeting = Greeting(f"Discord: {me.username}", _INVITATION.format(me.id))
                if not await services.links.has_owner(NAME, account):
                    code = (await services.links.make_code(OWNER)).code if may_show_code else "CODE"
                    hint = "" if may_show_code else f" (`{command}` prints a code)"
                    said = f"Discord: add {me.username}, and send it `/link {code} yes` directly{hint}"
                    greeting = Greeting(said, _INVITATION.format(me.id))
            greetings.append(greeting)
        return greetings

    def check(self, chats: ChatState, *, is_running: bool) -> Iterator[CheckResult]:
        """What `doctor` says. Nothing is changed at Discord, and no session is begun there."""
        yield from anyio.run(self._check, chats if is_running else NO_CHATS)
        remedy = "Run `antiphon pair link`, and send `/link CODE yes` to the bot in a direct message."
        yield from check_people(NAME, "Discord", chats, remedy=remedy, rooms="channel")

    async def _check(self, chats: ChatState) -> list[CheckResult]:
        try:
            found = [(each, chats.trouble(NAME, each.settings.account)) for each in self._clients]
            return [each for client, trouble in found for each in await self._check_bot(client, trouble)]
        finally:
            await self.aclose()

    async def _check_bot(self, client: DiscordClient, trouble: str | None) -> list[CheckResult]:
        name = NAME if len(self._clients) == 1 else f"{NAME} {client.settings.account}"
        try:
            me = await client.open()
            application = await client.ask("GET", "/oauth2/applications/@me", DiscordApplication)
            servers = await client.ask("GET", "/users/@me/guilds", list[_JoinedServer])
        except FAILURES as error:
            trouble = trouble or trouble_text(error)
            return [CheckResult(name, Grade.BROKEN, trouble or UNREACHABLE, _LOOK_THERE)]
        if trouble is not None:
            return [CheckResult(name, Grade.BROKEN, trouble, _LOOK_THERE)]
        found = [CheckResult(name, Grade.OK, f"{me.username}, in {len(servers)} server(s)")]
        if not application.may_read:
            said = "the message content intent is off: in channels the bot reads only messages that mention it"
            remedy = f"{_PORTAL}: Bot, Privileged Gateway Intents, Message Content Intent. Then restart the gateway."
            found.append(CheckResult(f"{name} intent", Grade.WARNING, said, remedy))
        if application.interactions_endpoint_url is not None:
            said = "presses of buttons are posted to another address, so nobody can decide by them here"
            remedy = f"{_PORTAL}: General Information, delete the Interactions Endpoint URL."
            found.append(CheckResult(f"{name} buttons", Grade.WARNING, said, remedy))
        return found

    async def aclose(self) -> None:
        for client in self._clients:
            await client.aclose()
