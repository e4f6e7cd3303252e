"""The reply of an ended run as the outbox would send it to its chat. Contract: send_policy 3, groups 3, flow 7."""

from typing import Final, Literal

from msgspec import Struct

from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import DeliveryContext, Session
from antiphon.domain.silence import spoken
from antiphon.engine.access.recipients import may_leave
from antiphon.engine.access.send_policy import may_deliver
from antiphon.engine.rules import Rules
from antiphon.policy.decision import Deny
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query

FLOW: Final = "flow"


class ChannelReply(Struct, frozen=True):
    """A reply as it leaves, without markers, or the reason why there is none."""

    text: str | None = None
    suppressed: Literal["silent", "send_denied", "flow"] | None = None
    """None if there is a text, or if the run did not end well."""

    @property
    def is_withheld(self) -> bool:
        """Whether the place may not learn how the run ended, because of what the run was made of."""
        return self.suppressed == FLOW


class Replies:
    """Replies for clients that wait outside."""

    def __init__(self, database: Database, rules: Rules) -> None:
        self._database = database
        self._rules = rules

    async def outward(self, run: Run, place: DeliveryContext) -> ChannelReply:
        """The text for the place after the run is over."""
        session, may_go = await self._database.read(_look, run, place, self._rules)
        if session is None or isinstance(may_deliver(session, place, self._rules), Deny):
            return ChannelReply(suppressed="send_denied")
        if not may_go:
            return ChannelReply(suppressed=FLOW)
        if run.status is not RunStatus.OK:
            return ChannelReply()
        words = spoken(run.reply or "")
        if not words.strip() or run.code == "reset":
            return ChannelReply(suppressed="silent")
        return ChannelReply(words)


async def _look(query: Query, run: Run, place: DeliveryContext, rules: Rules) -> tuple[Session | None, bool]:
    """The run's session, and whether its reply may go to the place."""
    return await rows.find_by_row(query, run.session), await may_leave(query, run.made_of, place, rules.sinks)
