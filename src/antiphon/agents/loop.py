"""The agent loop: a step of the model, its tools, the next step, each recorded before the next begins.

The log is the only state: each turn of the loop folds the run's events and decides the next step, so a run that
was killed continues here like any other. Contract: runs 6, 8, 9.
"""

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta
from typing import NamedTuple

from antiphon.agents.asking import Asking, RetryPolicy, Room, RoomExceeded
from antiphon.agents.beginning import begin_run
from antiphon.agents.carrying_out import CarryingOut
from antiphon.agents.compaction import compact, estimate_tokens, summariser_of
from antiphon.agents.daily_room import Capped, find_daily_room
from antiphon.agents.endings import above_ceiling, failed, is_empty, spoke, spoken_by_yield, unreadable, yielded
from antiphon.agents.fence import PURPOSE
from antiphon.agents.model import Model, ModelError, ModelErrorKind, Prompt
from antiphon.agents.models import Models
from antiphon.agents.prompt import Framing
from antiphon.agents.prompting import make_prompt
from antiphon.agents.quarantine import Quarantine
from antiphon.agents.repair import Conversed, Repairs, Shortening, after_refusal
from antiphon.agents.summary import FILL_LIMIT
from antiphon.agents.toolset import ToolSource
from antiphon.domain.agent import MAX_TOOL_FAILURES
from antiphon.domain.errors import Invalid
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.home_key import HomeKey
from antiphon.domain.message import NO_USAGE, AssistantMessage, Cut, JsonObject, ToolResult, Usage, text_content
from antiphon.domain.quarantine import SCHEMA_MISMATCH
from antiphon.domain.run import Outcome, Run, RunStatus
from antiphon.domain.transcript import Entry, Step, Transcript
from antiphon.engine.ledger.append import AGENT_ACTOR
from antiphon.engine.ledger.run_log import UsedModel
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import AwaitsApproval, RunEnding
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.decision import Deny
from antiphon.policy.exit import decide_provider
from antiphon.policy.flow import may_hold

logger = logging.getLogger(__name__)

NO_VALUES = "The result did not have the form that it was asked for in, twice."


