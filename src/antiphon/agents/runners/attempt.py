"""One attempt at a turn: the runner is called from its beginning, and what it asks for is recorded and carried out.

The attempt is over when the runner returns, or when the runtime stops it from outside: at a call that needs a yes, a
limit, or the loss of the run. What it waits for then never returns. Contract: foreign_agents 1.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import asynccontextmanager
from threading import get_ident
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, cast

from anyio import to_thread
from msgspec import Struct
from pydantic_core import PydanticSerializationError, to_jsonable_python

from antiphon.agents.beginning import BegunRun
from antiphon.agents.carrying_out import CarryingOut
from antiphon.agents.compaction import compact
from antiphon.agents.context_rules import TakingIn, admit_entries
from antiphon.agents.daily_room import Capped, find_daily_room
from antiphon.agents.endings import above_ceiling, failed, spoken_by_yield, yielded
from antiphon.agents.model import Prompt
from antiphon.agents.prompting import MadePrompt
from antiphon.agents.providers.dialect import AnswerUsage
from antiphon.agents.providers.prices import find_cost
from antiphon.agents.runners.forms import MessageForm, messages_of
from antiphon.agents.runners.own_tools import TAKEN, Answer, OwnTool, PersonAsked, carry_out, refuse_nested
from antiphon.agents.runners.recorded import Diverged, DoneCall, DoneStep, Identities, Recorded, canonical, diverged
from antiphon.agents.runners.turn import PlannedCall, ToolReply, TurnClosed
from antiphon.agents.text import bounded_text, whole_text
from antiphon.agents.toolset import Tool
from antiphon.domain.agent import MAX_TOOL_FAILURES
from antiphon.domain.decided import DecidedEntry
from antiphon.domain.errors import Invalid, TooLarge, Unavailable
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.message import (
    NO_USAGE,
    AssistantMessage,
    JsonObject,
    JsonValue,
    ToolCallPart,
    ToolResult,
    Usage,
    text_content,
    text_of,
)
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.transcript import Entry, OpenCall, Step
from antiphon.engine.ledger.append import AGENT_ACTOR
from antiphon.engine.ledger.fence import Fenced
from antiphon.engine.ledger.run_log import UsedModel, closing_result
from antiphon.engine.rules import Rules
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import AwaitsApproval, RunEnding
from antiphon.policy.decision import Deny
from antiphon.policy.exit import decide_runner
from antiphon.policy.flow import may_hold
from antiphon.policy.rights import ASK_PERSON

T = TypeVar("T")
MAX_STEP_BYTES: Final = 1024 * 1024
"""Of the JSON of a step's result."""
MAX_STATE_BYTES: Final = 4 * 1024 * 1024
BYTES_PER_TOKEN: Final = 4
MOST_TOKENS: Final = 10**12
MOST_USD: Final = 1_000_000
"""Of one report of usage; more is a mistake."""

Stop = RunEnding | AwaitsApproval


class AttemptBasis(Struct, frozen=True, kw_only=True):
    """What an attempt goes by."""

    context: RunContext
    begun: BegunRun
    rules: Rules
    carrying_out: CarryingOut
    recorded: Recorded
    made: MadePrompt
    saw: int
    """The last event that stands in its prompt."""


class _IdentifiedCall(NamedTuple):
    """A call of the runner, with its id."""

    id: str
    call: PlannedCall
    arguments: str


