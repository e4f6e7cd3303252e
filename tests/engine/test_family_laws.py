"""Laws of families under random stories: all ends, each result is recorded once and answered at most once."""

import json
import logging
import random
from collections import Counter
from contextlib import suppress
from typing import Any

import anyio
import pytest

from antiphon.app import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import AntiphonError, NotFound
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import JsonObject, ReportStage, UserMessage
from antiphon.domain.run import QueueMode, Run, RunStatus
from antiphon.domain.session import Session, SessionStatus
from antiphon.domain.targets import NamedTarget
from antiphon.store import sessions as rows
from antiphon.store.database import Query
from antiphon.store.runs import RunFilter
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.family import NESTED, spawn_directive
from tests.engine.parley import call, open_peer, set_place, settings
from tests.engine.stage import post, wait_end
from tests.logs import whole_log
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

CROWDED: dict[str, Any] = {
    **NESTED,
    "agents__defaults__subagents__max_children_per_agent": 30,
    "runs__max_concurrent": 4,
}
LABELS = ("ann", "ben", "cem")
ANSWERING = (ReportStage.RECORD, ReportStage.CONTINUATION)
STORIES, LONG_STORIES = 4, 150
SEED = 20_261_121


class Story:
    """What people, programs and sessions do to a family, drawn by a seed."""

    def __init__(self, app: App, boss: Session, seed: int) -> None:
        self._app = app
        self._boss = boss
        self._random = random.Random(seed)
        self.told: list[str] = []
        """What was done, for whoever looks at a failure."""

    async def play(self) -> None:
        act = self._random.choice
        acts = (
            *(self._post, self._post, self._post_to_any, self._wait, self._spawn, self._steer),
            *(self._cancel_run, self._cancel_session, self._cancel_children, self._reset, self._delete),
        )
        for _ in range(self._random.randrange(4, 11)):
            try:
                await act(acts)()
            except AntiphonError as error:
                self.told.append(error.code)
            await anyio.sleep(act((0, 0, 0.02, 0.1)))

    def _task(self, depth: int) -> str:
        draw = self._random
        lines = [self._spawning(depth) for _ in range(draw.choice((0, 0, 1, 2)) if depth < 3 else 0)]
        has_spawned = bool(lines)
        if draw.random() < 0.5:
            lines.append(f"!sleep {draw.choice((0.05, 0.1, 0.3))}")
        if has_spawned and draw.random() < 0.3:
            lines.append(_calling("subagents", action="cancel", target=draw.choice(("all", *LABELS))))
        if has_spawned and draw.random() < 0.3:
            lines.append(_calling("subagents", action="steer", target=draw.choice(LABELS), message="!say steered"))
        if has_spawned and draw.random() < 0.5:
            lines.append(_calling("sessions_yield", **draw.choice(({}, {"message": "waits"}))))
        elif draw.random() < 0.1:
            lines.append("!fail as told")
        else:
            lines.append(f"!say {draw.choice(('fine', '<NO_REPLY>', 'word'))}")
        return "\n".join(lines)

    def _spawning(self, depth: int) -> str:
        draw = self._random
        given: dict[str, Any] = draw.choice(({}, {"mode": "session"}, {"cleanup": "delete"}))
        limit: dict[str, Any] = {"runTimeoutSeconds": 0.4} if draw.random() < 0.2 else {}
        return spawn_directive(self._task(depth + 1), label=draw.choice(LABELS), **given, **limit)

    async def _any(self) -> Session:
        session = self._random.choice(await self._app.database.read(family_of, self._boss))
        self.told.append(str(session.key)[-6:])
        return session

    async def _post(self) -> None:
        self.told.append("post")
        mode = self._random.choice((None, None, QueueMode.COLLECT, QueueMode.STEER, QueueMode.INTERRUPT))
        await post(self._app, str(self._boss.key), self._task(0), message_id=f"m-{self._random.random()}", mode=mode)

    async def _post_to_any(self) -> None:
        self.told.append("post to")
        mode = self._random.choice((None, *QueueMode))
        text, message_id = self._task(2), f"m-{self._random.random()}"
        await post(self._app, str((await self._any()).key), text, message_id=message_id, mode=mode)

    async def _wait(self) -> None:
        self.told.append("wait")

        async def read(query: Query) -> list[str]:
            found = await query.fetch_all(
                "SELECT id FROM reports WHERE requester = ? ORDER BY id DESC", (self._boss.row,)
            )
            return [row[0] for row in found[:3]]

        run_ids = await self._app.database.read(read)
        timeout = self._random.choice((0, 0.3, 5))
        wait = _calling(
            "sessions_wait", runIds=run_ids, mode=self._random.choice(("any", "all")), timeoutSeconds=timeout
        )
        await post(self._app, str(self._boss.key), wait, message_id=f"m-{self._random.random()}")

    async def _cancel_run(self) -> None:
        self.told.append("cancel run")
        found = await self._app.services.runs.list(OWNER, RunFilter(), limit=30)
        if found:
            await self._app.services.runs.cancel(OWNER, self._random.choice(found).id)

    async def _cancel_session(self) -> None:
        self.told.append("cancel session")
        await self._app.services.runs.cancel_session(OWNER, NamedTarget((await self._any()).key, None))

    async def _reset(self) -> None:
        self.told.append("reset")
        await self._app.services.resets.reset(OWNER, NamedTarget((await self._any()).key, None))

    async def _delete(self) -> None:
        self.told.append("delete")
        session = await self._any()
        if session.row != self._boss.row:
            await self._app.services.sessions.delete(OWNER, NamedTarget(session.key, None))

    async def _spawn(self) -> None:
        self.told.append("spawn from outside")
        session = await self._any()
        mode = self._random.choice(("run", "session"))
        label = self._random.choice(LABELS)
        await call(self._app, session, "sessions_spawn", task=self._task(2), label=label, mode=mode)

    async def _steer(self) -> None:
        self.told.append("steer")
        session = await self._any()
        target, key = self._random.choice(LABELS), f"k-{self._random.random()}"

        async def steer(target: str) -> JsonObject:
            more: dict[str, Any] = {"target": target, "message": "!say steered"}
            return await call(self._app, session, "subagents", key=key, action="steer", **more)

        first = await steer(target)
        if first["status"] == "accepted":
            again = await steer(str(first["childSessionKey"]))
            assert again == first or again["status"] == "not_found"

    async def _cancel_children(self) -> None:
        self.told.append("cancel children")
        session = await self._any()
        await call(self._app, session, "subagents", action="cancel", target="all")


