"""A summary of its own conversation for a session that asks for one. Contract: summarize 1."""

from msgspec import Struct

from antiphon.agents.asking import Asking, RetryPolicy, Room, RoomExceeded, Unfollowed
from antiphon.agents.context_rules import TakingIn, admit_read
from antiphon.agents.daily_room import Capped, find_daily_room
from antiphon.agents.fence import PURPOSE, DataFences
from antiphon.agents.model import Model, ModelError
from antiphon.agents.models import Models
from antiphon.agents.prompt import Framing
from antiphon.agents.summary import summarise
from antiphon.clock import Clock
from antiphon.domain.classification import Classification
from antiphon.domain.errors import Conflict, Denied, Limited, Unavailable
from antiphon.domain.home_key import HomeKey
from antiphon.domain.message import Usage
from antiphon.engine.access.caller import Caller
from antiphon.engine.rules import Rules
from antiphon.engine.views.summary_inputs import SummaryInput, SummaryInputs, SummaryScope
from antiphon.policy.decision import Deny
from antiphon.policy.exit import decide_provider


class MadeSummary(Struct, frozen=True, kw_only=True):
    text: str
    made_of: Classification
    """The join of its inputs. Contract: flow 8."""
    usage: Usage


class Summaries:
    def __init__(
        self,
        inputs: SummaryInputs,
        models: Models,
        *,
        rules: Rules,
        home_key: HomeKey,
        clock: Clock,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._inputs = inputs
        self._models = models
        self._rules = rules
        self._fence_key = home_key.subkey(PURPOSE)
        self._clock = clock
        self._retry = retry or RetryPolicy()

    async def make(self, caller: Caller, scope: SummaryScope) -> MadeSummary:
        """By the session's own model, like a compaction.

        Raises `Conflict` (`nothing_to_summarize`), `Denied` (`model_clearance`), `Limited` (`summary_limit`, or the cap
        of the day that is reached), and `Unavailable` (`summary_failed`).
        """
        asked = await self._inputs.read(caller, scope)
        if not asked.entries:
            raise Conflict("There is nothing to summarize yet. Go on without a summary.", code="nothing_to_summarize")
        session, agent = asked.session, asked.agent
        model = await self._models.find(session.model or agent.model, context_tokens=agent.context_tokens)
        await self._models.prepare(model)
        self._check_flow(asked, model)
        asking = Asking(
            context=Unfollowed(self._clock), model=model, retry=self._retry, room=await self._find_room(caller, model)
        )
        fences = DataFences(self._fence_key, asked.incarnation)
        framing = Framing(session.source.type, fences, asked.roles, asked.ceiling)
        admission = TakingIn(session, asked.standing, self._rules)
        entries = await admit_read(asked.entries, asked.undecided, admission, self._clock.now())
        try:
            text, usage = await summarise(asking, entries, framing)
        except ModelError as error:
            raise Unavailable(f"Summary failed: {error.message}", code="summary_failed") from error
        except RoomExceeded as exceeded:
            raise Limited(exceeded.room.error, code=exceeded.room.code) from exceeded
        if model.is_counted:
            await self._inputs.note_usage(caller, usage)
        return MadeSummary(text=text, made_of=asked.made_of, usage=usage)

    def _check_flow(self, asked: SummaryInput, model: Model) -> None:
        denied = decide_provider(asked.made_of, model.name, self._rules.sinks)
        if isinstance(denied, Deny):
            raise Denied(denied.reason, code=denied.rule)

    async def _find_room(self, caller: Caller, model: Model) -> Room:
        if not model.is_counted:
            return Room()
        today, agent = await self._inputs.spent_today(caller), self._rules.agents[caller.agent_id]
        room = find_daily_room(today, agent, self._rules)
        if isinstance(room, Capped):
            raise Limited(room.error, code=room.code)
        return room
