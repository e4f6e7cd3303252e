"""Keeps what a harness says and does until it is stored as a step of the run. Contract: foreign_agents 2.

Calls are its own: they are stored once they are over, with their results, so that no call of ours is ever open.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from antiphon.acp.provider_usage import ProviderUsage
from antiphon.acp.requests import name_of_kind
from antiphon.acp.updates import CalledTool, Planned, TurnUsage, Unknown
from antiphon.agents.text import bounded_text, whole_text
from antiphon.domain.decided import DecidedEntry
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.message import (
    NO_USAGE,
    OF_HARNESS,
    AssistantMessage,
    Cut,
    JsonObject,
    JsonValue,
    Part,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    Usage,
    text_content,
)
from antiphon.engine.ledger.append import AGENT_ACTOR
from antiphon.engine.runs.context import RunContext

MAX_UPDATE_CHARACTERS = 16_000
"""The most that is kept of an update for which there is no event."""
MAX_CALL_CHARACTERS = 100_000
MAX_CALLS = 1_000
"""Calls of one turn that are kept while they are under way."""
CHARACTERS_OF_A_TOKEN = 3
NO_END = "The turn ended before this call did."


@dataclass(slots=True)
class Recorder:
    """Of one turn. What it has not stored yet is lost with the process; then the harness is told to go on."""

    saw: int = 0
    """The newest entry of the log that the harness was prompted with."""
    asked_characters: int = 0
    """Of the prompts that no usage was noted for."""
    provider: ProviderUsage | None = None
    """What the provider counts, where its answers pass through here."""
    estimated: int = 0
    """Tokens that were noted as an estimate, because the turn is not over."""
    has_spoken: bool = False
    """Whether a step with words is stored."""
    _has_counted: bool = False
    """Whether the provider has counted something of this turn."""
    _text: list[str] = field(default_factory=list[str])
    _thoughts: list[str] = field(default_factory=list[str])
    _calls: dict[str, CalledTool] = field(default_factory=dict[str, CalledTool])

    def begin(self, saw: int, prompt: str) -> None:
        """The harness is prompted."""
        self.saw = max(self.saw, saw)
        self.asked_characters += len(prompt)
        self._has_counted = False

    @property
    def is_counted(self) -> bool:
        """Whether the provider counts this turn, so that nothing is estimated and no words of the harness count."""
        return self._has_counted or (self.provider is not None and self.provider.has_counted)

    async def note_counted(self, context: RunContext) -> bool:
        """Records what the provider has counted since the last time; whether there was anything."""
        counted = () if self.provider is None else self.provider.take()
        if not counted:
            return False
        self._has_counted = True
        events = [
            replace(_event(context, EventType.USAGE_REPORTED, {"model": model}), usage=self._less_estimated(used))
            for model, used in counted
        ]
        await context.record(events)
        return True

    @property
    def text(self) -> str:
        """Its words that no stored step has."""
        return whole_text("".join(self._text))

    @property
    def tokens(self) -> int:
        """About how many it has used that no step has noted."""
        said = sum(map(len, self._text)) + sum(map(len, self._thoughts)) + self.asked_characters
        return said // CHARACTERS_OF_A_TOKEN

    def said(self, context: RunContext, text: str) -> None:
        self._text.append(text)
        context.emit(text)

    def thought(self, text: str) -> None:
        self._thoughts.append(text)

    async def planned(self, context: RunContext, plan: Planned) -> None:
        entries: list[JsonValue] = [
            {"content": each.content, "priority": each.priority, "status": each.status} for each in plan.entries
        ]
        await context.record([_event(context, EventType.PLAN_CHANGED, {"entries": _bounded(entries)})])

    async def unknown(self, context: RunContext, update: Unknown) -> None:
        """Keeps an update for which there is no event as it came."""
        data: JsonObject = {"kind": update.kind[:100], "update": _bounded(update.raw)}
        await context.record([_event(context, EventType.HARNESS_UPDATE, data)])

    async def called(self, context: RunContext, call: CalledTool) -> None:
        """A call has begun, goes on or is over; it is stored with its result once it is over."""
        self._calls.pop(call.id, None)
        if call.is_over:
            await self.store(context, [call])
        elif len(self._calls) < MAX_CALLS:
            self._calls[call.id] = call

    def told_of(self, call_id: str) -> JsonObject:
        """What the harness told of a call that is not over: a request for permission may leave it out."""
        call = self._calls.get(call_id)
        if call is None:
            return {}
        told: JsonObject = {
            "title": call.title,
            "kind": call.kind,
            "rawInput": call.input,
            "paths": [*call.paths],
            "content": [*call.content],
        }
        return {name: value for name, value in told.items() if value}

    async def store(self, context: RunContext, calls: Sequence[CalledTool] = ()) -> None:
        """Stores what is there as a step; nothing if there is nothing."""
        if not self._text and not calls:
            return
        message = self.message(context, calls=calls)
        self.has_spoken = self.has_spoken or bool(message.text.strip())
        results = [_result(context, index, call) for index, call in enumerate(calls)]
        await context.record_foreign_step(message, results)

    async def store_open(self, context: RunContext) -> None:
        """Stores the calls that are not over although the turn is, with the words before them; nothing without any."""
        calls, self._calls = [*self._calls.values()], {}
        if calls:
            await self.store(context, calls)

    def message(
        self,
        context: RunContext,
        *,
        calls: Sequence[CalledTool] = (),
        usage: Usage | None = None,
        cut: Cut | None = None,
        partial: bool = False,
        own_call: ToolCallPart | None = None,
        decided: tuple[DecidedEntry, ...] | None = None,
    ) -> AssistantMessage:
        """What is there, as a message that is about to be stored; afterwards nothing is there."""
        text, thoughts = bounded_text(self.text), bounded_text(whole_text("".join(self._thoughts)))
        content: list[Part] = [ThinkingPart(text=thoughts)] if thoughts else []
        content += [TextPart(text=text)] if text else []
        content += [_part(call) for call in calls]
        content += [] if own_call is None else [own_call]
        if usage is None:
            usage = NO_USAGE if self.is_counted else self._estimate()
            self.estimated += usage.total_tokens
        self._text, self._thoughts, self.asked_characters = [], [], 0
        return AssistantMessage(
            message_id=context.ids.new("msg"),
            content=tuple(content),
            saw=self.saw,
            model=context.model.name,
            usage=usage,
            cut=cut,
            partial=partial,
            decided=decided or (),
            is_undecided=decided is None,
        )

    def whole_usage(self, counted: Usage | None) -> Usage:
        """The usage that the last step of a turn notes: what the harness counted without what was estimated before.

        Nothing if the provider counts, which is recorded by itself.
        """
        if self.is_counted:
            return NO_USAGE
        if counted is None or not counted.total_tokens:
            return self._estimate()
        return self._less_estimated(counted)

    def _less_estimated(self, counted: Usage) -> Usage:
        read = min(self.estimated, counted.input_tokens)
        written = min(self.estimated - read, counted.output_tokens)
        self.estimated -= read + written
        return Usage(
            input_tokens=counted.input_tokens - read,
            output_tokens=counted.output_tokens - written,
            cached_tokens=min(counted.cached_tokens, counted.input_tokens - read),
            cost_microusd=counted.cost_microusd,
            steps=counted.steps,
        )

    def _estimate(self) -> Usage:
        """As for a provider that counts nothing. Contract: runs 6."""
        asked, tokens = self.asked_characters // CHARACTERS_OF_A_TOKEN, self.tokens
        return Usage(input_tokens=asked, output_tokens=tokens - asked, steps=1, estimated_tokens=tokens)


def usage_from(counted: TurnUsage | None) -> Usage | None:
    """What the harness has counted for a turn; None if it counts nothing."""
    if counted is None:
        return None
    total = counted.total
    cached = total.cached_read
    return Usage(
        input_tokens=total.input + cached + total.cached_write,
        output_tokens=total.output,
        cached_tokens=cached,
        steps=1,
    )


def _event(context: RunContext, type: EventType, data: JsonObject) -> NewEvent:
    made_of = context.made_of
    return NewEvent(
        type=type,
        actor=AGENT_ACTOR,
        classification=made_of,
        run_id=context.run.id,
        data=data,
        own_integrity=context.beside_log.integrity,
    )


def _bounded(value: JsonValue) -> JsonValue:
    """The value as it can be stored, or its beginning as text if it is too long."""
    text = whole_text(json.dumps(value, ensure_ascii=False))
    return json.loads(text) if len(text) <= MAX_UPDATE_CHARACTERS else f"{text[:MAX_UPDATE_CHARACTERS]}…"


def _part(call: CalledTool) -> ToolCallPart:
    shown: JsonObject = {"title": call.title, "input": call.input, "paths": list(call.paths)}
    written = whole_text(json.dumps({name: value for name, value in shown.items() if value}, ensure_ascii=False))
    if len(written) > MAX_CALL_CHARACTERS:
        written = json.dumps({"title": call.title[:200], "cut": written[:MAX_CALL_CHARACTERS]})
    return ToolCallPart(call_id=call.id[:200], name=name_of_kind(call.kind), arguments=written)


def _result(context: RunContext, index: int, call: CalledTool) -> ToolResult:
    return ToolResult(
        message_id=context.ids.new("msg"),
        call_seq=0,
        call_index=index,
        tool=name_of_kind(call.kind),
        tool_call_id=call.id[:200],
        content=text_content(bounded_text(whole_text(_output(call) if call.is_over else NO_END))),
        is_error=call.status != "completed",
        provenance=OF_HARNESS,
    )


def _output(call: CalledTool) -> str:
    """What came of a call: the texts that the harness shows of it, else its raw output."""
    if shown := "\n".join(text for text in call.texts if text):
        return shown
    raw = call.output
    return raw if isinstance(raw, str) else "" if raw is None else json.dumps(raw, ensure_ascii=False)