class TurnAttempt:
    """Implements `TurnWork`."""

    def __init__(self, basis: AttemptBasis) -> None:
        self._basis = basis
        self._context, self._rules = basis.context, basis.rules
        self._loop, self._thread = asyncio.get_running_loop(), get_ident()
        self.stopped: asyncio.Future[Stop] = self._loop.create_future()
        """Done as soon as the attempt must not go on."""
        self._identities = Identities(basis.recorded.inputs)
        self._lock = asyncio.Lock()
        self._begun_steps = set[str]()
        self._is_closed = False
        self._decided: tuple[DecidedEntry, ...] = basis.made.decided
        """What rules said of entries that no recorded message keeps yet."""
        self._from_threads: set[Future[Any]] = set()
        self._has_reported = False
        self._shown_bytes = 0
        self.pieces: list[str] = []

    # What a turn asks for.

    async def messages(self, form: MessageForm) -> list[JsonObject]:
        self._check_here()
        prompt: Prompt = self._basis.made.prompt
        made = messages_of(prompt, form)
        self._shown_bytes = max(self._shown_bytes, len(json.dumps(made)))
        return made

    async def call_all(self, calls: Sequence[PlannedCall], own: OwnTool | None = None) -> list[ToolReply]:
        self._check_here()
        if not calls:
            return []
        refuse_nested(calls[0].name)
        asked = [self._identify(call) for call in calls]
        async with self._lock, self._guarded():
            if own is not None:
                await self._refuse_name(own.schema.name)
            return await self._carry_out_all(asked, own)

    async def step(self, name: str, function: Callable[[], object], key: str | None) -> JsonValue:
        self._check_here()
        name = whole_text(str(name))
        id = self._identities.next("s", name, "", None if key is None else whole_text(key))
        async with self._guarded():
            found = self._basis.recorded.step(id, name)
            if id in self._begun_steps:
                raise Diverged(f"The runner begins the step {name!r} while another one of its key works.")
            if found is None:
                self._begun_steps.add(id)
                await self._refuse_over_limits()
        if found is not None:
            return found.result
        try:
            result = _as_json(name, await carry_out(function))
        except BaseException:
            self._identities.free(id)
            raise
        finally:
            self._begun_steps.discard(id)
        self._check_open()
        async with self._guarded():
            data: JsonObject = {"id": id, "name": name, "result": result}
            await self._context.record([self._event(EventType.STEP_FINISHED, data)])
            self._basis.recorded.steps[id] = DoneStep(name, result)
        return result

    async def ask(self, question: str, choices: Sequence[str], key: str | None) -> Answer:
        self._check_here()
        refuse_nested(ASK_PERSON)
        arguments: JsonObject = {"question": question}
        if choices:
            arguments["choices"] = [*choices]
        asked = self._identify(PlannedCall(name=ASK_PERSON, arguments=arguments, key=key))
        async with self._lock, self._guarded():
            [reply] = await self._carry_out_all([asked], PersonAsked(self._context))
        if reply.is_error:
            return Answer(is_yes=False, note=reply.text)
        note = cast("dict[str, str | None]", reply.value).get("note")
        named = [each for each in choices if note and each.casefold() in note.casefold()]
        return Answer(is_yes=True, note=note, choice=max(named, key=len) if named else next(iter(choices), None))

    async def save(self, text: str) -> None:
        self._check_here()
        text = whole_text(str(text))
        if (size := len(text.encode())) > MAX_STATE_BYTES:
            raise TooLarge(
                f"State of the runner is too large: {size} bytes; the most are {MAX_STATE_BYTES}.",
                code="state_too_large",
            )
        async with self._guarded():
            await self._context.save_state(text)

    async def note_usage(self, model: str, tokens: tuple[int, int, int], cost: float | None) -> None:
        self._check_here()
        if not all(_is_count(each) for each in tokens) or not (cost is None or 0 <= cost <= MOST_USD):
            raise Invalid("Usage is counted in whole tokens and finite dollars, from 0.", code="invalid_usage")
        model = whole_text(str(model))
        read, written, cached = tokens
        self._has_reported = True
        if cost is not None:
            money = round(cost * 1_000_000)
        else:
            counted = AnswerUsage(input_tokens=read, output_tokens=written, cache_read_tokens=cached)
            money = await to_thread.run_sync(find_cost, counted, model)
        usage = Usage(read, written, cached, cost_microusd=money, steps=1)
        self._context.model = UsedModel(name=model)
        async with self._guarded():
            await self._context.record([self._event(EventType.USAGE_REPORTED, {"model": model}, usage)])
            await self._refuse_over_limits()

    async def compact(self, summarise: Callable[[list[JsonObject]], object]) -> bool:
        self._check_here()
        made, recorded = self._basis.made, self._basis.recorded
        if recorded.has_compacted:
            return False

        async def summarised(older: Sequence[Entry]) -> tuple[str, Usage]:
            prompt = made.prompt
            shown = messages_of(Prompt(instructions="", entries=prompt.entries[: _count_shown(older)]), "openai")
            summary = await carry_out(summarise, shown)
            if not isinstance(summary, str):
                raise Invalid(f"Summary is no text: {type(summary).__name__}.", code="runner_answer")
            return bounded_text(whole_text(str(summary))), NO_USAGE

        async with self._guarded():
            done = await compact(self._context, made.entries, summarised)
        recorded.has_compacted = recorded.has_compacted or done
        return done

    def say(self, text: str) -> None:
        self._check_open()
        if not isinstance(text, str):  # pyright: ignore[reportUnnecessaryIsInstance] - the program of somebody else
            raise Invalid(f"Runner gave a piece that is no text: {type(text).__name__}.", code="runner_answer")
        text = whole_text(str(text))
        self._loop.call_soon_threadsafe(self._show, text) if get_ident() != self._thread else self._show(text)

    def _show(self, text: str) -> None:
        if not self._is_closed:
            self.pieces.append(text)
            self._context.emit(text)

    def from_thread(self, work: Coroutine[Any, Any, T]) -> T:
        if get_ident() == self._thread:
            work.close()
            raise Invalid(
                "Call waits for the loop on the loop. Await the method that has no `_sync`, or use a plain function.",
                code="blocks_loop",
            )
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        self._from_threads.add(future)
        try:
            return future.result()
        finally:
            self._from_threads.discard(future)

    # The attempt's own course.

    def close(self) -> None:
        """Nothing more may be done in the turn's name. Threads that wait for a call are let go."""
        self._is_closed = True
        for future in tuple(self._from_threads):
            future.cancel()

    async def finish(self, text: str) -> AssistantMessage:
        """The turn's last message, once its runner has returned; calls that it did not make again are closed."""
        text = bounded_text(whole_text(text))
        transcript = self._context.transcript
        assert transcript is not None
        for call in transcript.open_calls():
            await self._context.record_result(
                closing_result(call, self._context.ids.new("msg")), self._context.made_of, self._rules.sinks
            )
        return self._message(text_content(text) if text else (), self._estimated(text))

    def _estimated(self, text: str) -> Usage:
        if self._has_reported:
            return NO_USAGE
        read = (self._shown_bytes or len(self._newest_text().encode())) // BYTES_PER_TOKEN
        written = len(text.encode()) // BYTES_PER_TOKEN
        return Usage(read, written, steps=1, estimated_tokens=read + written)

    def _newest_text(self) -> str:
        return self._basis.made.prompt.raw_text

    def _message(self, content: tuple[Any, ...], usage: Usage = NO_USAGE) -> AssistantMessage:
        decided, self._decided = self._decided, ()
        return AssistantMessage(
            message_id=self._context.ids.new("msg"),
            content=content,
            saw=self._basis.saw,
            usage=usage,
            decided=decided,
        )

    def _check_open(self) -> None:
        if self._is_closed:
            raise TurnClosed("The turn is over. Work that outlives it may call nothing in its name.")

    def _check_here(self) -> None:
        self._check_open()
        if asyncio.get_running_loop() is not self._loop:
            raise Invalid(
                "Turn is awaited on another event loop. Make the runner an `async def`, or call "
                "`turn.from_thread(turn.messages())`, `turn.call_sync` and the like from its thread.",
                code="other_loop",
            )

    @asynccontextmanager
    async def _guarded(self) -> AsyncGenerator[None]:
        """Errors of the run itself go to its worker, past whatever the runner's framework makes of exceptions."""
        try:
            yield
        except (Fenced, Unavailable) as error:
            if not self.stopped.done():
                self.stopped.set_exception(error)
            await _never()
        except Diverged as error:
            await self._stop(failed(error.code, error.message))

    async def _stop(self, ending: Stop) -> NoReturn:
        if not self.stopped.done():
            self.stopped.set_result(ending)
        await _never()

    def _event(self, type: EventType, data: JsonObject, usage: Usage = NO_USAGE) -> NewEvent:
        context = self._context
        return NewEvent(
            type=type,
            actor=AGENT_ACTOR,
            classification=context.made_of,
            run_id=context.run.id,
            data=data,
            usage=usage,
        )

    def _identify(self, call: PlannedCall) -> _IdentifiedCall:
        try:
            arguments = canonical(cast("JsonObject", to_jsonable_python(call.arguments)))
        except (PydanticSerializationError, ValueError) as error:
            raise Invalid(f"Arguments are no JSON: of {call.name!r}.", code="invalid_arguments") from error
        call = PlannedCall(
            name=whole_text(str(call.name)),
            arguments=call.arguments,
            key=None if call.key is None else whole_text(call.key),
        )
        return _IdentifiedCall(self._identities.next("c", call.name, arguments, call.key), call, arguments)

    async def _refuse_name(self, name: str) -> None:
        """Ends the run for a function with the name of a tool, by which rules and people would take it for that."""
        if name in TAKEN or self._basis.begun.judge.tools.find(name) is not None:
            said = f"The runner called a function of its own by the name of a tool: {name[:80]!r}. Rename the function."
            await self._stop(failed("own_name_taken", said))

    async def _carry_out_all(self, asked: Sequence[_IdentifiedCall], tool: Tool | None) -> list[ToolReply]:
        recorded, judge = self._basis.recorded, self._basis.begun.judge
        wanted = dict[str, _IdentifiedCall]()
        for each in asked:
            first = wanted.setdefault(each.id, each)
            if (first.call.name, first.arguments) != (each.call.name, each.arguments):
                raise diverged(first.call.name, each.call.name)
        new = [each for each in wanted.values() if recorded.call(each.id, each.call.name, each.arguments) is None]
        if new:
            await self._record(new)
        tools = judge.tools
        if tool is not None:
            judge.tools = tools.with_tool(tool)
        try:
            for each in asked:
                await self._end_call(each.id)
        finally:
            judge.tools = tools
        return [await self._reply(recorded.calls[each.id]) for each in asked]

    async def _record(self, new: Sequence[_IdentifiedCall]) -> None:
        """Stores the calls as one step, before any of them begins."""
        await self._refuse_over_limits(calls=len(new))
        parts = tuple(ToolCallPart(call_id=each.id, name=each.call.name, arguments=each.arguments) for each in new)
        seq = await self._context.record_step(self._message(parts))
        for index, part in enumerate(parts):
            self._basis.recorded.begin(DoneCall(message_seq=seq, index=index, part=part))

    async def _end_call(self, id: str) -> None:
        """Returns once the call has its result."""
        context, recorded = self._context, self._basis.recorded
        while recorded.calls[id].result is None:
            transcript = await context.read_log()
            held = await context.find_held(self._rules.sinks)
            if not may_hold(held, context.ceiling):
                await self._stop(above_ceiling(context, self._basis.begun.session, held))
            step = next(
                each for each in transcript.steps_of(context.run.id) if each.seq == recorded.calls[id].message_seq
            )
            for result in step.results:
                if isinstance(result, ToolResult):
                    recorded.finish(result)
            if not any(isinstance(result, OpenCall) for result in step.results):
                await self._look_at(step)
                continue
            stopped = await self._basis.carrying_out.run_calls(context, step, self._basis.begun.judge)
            if stopped is not None:
                await self._stop(stopped)

    async def _look_at(self, step: Step) -> None:
        """Ends the run where its results end it."""
        context, transcript = self._context, self._context.transcript
        assert transcript is not None
        if isinstance(denied := decide_runner(context.made_of, context.agent, self._rules.sinks), Deny):
            await self._stop(kept_from_runner(context.agent.id, denied))
        if (words := yielded(step)) is not None:
            outcome = Outcome(status=RunStatus.OK, reply=words)
            await self._stop(RunEnding(outcome=outcome, message=spoken_by_yield(context, transcript, words)))
        if self._basis.recorded.failures_in_a_row() >= MAX_TOOL_FAILURES:
            await self._stop(failed("tool_failures", f"Tools failed {MAX_TOOL_FAILURES} times in a row."))

    async def _reply(self, call: DoneCall) -> ToolReply:
        """The result as a prompt would show it: withheld, or without what rules take out. Contract: flow 2, 9."""
        context, result = self._context, call.result
        assert result is not None
        admission = TakingIn(self._basis.begun.session, self._basis.begun.judge.standing, self._rules)
        shown = [each for each in context.entries() if isinstance(each, Step) and each.seq == call.message_seq]
        entries, decided = await admit_entries(context, shown, admission)
        self._decided = (*self._decided, *(each for each in decided if each not in self._decided))
        for entry in entries:
            found = entry.results[call.index] if isinstance(entry, Step) else None
            if isinstance(found, ToolResult):
                result = found
        return ToolReply(text=text_of(result.content), is_error=result.is_error)

    async def _refuse_over_limits(self, calls: int = 0) -> None:
        """Ends the run at its limits and those of the day. Contract: runs 6."""
        context, limits = self._context, self._context.agent.limits
        done = len(self._basis.recorded.calls)
        if calls and limits.tool_calls is not None and done + calls > limits.tool_calls:
            await self._stop(failed("limit_tool_calls", f"The run made {done} tool calls, which is its limit."))
        used = await context.used()
        if limits.model_calls is not None and used.steps > limits.model_calls:
            await self._stop(failed("limit_model_calls", f"The run made {used.steps} model calls, which is its limit."))
        if limits.tokens is not None and used.total_tokens >= limits.tokens:
            said = f"The run used {used.total_tokens} tokens, which is its limit or more."
            await self._stop(failed("limit_tokens", said))
        if limits.usd is not None and (used.cost_microusd or 0) >= limits.usd * 1_000_000:
            await self._stop(failed("limit_cost", f"The run reached its cost limit: {limits.usd} USD."))
        today = await context.spent_today(self._rules.person_caps)
        if isinstance(daily := find_daily_room(today, context.agent, self._rules), Capped):
            await self._stop(failed(daily.code, daily.error))


