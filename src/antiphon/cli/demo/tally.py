"""What the logs of a story hold, counted."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import asdict

from antiphon.cli.rendering.output import text_of
from antiphon.domain.message import JsonObject, JsonValue

Logs = Mapping[str, Sequence[JsonObject]]
"""All events, by the key of their session."""


class Count(Struct, frozen=True, kw_only=True):
    """How many were begun, how many came to an end, and what is wrong with that."""

    what: str
    begun: int
    ended: int
    lost: int
    twice: int


class Tally(Struct, frozen=True, kw_only=True):
    sessions: int
    events: int
    gaps: int
    """Events whose number is not the next one."""
    taken_up: int
    """Turns that were begun more than once, because the process died in between."""
    counts: tuple[Count, ...]

    @property
    def is_whole(self) -> bool:
        return self.gaps == 0 and all(count.lost == count.twice == 0 for count in self.counts)

    def as_json(self) -> JsonObject:
        return {
            "sessions": self.sessions,
            "events": self.events,
            "gaps": self.gaps,
            "takenUp": self.taken_up,
            "counts": [asdict(count) for count in self.counts],
        }


def tally_of(logs: Logs, runs: Iterable[str], acknowledged: Iterable[str]) -> Tally:
    """Counted from the logs; `runs` are those of the ledger, `acknowledged` the messages that the owner posted."""
    starts = Counter(str(event["runId"]) for event in _events(logs, "run_started"))
    return Tally(
        sessions=len(logs),
        events=sum(map(len, logs.values())),
        gaps=sum(event["seq"] != number for log in logs.values() for number, event in enumerate(log, 1)),
        taken_up=sum(times > 1 for times in starts.values()),
        counts=(
            _count("messages", {*acknowledged, *_expected_steps(logs)}, [*_posted(logs), *_steps(logs)]),
            _count("turns", set(runs), [str(event["runId"]) for event in _events(logs, "run_finished")]),
            _count("tool calls", set(_calls(logs)), list(_results(logs))),
            _count("sub-agents", set(_spawned(logs)), list(_records(logs))),
        ),
    )


def _count(what: str, begun: set[str], ended: Sequence[str]) -> Count:
    times = Counter(ended)
    return Count(
        what=what,
        begun=len(begun),
        ended=len(times),
        lost=len(begun - times.keys()),
        twice=sum(number - 1 for number in times.values()) + len(times.keys() - begun),
    )


def _events(logs: Logs, *types: str) -> Iterator[JsonObject]:
    return (event for log in logs.values() for event in log if event["type"] in types)


def _posted(logs: Logs) -> Iterator[str]:
    """Messages that no session wrote."""
    for event in _events(logs, "user_message"):
        if "provenance" not in (message := _message(event)):
            yield str(message["messageId"])


def _steps(logs: Logs) -> Iterator[str]:
    """What sessions sent one another: requests, and the turns that followed."""
    return (f"{exchange} {turn}" for exchange, turn in _exchanged(logs))


def _expected_steps(logs: Logs) -> Iterator[str]:
    """All turns up to the last one of each exchange."""
    newest: dict[str, int] = {}
    for exchange, turn in _exchanged(logs):
        newest[exchange] = max(turn, newest.get(exchange, 0))
    return (f"{exchange} {turn}" for exchange, last in newest.items() for turn in range(last + 1))


def _exchanged(logs: Logs) -> Iterator[tuple[str, int]]:
    """Each message of an exchange, with its turn; the request has 0."""
    for event in _events(logs, "user_message"):
        step = _message(event).get("exchange")
        if isinstance(step, dict) and step["stage"] in ("request", "turn"):
            turn = step.get("turn", 0)
            assert isinstance(turn, int)
            yield str(step["id"]), turn


def _calls(logs: Logs) -> Iterator[str]:
    """Calls that models asked for, each named by its session, its message and its own id."""
    for key, log in logs.items():
        for event in log:
            for part in _parts(event):
                if part["type"] == "toolCall":
                    yield f"{key} {event['seq']} {part['id']}"


def _results(logs: Logs) -> Iterator[str]:
    """Calls that a result stands in the log for, named alike."""
    for key, log in logs.items():
        asked: dict[JsonValue, JsonValue] = {}
        for event in log:
            if any(part["type"] == "toolCall" for part in _parts(event)):
                asked[event["runId"]] = event["seq"]
            elif event["type"] == "tool_result":
                yield f"{key} {asked.get(event['runId'])} {_message(event)['toolCallId']}"


def _spawned(logs: Logs) -> Iterator[str]:
    """Runs of sub-agents that a tool said were begun."""
    for event in _events(logs, "tool_result"):
        message = _message(event)
        answer = json.loads(text_of(message))
        if message["toolName"] == "sessions_spawn" and answer["status"] == "accepted":
            yield str(answer["runId"])


def _records(logs: Logs) -> Iterator[str]:
    """Runs of sub-agents whose result was put into a log."""
    for event in _events(logs, "user_message"):
        report = _message(event).get("report")
        if isinstance(report, dict) and report["stage"] == "record":
            yield str(report["id"])


def _message(event: JsonObject) -> JsonObject:
    message = event["message"]
    assert isinstance(message, dict)
    return message


def _parts(event: JsonObject) -> list[JsonObject]:
    message = event.get("message")
    content = message["content"] if isinstance(message, dict) else None
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []
