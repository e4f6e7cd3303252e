"""What a run's runner has done so far, by which it goes on when it is called again from its beginning.

A call or step is known by its pass, and in it by its key, or else by its name, its arguments and its count among
equal ones. All of it belongs to the first run of a chain of continuations. Contract: foreign_agents 1.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterable
from heapq import heappop, heappush
from typing import Final, NamedTuple

from msgspec import Struct

from antiphon.agents.text import whole_text
from antiphon.domain.errors import AntiphonError
from antiphon.domain.event import Event, EventType
from antiphon.domain.message import (
    OF_DECISIONS,
    AssistantMessage,
    JsonObject,
    JsonValue,
    ToolCallPart,
    ToolResult,
    UserMessage,
)

ID_LENGTH: Final = 24
"""Characters of a hash; ids of calls must be short, because providers get them."""


class Diverged(AntiphonError):
    """The runner used a key for something else than before."""

    default_code = "runner_diverged"


def diverged(before: str, now: str) -> Diverged:
    return Diverged(
        f"The runner used one key for two calls: of {before!r} before, and of {now!r} with other arguments or of "
        "another name now. Give each call a key of its own."
    )


class DoneCall(Struct, frozen=True, kw_only=True):
    """A call that was recorded."""

    message_seq: int
    index: int
    part: ToolCallPart
    result: ToolResult | None = None


class DoneStep(NamedTuple):
    name: str
    result: JsonValue


def canonical(arguments: JsonObject) -> str:
    """The same text for equal arguments."""
    return whole_text(json.dumps(arguments, ensure_ascii=False, sort_keys=True, separators=(",", ":")))


class Identities:
    """Names the calls and steps of one attempt."""

    def __init__(self, number: int) -> None:
        self.number = number
        """Of the pass."""
        self._counts = Counter[str]()
        self._free: dict[str, list[int]] = {}
        self._present: dict[str, tuple[str, int]] = {}

    def next(self, kind: str, name: str, arguments: str, key: str | None) -> str:
        """The id of the next call or step: `kind` is `c` or `s`. The same for the same one in every attempt."""
        if key is not None:
            return self._id(kind, "k", key)
        same = f"{name}\n{arguments}"
        count = self._count(kind + same)
        id = self._id(kind, "n", f"{count}\n{same}")
        self._present[id] = (kind + same, count)
        return id

    def free(self, id: str) -> None:
        """Lets the next one that is equal have the id: this one failed, and is not recorded."""
        if id in self._present:
            same, count = self._present.pop(id)
            heappush(self._free.setdefault(same, []), count)

    def _count(self, same: str) -> int:
        if free := self._free.get(same):
            return heappop(free)
        self._counts[same] += 1
        return self._counts[same]

    def _id(self, kind: str, how: str, text: str) -> str:
        digest = hashlib.sha256(f"{how}\n{text}".encode()).hexdigest()[:ID_LENGTH]
        return f"{kind}{self.number}{how}{digest}"


class Recorded:
    """Calls and steps of a chain of runs, by id."""

    def __init__(self, events: Iterable[Event] = ()) -> None:
        self.inputs = 0
        """How many messages the chain answers; that calls were decided is none, since the same calls go on."""
        self.calls: dict[str, DoneCall] = {}
        self.steps: dict[str, DoneStep] = {}
        self.has_compacted = False
        self._seqs: dict[tuple[int, int], str] = {}
        for event in events:
            self.add(event)

    def add(self, event: Event) -> None:
        match event.message:
            case UserMessage(provenance=provenance):
                self.inputs += provenance != OF_DECISIONS
            case AssistantMessage(provenance=None) as message:
                for index, part in enumerate(message.calls):
                    self.begin(DoneCall(message_seq=event.seq, index=index, part=part))
            case ToolResult() as result:
                self.finish(result)
            case _ if event.type == EventType.STEP_FINISHED and not event.is_unreadable:
                self.steps[str(event.data["id"])] = DoneStep(str(event.data["name"]), event.data["result"])
            case _ if event.type == EventType.COMPACTED:
                self.has_compacted = True
            case _:
                pass

    def begin(self, call: DoneCall) -> None:
        """A continuation repeats open calls: the newest counts."""
        self.calls[call.part.call_id] = call
        self._seqs[call.message_seq, call.index] = call.part.call_id

    def finish(self, result: ToolResult) -> None:
        id = self._seqs.get((result.call_seq, result.call_index))
        if id is None:
            return
        call = self.calls[id]
        if (call.message_seq, call.index) == (result.call_seq, result.call_index):
            self.calls[id] = DoneCall(message_seq=call.message_seq, index=call.index, part=call.part, result=result)

    def steps_of_pass(self, number: int) -> frozenset[int]:
        """The `seq` of the steps whose calls were made in that pass."""
        begins = (f"c{number}k", f"c{number}n")
        return frozenset(seq for (seq, _), id in self._seqs.items() if id.startswith(begins))

    def failures_in_a_row(self) -> int:
        """How many of the newest results say that a call failed."""
        failures = 0
        for call in sorted(self.calls.values(), key=lambda each: (each.message_seq, each.index), reverse=True):
            if call.result is None or not call.result.is_error:
                return failures
            failures += 1
        return failures

    def call(self, id: str, name: str, arguments: str) -> DoneCall | None:
        """The call that was recorded under the id. Raises `Diverged` if it was another one."""
        found = self.calls.get(id)
        if found is not None and (found.part.name, canonical(json.loads(found.part.arguments))) != (name, arguments):
            raise diverged(found.part.name, name)
        return found

    def step(self, id: str, name: str) -> DoneStep | None:
        """The same for steps."""
        found = self.steps.get(id)
        if found is not None and found.name != name:
            raise Diverged(f"The runner used one key for the steps {found.name!r} and {name!r}. Give each its own.")
        return found