class AgentLoop:
    """Implements `AgentRunner` with a model and tools."""

    def __init__(
        self,
        models: Models,
        tools: ToolSource,
        rules: Rules,
        home_key: HomeKey,
        *,
        workspaces: Workspaces,
        retry: RetryPolicy | None = None,
    ) -> None:
        self._models = models
        self._tools = tools
        self._rules = rules
        self._carrying_out = CarryingOut(rules)
        self._workspaces = workspaces
        self._fence_key = home_key.subkey(PURPOSE)
        self._retry = retry or RetryPolicy()

    async def run(self, context: RunContext) -> RunEnding | AwaitsApproval:
        begun = await begin_run(context, self._tools, self._rules, self._workspaces)
        session, judge, quarantine, agent = begun.session, begun.judge, begun.quarantine, context.agent
        try:
            model = await self._models.find(session.model or agent.model, context_tokens=agent.context_tokens)
        except Invalid as error:
            return failed(error.code, error.message)
        await self._models.prepare(model)
        context.model = UsedModel(name=model.name, is_counted=model.is_counted)
        repairs = Repairs()
        while True:
            transcript = await context.read_log()
            if transcript.unreadable:
                return unreadable(transcript.unreadable)
            memory = await context.find_memory(session, self._rules)
            held = await context.find_held(self._rules.sinks)
            if ending := self._ending_in_log(context, transcript, quarantine):
                return ending
            if not may_hold(held, context.ceiling):
                return above_ceiling(context, session, held)
            if transcript.open_calls():
                stopped = await self._carrying_out.run_calls(context, transcript.steps_of(context.run.id)[-1], judge)
                if stopped is not None:
                    return stopped
                continue
            room = await self._find_room(context, transcript, model)
            if isinstance(room, RunEnding):
                return room
            asking = Asking(context=context, model=model, retry=self._retry, room=room)
            if isinstance(denied := decide_provider(context.made_of, model.name, self._rules.sinks), Deny):
                return _kept_from(model.name.partition(":")[0], denied)
            made = await make_prompt(
                context,
                begun,
                self._rules,
                self._fence_key,
                memory=memory,
                entries=repairs.entries(context.entries()),
                wanted="" if quarantine is None else quarantine.words(transcript.steps_of(context.run.id)),
            )
            prompt, entries, framing, decided = made
            if model.name in (repairs.left_out.blind_model, *transcript.blind_models):
                prompt = replace(prompt, reads_images=False)
            if (
                estimate_tokens(entries, prompt.instructions + prompt.passing) > FILL_LIMIT * model.context_tokens
                and not repairs.shortenings
            ):
                repairs = repairs.shortened(Shortening.SUMMARY)
                if await compact(context, entries, summariser_of(asking, framing)):
                    continue
            try:
                answer = await asking.ask(prompt)
            except ModelError as error:
                found = await self._repaired(context, asking, repairs, _RefusedStep(error, entries, prompt, framing))
                if found is None:
                    return self._model_failure(context, transcript, error)
                repairs = found
                continue
            except RoomExceeded as exceeded:
                return self._stopped(context, transcript, exceeded)
            message = AssistantMessage(
                message_id=context.ids.new("msg"),
                content=answer.content,
                saw=transcript.last_seq,
                cut=answer.cut,
                model=answer.model,
                usage=answer.usage,
                decided=decided,
            )
            if repairs.has_left_out:
                await context.record([_left_out(context, repairs)])
            repairs = Repairs()
            is_misfit = quarantine is not None and quarantine.misfit(message) is not None
            if not message.calls and not is_misfit and not is_empty(context.run, message):
                return spoke(message, message)
            await context.record_step(message)

    async def _repaired(
        self, context: RunContext, asking: Asking, before: Repairs, refused: "_RefusedStep"
    ) -> Repairs | None:
        """What was done so that the refused step can be asked for again; None if nothing can be."""
        transcript, tried = context.transcript, before
        assert transcript is not None
        held = Conversed(
            entries=refused.entries,
            own=frozenset(entry.seq for entry in transcript.inputs_of(context.run.id)),
            model=asking.model.name,
            reads_images=refused.prompt.reads_images,
        )
        while (found := after_refusal(refused.error, tried, held)) is not None:
            if isinstance(found, Repairs):
                _log_repair(context, found)
                return found
            tried = tried.shortened(found)
            summarised = summariser_of(asking, refused.framing, found)
            if await compact(context, tried.entries(refused.entries), summarised, how=found):
                return tried
        return None

    def _ending_in_log(
        self, context: RunContext, transcript: Transcript, quarantine: Quarantine | None
    ) -> RunEnding | None:
        """The run's end according to the log; None if the run must continue."""
        steps = transcript.steps_of(context.run.id)
        if not steps:
            return None
        newest = transcript.newest_input(context.run.id)
        last = steps[-1]
        has_seen_all = newest is None or newest.seq <= last.message.saw
        if not last.message.calls and has_seen_all:
            if quarantine is not None and quarantine.misfit(last.message) is not None:
                return None if quarantine.asks_again(steps) is not None else failed(SCHEMA_MISMATCH, NO_VALUES)
            if not is_empty(context.run, last.message) or _hasspoken_by_yield(steps):
                return spoke(last.message)
            if _is_empty_again(context.run, steps):
                return _empty(last.message)
        is_done = has_seen_all and all(isinstance(result, ToolResult) for result in last.results)
        if is_done and (words := yielded(last)) is not None:
            return RunEnding(
                outcome=Outcome(status=RunStatus.OK, reply=words), message=spoken_by_yield(context, transcript, words)
            )
        if _failures_in_a_row(steps) >= MAX_TOOL_FAILURES:
            return failed("tool_failures", f"Tools failed {MAX_TOOL_FAILURES} times in a row.")
        return None

    async def _find_room(self, context: RunContext, transcript: Transcript, model: Model) -> RunEnding | Room:
        """The end that forbids the next step, or how many tokens its response may have."""
        limits = context.agent.limits
        steps = transcript.steps_of(context.run.id)
        before = await context.used_before()
        asked = len(steps) + before.model_calls
        calls = sum(len(step.results) for step in steps) + before.tool_calls
        if limits.model_calls is not None and asked >= limits.model_calls:
            return failed("limit_model_calls", f"The run made {asked} model calls, which is its limit.")
        if limits.tool_calls is not None and calls >= limits.tool_calls:
            return failed("limit_tool_calls", f"The run made {calls} tool calls, which is its limit.")
        room = Room()
        if limits.tokens is not None or limits.usd is not None:
            used = await context.used()
            if limits.tokens is not None and used.total_tokens >= limits.tokens:
                return failed("limit_tokens", f"The run used {used.total_tokens} tokens, which is its limit or more.")
            if limits.usd is not None and (used.cost_microusd or 0) >= limits.usd * 1_000_000:
                return failed("limit_cost", f"The run reached its cost limit: {limits.usd} USD.")
            if limits.tokens is not None:
                room = Room(
                    tokens=limits.tokens - used.total_tokens,
                    code="limit_tokens",
                    error=f"The answer was stopped: with it the run passed its limit of {limits.tokens} tokens.",
                )
        if not model.is_counted:
            return room
        today = await context.spent_today(self._rules.person_caps)
        daily = find_daily_room(today, context.agent, self._rules)
        if isinstance(daily, Capped):
            return failed(daily.code, daily.error)
        return min(room, daily, key=lambda each: each.tokens)

    def _model_failure(self, context: RunContext, transcript: Transcript, error: ModelError) -> RunEnding:
        """An ending that tells the reader what to do, with the text streamed so far."""
        message = _partial(context, transcript)
        text = "" if message is None else message.text
        said = error.message
        if error.retry_after_seconds is not None and not error.is_retryable:
            again = context.clock.now() + timedelta(seconds=error.retry_after_seconds)
            said = f"{said.rstrip('.')}. Try again after {again:%Y-%m-%d %H:%M} UTC."
        cut = None if message is None else message.cut
        outcome = Outcome(status=RunStatus.ERROR, reply=text, error=said, code=error.kind.value, cut=cut)
        return RunEnding(outcome=outcome, message=message)

    def _stopped(self, context: RunContext, transcript: Transcript, exceeded: RoomExceeded) -> RunEnding:
        """The ending of a response that was stopped as it streamed; its tokens are about what it had."""
        usage = Usage(output_tokens=exceeded.tokens, steps=1)
        message = _partial(context, transcript, usage, cut=Cut.LENGTH)
        text, cut = ("", None) if message is None else (message.text, message.cut)
        outcome = Outcome(
            status=RunStatus.ERROR, reply=text, error=exceeded.room.error, code=exceeded.room.code, cut=cut
        )
        return RunEnding(outcome=outcome, message=message)


