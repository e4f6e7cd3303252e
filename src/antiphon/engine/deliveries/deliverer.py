"""The deliverer: sends the deliveries of the outbox, in order for each place, at least once. Contract: channels 1.

One unit claims a text and another settles it; it is sent between them, outside any transaction. A text that a channel
cannot carry in one message is sent in parts, and a unit stores each part that the platform has. A process that dies
in between may have sent a part: the process that takes the text over sends that part again, under the same id.
"""

import logging
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping
from functools import partial
from typing import Any, Protocol, TypeVar, TypeVarTuple, runtime_checkable

import anyio
from msgspec.structs import replace

from antiphon.clock import Clock
from antiphon.domain.attachments import Attachment
from antiphon.domain.channel_form import ChannelForm, DeliveryPart
from antiphon.domain.delivery import GONE, MOVED, Delivery, DeliveryFailed, DeliveryStatus
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import ProcessId
from antiphon.domain.own_text import OwnText, own_text
from antiphon.domain.parts import parts_of, parts_of_own
from antiphon.domain.session import DeliveryContext
from antiphon.engine.deliveries.deliveries import (
    CheckedText,
    ClaimDelivery,
    claim_delivery,
    failure_of,
    sessions_of,
    settle_checked,
    settle_failed,
    settle_part,
    settle_sent,
    settle_withdrawn,
)
from antiphon.engine.deliveries.output_rules import find_facts
from antiphon.engine.deliveries.paces import PacedChat, RateLimits, chat_of
from antiphon.engine.ledger.due_loop import DueLoop
from antiphon.engine.ledger.text_work import work_on
from antiphon.engine.rules import Rules
from antiphon.feed.notifier import Notifier
from antiphon.metrics import DELIVERIES_DEAD
from antiphon.policy.written.fields import Hook
from antiphon.policy.written.rule_set import NOTHING_SAID
from antiphon.store import deliveries as outbox
from antiphon.store.database import Database, Transaction
from antiphon.store.deliveries import OUTBOX, ChannelAccount, Head
from antiphon.trouble import Setbacks, Trouble

logger = logging.getLogger(__name__)

R = TypeVar("R")
Ts = TypeVarTuple("Ts")

SWEEP_SECONDS = 1.0
"""Between looks without a wake, for retries that are due and claims of a dead process."""
RETRY_SECONDS = 0.5
MAX_AT_ONCE = 64
MAX_OF_ACCOUNT = 8
"""Sends at the same time by one account, so that a hanging account leaves room for the others."""


class PartSender(Protocol):
    """Sends texts by one account of a channel.

    - `send` returns the platform's id of the message, or None, once the platform has taken the part.
    - It raises `DeliveryFailed` if the platform has not taken it, or if that is unknown.
    - It may be called with the same part again, with the same delivery id.
    - It is cancelled after `timeout_seconds`.
    """

    @property
    def timeout_seconds(self) -> float: ...

    @property
    def form(self) -> ChannelForm: ...

    async def send(self, delivery: Delivery, part: DeliveryPart) -> str | None: ...


@runtime_checkable
class Withdrawer(Protocol):
    """Deletes messages that were shown while a reply was written."""

    async def withdraw(self, place: DeliveryContext, platform_id: str) -> None: ...


@runtime_checkable
class TiedSender(Protocol):
    """A sender that needs what only one process has, such as keys."""

    @property
    def sends_here(self) -> bool:
        """Whether it is this process. If not, the account's texts wait for the process that has it."""
        ...


