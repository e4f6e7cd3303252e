"""Laws of families under random stories: all ends, each result is recorded once and answered at most once."""

import logging
import random
from collections import Counter
from typing import Any

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import AntiphonError
from antiphon.domain.ids import RunId
from antiphon.domain.message import ReportStage, UserMessage
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import Session, SessionStatus
from antiphon.store.database import Query
from antiphon.store.runs import RunFilter
from tests.channels.fake_channel import NAME, FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, to_spawn
from tests.logs import whole_log
from tests.story import MOST, NESTED, Character, Story, telling

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


class Chances:
    """What people, programs and sessions do to a family, drawn by a seed."""

    def __init__(self, story: Story, boss: Character, seed: int) -> None:
        self._story = story
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
            lines.append(to_call("subagents", action="cancel", target=draw.choice(("all", *LABELS))))
        if has_spawned and draw.random() < 0.3:
            lines.append(to_call("subagents", action="steer", target=draw.choice(LABELS), message="!say steered"))
        if has_spawned and draw.random() < 0.5:
            lines.append(to_call("sessions_yield", **draw.choice(({}, {"message": "waits"}))))
        elif draw.random() < 0.1:
            lines.append("!fail as told")
        else:
            lines.append(f"!say {draw.choice(('fine', '<NO_REPLY>', 'word'))}")
        return "\n".join(lines)

    def _spawning(self, depth: int) -> str:
        draw = self._random
        given: dict[str, Any] = draw.choice(({}, {"mode": "session"}, {"cleanup": "delete"}))
        limit: dict[str, Any] = {"runTimeoutSeconds": 0.4} if draw.random() < 0.2 else {}
        return to_spawn(self._task(depth + 1), label=draw.choice(LABELS), **given, **limit)

    async def _any(self) -> Character:
        session = self._random.choice(await family_of(self._story, self._boss))
        self.told.append(str(session.key)[-6:])
        return self._story.session(str(session.key))

    async def _post(self) -> None:
        self.told.append("post")
        mode = self._random.choice((None, None, QueueMode.COLLECT, QueueMode.STEER, QueueMode.INTERRUPT))
        await self._boss.hears(self._task(0), mode=mode)

    async def _post_to_any(self) -> None:
        self.told.append("post to")
        mode = self._random.choice((None, *QueueMode))
        task = self._task(2)
        await (await self._any()).hears(task, mode=mode)

    async def _wait(self) -> None:
        self.told.append("wait")
        run_ids = [child["runId"] for child in await self._boss.lists_children()][-3:]
        timeout, mode = self._random.choice((0, 0.3, 5)), self._random.choice(("any", "all"))
        await self._boss.hears(to_call("sessions_wait", runIds=run_ids, mode=mode, timeoutSeconds=timeout))

    async def _cancel_run(self) -> None:
        self.told.append("cancel run")
        if found := (await self._story.runs())[:30]:
            await self._story.cancels(self._random.choice(found).id)

    async def _cancel_session(self) -> None:
        self.told.append("cancel session")
        await self._story.cancels_work_of(await self._any())

    async def _reset(self) -> None:
        self.told.append("reset")
        await self._story.resets(await self._any())

    async def _delete(self) -> None:
        self.told.append("delete")
        session = await self._any()
        if session.key != self._boss.key:
            await self._story.deletes(session)

    async def _spawn(self) -> None:
        self.told.append("spawn from outside")
        session = await self._any()
        mode = self._random.choice(("run", "session"))
        label = self._random.choice(LABELS)
        await session.calls("sessions_spawn", task=self._task(2), label=label, mode=mode)

    async def _steer(self) -> None:
        self.told.append("steer")
        session = await self._any()
        target, key = self._random.choice(LABELS), f"k-{self._random.random()}"
        first = await session.steers(target, "!say steered", key=key)
        if first["status"] == "accepted":
            again = await session.steers(first["childSessionKey"], "!say steered", key=key)
            assert again == first or again["status"] == "not_found"

    async def _cancel_children(self) -> None:
        self.told.append("cancel children")
        await (await self._any()).cancels_children()


async def until_quiet(story: Story) -> None:
    """Returns when nothing runs, and nothing waits to be continued."""
    await story.until(lambda runs: not any(run.is_parked or not run.status.is_terminal for run in runs))


async def family_of(story: Story, boss: Character) -> list[Session]:
    """The session and all below it, in the order of their beginning."""
    tree = await story.app.services.trees.under(OWNER, boss.target, include_inactive=True, limit=MOST)
    return sorted((member.session for member in tree.members), key=lambda session: session.row)


async def check_laws(story: Story, boss: Character) -> None:
    """Nothing is owed or under way; each result was recorded once where it belongs, and answered at most once."""
    family = await family_of(story, boss)
    assert {session.status for session in family} <= {SessionStatus.IDLE, SessionStatus.INACTIVE}
    rows_of_family = {session.row for session in family}

    async def read(query: Query) -> list[tuple[Any, ...]]:
        found = await query.fetch_all(
            "SELECT t.id, t.child, t.stage, t.requester, s.parent FROM reports t JOIN sessions s ON s.id = t.child"
        )
        return [tuple(row) for row in found if row[1] in rows_of_family]

    reports = await story.app.database.read(read)
    assert {stage for _, _, stage, _, _ in reports} <= {"done", "kept"}
    recorded, answered = Counter[str](), Counter[str]()
    for session in family:
        where = RunFilter(session=session.row)  # by its row, as it may be being deleted
        runs = {run.id: run for run in await story.app.services.runs.list(OWNER, where, limit=MOST)}
        assert all(run.status.is_terminal and not run.is_parked for run in runs.values())
        answered.update(run.announces for run in runs.values() if run.announces is not None)
        for event in await story.app.database.read(whole_log, session.row):
            step = event.message.report if isinstance(event.message, UserMessage) else None
            if step is not None and step.stage is ReportStage.RECORD:
                recorded[step.id] += 1
            if step is not None and step.stage in ANSWERING and _has_begun(runs, event.run_id):
                answered.update(step.answers)
    assert set(recorded.values()) <= {1} and set(answered.values()) <= {1}
    # One that a deleted session left to its requester may stand in the log of the former, which is gone; and
    # children are still being deleted meanwhile.
    living = {session.row for session in await family_of(story, boss)}
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
    async with telling(open_home, Parts(channels=[channel]), **CROWDED) as story:
        for seed in range(SEED, SEED + (LONG_STORIES if is_soak else STORIES)):
            boss = await story.opens(f"boss-{seed}")
            if seed % 2:
                await boss.speaks_at("the room", NAME)
            chances = Chances(story, boss, seed)
            await chances.play()
            try:
                await until_quiet(story)
                await check_laws(story, boss)
            except (AssertionError, TimeoutError):
                pytest.fail(f"seed {seed}: {chances.told}")
    failures = [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR]
    assert not failures
