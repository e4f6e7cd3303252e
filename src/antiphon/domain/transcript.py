"""The state of a conversation as a fold over its events, in the order in which models must see them.

Log order is not model order: a message posted while the model streams precedes the answer in the log, although the
answer never saw it. Each assistant message records in `saw` how far its prompt reached, so the fold can place
each message where the model first saw it. Only prompts are reordered; readers see `seq` order.
"""

import sys
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, Protocol, TypeVar

from msgspec import Struct
from msgspec.structs import replace

from antiphon.domain.actor import AGENT, PrincipalKind
from antiphon.domain.classification import PUBLIC, Classification, Integrity, join_all
from antiphon.domain.decided import DecidedEntry
from antiphon.domain.decided_words import as_decided
from antiphon.domain.distrust import ReadSource, source_from, sources_from, worst_of
from antiphon.domain.event import Event, EventType
from antiphon.domain.ids import RunId
from antiphon.domain.left_out import LeftOutEntries, left_out_from
from antiphon.domain.message import (
    AssistantMessage,
    ImagePart,
    Message,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolResult,
    UserMessage,
    text_content,
)

SUMMARY: Final = "summary"
"""In the place of a tool: the source is a summary of what it does not name."""
EVERYBODY_AS_BEFORE: Final[Mapping[str, Integrity]] = {}
_PERSON: Final = f"{PrincipalKind.PERSON.value}:"
EVENT_BYTES: Final = 1_500
"""What an event takes in memory beside its texts: its objects and its places in the fold."""


class OpenCall(Struct, frozen=True, kw_only=True):
    """A tool call without a result."""

    message_seq: int
    index: int
    part: ToolCallPart
    is_begun: bool
    """Whether it may have taken effect: its `tool_call` was stored."""
    carried: Classification = PUBLIC
    """What its arguments hold in place of references, and no prompt does. Contract: flow 10."""
    referring: frozenset[str] = frozenset()
    """The arguments that held references, before their values stood there."""


class Step(Struct, frozen=True, kw_only=True):
    """One assistant message, followed directly by the results of its calls."""

    seq: int
    message: AssistantMessage
    results: tuple[ToolResult | OpenCall, ...]
    """One per call, in the order of the calls."""
    made_of: Classification
    """What the message was made of; its integrity is that of what it brought itself."""
    results_made_of: tuple[Classification, ...] = ()
    """What each of the results was made of, likewise."""

    @property
    def classification(self) -> Classification:
        """What the message and its results were made of."""
        return join_all((self.made_of, *self.results_made_of))


class Input(Struct, frozen=True, kw_only=True, gc=False):
    """A message that is not a step of a model: from a person, another session, or a synthetic answer."""

    seq: int
    message: UserMessage | AssistantMessage
    actor: str
    run_id: RunId | None
    classification: Classification


class Summary(Struct, frozen=True, kw_only=True):
    """Replaces everything before it. Contract: runs 9."""

    text: str | None
    """None if summarising failed and the oldest turns were left out."""
    classification: Classification
    """The join of what it replaces."""
    sources: tuple[ReadSource, ...] | None = None
    """What untrusted words it stands for; None if it cannot say."""


Entry = Input | Step | Summary


class Undecided(NamedTuple):
    """Entries about which rules have still to decide before they stand in a prompt."""

    inputs: Collection[int] = ()
    """By `seq`."""
    results: Collection[tuple[int, int]] = ()
    """The `seq` of the step, and which of its calls."""


_NEEDED_FACTS = (EventType.TOOL_CALL, EventType.COMPACTED)
"""Events without a message whose data the fold needs."""


class Derived(Protocol):
    """Something that a reader makes of the entries, kept with them so that only what is new has to be made."""

    @property
    def size(self) -> int:
        """Bytes of memory, about."""
        ...


