"""Reactions to messages that are being answered, for chats that show no typing. Contract: channels 1, groups 1, flow 7.

A message that began or joined a run gets the reaction that the settings of its account name, until the run's answers
are sent, or it ended without any. What is not answered gets none, and looks ignored. Nothing is stored and nothing
waits for it: after a restart it is taken away from what was being answered.
"""

import logging
from collections import Counter
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple, Protocol, runtime_checkable

import anyio
from anyio.abc import TaskGroup

from antiphon.domain.acknowledgement import Acknowledgement, ReactionState, ReactionStep
from antiphon.domain.delivery import DeliveryFailed
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.session import DEFAULT_ACCOUNT, DeliveryContext
from antiphon.engine.deliveries.output_rules import looks_at_output
from antiphon.engine.deliveries.paces import PacedChat, RateLimits, account_of, chat_of
from antiphon.engine.deliveries.showing import may_signal
from antiphon.engine.rules import Rules
from antiphon.feed.notifier import Notifier
from antiphon.store import arrivals, runs
from antiphon.store import deliveries as outbox
from antiphon.store import sessions as rows
from antiphon.store.channel_accounts import AccountName
from antiphon.store.database import Database, Query
from antiphon.store.deliveries import ChannelAccount

logger = logging.getLogger(__name__)

FIRST_SECONDS = 0.3
"""How long the reaction waits: what is answered by then needs none."""
LOOK_SECONDS = 15.0
"""Between looks at a run that works and wakes nobody."""
SENDING_SECONDS = 1.0
"""Between looks at answers that are being sent."""
RETRY_SECONDS = 5.0
LONGEST_WAIT_SECONDS = 60.0
MOST_OF_CHAT = 20
"""Messages of a chat that have the reaction at the same time, or get it; those beyond have none."""
MOST_AT_ONCE = 1_000
MOST_LOGGED = 1_000
ANSWERED_LATELY = timedelta(minutes=2)
"""How long before a start answered messages are looked at: the process before may have died before it took away."""
MOST_ADOPTED = 50
LONGEST_CHAIN = 100


@runtime_checkable
class Reactor(Protocol):
    """The sender of an account that can react to messages, as `channels/channel.py` says."""

    @property
    def timeout_seconds(self) -> float: ...

    async def react(self, place: DeliveryContext, platform_id: str, emoji: str, *, is_shown: bool) -> None: ...


class MessageAtWork(NamedTuple):
    """A message of a chat that a run answers."""

    place: DeliveryContext
    platform_id: str
    session: SessionRow
    run: RunId


class _WorkState(NamedTuple):
    """What is known of a message."""

    is_allowed: bool
    """Whether people at the place may see that something is answered there."""
    has_ended: bool
    """Whether its run has ended for good."""
    is_answered: bool
    """Whether besides nothing of the run waits to be sent."""


