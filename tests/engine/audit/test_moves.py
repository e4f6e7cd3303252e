"""Chains and seals of a home that moves, is restored, dies between a commit and its seal, or has several processes."""

import shutil
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from antiphon.app import open_app
from antiphon.backends import move_database
from antiphon.backups import restore_backup, write_backup
from antiphon.clock import SystemClock
from antiphon.domain.actor import OWNER
from antiphon.domain.audit import ChainFault
from antiphon.domain.errors import NotFound
from antiphon.engine.audit.check import check_home
from tests.claims import requirement
from tests.engine.audit.test_seals import kept, seal, verify
from tests.engine.audit.test_trail import a_guest, look
from tests.engine.stage import config
from tests.postgres import fresh_database
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = [pytest.mark.anyio, requirement("flow:12")]


@pytest.fixture
def url() -> Generator[str]:
    with fresh_database() as url:
        yield url


async def test_a_home_that_moves_to_a_server_takes_its_chains_along(tmp_path: Path, url: str) -> None:
    home, path = tmp_path / "home", tmp_path / "seals"
    audit = {"seal_to": str(path)}
    async with open_app(home, config(audit=audit)) as app:
        work = await Story(app).opens("work")
        await work.answers("one")
        await look(app, await a_guest(app), "x")
        await app.services.forks.fork(OWNER, work.target, None)
    with anyio.fail_after(SECONDS):
        await move_database(home, url, SystemClock(), lambda table, done, total: None)
    async with open_app(home, config(audit=audit, database={"url": url, "connections": 4})) as app:
        assert (await verify(app, path)).findings == ()
        await Story(app).session("work").answers("two")
        await seal(app)
        found = await verify(app, path)
        assert found.findings == () and found.kept > 1 and found.rows == 1


async def test_a_restored_backup_is_whole_and_older_than_its_seals(tmp_path: Path) -> None:
    home, path = tmp_path / "home", tmp_path / "seals"
    settings = config(audit={"seal_to": str(path)})
    async with open_app(home, settings) as app:
        await (await Story(app).opens("work")).answers("one")
    sealed = len(kept(path))
    backup = tmp_path / "backup.tar"
    write_backup(home, backup, SystemClock(), replaces=False)
    async with open_app(home, settings) as app:
        await Story(app).session("work").answers("two")
    shutil.rmtree(home)
    restore_backup(backup, home)
    newer = kept(path)[sealed:]
    async with open_app(home, settings) as app:
        assert (await check_home(app.database)).findings == ()
        found = await app.services.audits.check(OWNER, newer)
        assert {each.fault for each in found.findings} == {ChainFault.ROLLED_BACK}


async def test_what_was_stored_and_not_sealed_is_sealed_at_the_next_start(tmp_path: Path) -> None:
    home, path = tmp_path / "home", tmp_path / "seals"
    async with open_app(home, config()) as app:
        await (await Story(app).opens("work")).answers("one")
        shutil.copytree(home, tmp_path / "killed")
    settings = config(audit={"seal_to": str(path)})
    async with open_app(tmp_path / "killed", settings) as app:
        await seal(app)
        found = await verify(app, path)
        assert found.findings == () and found.kept > 0
        events = found.events
    (line, *_) = kept(path)
    assert line.n == 1 and events > 4


async def test_each_process_has_a_chain_of_its_own(tmp_path: Path, url: str) -> None:
    on = config(database={"url": url, "connections": 4}, gateway__drain_seconds=0)
    async with open_app(tmp_path / "one", on) as one, open_app(tmp_path / "other", on) as other:
        guest = await a_guest(one)

        async def asks(number: int) -> None:
            for app in (one, other):
                with pytest.raises(NotFound):
                    await app.services.sessions.get(guest, app.services.sessions.target(f"api:x-{number}"))

        async with anyio.create_task_group() as tasks:
            for number in range(8):
                tasks.start_soon(asks, number)
        for app in (one, other):
            await app.services.trail.settle()
        found = await check_home(one.database)
        assert found.findings == () and (found.processes, found.rows) == (2, 16)
