"""Carries out the runs of agents that have a runner of their own. Contract: foreign_agents 1."""

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import anyio

from antiphon.agents.beginning import BegunRun, begin_run
from antiphon.agents.carrying_out import CarryingOut
from antiphon.agents.endings import above_ceiling, failed, is_empty, spoke, unreadable
from antiphon.agents.fence import PURPOSE
from antiphon.agents.prompting import make_prompt
from antiphon.agents.runners.attempt import AttemptBasis, TurnAttempt, kept_from_runner
from antiphon.agents.runners.functions import Runner, call_runner
from antiphon.agents.runners.recorded import Recorded
from antiphon.agents.runners.turn import Turn, TurnFacts, TurnPerson, TurnSession
from antiphon.agents.toolset import Toolset, ToolSource
from antiphon.domain.errors import AntiphonError
from antiphon.domain.home_key import HomeKey
from antiphon.domain.ids import AgentId
from antiphon.domain.message import JsonObject
from antiphon.domain.quarantine import SCHEMA_MISMATCH
from antiphon.domain.transcript import Transcript
from antiphon.engine.ledger.run_log import UsedModel
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import AwaitsApproval, RunEnding
from antiphon.engine.sessions.workspaces import Workspaces
from antiphon.policy.decision import Deny
from antiphon.policy.exit import decide_runner
from antiphon.policy.flow import may_hold

logger = logging.getLogger(__name__)

END_SECONDS: Final = 5.0
"""How long a runner that is stopped may take to end."""
AGAIN: Final = 5
"""How often, a second apart, it is then stopped once more, as it may have caught that. Then it is left to itself, and
may do nothing for the turn."""
THREADS: Final = 64
"""Plain functions that run at the same time; more wait."""
NO_VALUES = "The answer did not have the form that it was asked for in."


class RunnerRaised(Exception):
    """Stands in the log for what a runner raised: its type and its place, without its text. Contract: flow 7."""


