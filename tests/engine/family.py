"""What tests of sessions and their children act with: spawning, and the records that come of it."""

import json
from dataclasses import dataclass
from typing import Any

from antiphon.app import App
from antiphon.domain.message import ReportStage, TextPart, UserMessage
from antiphon.domain.session import Session
from tests.engine.parley import call, key_of
from tests.engine.stage import ask, find_session, read_log


def spawn_directive(task: str, **arguments: Any) -> str:
    """What makes the offline model call `sessions_spawn`."""
    return "!call sessions_spawn " + json.dumps({"task": task, **arguments})


async def spawned(app: App, requester: str, task: str, **arguments: Any) -> dict[str, Any]:
    """What a spawn within a run of the requester answered."""
    run = await ask(app, key_of(requester), spawn_directive(task, **arguments))
    assert run.reply is not None, run.error
    return json.loads(run.reply)


@dataclass(frozen=True, slots=True)
class Record:
    id: str
    text: str
    result: str
    answers: tuple[str, ...]
    has_run: bool


async def records(app: App, name: str) -> list[Record]:
    """The results that were put into the session's log, in order."""
    found: list[Record] = []
    for event in await read_log(app, name):
        message = event.message
        if not isinstance(message, UserMessage) or message.report is None:
            continue
        if message.report.stage is ReportStage.RECORD:
            parts = [part.text for part in message.content if isinstance(part, TextPart)]
            found.append(
                Record(message.report.id, "".join(parts), parts[1], message.report.answers, event.run_id is not None)
            )
    return found


FAMILY = {"sessions_spawn", "sessions_wait", "sessions_yield", "subagents"}


async def spawned_from_outside(app: App, requester: Session, task: str, **arguments: Any) -> dict[str, Any]:
    """What a spawn by a call from outside, as the session, answered."""
    answer: Any = await call(app, requester, "sessions_spawn", task=task, **arguments)
    assert answer["status"] == "accepted", answer
    return answer


async def session_of(app: App, key: str) -> Session:
    return await find_session(app, key)
