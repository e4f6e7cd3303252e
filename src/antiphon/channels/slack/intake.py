"""Takes in what Slack sends, whichever way it comes. Contract: channels 1."""

from contextlib import suppress
from typing import Final

import anyio
from msgspec.structs import replace

from antiphon.channels.intake import Intake
from antiphon.channels.slack.channel import SlackChannel
from antiphon.channels.slack.client import SlackClient, SlackError
from antiphon.channels.slack.directory import LOOKUP_SECONDS, SlackDirectory
from antiphon.channels.slack.events import (
    EventSurroundings,
    KnownUser,
    SlackEvent,
    SlackPayload,
    SlackPosition,
    change_of,
    command_of,
    inbound_of,
    press_of,
)
from antiphon.channels.slack.section import ReplyPlace
from antiphon.domain.inbound import ButtonPress, ChatChange, FromChannel, Inbound
from antiphon.engine.chats.accounts import AccountLease, Accounts

_ENDED: Final = ("app_uninstalled", "tokens_revoked")
"""Events after which the bot's token may be worth nothing."""


class SlackIntake:
    """Events, slash commands and presses of one account."""

    def __init__(
        self,
        client: SlackClient,
        channel: SlackChannel,
        directory: SlackDirectory,
        replies: ReplyPlace,
        *,
        intake: Intake,
        accounts: Accounts,
    ) -> None:
        self._client = client
        self._channel = channel
        self._directory = directory
        self._replies = replies
        self._intake = intake
        self._accounts = accounts

    async def take_payload(self, payload: SlackPayload, lease: AccountLease | None, *, is_posted: bool = False) -> bool:
        """Returns once it is stored, or needs no storing; whether the account must be looked at anew.

        What is posted any process takes in; without a lease, how far chats were read stays as it is. Raises like
        `Intake.take`, and `SlackError` if Slack does not say what must be known.
        """
        if payload.event is not None:
            if payload.event.type in _ENDED:
                return True
            await self._take_event(payload.event, lease, is_posted=is_posted)
        elif payload.command or payload.type == "block_actions":
            around, read = await self._around([payload.who], payload.where), command_of if payload.command else press_of
            content = self._intake.read(lambda: read(payload, around))
            await self.take(content, payload.where, lease, is_posted=is_posted)
        return False

    async def take(
        self, content: FromChannel | None, channel: str, lease: AccountLease | None, *, is_posted: bool = False
    ) -> None:
        if content is None:
            return
        if channel.startswith("D") and not isinstance(content, ChatChange):
            self._channel.note_direct(content.sender.id, channel)
        position = content.position
        if lease is None and isinstance(content, Inbound):
            content = replace(content, position=None)
        received = await self._intake.take(lambda: content, None if is_posted else lease, name=channel)
        if lease is not None and position is not None and content.place.thread_id == position.text:
            # It begins a thread, whose position it is; the channel is read up to it, too.
            await self._accounts.advance(lease, SlackPosition(position.text, channel))
        if received is not None and received.toast and isinstance(content, ButtonPress):
            with suppress(SlackError), anyio.move_on_after(LOOKUP_SECONDS):
                await self._channel.tell(content.place, content.sender.id, received.toast)

    async def inbound(self, event: SlackEvent) -> Inbound | None:
        """The message with the names in it; None if it is nothing for Antiphon."""
        me = await self._client.me()
        if not event.is_of_person(me):
            return None
        is_certain = bool(event.from_team) and (event.from_team == me.team_id or me.enterprise_id is None)
        if not is_certain:
            await self._directory.user(event.user, must=True)
        around = await self._around(event.people, event.where)
        return self._intake.read(lambda: inbound_of(event, around))

    async def _take_event(self, event: SlackEvent, lease: AccountLease | None, *, is_posted: bool) -> None:
        if event.type in ("message", "app_mention"):
            content = await self.inbound(event)
        else:
            around = await self._around(event.people, event.where)
            content = self._intake.read(lambda: change_of(event, around))
        await self.take(content, event.where, lease, is_posted=is_posted)

    async def _around(self, users: list[str], channel: str) -> EventSurroundings:
        known, title = dict[str, KnownUser | None](), ""
        with anyio.move_on_after(LOOKUP_SECONDS):  # for all together
            for each in filter(None, users):
                known[each] = await self._directory.user(each)
            title = "" if channel.startswith("D") else await self._directory.title(channel)
        me, account = await self._client.me(), self._channel.account
        return EventSurroundings(me=me, account=account, replies=self._replies, users=known, title=title)