class Transcript:
    """Folds events in `seq` order; `prompt_for` returns the entries for a run's next step.

    Entries that a step has seen never move again, so each event is placed once, when it is added.
    """

    def __init__(self, *, first_seq: int = 1) -> None:
        self.first_seq = first_seq
        """Where it begins: it holds events that are not in the log any more if that begins later by now."""
        self.last_seq = 0
        self._settled: list[Input | Step | Summary] = []
        """In model order; results are filled into their steps when they are asked for."""
        self._waiting: list[Input] = []
        """Inputs that no step has seen, in `seq` order."""
        self._undecided: set[int] = set()
        """Inputs that have stood in no prompt of which decisions were kept, by `seq`."""
        self._inputs_by_run: dict[RunId, list[Input]] = {}
        self._steps_by_run: dict[RunId | None, list[Step]] = {}
        self._results: dict[tuple[int, int], ToolResult] = {}
        self._begun: set[tuple[int, int]] = set()
        self._finished: dict[RunId, int] = {}
        self._stale: set[int] = set()
        """Steps in `_settled`, by `seq`, that lack a result which came after them."""
        self._cut_at: int | None = None
        self._summary: Summary | None = None
        self._made_of = PUBLIC
        """The join of the settled entries."""
        self._worst = Integrity.TRUSTED
        """The worst integrity that any entry has brought."""
        self.speakers: dict[str, Integrity] = {}
        """The best integrity that words of each person have had here, by principal."""
        self._settled_steps: set[int] = set()
        """The steps among the settled entries, by `seq`."""
        self._results_made_of: dict[tuple[int, int], Classification] = {}
        """What a result was made of, unless it is public."""
        self._unseen_results: dict[tuple[int, int], int] = {}
        """Results that have stood in no prompt of which decisions were kept, with the `seq` of their events."""
        self._size = 0
        self.unreadable: list[int] = []
        """The `seq` of entries that prompts need and whose stored form is damaged, ascending."""
        self.blind_models: set[str] = set()
        """Models that read no images, as their provider said in this conversation."""
        self.derived: dict[str, Derived] = {}
        """What readers of the entries keep with them, by names of their own."""

    @property
    def size(self) -> int:
        """Bytes of memory, about, with everything that is derived from it."""
        return self._size + sum(each.size for each in self.derived.values())

    def add(self, events: Iterable[Event]) -> None:
        for event in events:
            self.last_seq = event.seq
            self._size += EVENT_BYTES + _text_size(event.message)
            if event.is_unreadable and (event.message is not None or event.type in _NEEDED_FACTS):
                self.unreadable.append(event.seq)
                if event.message is None:
                    continue
            match event.message:
                case ToolResult() as result:
                    self._unseen_results[result.call_seq, result.call_index] = event.seq
                    self._add_result(result, self._brought(event))
                case AssistantMessage(provenance=None) as message:
                    step = Step(seq=event.seq, message=message, results=(), made_of=self._brought(event))
                    self._add_step(step, event.run_id)
                    self._decide(message)
                case UserMessage() | AssistantMessage() as message:
                    self._add_input(
                        Input(
                            seq=event.seq,
                            message=message,
                            actor=event.actor,
                            run_id=event.run_id,
                            classification=self._brought(event),
                        )
                    )
                case None:
                    self._add_fact(event)

    def _brought(self, event: Event) -> Classification:
        """What the event was made of, with the integrity of what it brought itself: the rest stands before it.

        What no entry before it explains counts as its own: that entry may have been pruned.
        """
        made_of, own = event.classification, event.own_integrity
        if made_of.integrity is Integrity.TRUSTED:
            return made_of
        if made_of.integrity > self._worst:
            own = made_of.integrity
        self._worst = max(self._worst, own)
        return made_of.with_integrity(own)

    def _add_result(self, result: ToolResult, made_of: Classification) -> None:
        step = result.call_seq
        self._results[step, result.call_index] = result
        self._stale.add(step)
        if made_of is not PUBLIC:
            self._results_made_of[step, result.call_index] = made_of
            if step in self._settled_steps:
                self._made_of = self._made_of.join(made_of)

    def _add_input(self, entry: Input) -> None:
        self._waiting.append(entry)
        self._undecided.add(entry.seq)
        worth = entry.classification.integrity
        if entry.actor.startswith(_PERSON) and worth < self.speakers.get(entry.actor, Integrity.UNTRUSTED):
            self.speakers[entry.actor] = worth
        if entry.run_id is not None:
            self._inputs_by_run.setdefault(entry.run_id, []).append(entry)

    def _add_step(self, step: Step, run_id: RunId | None) -> None:
        self._waiting = self._take(self._settled, run_id, step.message.saw)
        self._emit(self._settled, step)
        if step.message.calls:
            self._stale.add(step.seq)
        self._steps_by_run.setdefault(run_id, []).append(step)

    def _add_fact(self, event: Event) -> None:
        match event.type:
            case EventType.TOOL_CALL:
                self._begun.add(_call_name(event))
                self._stale.add(_call_name(event)[0])
            case EventType.RUN_FINISHED if event.run_id is not None:
                self._finished[event.run_id] = event.seq
                self._inputs_by_run.pop(event.run_id, None)
                self._steps_by_run.pop(event.run_id, None)
            case EventType.COMPACTED:
                self._compact(event)
            case EventType.LEFT_OUT:
                self._leave_out(left_out_from(event.data))
            case _:
                pass

    def _compact(self, event: Event) -> None:
        data, made_of = event.data, event.classification
        through, text = data["throughSeq"], data["summary"]
        assert isinstance(through, int) and (text is None or isinstance(text, str))
        is_again = self._cut_at == through
        self._worst = max(self._worst, made_of.integrity)
        self._cut_at = through
        self._summary = Summary(text=text, classification=made_of, sources=sources_from(data))
        self.unreadable = [seq for seq in self.unreadable if seq > through]
        for index, entry in enumerate(self._settled):
            if not isinstance(entry, Summary) and entry.seq == through:
                self._settled[: index + 1] = [self._summary]
                self._forget_replaced()
                return
        if is_again and self._settled and isinstance(self._settled[0], Summary):
            self._settled[0] = self._summary  # the summary itself was too long
            return
        if all(entry.seq != through for entry in self._waiting):  # it was pruned, with everything that it replaces
            self._settled.insert(0, self._summary)
            self._made_of = self._made_of.join(made_of)

    def _leave_out(self, what: LeftOutEntries) -> None:
        """Puts a note in the place of what a provider refused, once, so that no later prompt has to."""
        if what.blind_model is not None:
            self.blind_models.add(what.blind_model)
        if not what.seqs:
            return
        self._settled[:] = [entry if isinstance(entry, Summary) else without(entry, what) for entry in self._settled]
        for inputs in (self._waiting, *self._inputs_by_run.values()):
            inputs[:] = [without(entry, what) for entry in inputs]
        for steps in self._steps_by_run.values():
            steps[:] = [without(entry, what) for entry in steps]
        for name, result in self._results.items():
            if name[0] in what.entries:
                self._results[name] = what.message(name[0], result)
                self._stale.add(name[0])

    def _decide(self, message: AssistantMessage) -> None:
        """Applies what rules said of entries that this step was the first to see, and notes that it saw them."""
        if message.is_undecided:
            return
        self._undecided.intersection_update(entry.seq for entry in self._waiting)
        unseen = self._unseen_results
        self._unseen_results = {name: seq for name, seq in unseen.items() if seq > message.saw} if unseen else unseen
        inputs = {each.seq: each for each in message.decided if each.call is None}
        for each in message.decided:
            name = (each.seq, -1 if each.call is None else each.call)
            if name in self._results:
                self._results[name] = as_decided(self._results[name], each)
                self._stale.add(each.seq)
        if not inputs:
            return
        self._settled[:] = [_decided(each, inputs) if isinstance(each, Input) else each for each in self._settled]
        for entries in (self._waiting, *self._inputs_by_run.values()):
            entries[:] = [_decided(each, inputs) for each in entries]

    @property
    def undecided(self) -> "Undecided":
        return Undecided(self._undecided, self._unseen_results.keys())

    def _forget_replaced(self) -> None:
        """Drops the results of steps that are in no prompt and of no run that goes on."""
        steps = [entry for entry in self._settled if isinstance(entry, Step)]
        needed = {step.seq for step in (*steps, *(step for each in self._steps_by_run.values() for step in each))}
        self._results = {name: result for name, result in self._results.items() if name[0] in needed}
        self._results_made_of = {name: made_of for name, made_of in self._results_made_of.items() if name[0] in needed}
        self._begun = {name for name in self._begun if name[0] in needed}
        messages = [entry.message for entry in (*self._settled, *self._waiting) if not isinstance(entry, Summary)]
        self._size = sum(EVENT_BYTES + _text_size(message) for message in (*messages, *self._results.values()))
        self._settled_steps = {step.seq for step in steps}
        self._made_of = join_all(self._made_of_entry(entry) for entry in self._settled)

    def made_of(self, run_id: RunId) -> Classification:
        """The join of the entries that `prompt_for` returns. Contract: flow 2."""
        made_of = self._made_of
        for entry in self._waiting:
            if self._is_shown(entry, run_id, self.last_seq):
                summary = self._summary_at(entry)
                made_of = made_of.join(entry.classification) if summary is None else summary.classification
        return made_of

    def sources(self, run_id: RunId) -> list[ReadSource]:
        """The untrusted words in the entries that `prompt_for` returns, in their order. Contract: flow 10."""
        return sources_of(self.prompt_for(run_id))

    @property
    def summarised_through(self) -> int:
        """The last `seq` that the present summary replaces."""
        assert self._cut_at is not None
        return self._cut_at

    def needed_from(self, through: int, kept: Iterable[Entry]) -> int:
        """The first event that a fold needs, if a summary replaces all through `through` and these entries stay.

        Messages that wait for a later run may be older than what is replaced.
        """
        stays = (entry.seq for entry in kept if not isinstance(entry, Summary))
        return min([through, *stays, *(entry.seq for entry in self._waiting)])

    def _made_of_entry(self, entry: Entry) -> Classification:
        """What a settled entry was made of, with the results that have come since."""
        if isinstance(entry, Step):
            if not self._results_made_of:
                return entry.made_of
            return join_all((entry.made_of, *self._made_of_results(entry, len(entry.message.calls))))
        return entry.classification

    def _made_of_results(self, step: Step, count: int) -> tuple[Classification, ...]:
        if not self._results_made_of:
            return (PUBLIC,) * count
        return tuple(self._results_made_of.get((step.seq, index), PUBLIC) for index in range(count))

    def prompt_for(self, run_id: RunId) -> list[Entry]:
        """Entries in model order: earlier runs, then this run's messages and steps. Contract: runs 9.

        Messages of later runs are left out, whatever their `seq`.
        """
        self._fill_stale()
        entries = list(self._settled)
        self._take(entries, run_id, self.last_seq)
        return entries

    def steps_of(self, run_id: RunId) -> list[Step]:
        """The steps so far of a run that has not ended."""
        return [self._fill(step) for step in self._steps_by_run.get(run_id, ())]

    def open_calls(self) -> list[OpenCall]:
        """All calls without a result, of runs that have not ended, in order."""
        return [
            result
            for steps in self._steps_by_run.values()
            for step in steps
            for result in self._fill(step).results
            if isinstance(result, OpenCall)
        ]

    def inputs_of(self, run_id: RunId) -> Sequence[Input]:
        """The messages that the run answers, if it has not ended."""
        return self._inputs_by_run.get(run_id, ())

    def newest_input(self, run_id: RunId) -> Input | None:
        """The last message that the run answers, if the run has not ended."""
        inputs = self._inputs_by_run.get(run_id)
        return inputs[-1] if inputs else None

    def _take(self, entries: list[Entry], run_id: RunId | None, saw: int) -> list[Input]:
        """Emits the waiting inputs that a step of the run saw; returns those that still wait."""
        rest: list[Input] = []
        for entry in self._waiting:
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
        summary = self._summary_at(entry)
        if summary is not None:
            entries[:] = [summary]
        if entries is self._settled:
            self._note_settled(entry, summary)

    def _summary_at(self, entry: Input | Step) -> Summary | None:
        """The summary that replaces everything through the entry."""
        return self._summary if entry.seq == self._cut_at else None

    def _note_settled(self, entry: Input | Step, summary: Summary | None) -> None:
        if summary is not None:
            self._made_of, self._settled_steps = summary.classification, set()
            return
        self._made_of = self._made_of.join(self._made_of_entry(entry))
        if isinstance(entry, Step):
            self._settled_steps.add(entry.seq)

    def _fill_stale(self) -> None:
        for index in range(len(self._settled) - 1, -1, -1):
            if not self._stale:
                return
            entry = self._settled[index]
            if isinstance(entry, Step) and entry.seq in self._stale:
                self._settled[index] = self._fill(entry)
                self._stale.remove(entry.seq)
        self._stale.clear()

    def _fill(self, step: Step) -> Step:
        results = tuple(
            self._results.get((step.seq, index))
            or OpenCall(message_seq=step.seq, index=index, part=part, is_begun=(step.seq, index) in self._begun)
            for index, part in enumerate(step.message.calls)
        )
        return Step(
            seq=step.seq,
            message=step.message,
            results=results,
            made_of=step.made_of,
            results_made_of=self._made_of_results(step, len(results)),
        )


