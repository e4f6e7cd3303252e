"""Power cuts: what was acknowledged is there afterwards (P1, P2). kill -9 cannot see a missing fsync; this can."""

import random
import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import anyio
import pytest

from antiphon.app import open_app
from antiphon.backends import DATABASE_NAME
from antiphon.building import Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content
from antiphon.domain.run import RunStatus
from antiphon.engine.runs.runner import ConstantRunner
from antiphon.store.runs import RunFilter
from tests.claims import requirement
from tests.store.faulty_disk import Cut, FaultyDisk, Mark, Replay
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

CLIENTS = 6
SESSIONS = 3
MESSAGES = 40
CUTS = 300
SOAK_CUTS = 100_000
OPENED_WHOLE = 5
SEED = 20_260_725


@dataclass(frozen=True, slots=True)
class Acknowledged:
    key: str
    message_id: str
    seq: int


@requirement("sessions:4", "sessions:5")
async def test_a_power_cut_loses_nothing_that_was_acknowledged(tmp_path: Path, *, is_soak: bool) -> None:
    disk = await take_posts(tmp_path / "home", synchronous="FULL")
    lost: Counter[Cut] = Counter()
    for cut, acknowledged in cuts(disk, tmp_path / "after", SOAK_CUTS if is_soak else CUTS):
        lost[cut] += lost_after(tmp_path / "after", acknowledged)
    assert lost.total() == 0


async def test_without_a_sync_at_each_commit_a_power_cut_loses_messages(tmp_path: Path) -> None:
    """Shows that the test above can fail; what is left is still a prefix of each log without gaps."""
    disk = await take_posts(tmp_path / "home", synchronous="NORMAL")
    lost = sum(lost_after(tmp_path / "after", left) for _, left in cuts(disk, tmp_path / "after", CUTS // 3))
    assert lost > 0


@requirement("runs:8", "sessions:4")
async def test_after_a_power_cut_the_home_opens_and_its_runs_end(tmp_path: Path) -> None:
    disk = await take_posts(tmp_path / "home", synchronous="FULL")
    after = tmp_path / "after"
    for _, acknowledged in cuts(disk, after, OPENED_WHOLE):
        async with open_app(after, Config(), Parts(runner=ConstantRunner("after"))) as app:
            for run in await app.services.runs.list(OWNER, RunFilter(), limit=10_000):
                with anyio.fail_after(SECONDS):
                    ended = await app.services.waits.wait(run.id, timedelta(seconds=SECONDS))
                assert ended is not None and ended.status is RunStatus.OK
            first = acknowledged[0]
            target = app.services.sessions.target(first.key)
            again = await app.services.inbox.post(
                OWNER, target, text_content(first.message_id), message_id=first.message_id
            )
            assert again.seq == first.seq
        assert lost_after(after, acknowledged) == 0


async def take_posts(home: Path, *, synchronous: str) -> FaultyDisk:
    """Clients post to a running system; the disk's journal marks each acknowledgement where it came."""
    disk = FaultyDisk()
    parts = Parts(connect=disk.connect, synchronous=synchronous, runner=ConstantRunner("yes"))
    async with open_app(home, Config(), parts) as app:
        services = app.services
        keys: list[str] = []
        for number in range(SESSIONS):
            opened = await services.sessions.open(OWNER, services.sessions.target(f"api:s{number}"))
            keys.append(str(opened.session.key))

        async def post(client: int) -> None:
            for number in range(MESSAGES):
                key = keys[(client + number) % SESSIONS]
                message_id = f"{client}-{number}"
                posted = await services.inbox.post(
                    OWNER, services.sessions.target(key), text_content(message_id), message_id=message_id
                )
                disk.mark(Acknowledged(key, message_id, posted.seq))

        with anyio.fail_after(SECONDS):
            async with anyio.create_task_group() as tasks:
                for client in range(CLIENTS):
                    tasks.start_soon(post, client)
    return disk


def cuts(disk: FaultyDisk, after: Path, count: int) -> Iterator[tuple[Cut, list[Acknowledged]]]:
    """Cuts the power at random points; each time `after` holds what is left, and what was acknowledged is told."""
    chance = random.Random(SEED)
    replay = Replay(disk.journal)
    first = next(index for index, entry in enumerate(disk.journal) if isinstance(entry, Mark))
    for position in sorted(chance.randint(first + 1, len(disk.journal)) for _ in range(count)):
        cut = chance.choice(list(Cut))
        replay.play_to(position)
        replay.leave(after, cut, chance)
        yield cut, [mark for mark in replay.marks if isinstance(mark, Acknowledged)]


def lost_after(directory: Path, acknowledged: list[Acknowledged]) -> int:
    """How many acknowledged messages are not in what a cut left; the rest must be in good order."""
    with closing(sqlite3.connect(directory / DATABASE_NAME)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sessions'").fetchall():
            return len(acknowledged)
        logs = connection.execute(
            "SELECT s.last_seq, COUNT(e.seq), COALESCE(MIN(e.seq), 1), COALESCE(MAX(e.seq), 0) "
            "FROM sessions s LEFT JOIN events e ON e.session = s.id GROUP BY s.id"
        ).fetchall()
        stored = connection.execute(
            "SELECT s.key, e.message_id, e.seq FROM events e JOIN sessions s ON s.id = e.session WHERE e.role = 'user'"
        ).fetchall()
        queued = connection.execute("SELECT COUNT(*) FROM runs").fetchone()
    for last_seq, count, lowest, highest in logs:
        assert (count, lowest, highest) == (last_seq, 1, last_seq)
    assert queued == (len(stored),)
    return len({(post.key, post.message_id, post.seq) for post in acknowledged} - set(stored))
