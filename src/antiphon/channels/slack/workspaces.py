"""Everything of the apps. Importing this module imports the client library: only programs with an app do it."""

from collections.abc import Iterator, Mapping

import anyio

from antiphon.channels.checks import check_people
from antiphon.channels.kind import Greeting, Inside, OpenChannel
from antiphon.channels.slack.channel import SlackChannel
from antiphon.channels.slack.client import SlackClient, SlackError
from antiphon.channels.slack.loop import SlackLoop, trouble_of
from antiphon.channels.slack.section import COMMAND, NAME, SlackAccount
from antiphon.clock import Clock
from antiphon.domain.actor import OWNER
from antiphon.domain.chat_state import NO_CHATS, ChatState
from antiphon.domain.check_result import CheckResult, Grade
from antiphon.engine.services import Services

NAME_SECONDS = 5.0
SCOPES = {
    "chat:write": "it can send nothing",
    "im:history": "it sees no direct messages",
    "im:write": "it cannot begin direct chats, such as an owner's for approvals",
    "users:read": "it knows people by their ids alone",
    "app_mentions:read": "it is not told of mentions in channels",
    "channels:history": "it sees nothing else in public channels, and cannot catch up there",
    "groups:history": "it sees nothing else in private channels, and cannot catch up there",
    "channels:read": "it knows no names of public channels",
    "groups:read": "it knows no names of private channels",
    "im:read": "it cannot catch up in direct chats that it does not know",
    "files:read": "it cannot take files in",
    "commands": f"the command {COMMAND} does not exist",
}
"""The rights that an app needs, and what it lacks without one; the first two are vital."""
VITAL = 2


class SlackWorkspaces(OpenChannel):
    def __init__(self, accounts: Mapping[str, SlackAccount], clock: Clock) -> None:
        self._accounts = accounts
        self._clients = {name: SlackClient(account, clock) for name, account in accounts.items()}
        self._clock = clock
        self._channels = {
            name: SlackChannel(client, name, accounts[name].stream_interval_ms)
            for name, client in self._clients.items()
        }
        self.senders = tuple(self._channels.values())

    async def serve(self, inside: Inside) -> None:
        async with anyio.create_task_group() as tasks:
            for name, channel in self._channels.items():
                loop = SlackLoop(self._accounts[name], self._clients[name], channel, inside, clock=self._clock)
                tasks.start_soon(loop.run)

    async def greet(self, services: Services, *, command: str, may_show_code: bool) -> list[Greeting]:
        """Where the apps are; with a code for the owner's account, until one is linked."""
        greetings = list[Greeting]()
        for account, client in self._clients.items():
            said = "Slack does not answer for the app yet; `antiphon doctor` says why."
            greeting = Greeting(said, is_warning=True)
            with anyio.move_on_after(NAME_SECONDS):
                try:
                    me = await client.find_me()
                    where = f"Slack: @{me.user} in {me.team}"
                    greeting = await _invite(services, account, where, command if not may_show_code else None)
                except SlackError:
                    pass
            greetings.append(greeting)
        return greetings

    def check(self, chats: ChatState, *, is_running: bool) -> Iterator[CheckResult]:
        """What `doctor` says. Nothing is changed at Slack, and a running gateway keeps its connections."""
        yield from anyio.run(self._check, chats if is_running else NO_CHATS)
        remedy = f"Run `antiphon pair link`, and send the app `{COMMAND} link CODE yes`."
        yield from check_people(NAME, "Slack", chats, remedy=remedy, rooms="channel", bot="the app")

    async def _check(self, chats: ChatState) -> list[CheckResult]:
        try:
            found = [(account, chats.trouble(NAME, account)) for account in self._clients]
            return [each for account, trouble in found for each in await self._check_account(account, trouble)]
        finally:
            await self.aclose()

    async def _check_account(self, account: str, trouble: str | None) -> list[CheckResult]:
        client, name = self._clients[account], NAME if len(self._clients) == 1 else f"{NAME} {account}"
        look = "docs/places/SLACK.md lists the usual mistakes."
        try:
            me = await client.find_me()
        except SlackError as error:
            return [CheckResult(name, Grade.BROKEN, trouble_of(error).text, look)]
        if trouble is not None:
            return [CheckResult(name, Grade.BROKEN, trouble, look)]
        found = [CheckResult(name, Grade.OK, f"@{me.user} in {me.team}")]
        if client.scopes and (lacking := [each for each in SCOPES if each not in client.scopes]):
            grade = Grade.BROKEN if set(lacking) & set(list(SCOPES)[:VITAL]) else Grade.WARNING
            lacks = "; ".join(f"{each}: {SCOPES[each]}" for each in lacking)
            remedy = f"Add {', '.join(lacking)} on the page OAuth & Permissions, and install the app again."
            found.append(CheckResult(f"{name} rights", grade, f"the app lacks rights ({lacks})", remedy))
        return found


async def _invite(services: Services, account: str, where: str, command: str | None) -> Greeting:
    """`command` makes a code, where none may be shown."""
    if await services.links.has_owner(NAME, account):
        return Greeting(where)
    if command is not None:
        return Greeting(f"{where}: no owner yet. `{command}` prints a code; send the app `{COMMAND} link CODE yes`.")
    code = await services.links.make_code(OWNER)
    said = "send the app this in a direct message (good once, for an hour)"
    return Greeting(f"{where}: {said}: {COMMAND} link {code.code} yes")