def kept_from_runner(agent_id: str, denied: Deny) -> RunEnding:
    advice = f"Raise runnerClearance of agent {agent_id!r}, or reset the session."
    return failed(denied.rule, f"{denied.reason} {advice}")


async def _never() -> NoReturn:
    """Waits until the attempt is cancelled from outside, however often somebody catches that."""
    while True:
        await asyncio.get_running_loop().create_future()


def _is_count(value: object) -> bool:
    return isinstance(value, int) and 0 <= value <= MOST_TOKENS


def _as_json(name: str, value: object) -> JsonValue:
    try:
        text = whole_text(json.dumps(to_jsonable_python(value), ensure_ascii=False))
    except (PydanticSerializationError, ValueError, TypeError) as error:
        raise Invalid(f"Result of step {name!r} is no JSON: {type(value).__name__}.", code="invalid_step") from error
    if (size := len(text.encode())) > MAX_STEP_BYTES:
        raise TooLarge(
            f"Result of step {name!r} is too large: {size} bytes; the most are {MAX_STEP_BYTES}. Keep a name of it "
            "instead, or save it as state.",
            code="step_too_large",
        )
    return json.loads(text)


def _count_shown(older: Sequence[Entry]) -> int:
    """How many entries of a prompt stand for these: a step is a message and its results."""
    return sum(1 + (len(entry.results) if isinstance(entry, Step) else 0) for entry in older)