def seen_by(entries: Iterable[Entry], step: int) -> Iterator[Entry]:
    """The entries that the step with that `seq` had seen, and the step without the results of its calls."""
    shown = list(entries)
    saw = next((entry.message.saw for entry in shown if isinstance(entry, Step) and entry.seq == step), step)
    for entry in shown:
        match entry:
            case Step(seq=seq) if seq == step:
                yield replace(entry, results=(), results_made_of=())
            case Input(seq=seq) if seq > saw:
                continue
            case _:
                yield entry


def sources_of(entries: Iterable[Entry], worth: Mapping[str, Integrity] = EVERYBODY_AS_BEFORE) -> list[ReadSource]:
    """The untrusted words in these entries of a prompt, in their order.

    `worth` says what words are worth now of those who have fewer rights than when they spoke, by principal.
    """
    found: list[ReadSource] = []
    for entry in entries:
        match entry:
            case Input(classification=Classification(integrity=integrity), actor=actor):
                integrity = max(integrity, worth.get(actor, integrity))
                if integrity is not Integrity.TRUSTED:
                    found.append(source_from(entry.message, seq=entry.seq, integrity=integrity, actor=entry.actor))
            case Step(made_of=Classification(integrity=integrity)):
                if integrity is not Integrity.TRUSTED:
                    found.append(source_from(entry.message, seq=entry.seq, integrity=integrity, actor=AGENT))
                for result, made_of in zip(entry.results, entry.results_made_of, strict=False):
                    if made_of.integrity is not Integrity.TRUSTED and isinstance(result, ToolResult):
                        own = made_of.integrity
                        found.append(source_from(result, seq=entry.seq, integrity=own, actor=AGENT, tool=result.tool))
            case Summary(classification=Classification(integrity=integrity), sources=named):
                if integrity is Integrity.TRUSTED:
                    continue
                if named is None or worst_of(named) < integrity:
                    message = UserMessage(message_id="", content=text_content(entry.text or ""))
                    found.append(source_from(message, seq=0, integrity=integrity, actor=AGENT, tool=SUMMARY))
                found += named or ()
    return found