class RunnerLoop:
    """Implements `AgentRunner` with functions of programs, by agent."""

    def __init__(
        self,
        runners: Mapping[AgentId, Runner],
        tools: ToolSource,
        rules: Rules,
        home_key: HomeKey,
        *,
        workspaces: Workspaces,
    ) -> None:
        self._runners = runners
        self._tools = tools
        self._rules = rules
        self._workspaces = workspaces
        self._carrying_out = CarryingOut(rules)
        self._fence_key = home_key.subkey(PURPOSE)
        self._threads: anyio.CapacityLimiter | None = None

    async def run(self, context: RunContext) -> RunEnding | AwaitsApproval:
        begun = await begin_run(context, self._tools, self._rules, self._workspaces)
        context.model = UsedModel(name=f"runner:{context.agent.runner}")
        transcript = await context.read_log()
        if transcript.unreadable:
            return unreadable(transcript.unreadable)
        memory = await context.find_memory(begun.session, self._rules)
        held = await context.find_held(self._rules.sinks)
        if ending := _ending_in_log(context, transcript):
            return ending
        if not may_hold(held, context.ceiling):
            return above_ceiling(context, begun.session, held)
        state = await self._take_state(context)
        if isinstance(denied := decide_runner(context.made_of, context.agent, self._rules.sinks), Deny):
            return kept_from_runner(context.agent.id, denied)
        recorded = Recorded(await context.read_chain())
        own = recorded.steps_of_pass(recorded.inputs)
        made = await make_prompt(
            context,
            begun,
            self._rules,
            self._fence_key,
            memory=memory,
            entries=[entry for entry in context.entries() if getattr(entry, "seq", None) not in own],
            wanted="" if begun.quarantine is None else begun.quarantine.words(()),
        )
        attempt = TurnAttempt(
            AttemptBasis(
                context=context,
                begun=begun,
                rules=self._rules,
                carrying_out=self._carrying_out,
                recorded=recorded,
                made=made,
                saw=transcript.last_seq,
            )
        )
        turn = Turn(attempt, _facts(context, begun, made.prompt.raw_text, state))
        return await self._attempt(context, begun, attempt, turn)

    async def _take_state(self, context: RunContext) -> str | None:
        """The runner's state, which the context then holds; None if there is none that it may hold."""
        state = await context.find_state()
        if state is None or not may_hold(state.made_of, context.ceiling):
            return None
        context.surroundings = context.surroundings.join(state.made_of)
        return state.text

    async def _attempt(
        self, context: RunContext, begun: BegunRun, attempt: TurnAttempt, turn: Turn
    ) -> RunEnding | AwaitsApproval:
        if self._threads is None:
            self._threads = anyio.CapacityLimiter(THREADS)
        context.begin_stream()
        task = asyncio.create_task(call_runner(self._runners[context.agent.id], turn, self._threads))
        try:
            await asyncio.wait({task, attempt.stopped}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            attempt.close()
            await _end(task, context)
        if attempt.stopped.done():
            return attempt.stopped.result()
        return await self._ending(context, begun, attempt, task)

    async def _ending(
        self, context: RunContext, begun: BegunRun, attempt: TurnAttempt, task: "asyncio.Task[str | None]"
    ) -> RunEnding:
        name = context.agent.runner
        if task.cancelled():
            return failed("runner_failed", f"The runner {name!r} cancelled itself.")
        if (error := task.exception()) is not None:
            return _failure(context, error)
        returned = task.result()
        text = "".join(attempt.pieces) if returned is None else returned
        message = await attempt.finish(text)
        if begun.quarantine is not None and begun.quarantine.misfit(message) is not None:
            return failed(SCHEMA_MISMATCH, NO_VALUES)
        if is_empty(context.run, message):
            return failed("empty_answer", f"The runner {name!r} answered nothing.")
        return spoke(message, message)


def _facts(context: RunContext, begun: BegunRun, text: str, state: str | None) -> TurnFacts:
    session, standing, run = begun.session, begun.judge.standing, context.run
    return TurnFacts(
        text=text,
        person=TurnPerson(
            id=str(standing.principal),
            name=context.names.person,
            role=None if standing.role is None else standing.role.value,
        ),
        session=TurnSession(
            key=str(session.key),
            id=session.id,
            agent=session.agent_id,
            type=session.source.type.value,
            label=session.label,
            channel=(run.place or session.delivery).channel,
        ),
        run_id=run.id,
        deadline=run.deadline,
        state=state,
        tools=_described(begun.tools),
    )


def _described(tools: Toolset) -> list[JsonObject]:
    return [
        {"name": schema.name, "description": schema.description, "parameters": schema.parameters}
        for schema in tools.schemas
    ]


def _ending_in_log(context: RunContext, transcript: Transcript) -> RunEnding | None:
    """The run's end, if its last message is stored and has seen all that the run answers."""
    steps, newest = transcript.steps_of(context.run.id), transcript.newest_input(context.run.id)
    if not steps or steps[-1].message.calls:
        return None
    last = steps[-1].message
    return spoke(last) if newest is None or newest.seq <= last.saw else None


def _failure(context: RunContext, error: BaseException) -> RunEnding:
    """What the runner raised: an error of ours with its words, any other by its type alone."""
    name = context.agent.runner
    logger.error(
        "Runner of an agent failed",
        exc_info=RunnerRaised(type(error).__name__).with_traceback(error.__traceback__),
        extra={"action": "agent_runner_failed", "run_id": context.run.id, "agent": context.agent.id},
    )
    if isinstance(error, AntiphonError):
        return failed(error.code, f"The runner {name!r} failed: {error.message}")
    return failed("runner_failed", f"The runner {name!r} raised {type(error).__name__}; the log says where.")


async def _end(task: "asyncio.Task[str | None]", context: RunContext) -> None:
    """Ends the runner's task from outside. One that does not end is left to itself, and logged."""
    if task.done():
        return
    with anyio.CancelScope(shield=True):
        for seconds in (END_SECONDS, *(1.0,) * AGAIN):
            task.cancel()
            with suppress(Exception):
                await asyncio.wait({task}, timeout=seconds)
            if task.done():
                break
    if task.done():
        if not task.cancelled():
            task.exception()  # nobody asks for it any more
        return
    logger.warning(
        "Runner of an agent does not end",
        extra={"action": "agent_runner_lingers", "run_id": context.run.id, "agent": context.agent.id},
    )
