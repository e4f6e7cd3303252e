"""Everything of the apps. Importing this module imports the client library: only programs with an app do it."""

from collections.abc import Mapping

import anyio

from antiphon.channels.greetings import FoundAccount
from antiphon.channels.kind import Inside
from antiphon.channels.platform import PlatformChannel
from antiphon.channels.slack.channel import SlackChannel
from antiphon.channels.slack.client import SlackClient, SlackError
from antiphon.channels.slack.loop import SlackLoop, trouble_of
from antiphon.channels.slack.posts import SlackDoor
from antiphon.channels.slack.section import COMMAND, NAME, TITLE, SlackAccount, SlackMode
from antiphon.clock import Clock
from antiphon.domain.check_result import CheckResult, Grade

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
    "files:write": "agents cannot send files",
    "commands": f"the command {COMMAND} does not exist",
}
"""The rights that an app needs, and what it lacks without one; the first two are vital."""
VITAL = 2
REACTING = {"reactions:write": "it cannot react to messages while it answers them"}
"""The right that it needs besides for `acknowledgement`."""


class SlackWorkspaces(PlatformChannel):
    channel, title, link_command = NAME, TITLE, f"{COMMAND} link"
    failures = (SlackError,)

    def __init__(self, accounts: Mapping[str, SlackAccount], clock: Clock) -> None:
        self.accounts = (*accounts,)
        self._settings = accounts
        self._clients = {name: SlackClient(account, clock) for name, account in accounts.items()}
        self._clock = clock
        self._channels = {
            name: SlackChannel(client, name, accounts[name].stream_interval_ms)
            for name, client in self._clients.items()
        }
        self._loops = dict[str, SlackLoop]()
        self.senders = tuple(self._channels.values())

    async def serve(self, inside: Inside) -> None:
        async with anyio.create_task_group() as tasks:
            for loop in self._loops_of(inside).values():
                tasks.start_soon(loop.run)

    def receiver(self, inside: Inside) -> SlackDoor | None:
        """Takes in what Slack posts; None if all accounts listen over connections."""
        loops = self._loops_of(inside)
        posts = {name: loop.posts for name, loop in loops.items() if self._settings[name].mode is SlackMode.HTTP}
        return SlackDoor(posts, self._clock, inside.services.ids.random_hex(64)) if posts else None

    def _loops_of(self, inside: Inside) -> Mapping[str, SlackLoop]:
        """What serves each account, and takes in what is posted for it."""
        for name, channel in self._channels.items():
            if name not in self._loops:
                settings, client = self._settings[name], self._clients[name]
                self._loops[name] = SlackLoop(settings, client, channel, inside, clock=self._clock)
        return self._loops

    async def find(self, account: str) -> FoundAccount:
        me = await self._clients[account].find_me()
        return FoundAccount(name=f"@{me.user} in {me.team}")

    async def look(self, account: str) -> list[CheckResult]:
        """Who the app is, and what rights it lacks."""
        client, me = self._clients[account], await self.find(account)
        if self._settings[account].mode is SlackMode.HTTP:
            client.check_clock()
        wanted = SCOPES | (REACTING if self._settings[account].acknowledgement else {})
        found, lacking = [CheckResult("", Grade.OK, me.name)], [each for each in wanted if each not in client.scopes]
        if client.scopes and lacking:
            grade = Grade.BROKEN if set(lacking) & set(list(SCOPES)[:VITAL]) else Grade.WARNING
            lacks = "; ".join(f"{each}: {wanted[each]}" for each in lacking)
            remedy = f"Add {', '.join(lacking)} on the page OAuth & Permissions, and install the app again."
            found.append(CheckResult("rights", grade, f"the app lacks rights ({lacks})", remedy))
        return found

    def trouble_text(self, error: Exception) -> str | None:
        return trouble_of(error).text if isinstance(error, SlackError) else None
