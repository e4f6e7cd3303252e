"""Properties of the fold over logs as the ledger writes them: any interleaving of posts, steps, calls and ends."""

from datetime import UTC, datetime

from hypothesis import example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from antiphon.agents.fence import DataFences
from antiphon.agents.prompt import Framing, prompt_entries
from antiphon.domain.classification import PUBLIC, UNTRUSTED, Classification, Level, join_all
from antiphon.domain.event import Event, EventType
from antiphon.domain.ids import RunId, SessionId, SessionRow
from antiphon.domain.message import (
    AssistantMessage,
    JsonObject,
    Message,
    ToolCallPart,
    ToolResult,
    UserMessage,
    text_content,
)
from antiphon.domain.session import SessionType
from antiphon.domain.transcript import Input, Summary, Transcript
from tests.claims import requirement

FENCES = DataFences(b"k" * 32, SessionId("api:x"))
LABELS = (
    PUBLIC,
    PUBLIC,
    Classification(Level.INTERNAL),
    PUBLIC,
    UNTRUSTED,
    Classification(Level.PUBLIC, 0b10),
    Classification(Level.CONFIDENTIAL, person="person:ann"),
)
NOW = datetime(2026, 1, 1, tzinfo=UTC)
ACTS = ("post", "post", "steer", "step", "step_unseen", "call", "begin", "result", "finish", "crash")


class Log:
    """A session's log, grown by acts as the engine would; acts that do not fit change nothing."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self.queued: list[RunId] = []
        self.running: RunId | None = None
        self.open: list[tuple[int, int]] = []
        self.begun: set[tuple[int, int]] = set()
        self.runs = 0
        self.stride = 1

    @property
    def seq(self) -> int:
        return len(self.events)

    def act(self, act: str, number: int) -> None:
        if self.running is None and self.queued:
            self.running = self.queued.pop(0)
            self._add(EventType.RUN_STARTED, self.running)
        match act:
            case "post":
                self.runs += 1
                run = RunId(f"run_{self.runs}")
                self.queued.append(run)
                self._post(run)
            case "steer" if self.running:
                self._post(self.running)
            case "step" if self.running and not self.open:
                self._step(self.seq)
            case "step_unseen" if self.running and not self.open:
                # Messages came in while the model answered.
                saw = self.seq
                for _ in range(number):
                    self.act("post", 0)
                self._step(saw)
            case "call" if self.running and not self.open:
                parts = tuple(ToolCallPart(call_id="c", name="t", arguments="{}") for _ in range(number + 1))
                message = AssistantMessage(message_id="m", content=parts, saw=self.seq)
                self._add(EventType.ASSISTANT_MESSAGE, self.running, message)
                self.open = [(self.seq, index) for index in range(number + 1)]
            case "begin" if self.running and self.open:
                call = self.open[0]
                self.begun.add(call)
                data: JsonObject = {"messageSeq": call[0], "index": call[1], "tool": "t"}
                self._add(EventType.TOOL_CALL, self.running, data=data)
            case "result" if self.running and self.open:
                self._result(number % len(self.open))
            case "finish" if self.running:
                while self.open:
                    self._result(0)
                self._add(EventType.RUN_FINISHED, self.running, data={"status": "ok"})
                self.running = None
            case "crash" if self.running:
                self._add(EventType.RUN_STARTED, self.running)
            case _:
                pass

    def _post(self, run: RunId) -> None:
        message = UserMessage(message_id=f"m{self.seq}", content=text_content(f"message {self.seq + 1}"))
        self._add(EventType.USER_MESSAGE, run, message)

    def _step(self, saw: int) -> None:
        message = AssistantMessage(message_id="m", content=text_content(f"answer {self.seq + 1}"), saw=saw)
        self._add(EventType.ASSISTANT_MESSAGE, self.running, message)

    def _result(self, which: int) -> None:
        seq, index = self.open.pop(which)
        content = text_content(f"result {seq}.{index}")
        result = ToolResult(message_id="r", call_seq=seq, call_index=index, tool="t", tool_call_id="c", content=content)
        self._add(EventType.TOOL_RESULT, self.running, result)

    def _add(
        self, type: EventType, run: RunId | None, message: Message | None = None, data: JsonObject | None = None
    ) -> None:
        self.events.append(
            Event(
                session=SessionRow(1),
                seq=self.seq + 1,
                session_id=SessionId("api:s"),
                type=type,
                created_at=NOW,
                actor="person:owner",
                run_id=run,
                classification=LABELS[self.seq * self.stride % len(LABELS)],
                message=message,
                data=data or {},
            )
        )

    def compact(self, at: int) -> None:
        """Replaces the older part of the running run's prompt, as its loop does between two steps."""
        transcript = folded(self.events)
        entries = transcript.prompt_for(self.running) if self.running and not self.open else []
        cut = min(at + 1, len(entries) - 1)
        older, kept = entries[:cut], entries[cut:]
        if cut <= 0 or isinstance(older[-1], Summary):
            return
        through = older[-1].seq
        data: JsonObject = {
            "throughSeq": through,
            "fromSeq": transcript.needed_from(through, kept),
            "summary": "so far",
        }
        self._add(EventType.COMPACTED, self.running, data=data)
        made_of = join_all(entry.classification for entry in older)
        self.events[-1] = replace(self.events[-1], classification=made_of)