def _calling(tool: str, **arguments: Any) -> str:
    return f"!call {tool} {json.dumps(arguments)}"


async def until_quiet(app: App) -> None:
    """Returns when nothing runs, and nothing waits to be continued."""
    with anyio.fail_after(SECONDS):
        while True:
            found = await app.services.runs.list(OWNER, RunFilter(), limit=2_000)
            unfinished = [run for run in found if run.is_parked or not run.status.is_terminal]
            if not unfinished:
                return
            with suppress(NotFound):  # its session was deleted
                await wait_end(app, unfinished[-1].id)


async def family_of(query: Query, boss: Session) -> list[Session]:
    """The session and all below it, in the order of their beginning."""
    found = await query.fetch_all(
        "SELECT id FROM sessions WHERE (id = ? OR ancestor_0 = ?) AND deleted_at IS NULL ORDER BY id",
        (boss.row, boss.row),
    )
    sessions = [await rows.find_by_row(query, SessionRow(row[0])) for row in found]
    return [session for session in sessions if session is not None]


async def check_laws(app: App, boss: Session) -> None:
    """Nothing is owed or under way; each result was recorded once where it belongs, and answered at most once."""
    family = await app.database.read(family_of, boss)
    assert {session.status for session in family} <= {SessionStatus.IDLE, SessionStatus.INACTIVE}
    rows_of_family = {session.row for session in family}

    async def read(query: Query) -> list[tuple[Any, ...]]:
        found = await query.fetch_all(
            "SELECT t.id, t.child, t.stage, t.requester, s.parent FROM reports t JOIN sessions s ON s.id = t.child"
        )
        return [tuple(row) for row in found if row[1] in rows_of_family]

    reports = await app.database.read(read)
    assert {stage for _, _, stage, _, _ in reports} <= {"done", "kept"}
    recorded, answered = Counter[str](), Counter[str]()
    for session in family:
        runs = {run.id: run for run in await app.services.runs.list(OWNER, RunFilter(session=session.row), limit=1_000)}
        assert all(run.status.is_terminal and not run.is_parked for run in runs.values())
        answered.update(run.announces for run in runs.values() if run.announces is not None)
        for event in await app.database.read(whole_log, session.row):
            step = event.message.report if isinstance(event.message, UserMessage) else None
            if step is not None and step.stage is ReportStage.RECORD:
                recorded[step.id] += 1
            if step is not None and step.stage in ANSWERING and _has_begun(runs, event.run_id):
                answered.update(step.answers)
    assert set(recorded.values()) <= {1} and set(answered.values()) <= {1}
    # One that a deleted session left to its requester may stand in the log of the former, which is gone; and
    # children are still being deleted meanwhile.
    living = {session.row for session in await app.database.read(family_of, boss)}
    own = {id for id, _, stage, requester, parent in reports if stage == "done" and requester == parent in living}
    assert own <= set(recorded)


def _has_begun(runs: dict[RunId, Run], run_id: RunId | None) -> bool:
    run = None if run_id is None else runs.get(run_id)
    return run is not None and (run.status is not RunStatus.CANCELLED or run.started_at is not None)


@requirement("spawn:7", "spawn:8", "runs:2", "runs:5")
async def test_whatever_happens_to_a_family_all_ends_and_each_result_is_recorded_and_answered_once(
    open_home: OpenHome, is_soak: bool, caplog: pytest.LogCaptureFixture
) -> None:
    channel = FakeChannel()
    async with open_home(settings(**CROWDED), Parts(channels=[channel])) as app:
        for seed in range(SEED, SEED + (LONG_STORIES if is_soak else STORIES)):
            boss = await open_peer(app, f"boss-{seed}")
            if seed % 2:
                await set_place(app, boss, "the room", NAME)
            story = Story(app, boss, seed)
            await story.play()
            try:
                await until_quiet(app)
                await check_laws(app, boss)
            except (AssertionError, TimeoutError):
                pytest.fail(f"seed {seed}: {story.told}")
    failures = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not failures
