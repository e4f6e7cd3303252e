"""Serves one app in its workspace: what comes over its connections, and what came while there were none."""

from collections.abc import Generator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Final

import anyio
from msgspec.structs import replace

from antiphon.channels.account_loop import AccountLoop, PlatformTrouble
from antiphon.channels.catch_up import ALIVE, CatchUp
from antiphon.channels.json_facts import find_object
from antiphon.channels.kind import Inside
from antiphon.channels.slack.channel import SlackChannel
from antiphon.channels.slack.client import LIMITED, SKEWED, SlackClient, SlackError
from antiphon.channels.slack.directory import SlackDirectory
from antiphon.channels.slack.events import SlackEvent, moment_of, read_event, read_payload
from antiphon.channels.slack.intake import SlackIntake
from antiphon.channels.slack.posts import SlackPosts
from antiphon.channels.slack.section import NAME, TITLE, SlackAccount, SlackMode
from antiphon.channels.slack.socket import LINK_DISABLED, SocketEnvelope, listen
from antiphon.clock import Clock
from antiphon.domain.errors import Unavailable
from antiphon.domain.inbound import Inbound, SentFile
from antiphon.domain.position import NumberedPosition
from antiphon.engine.chats.accounts import AccountLease

MOST_THREADS: Final = 50
"""Threads that are looked at after an outage: those in which somebody wrote last."""
MOST_OF_CHAT: Final = 1_000
"""Messages of a chat that are looked at."""
LOOK_AGAIN: Final = timedelta(minutes=10)
"""How often Slack is asked for what it could not post: it gives up after three tries within some minutes."""
UNREACHABLE: Final = "Slack cannot be reached. Check whether this machine reaches https://slack.com."
TROUBLES: Final = {
    LINK_DISABLED: "Socket mode is off for this app, so nothing can come in. Turn it on, page Socket Mode.",
    SKEWED: (
        "The clock of this machine is more than five minutes off from Slack's, so nothing that Slack signs is taken "
        "in. Set it, such as with `timedatectl set-ntp true`."
    ),
    "too_many_websockets": "Other programs hold all connections that this app may have. Stop them.",
    LIMITED: "Slack asks to wait.",
}
WRONG_TOKEN: Final = (
    "The bot's token is wrong or was revoked, or the app was removed from the workspace. Take it from the page OAuth & "
    "Permissions, once the app is installed."
)
WRONG_APP_TOKEN: Final = (
    "The app's token is wrong or was revoked. Make one on the page Basic Information, App-Level Tokens, with the right "
    "connections:write."
)