class Deliverer(DueLoop[ChannelAccount]):
    """Sends the texts of the accounts that this process serves. Beside each that is being sent stands its account."""

    def __init__(
        self,
        *,
        database: Database,
        notifier: Notifier,
        senders: Mapping[ChannelAccount, PartSender],
        rules: Rules,
        clock: Clock,
        process: ProcessId,
        paces: RateLimits,
    ) -> None:
        means = "Texts for channels wait until this is over."
        super().__init__(
            partial(notifier.subscribe, OUTBOX),
            looking=Trouble(logger, "Reading the outbox", action="outbox_failed", means=means),
            setbacks=Setbacks(
                logger,
                "Delivery",
                action="delivery_broken",
                means="That text waits and is tried again; others are sent.",
            ),
            pause=SWEEP_SECONDS,
        )
        self._database = database
        self._senders = senders
        self._rules = rules
        self._clock = clock
        self._process = process
        self._paces = paces
        self._claiming = Trouble(logger, "Claiming a text", action="claim_failed", means=means)
        self._settling = Trouble(
            logger, "Storing that a text was sent", action="settle_failed", means="It may be sent twice after a crash."
        )

    async def wait_idle(self) -> None:
        """Returns after a look that began after this call and found nothing due while nothing is being sent."""
        if self._senders and not self._is_stopped:
            self.wake()
        await self._is_idle.wait()

    async def run(self) -> None:
        if self._senders:
            await super().run()
        else:
            self._is_idle.set()

    async def settle_due(self) -> float:
        """Begins to send due texts as far as there is room. What a drain leaves is taken over under its ids."""
        busy = Counter(self._at_work.values())
        open_ = tuple(
            account for account, each in self._senders.items() if busy[account] < MAX_OF_ACCOUNT and _sends_here(each)
        )
        if not open_ or len(self._at_work) >= MAX_AT_ONCE:
            return SWEEP_SECONDS
        for head in await self._database.read(outbox.list_heads, open_, self._process, self._clock.now_ms()):
            is_full = len(self._at_work) >= MAX_AT_ONCE or busy[head.account] >= MAX_OF_ACCOUNT
            if is_full or not self._may_begin(head.id):
                continue
            if self._paces.holds(PacedChat(head.account, head.to), head.id):
                continue
            busy[head.account] += 1
            self._start(head.id, head.account, self._deliver, head, self._senders[head.account])
        return SWEEP_SECONDS

    async def _deliver(self, head: Head, sender: PartSender) -> None:
        try:
            with self._setbacks.attempt(head.id, delivery_id=head.id, session=head.session):
                await self._claim_and_send(head, sender)
        except Unavailable as error:
            # Another look finds texts that this process claimed and does not send.
            self._claiming.failed(error)
            await anyio.sleep(RETRY_SECONDS)

    async def _claim_and_send(self, head: Head, sender: PartSender) -> None:
        command = ClaimDelivery(id=head.id, process=self._process, form=sender.form, rules=self._rules)
        claimed = await self._database.run(claim_delivery, command, sessions=sessions_of(head.session))
        self._claiming.worked()
        if claimed is not None:
            claimed = await self._check(claimed)
        if claimed is not None:
            await self._send(claimed, sender)

    async def _check(self, claimed: Delivery) -> Delivery | None:
        """The text as the checks of programs let it go; None if they hold it back. Contract: flow 9."""
        written = self._rules.written
        if not written.has_checks(Hook.PRE_OUTPUT) or claimed.is_withdrawal or claimed.approval is not None:
            return claimed
        facts = await self._database.read(find_facts, claimed, self._rules, self._clock.now_ms())
        if facts is None:
            return claimed
        said = await written.ask_checks(Hook.PRE_OUTPUT, facts)
        if said is NOTHING_SAID:
            return claimed
        checked = CheckedText(claimed, said, self._rules)
        return await self._database.run(settle_checked, checked, sessions=sessions_of(claimed.session))

    async def _send(self, claimed: Delivery, sender: PartSender) -> None:
        try:
            if claimed.is_withdrawal:
                is_ours = await self._withdraw(claimed, sender)
            else:
                is_ours = await self._send_parts(claimed, sender)
        except DeliveryFailed as failed:
            await self._settle_failed(claimed, failed)
        else:
            if not is_ours:
                logger.warning("Delivery was taken over", extra={"action": "delivery_fenced", **_facts(claimed)})

    async def _send_parts(self, claimed: Delivery, sender: PartSender) -> bool:
        """Sends the parts that the platform does not have yet; False if the claim was taken over."""
        texts = await work_on(len(claimed.text), _parts_of, claimed, sender.form)
        sent, count = claimed.parts, len(texts) + len(claimed.files)
        while True:
            index = min(len(sent), count - 1)
            is_last = index == count - 1
            if index < len(texts):
                part = DeliveryPart(
                    index=index,
                    text=texts[index].text,
                    spans=None if claimed.spans is None else texts[index].spans,
                    buttons=claimed.buttons if is_last else (),
                    replaces=claimed.replaces if not sent else None,
                )
            else:
                part = DeliveryPart(index=index, text="", file=await self._file(claimed, index - len(texts), sender))
            sent = (*sent, await self._send_part(claimed, part, sender) or "")
            self._paces.note_use(chat_of(claimed.place))
            if is_last:
                return await self._settle(settle_sent, claimed, sent)
            if not await self._settle(settle_part, claimed, sent):
                return False

    async def _file(self, claimed: Delivery, number: int, sender: PartSender) -> Attachment:
        """Raises `DeliveryFailed` if the channel does not send it any more, as its settings have changed."""
        file, most = await self._database.read(outbox.read_file, claimed, number), sender.form.files
        if file is None:
            raise DeliveryFailed("What is in its files was deleted.", code="delivery_files_gone", is_permanent=True)
        if most is None or len(file.data) > most:
            raise DeliveryFailed("The channel does not send this file.", code="channel_refused", is_permanent=True)
        return file

    async def _send_part(self, claimed: Delivery, part: DeliveryPart, sender: PartSender) -> str | None:
        """Sends the part; as a new message if the one that it replaces cannot be changed any more."""
        try:
            platform_id = await _within_time(claimed, sender, sender.send(claimed, part))
        except DeliveryFailed as failed:
            if part.replaces is None or not failed.is_permanent or failed.code == GONE:
                raise
            return await _within_time(claimed, sender, sender.send(claimed, replace(part, replaces=None)))
        return platform_id or part.replaces

    async def _withdraw(self, claimed: Delivery, sender: PartSender) -> bool:
        if isinstance(sender, Withdrawer) and claimed.replaces is not None:
            await _within_time(claimed, sender, sender.withdraw(claimed.place, claimed.replaces))
        return await self._settle(settle_withdrawn, claimed)

    async def _settle(
        self, unit: Callable[[Transaction, Delivery, *Ts], Coroutine[Any, Any, bool]], claimed: Delivery, *facts: *Ts
    ) -> bool:
        """Tries until the database accepts it: a part whose sending is not recorded is sent again."""
        while True:
            try:
                settled = await self._database.run(unit, claimed, *facts, sessions=sessions_of(claimed.session))
            except Unavailable as error:
                if error.code == "store_closed":
                    raise
                self._settling.failed(error)
                await anyio.sleep(RETRY_SECONDS)
                continue
            self._settling.worked()
            return settled

    async def _settle_failed(self, claimed: Delivery, failed: DeliveryFailed) -> None:
        failure = failure_of(claimed, failed)
        if failed.retry_after is not None:
            self._paces.pause(chat_of(claimed.place), failure.wait_ms, cause=claimed.id)
        settled = await self._database.run(settle_failed, claimed, failure, sessions=sessions_of(claimed.session))
        if settled is None:
            return
        is_dead = settled.status is DeliveryStatus.DEAD
        if is_dead:
            DELIVERIES_DEAD.add()
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