EntryT = TypeVar("EntryT", bound=Input | Step)


def without(entry: EntryT, what: LeftOutEntries) -> EntryT:
    """The entry without what is left out of it."""
    if entry.seq not in what.seqs:
        return entry
    if isinstance(entry, Input):
        return replace(entry, message=what.message(entry.seq, entry.message))
    results = tuple(
        what.message(entry.seq, result) if isinstance(result, ToolResult) else result for result in entry.results
    )
    return replace(entry, message=what.message(entry.seq, entry.message), results=results)


def _decided(entry: Input, decided: Mapping[int, DecidedEntry]) -> Input:
    """The message as rules let prompts show it, if they said something of it."""
    found = decided.get(entry.seq)
    return entry if found is None else replace(entry, message=as_decided(entry.message, found))


def open_calls(events: Iterable[Event]) -> list[OpenCall]:
    """The calls among the events that have no result, in order."""
    transcript = Transcript()
    transcript.add(events)
    return transcript.open_calls()


def _call_name(event: Event) -> tuple[int, int]:
    seq, index = event.data["messageSeq"], event.data["index"]
    assert isinstance(seq, int) and isinstance(index, int)
    return seq, index


def _text_size(message: Message | None) -> int:
    size = 0
    for part in message.content if message is not None else ():
        match part:
            case TextPart(text=text) | ThinkingPart(text=text) | ToolCallPart(arguments=text) | ImagePart(data=text):
                size += sys.getsizeof(text)
        if not isinstance(part, ImagePart) and part.provider is not None:
            size += len(str(part.provider))
    return size