class _RefusedStep(NamedTuple):
    """A step that the provider refused."""

    error: ModelError
    entries: Sequence[Entry]
    prompt: Prompt
    framing: Framing


def _left_out(context: RunContext, repairs: Repairs) -> NewEvent:
    """Says what prompts do not show any more, and why."""
    data: JsonObject = {"code": repairs.code, "error": repairs.said, **repairs.left_out.data()}
    return NewEvent(
        type=EventType.LEFT_OUT, actor=AGENT_ACTOR, classification=context.made_of, run_id=context.run.id, data=data
    )


def _log_repair(context: RunContext, repairs: Repairs) -> None:
    logger.warning(
        "Part of the prompt is left out, because the provider refused it",
        extra={"action": "prompt_repaired", "run_id": context.run.id, "code": repairs.code},
    )


def _hasspoken_by_yield(steps: Sequence[Step]) -> bool:
    return any(step.message.text.strip() for step in steps)


def _is_empty_again(run: Run, steps: Sequence[Step]) -> bool:
    """Whether the last two answers were empty: the model was asked once more. Contract: groups 4."""
    return len(steps) > 1 and is_empty(run, steps[-2].message)


def _empty(last: AssistantMessage) -> RunEnding:
    """The end of a run whose model said nothing, twice."""
    if last.cut in (Cut.FILTER, Cut.REFUSAL):
        code, error = ModelErrorKind.FILTERED.value, "The answer was withheld by the model or its provider's filter."
    elif last.cut is Cut.LENGTH:
        code, error = "empty_answer", "The answer reached the limit of its length before it said anything."
    else:
        code, error = "empty_answer", "The model answered nothing, twice."
    return RunEnding(outcome=Outcome(status=RunStatus.ERROR, error=error, code=code, cut=last.cut))


def _partial(
    context: RunContext, transcript: Transcript, usage: Usage = NO_USAGE, *, cut: Cut = Cut.STREAM
) -> AssistantMessage | None:
    """What streamed of a response that did not end; None for nothing that counts."""
    text = "".join(context.streamed)
    if not text and not usage.steps:
        return None
    return AssistantMessage(
        message_id=context.ids.new("msg"),
        content=text_content(text) if text else (),
        saw=transcript.last_seq,
        partial=True,
        is_undecided=True,
        cut=cut if text else None,
        usage=usage,
    )


def _failures_in_a_row(steps: Sequence[Step]) -> int:
    failures = 0
    for step in reversed(steps):
        for result in reversed(step.results):
            if not isinstance(result, ToolResult) or not result.is_error:
                return failures
            failures += 1
    return failures


def _kept_from(provider: str, denied: Deny) -> RunEnding:
    advice = f"Raise providers.{provider}.clearance, use another model, or reset the session."
    return failed(denied.rule, f"{denied.reason} {advice}")