@st.composite
def logs(draw: st.DrawFn) -> Log:
    log = Log()
    for act, number in draw(st.lists(st.tuples(st.sampled_from(ACTS), st.integers(0, 2)), max_size=40)):
        log.act(act, number)
    return log


def folded(events: list[Event]) -> Transcript:
    transcript = Transcript()
    transcript.add(events)
    return transcript


@requirement("runs:8")
@given(logs(), st.data())
@settings(max_examples=150)
def test_folding_piece_by_piece_is_folding_at_once(log: Log, data: st.DataObject) -> None:
    transcript = Transcript()
    run = log.running or RunId("run_none")
    rest = log.events
    while rest:
        size = data.draw(st.integers(1, len(rest)))
        transcript.add(rest[:size])
        rest = rest[size:]
        # Asking between the pieces changes nothing.
        transcript.prompt_for(run)
    whole = folded(log.events)
    assert transcript.prompt_for(run) == whole.prompt_for(run)
    assert transcript.open_calls() == whole.open_calls()
    assert transcript.steps_of(run) == whole.steps_of(run)
    assert transcript.newest_input(run) == whole.newest_input(run)


@requirement("runs:8")
def test_results_that_come_after_a_prompt_was_made_are_in_the_next() -> None:
    log = Log()
    for act, number in (("post", 0), ("call", 1)):
        log.act(act, number)
    run = log.running
    assert run is not None
    transcript = folded(log.events)
    for _ in range(2):
        told = len(log.events)
        log.act("result", 0)
        transcript.add(log.events[told:])
        assert transcript.prompt_for(run) == folded(log.events).prompt_for(run)


@requirement("runs:8")
@given(logs())
@settings(max_examples=150)
def test_every_call_of_a_prompt_has_exactly_one_result_directly_behind_it(log: Log) -> None:
    run = log.running or RunId("run_none")
    shown = prompt_entries(folded(log.events).prompt_for(run), Framing(SessionType.DIRECT, FENCES))
    waiting: list[tuple[int, int]] = []
    position = 0
    while position < len(shown):
        entry = shown[position]
        position += 1
        assert not isinstance(entry, ToolResult)
        if isinstance(entry, AssistantMessage):
            results = shown[position : position + len(entry.calls)]
            assert all(isinstance(result, ToolResult) for result in results)
            assert len(results) == len(entry.calls)
            names = [(result.call_seq, result.call_index) for result in results if isinstance(result, ToolResult)]
            assert [index for _, index in names] == list(range(len(results)))
            assert len({seq for seq, _ in names}) <= 1
            waiting += names
            position += len(results)
    assert len(waiting) == len(set(waiting))


@requirement("runs:8")
@given(logs())
@settings(max_examples=150)
def test_open_calls_are_those_without_a_result_and_tell_whether_they_began(log: Log) -> None:
    calls = folded(log.events).open_calls()
    assert sorted((call.message_seq, call.index) for call in calls) == sorted(log.open)
    assert {(call.message_seq, call.index) for call in calls if call.is_begun} == log.begun & set(log.open)


@requirement("runs:9")
@given(logs())
@settings(max_examples=150)
def test_messages_of_later_runs_are_never_in_an_earlier_runs_prompt(log: Log) -> None:
    if log.running is None:
        return
    entries = folded(log.events).prompt_for(log.running)
    inputs = [entry.run_id for entry in entries if isinstance(entry, Input)]
    assert set(inputs).isdisjoint(log.queued)
    posted = [event.seq for event in log.events if event.message and event.run_id not in log.queued]
    shown = [entry.seq for entry in entries if isinstance(entry, Input)]
    assert sorted(shown) == [seq for seq in posted if isinstance(log.events[seq - 1].message, UserMessage)]


@requirement("runs:9")
@given(logs())
@settings(max_examples=100)
def test_what_a_step_has_seen_never_moves(log: Log) -> None:
    """A prompt only grows: a provider's cache of its beginning stays of use."""
    if log.running is None:
        return
    run = log.running
    before = folded(log.events).prompt_for(run)
    log.act("step", 0)
    log.act("post", 0)
    after = folded(log.events).prompt_for(run)
    assert after[: len(before)] == before or bool(log.open)


@requirement("flow:2")
@given(st.lists(st.tuples(st.sampled_from((*ACTS, "compact")), st.integers(0, 5)), max_size=40), st.integers(1, 6))
@example([("post", 0), ("call", 0), ("result", 0)], 2)
@example([("post", 0), ("post", 0), ("steer", 0), ("step", 0), ("compact", 4), ("finish", 0), ("post", 0)], 1)
@settings(max_examples=200)
def test_the_context_is_what_the_prompt_is_made_of_also_after_a_crash(acts: list[tuple[str, int]], stride: int) -> None:
    log, transcript = Log(), Transcript()
    log.stride = stride
    needed_from = 1
    for act, number in acts:
        if act == "compact":
            log.compact(number)
        else:
            log.act(act, number % 3)
        for event in log.events[transcript.last_seq :]:
            transcript.add([event])
            if event.type == EventType.COMPACTED:
                needed_from = event.data["fromSeq"]
                assert isinstance(needed_from, int)
        run = log.running or RunId("run_none")
        context = transcript.made_of(run)
        assert context == join_all(entry.classification for entry in transcript.prompt_for(run))
        again = folded(log.events[needed_from - 1 :])
        assert context == again.made_of(run)
        assert transcript.prompt_for(run) == again.prompt_for(run)