class SlackLoop(AccountLoop):
    title = TITLE

    def __init__(
        self, settings: SlackAccount, client: SlackClient, channel: SlackChannel, inside: Inside, *, clock: Clock
    ) -> None:
        super().__init__(inside.reception, inside.accounts, clock, name=(NAME, channel.account))
        self._settings = settings
        self._client = client
        self._slack = SlackIntake(
            client,
            channel,
            SlackDirectory(client, clock),
            settings.replies,
            intake=self.intake,
            accounts=self.accounts,
        )
        self.posts = SlackPosts(client, self._slack, self.intake, settings.signing_key() or "")
        self._alive_at: datetime | None = None
        """When the account was last read; None before the first time."""

    async def begin(self, lease: AccountLease) -> None:
        me = await self._client.find_me()
        if lease.position is not None:
            self._alive_at = datetime.fromtimestamp(int(lease.position) / 1000, UTC)
        await self.store_name(lease, platform_id=f"{me.home}.{me.user_id}", name=me.user)

    async def listen(self, lease: AccountLease) -> None:
        """First what came meanwhile, then what comes; what is in both is recognised."""
        if self._settings.mode is SlackMode.HTTP:
            await self._await_posts(lease)
            return
        async with anyio.create_task_group() as tasks:

            async def ready() -> None:
                await self.works()
                await self._catch_up(lease)
                tasks.start_soon(self._note_alive, lease)

            await listen(self._client, ready, lambda envelope: self._take_envelope(envelope, lease))

    async def fetch(self, file: SentFile, most: int) -> bytes | None:
        try:
            found = find_object(await self._client.call("files.info", file=file.file_id), "file")
            return await self._client.download(str(found.get("url_private_download")), most)
        except SlackError as error:
            if error.is_passing:
                raise
            return None

    def trouble_of(self, error: Exception) -> PlatformTrouble | None:
        return trouble_of(error) if isinstance(error, SlackError) else None

    async def _await_posts(self, lease: AccountLease) -> None:
        """Until it is time to look again for what could not be posted, or stored."""
        began = self.clock.now()
        await self._client.find_me()
        self._client.check_clock()
        await self.works()
        await self._catch_up(lease)
        await self._note_read(lease, began)
        await self.posts.serve(lease, LOOK_AGAIN)

    async def _note_alive(self, lease: AccountLease) -> None:
        while True:
            await self._note_read(lease, self.clock.now())
            await anyio.sleep(ALIVE.total_seconds())

    async def _note_read(self, lease: AccountLease, at: datetime) -> None:
        """All that was written until then was taken in."""
        self._alive_at = at
        with suppress(Unavailable):
            await self.accounts.advance(lease, NumberedPosition(str(int(at.timestamp() * 1000))))

    async def _take_envelope(self, envelope: SocketEnvelope, lease: AccountLease) -> None:
        """Confirms it once it is stored, or needs no storing."""
        payload = self.intake.read(lambda: read_payload(envelope.payload))
        is_doubtful = payload is not None and await self._slack.take_payload(payload, lease)
        await envelope.confirm()
        if is_doubtful:
            await self._client.find_me()

    async def _catch_up(self, lease: AccountLease) -> None:
        """Takes in what people wrote while nobody listened, in the chats of the app and in their newest threads."""
        stored, chats = await self.accounts.positions(lease), dict[str, None]()
        threads = sorted((each for each in stored if "/" in each), key=lambda each: moment_of(stored[each]))
        for kind in ("im", "mpim", "private_channel", "public_channel"):
            with _of_one_chat():
                async for each in self._client.pages("users.conversations", "channels", types=kind):
                    chats[str(each.get("id"))] = None
        chats |= dict.fromkeys(each for each in stored if "/" not in each)
        look = CatchUp(self._settings.catch_up, self.reception, self.accounts, self.clock, lease=lease)
        begin = f"{max(look.begins_at(self._alive_at).timestamp(), 0):.6f}"
        for chat in [*chats, *reversed(threads[-MOST_THREADS:])]:
            take = partial(self._slack.take, channel=chat.partition("/")[0], lease=lease)
            with _of_one_chat():
                await look.take(await self._missed(chat, stored.get(chat), begin), take)

    async def _missed(self, chat: str, after: str | None, begin: str) -> list[Inbound]:
        """What people wrote there after that time, the oldest first."""
        (channel, _, thread), me, since = chat.partition("/"), await self._client.me(), after or begin
        at, found, missed = {"channel": channel, "ts": thread or None}, list[SlackEvent](), list[Inbound]()
        method = f"conversations.{'replies' if thread else 'history'}"
        async for each in self._client.pages(method, "messages", oldest=since, **at):
            event = self.intake.read(lambda each=each: replace(read_event(each), channel=channel))
            if event is not None and event.thread == (thread or None) and moment_of(event.ts) > moment_of(since):
                found.append(event)
            if len(found) >= MOST_OF_CHAT:
                break
        for event in sorted(found, key=lambda each: moment_of(each.ts)):
            if event.user == me.user_id and after is None and self._alive_at is None:
                missed.clear()  # another gateway of this app has answered, before this one was here
            elif (inbound := await self._slack.inbound(event)) is not None:
                missed.append(inbound)
        return missed


@contextmanager
def _of_one_chat() -> Generator[None]:
    """Passes over what Slack does not show, unless it shows nothing at all."""
    try:
        yield
    except SlackError as error:
        if error.is_passing or error.is_of_token:
            raise


def trouble_of(error: SlackError) -> PlatformTrouble:
    """Why the app is not served."""
    if error.is_of_token:
        return PlatformTrouble(WRONG_APP_TOKEN if error.is_of_app else WRONG_TOKEN)
    if error.code == "missing_scope":
        return PlatformTrouble(f"The app lacks the right {error.needed}. Add it, and install the app again.")
    return PlatformTrouble(TROUBLES.get(error.code, UNREACHABLE), error.wish)
