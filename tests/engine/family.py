"""What tests of sessions and their children act with: spawning, and the records that come of it."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.app import App
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.message import ReportStage, TextPart, UserMessage
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import Session
from antiphon.store.runs import RunFilter
from antiphon.store.sessions import SessionFilter
from tests.engine.parley import call, key_of
from tests.engine.stage import ask, find_session, read_log
from tests.waiting import SECONDS

LOOK_SECONDS = 0.01
"""Between looks at what nothing tells of."""


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
    session_id: str


async def records(app: App, name: str) -> list[Record]:
    """The results that were put into the session's log, in order."""
    found: list[Record] = []
    for event in await read_log(app, name):
        message = event.message
        if not isinstance(message, UserMessage) or message.report is None:
            continue
        if message.report.stage is ReportStage.RECORD:
            parts = [part.text for part in message.content if isinstance(part, TextPart)]
            report, has_run = message.report, event.run_id is not None
            found.append(Record(report.id, "".join(parts), parts[1], report.answers, has_run, event.session_id))
    return found


NESTED: dict[str, Any] = {"agents__defaults__subagents__max_spawn_depth": 3}
"""Settings under which children may have children."""
YIELD = "!call sessions_yield {}"


def write_script(tmp_path: Path, *turns: list[dict[str, Any]]) -> str:
    """The name of a model that plays the turns, a new one each time."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    name = f"script-{len(list(home.glob('script-*.json')))}.json"
    (home / name).write_text(json.dumps({"sessions": {"*": turns}}), "utf-8")
    return f"scripted:{name}"


FAMILY = {"sessions_spawn", "sessions_wait", "sessions_yield", "subagents"}


async def spawned_from_outside(app: App, requester: Session, task: str, **arguments: Any) -> dict[str, Any]:
    """What a spawn by a call from outside, as the session, answered."""
    answer: Any = await call(app, requester, "sessions_spawn", task=task, **arguments)
    assert answer["status"] == "accepted", answer
    return answer


async def session_of(app: App, key: str) -> Session:
    return await find_session(app, key)


async def children_of(app: App, requester: str) -> list[str]:
    """Keys of the session's children, in the order of their spawning."""
    listed = await app.services.sessions.list(OWNER, SessionFilter(include_inactive=True), limit=1_000)
    children = [each for each in listed.sessions if str(each.parent_key) == key_of(requester)]
    return [str(child.key) for child in sorted(children, key=lambda child: child.row)]


async def count_owed(app: App) -> int:
    """How many results children still owe."""
    runs = await app.services.runs.list(OWNER, RunFilter(), limit=2_000)
    return sum(run.report is not None and not run.is_over for run in runs)


def skip_where_slots_stay(database: DatabaseSection) -> None:
    """For tests in which a slot has to go to another session when a child's run ends, before its next run begins."""
    if database.url is not None:
        pytest.skip("there the child's session keeps its slot for its next run")


async def until(app: App, is_so: Callable[[list[Run]], bool]) -> None:
    """Returns when it is so of all runs."""
    with anyio.fail_after(SECONDS):
        while not is_so(await app.services.runs.list(OWNER, RunFilter(), limit=2_000)):
            await anyio.sleep(LOOK_SECONDS)


async def until_running(app: App, run_id: str) -> None:
    await until(app, lambda runs: any(run.id == run_id and run.status is RunStatus.RUNNING for run in runs))


async def until_parked(app: App, key: str) -> None:
    await until(app, lambda runs: any(run.session_key == key and run.is_parked for run in runs))
