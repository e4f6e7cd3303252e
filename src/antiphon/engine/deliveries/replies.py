"""The reply of an ended run as the outbox would send it to its chat. Contract: send_policy 3, groups 3, flow 7."""

from typing import Final, Literal

from msgspec import Struct

from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import DeliveryContext
from antiphon.domain.silence import spoken
from antiphon.engine.access.exits import SEND_DENIED, Leaving, leave
from antiphon.engine.access.facts import OutgoingWords
from antiphon.engine.deliveries.output_rules import denied_by, find_facts_of_answer
from antiphon.engine.rules import Rules
from antiphon.policy.decision import Decision, Deny
from antiphon.policy.written.fields import RULE, Hook
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Query

FLOW: Final = "flow"


class ChannelReply(Struct, frozen=True):
    """A reply as it leaves, without markers, or the reason why there is none."""

    text: str | None = None
    suppressed: Literal["silent", "send_denied", "flow", "rule"] | None = None
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
        denied = await self._database.read(_look, run, place, self._rules)
        if isinstance(denied, Deny):
            return ChannelReply(suppressed="flow" if denied.rule == FLOW else "send_denied")
        if run.status is not RunStatus.OK:
            return ChannelReply()
        words = spoken(run.reply or "")
        if not words.strip() or run.code == "reset":
            return ChannelReply(suppressed="silent")
        return await self._ruled(run, OutgoingWords(place, words))

    async def told(self, run: Run, place: DeliveryContext) -> ChannelReply:
        """The words of an ended run for a program or page that waits and may read the session. Contract: flow 9."""
        return ChannelReply(run.reply) if not run.reply else await self._ruled(run, OutgoingWords(place, run.reply))

    async def _ruled(self, run: Run, output: OutgoingWords) -> ChannelReply:
        """The words as rules and checks let them go; nobody is asked, as somebody waits. Contract: flow 9."""
        facts = await self._database.read(find_facts_of_answer, run, output, self._rules)
        if facts is None:
            return ChannelReply(output.text)
        said = await self._rules.written.ask(Hook.PRE_OUTPUT, facts)
        if denied_by(said) is not None:
            return ChannelReply(suppressed=RULE)
        return ChannelReply(said.redact(output.text).text)


async def _look(query: Query, run: Run, place: DeliveryContext, rules: Rules) -> Decision:
    """Whether the run's reply may go to the place."""
    session = await rows.find_by_row(query, run.session)
    return _GONE if session is None else await leave(query, Leaving(session, place, run.made_of), rules)


_GONE = Deny(SEND_DENIED, "The session was deleted.")
