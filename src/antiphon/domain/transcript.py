"""The state of a conversation as a fold over its events, in the order in which a model has to see them.

Log order is not model order: a message posted while the model streams stands in the log before the answer
that never saw it. Each assistant message tells by `saw` how far its prompt reached, so the fold can put
everything where the model met it. Only prompts are reordered; readers see `seq` order.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from antiphon.domain.event import Event, EventType
from antiphon.domain.ids import RunId
from antiphon.domain.message import AssistantMessage, JsonObject, ToolCallPart, ToolResult, UserMessage


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenCall:
    """A tool call without a result."""

    message_seq: int
    index: int
    part: ToolCallPart
    is_begun: bool
    """Whether it may have taken effect: its `tool_call` was stored."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One assistant message and the results of its calls, which stand directly behind it."""

    seq: int
    message: AssistantMessage
    results: tuple[ToolResult | OpenCall, ...]
    """One for each call, in the calls' order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """A message that is no step of a model: a person's, another session's, or a synthetic answer."""

    seq: int
    message: UserMessage | AssistantMessage
    actor: str
    run_id: RunId | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Summary:
    """What stands for everything before it. Contract: runs 9."""

    text: str | None
    """None where summarising failed and the oldest turns were left out."""


Entry = Input | Step | Summary


@dataclass(slots=True)
class Transcript:
    """Folds events in `seq` order; `prompt_for` gives the entries that a run's next step has to see."""

    last_seq: int = 0
    _inputs: list[Input] = field(default_factory=lambda: list[Input]())
    _steps: list[tuple[int, RunId | None, AssistantMessage]] = field(
        default_factory=lambda: list[tuple[int, RunId | None, AssistantMessage]]()
    )
    _results: dict[tuple[int, int], ToolResult] = field(default_factory=lambda: dict[tuple[int, int], ToolResult]())
    _begun: set[tuple[int, int]] = field(default_factory=lambda: set[tuple[int, int]]())
    _finished: dict[RunId, int] = field(default_factory=lambda: dict[RunId, int]())
    _compaction: JsonObject | None = None

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            self.last_seq = event.seq
            match event.message:
                case ToolResult() as result:
                    self._results[result.call_seq, result.call_index] = result
                case AssistantMessage(provenance=None) as message:
                    self._steps.append((event.seq, event.run_id, message))
                case UserMessage() | AssistantMessage() as message:
                    self._inputs.append(Input(seq=event.seq, message=message, actor=event.actor, run_id=event.run_id))
                case None:
                    self._add_fact(event)

    def _add_fact(self, event: Event) -> None:
        match event.type:
            case EventType.TOOL_CALL:
                self._begun.add(_call_name(event))
            case EventType.RUN_FINISHED if event.run_id is not None:
                self._finished[event.run_id] = event.seq
            case EventType.COMPACTED:
                self._compaction = event.data
            case _:
                pass

    def prompt_for(self, run_id: RunId) -> list[Entry]:
        """Entries in model order: earlier runs, then this run's messages and steps. Contract: runs 9.

        Messages of later runs are left out, whatever their `seq`.
        """
        entries: list[Entry] = []
        waiting = list(self._inputs)
        for seq, step_run, message in self._steps:
            waiting = self._take(entries, waiting, step_run, message.saw)
            self._emit(entries, Step(seq=seq, message=message, results=self._results_of(seq, message)))
        self._take(entries, waiting, run_id, self.last_seq)
        return entries

    def steps_of(self, run_id: RunId) -> list[Step]:
        """The run's own steps so far."""
        return [
            Step(seq=seq, message=message, results=self._results_of(seq, message))
            for seq, step_run, message in self._steps
            if step_run == run_id
        ]

    def open_calls(self) -> list[OpenCall]:
        """Every call without a result, in order."""
        return [
            result
            for seq, _, message in self._steps
            for result in self._results_of(seq, message)
            if isinstance(result, OpenCall)
        ]

    def newest_input(self, run_id: RunId) -> Input | None:
        """The last message that the run answers."""
        return next((entry for entry in reversed(self._inputs) if entry.run_id == run_id), None)

    def inputs_of(self, run_id: RunId) -> list[Input]:
        return [entry for entry in self._inputs if entry.run_id == run_id]

    def _take(self, entries: list[Entry], waiting: list[Input], run_id: RunId | None, saw: int) -> list[Input]:
        """Emits the inputs that a step of the run saw; returns those that still wait."""
        rest: list[Input] = []
        for entry in waiting:
            if entry.seq <= saw and self._is_shown(entry, run_id, saw):
                self._emit(entries, entry)
            else:
                rest.append(entry)
        return rest

    def _is_shown(self, entry: Input, run_id: RunId | None, saw: int) -> bool:
        if entry.run_id is None or entry.run_id == run_id:
            return True
        return self._finished.get(entry.run_id, saw + 1) <= saw

    def _emit(self, entries: list[Entry], entry: Input | Step) -> None:
        entries.append(entry)
        if self._compaction is not None and self._compaction.get("throughSeq") == entry.seq:
            summary = self._compaction.get("summary")
            entries[:] = [Summary(text=summary if isinstance(summary, str) else None)]

    def _results_of(self, seq: int, message: AssistantMessage) -> tuple[ToolResult | OpenCall, ...]:
        return tuple(
            self._results.get((seq, index))
            or OpenCall(message_seq=seq, index=index, part=part, is_begun=(seq, index) in self._begun)
            for index, part in enumerate(message.calls)
        )


def open_calls(events: Iterable[Event]) -> list[OpenCall]:
    """The calls among the events that have no result, in order."""
    transcript = Transcript()
    transcript.add(events)
    return transcript.open_calls()


def _call_name(event: Event) -> tuple[int, int]:
    seq, index = event.data["messageSeq"], event.data["index"]
    assert isinstance(seq, int) and isinstance(index, int)
    return seq, index