async def _within_time(claimed: Delivery, sender: PartSender, request: Coroutine[Any, Any, R]) -> R:
    """What the request returns. Raises `DeliveryFailed`, whatever it raises."""
    try:
        with anyio.fail_after(sender.timeout_seconds):
            return await request
    except DeliveryFailed:
        raise
    except TimeoutError as error:
        raise DeliveryFailed(
            f"The platform did not answer within {sender.timeout_seconds:g} s; it may have received the text.",
            code="channel_timeout",
        ) from error
    except Exception as error:  # a bug in the adapter must not end the deliverer
        logger.exception("Adapter failed", extra={"action": "delivery_crashed", **_facts(claimed)})
        raise DeliveryFailed("The adapter failed; see the log of Antiphon.") from error


def _sends_here(sender: PartSender) -> bool:
    return not isinstance(sender, TiedSender) or sender.sends_here


def _parts_of(claimed: Delivery, form: ChannelForm) -> list[OwnText]:
    """The texts of its messages, at least one unless it has files; an agent's own have no spans."""
    before = "" if claimed.moved_from is None else MOVED
    if claimed.files and not (before + claimed.text).strip():
        return []
    if claimed.spans is None:
        return [OwnText(text) for text in parts_of(before + claimed.text, form) or [claimed.text]]
    own = own_text(before, OwnText(claimed.text, claimed.spans))
    return parts_of_own(own, form) or [own]


def _facts(claimed: Delivery) -> dict[str, object]:
    return {"delivery_id": claimed.id, "channel": claimed.place.channel, "attempt": claimed.attempts}