class Acknowledgements:
    """Gives and takes away reactions on the accounts of this process. `run` must be running in a task."""

    def __init__(
        self,
        *,
        database: Database,
        notifier: Notifier,
        channels: Mapping[ChannelAccount, object],
        rules: Rules,
        paces: RateLimits,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._channels = {
            account: (channel, emoji)
            for account, channel in channels.items()
            if isinstance(channel, Reactor) and (emoji := _emoji_of(rules, account))
        }
        self._rules = rules
        self._paces = paces
        self._tasks: TaskGroup | None = None
        self._open = Counter[PacedChat]()
        self._logged = set[PacedChat]()

    def note(self, message: MessageAtWork) -> None:
        """The message was stored, and began or joined a run; returns at once."""
        self._begin(message, Acknowledgement())

    async def run(self) -> None:
        """Reacts, until cancelled."""
        if not self._channels:
            return
        async with anyio.create_task_group() as self._tasks:
            try:
                since_ms = -int(ANSWERED_LATELY.total_seconds() * 1000)
                accounts = [AccountName(each.channel, each.account_id or DEFAULT_ACCOUNT) for each in self._channels]
                for each in await self._database.read(list_answered_lately, accounts, since_ms):
                    self._begin(each, Acknowledgement(shown=ReactionState.PERHAPS))
            except Unavailable as error:
                logger.info("Reactions were not looked at", extra={"action": "reactions_unread", "code": error.code})
            await anyio.sleep_forever()

    def _begin(self, message: MessageAtWork, state: Acknowledgement) -> None:
        chat = chat_of(message.place)
        is_full = self._open.total() >= MOST_AT_ONCE or self._open[chat] >= MOST_OF_CHAT
        if self._tasks is None or chat.account not in self._channels or is_full:
            return
        self._open[chat] += 1
        self._tasks.start_soon(self._accompany, message, state)

    async def _accompany(self, message: MessageAtWork, state: Acknowledgement) -> None:
        woken = [anyio.Event()]
        stop = self._notifier.subscribe(message.session, lambda: woken[0].set())
        try:
            await anyio.sleep(FIRST_SECONDS)
            while True:
                woken[0] = anyio.Event()
                try:
                    standing = await self._database.read(look_at, message, self._rules)
                except Unavailable as error:
                    if error.code == "store_closed":
                        return
                    await anyio.sleep(RETRY_SECONDS)
                    continue
                match state.next_step(is_answered=standing.is_answered, is_allowed=standing.is_allowed):
                    case ReactionStep.END:
                        return
                    case ReactionStep.GIVE:
                        state = await self._give(message, state)
                    case ReactionStep.TAKE:
                        state = await self._take(message, state)
                    case ReactionStep.REST:
                        with anyio.move_on_after(SENDING_SECONDS if standing.has_ended else LOOK_SECONDS):
                            await woken[0].wait()
        finally:
            stop()
            chat = chat_of(message.place)
            self._open[chat] -= 1
            if not self._open[chat]:
                del self._open[chat]

    async def _give(self, message: MessageAtWork, state: Acknowledgement) -> Acknowledgement:
        """Not while the platform asks to wait: texts go first."""
        if self._pause_of(message):
            return state.after_giving(was_refused=True)
        failed = await self._react(message, is_shown=True)
        return state.after_giving(was_refused=failed is not None and failed.was_refused)

    async def _take(self, message: MessageAtWork, state: Acknowledgement) -> Acknowledgement:
        if pause := self._pause_of(message):
            await anyio.sleep(min(pause, LONGEST_WAIT_SECONDS))
        failed = await self._react(message, is_shown=False)
        if failed is not None and not failed.is_permanent:
            wish = RETRY_SECONDS if failed.retry_after is None else failed.retry_after.total_seconds()
            await anyio.sleep(min(wish, LONGEST_WAIT_SECONDS))
            return state.after_taking(was_taken=False)
        return state.after_taking(was_taken=True)

    def _pause_of(self, message: MessageAtWork) -> float:
        return max(0, self._paces.pause_ends_at(chat_of(message.place)) - self._paces.now_ms()) / 1000

    async def _react(self, message: MessageAtWork, *, is_shown: bool) -> DeliveryFailed | None:
        """Why it failed, which one line of the log says for each place."""
        channel, emoji = self._channels[account_of(message.place)]
        try:
            with anyio.fail_after(channel.timeout_seconds):
                await channel.react(message.place, message.platform_id, emoji, is_shown=is_shown)
            return None
        except DeliveryFailed as error:
            failed = error
        except TimeoutError:
            failed = DeliveryFailed("The platform did not answer in time.", code="channel_timeout")
        except Exception:  # a bug in the adapter must not end the others' reactions
            failed = DeliveryFailed("The adapter failed.", code="channel_refused", is_permanent=True)
        if (chat := chat_of(message.place)) not in self._logged and len(self._logged) < MOST_LOGGED:
            self._logged.add(chat)
            facts = {"action": "reaction_failed", "channel": chat.account.channel, "code": failed.code}
            logger.warning("Message got no reaction", extra={**facts, "session": message.session})
        return failed


def _emoji_of(rules: Rules, account: ChannelAccount) -> str:
    found = rules.chats.channels.get((account.channel, account.account_id or DEFAULT_ACCOUNT))
    return "" if found is None else found.acknowledgement


async def look_at(query: Query, message: MessageAtWork, rules: Rules) -> _WorkState:
    """What is known of the message; of one whose session or run is gone, that it was answered."""
    session, run = await rows.find_by_row(query, message.session), await runs.find(query, message.run)
    if session is None or run is None:
        return _WorkState(is_allowed=False, has_ended=True, is_answered=True)
    chain = [run.id]
    while run.continued_by is not None and len(chain) < LONGEST_CHAIN:
        following = await runs.find(query, run.continued_by)
        if following is None:
            break
        run = following
        chain.append(run.id)
    # A run that looks at what leaves shows nothing before: `LiveReplies.begin`.
    is_allowed = not looks_at_output(rules) and await may_signal(query, session, message.place, rules)
    is_answered = run.is_over and not await outbox.is_any_of_runs_waiting(query, chain)
    return _WorkState(is_allowed, run.is_over, is_answered)


async def list_answered_lately(query: Query, accounts: list[AccountName], since_ms: int) -> list[MessageAtWork]:
    """Messages on the accounts whose runs have not ended, or ended that long ago at most; the newest."""
    found = list[MessageAtWork]()
    for name in accounts:
        listed = await arrivals.list_with_runs(query, name, query.now_ms + since_ms, MOST_ADOPTED)
        for platform_id, session, run_id in listed:
            run, row = await runs.find(query, run_id), await rows.find_by_row(query, session)
            place = None if run is None or row is None else run.place or row.delivery
            if place is not None and (place.channel, place.account_id or DEFAULT_ACCOUNT) == name:
                found.append(MessageAtWork(place, platform_id, session, run_id))
    return found
