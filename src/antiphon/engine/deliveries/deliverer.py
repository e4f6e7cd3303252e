"""The deliverer: sends the deliveries of the outbox, in order for each place, at least once. Contract: channels 1.

One unit claims a text and another settles it; it is sent between them, outside any transaction. A process that dies
in between may have sent it: the process that takes it over sends it again, under the same id.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Protocol

import anyio
from anyio.abc import TaskGroup

from antiphon.clock import Clock
from antiphon.domain.delivery import Delivery, DeliveryFailed, DeliveryStatus
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import ProcessId
from antiphon.engine.deliveries.deliveries import ClaimDelivery, claim_delivery, failure_of, settle_failed, settle_sent
from antiphon.engine.rules import Rules
from antiphon.feed.notifier import Notifier
from antiphon.store import deliveries as outbox
from antiphon.store.database import Database
from antiphon.store.deliveries import OUTBOX, ChannelAccount, Head
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

SWEEP_SECONDS = 1.0
"""Between looks without a wake, for retries that are due and claims of a dead process."""
RETRY_SECONDS = 0.5
MAX_AT_ONCE = 64
MAX_OF_ACCOUNT = 8
"""Sends at the same time by one account, so that a hanging account leaves room for the others."""


class Sender(Protocol):
    """Sends texts by one account of a channel.

    - `send` returns the platform's id of the message, or None, once the platform has taken it.
    - It raises `DeliveryFailed` if the platform has not taken it, or if that is unknown.
    - It may be called with the same text again, with the same delivery id.
    - It is cancelled after `timeout_seconds`.
    """

    @property
    def timeout_seconds(self) -> float: ...

    async def send(self, delivery: Delivery) -> str | None: ...


class Deliverer:
    """Sends the texts of the accounts that this process serves."""

    def __init__(
        self,
        *,
        database: Database,
        notifier: Notifier,
        senders: Mapping[ChannelAccount, Sender],
        rules: Rules,
        clock: Clock,
        process: ProcessId,
    ) -> None:
        self._database = database
        self._notifier = notifier
        self._senders = senders
        self._rules = rules
        self._clock = clock
        self._process = process
        self._sending: dict[str, ChannelAccount] = {}
        self._woken = asyncio.Event()
        self._is_idle = asyncio.Event()
        self._is_stopped = False
        means = "Texts for channels wait until this is over."
        self._looking = Trouble(logger, "Reading the outbox", action="outbox_failed", means=means)
        self._claiming = Trouble(logger, "Delivery", action="delivery_broken", means=means)
        self._settling = Trouble(
            logger, "Storing that a text was sent", action="settle_failed", means="It may be sent twice after a crash."
        )

    def wake(self) -> None:
        """Makes it look again at once."""
        self._is_idle.clear()
        self._woken.set()

    async def wait_idle(self) -> None:
        """Returns after a look that found nothing due while nothing is being sent."""
        await self._is_idle.wait()

    async def drain(self, seconds: float) -> None:
        """Begins nothing more and gives running sends this long. Unfinished ones are taken over under their ids."""
        self._is_stopped = True
        self.wake()
        if self._senders:
            with anyio.move_on_after(seconds):
                await self._is_idle.wait()

    async def run(self) -> None:
        """Looks after each wake, and from time to time, until it is drained or cancelled."""
        if not self._senders:
            self._is_idle.set()
            return
        unsubscribe = self._notifier.subscribe(OUTBOX, self.wake)
        try:
            async with anyio.create_task_group() as tasks:
                while not self._is_stopped or self._sending:
                    self._woken.clear()
                    has_begun = False if self._is_stopped else await self._begin_due(tasks)
                    if not has_begun and not self._sending and not self._woken.is_set():
                        self._is_idle.set()
                    with anyio.move_on_after(SWEEP_SECONDS):
                        await self._woken.wait()
            self._is_idle.set()
        finally:
            unsubscribe()

    async def _begin_due(self, tasks: TaskGroup) -> bool:
        """Begins to send due texts as far as there is room; returns whether there were any."""
        busy = Counter(self._sending.values())
        room = MAX_AT_ONCE - len(self._sending)
        open_ = tuple(account for account in self._senders if busy[account] < MAX_OF_ACCOUNT)
        if not open_ or room <= 0:
            return False
        try:
            heads = await self._database.read(outbox.list_heads, open_, self._process, self._clock.now_ms())
        except Unavailable as error:
            self._looking.failed(error)
            return False
        self._looking.worked()
        begun = 0
        for head in heads:
            if begun >= room or head.id in self._sending or busy[head.account] >= MAX_OF_ACCOUNT:
                continue
            busy[head.account] += 1
            begun += 1
            self._sending[head.id] = head.account
            tasks.start_soon(self._deliver, head, self._senders[head.account])
        return begun > 0

    async def _deliver(self, head: Head, sender: Sender) -> None:
        try:
            command = ClaimDelivery(id=head.id, process=self._process, rules=self._rules, at_ms=self._clock.now_ms())
            claimed = await self._database.run(claim_delivery, command, sessions=(head.session,))
            self._claiming.worked()
            if claimed is not None:
                await self._send(claimed, sender)
        except Unavailable as error:
            # Another look finds texts that this process claimed and does not send.
            self._claiming.failed(error)
            await anyio.sleep(RETRY_SECONDS)
        except Exception as error:  # a bug of ours: the text stays claimed, and is looked at again
            self._claiming.failed(error, delivery_id=head.id)
            await anyio.sleep(RETRY_SECONDS)
        finally:
            del self._sending[head.id]
            self.wake()

    async def _send(self, claimed: Delivery, sender: Sender) -> None:
        facts = {"delivery_id": claimed.id, "channel": claimed.place.channel, "attempt": claimed.attempts}
        try:
            with anyio.fail_after(sender.timeout_seconds):
                platform_id = await sender.send(claimed)
        except DeliveryFailed as failed:
            await self._settle_failed(claimed, failed)
        except TimeoutError:
            failed = DeliveryFailed(
                f"The platform did not answer within {sender.timeout_seconds:g} s; it may have received the text.",
                code="channel_timeout",
            )
            await self._settle_failed(claimed, failed)
        except Exception:  # a bug in the adapter must not end the deliverer
            logger.exception("Adapter failed", extra={"action": "delivery_crashed", **facts})
            await self._settle_failed(claimed, DeliveryFailed("The adapter failed; see the log of Antiphon."))
        else:
            if not await self._settle_sent(claimed, platform_id):
                logger.warning("Delivery was taken over", extra={"action": "delivery_fenced", **facts})

    async def _settle_sent(self, claimed: Delivery, platform_id: str | None) -> bool:
        """Tries until the database accepts it: a text whose sending is not recorded is sent again."""
        while True:
            at_ms = self._clock.now_ms()
            try:
                settled = await self._database.run(
                    settle_sent, claimed, platform_id, at_ms, sessions=(claimed.session,)
                )
            except Unavailable as error:
                if error.code == "store_closed":
                    raise
                self._settling.failed(error)
                await anyio.sleep(RETRY_SECONDS)
                continue
            self._settling.worked()
            return settled

    async def _settle_failed(self, claimed: Delivery, failed: DeliveryFailed) -> None:
        failure, at_ms = failure_of(claimed, failed), self._clock.now_ms()
        settled = await self._database.run(settle_failed, claimed, failure, at_ms, sessions=(claimed.session,))
        if settled is None:
            return
        is_dead = settled.status is DeliveryStatus.DEAD
        logger.log(
            logging.ERROR if is_dead else logging.WARNING,
            "Delivery was given up" if is_dead else "Delivery failed",
            extra={
                "action": "delivery_dead" if is_dead else "delivery_failed",
                "delivery_id": claimed.id,
                "channel": claimed.place.channel,
                "attempt": claimed.attempts,
                "code": failed.code,
            },
        )
