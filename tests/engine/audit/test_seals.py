"""The sealer puts changed heads into one, outside the home. Contract: flow 12."""

import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from antiphon.app import open_app
from antiphon.backends import DATABASE_NAME
from antiphon.building import App
from antiphon.domain.actor import OWNER
from antiphon.domain.audit import AuditKind, ChainFault, Checked, KeptSeal
from antiphon.domain.errors import Conflict, Invalid
from antiphon.seals import last_lines, read_seals
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import config
from tests.story import Story, telling

pytestmark = pytest.mark.anyio


async def seal(app: App) -> None:
    assert app.sealer is not None
    await app.sealer.seal()


def kept(path: Path) -> list[KeptSeal]:
    return read_seals(last_lines(path))


async def verify(app: App, path: Path) -> Checked:
    return await app.services.audits.check(OWNER, kept(path))


@requirement("flow:12")
async def test_a_seal_covers_what_was_stored_before_it(open_home: OpenHome, tmp_path: Path) -> None:
    path = tmp_path / "seals"
    async with telling(open_home, audit={"seal_to": str(path)}) as story:
        app, work = story.app, await story.opens("work")
        await work.answers("one")
        await seal(app)
        first = kept(path)
        await seal(app)
        assert kept(path) == first
        await work.answers("two")
        await seal(app)
        assert len(kept(path)) > len(first)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        found = await verify(app, path)
        assert found.findings == () and found.kept == len(kept(path)) == found.seals


@requirement("flow:12")
async def test_a_home_that_was_rolled_back_is_found(tmp_path: Path) -> None:
    home, path = tmp_path / "home", tmp_path / "seals"
    settings = config(audit={"seal_to": str(path)})
    async with open_app(home, settings) as app:
        await (await Story(app).opens("work")).answers("one")
    shutil.copytree(home, tmp_path / "older")
    sealed = len(kept(path))
    async with open_app(home, settings) as app:
        await Story(app).session("work").answers("two")
    newer = kept(path)[sealed:]
    assert newer
    async with open_app(tmp_path / "older", settings) as app:
        assert (await app.services.audits.check(OWNER, [])).findings == ()
        faults = [(each.fault, each.number) for each in (await app.services.audits.check(OWNER, newer)).findings]
        assert faults == [(ChainFault.ROLLED_BACK, each.n) for each in newer]
        await Story(app).session("work").answers("goes on")
        await seal(app)
        found = await verify(app, path)
        assert {each.fault for each in found.findings} == {ChainFault.ROLLED_BACK}
        await app.services.trail.settle()
        moved = await app.services.audits.list(OWNER, AuditKind.SEALS_MOVED, limit=5, after=None)
        assert [row.content["what"] for row in moved] == ["seal_unknown"]


@requirement("flow:12")
async def test_a_log_that_was_cut_off_with_its_head_is_found_by_the_seal(tmp_path: Path) -> None:
    home, path = tmp_path / "home", tmp_path / "seals"
    settings = config(audit={"seal_to": str(path)})
    async with open_app(home, settings) as app:
        work = await Story(app).opens("work")
        for text in ("one", "two"):
            await work.answers(text)
            await seal(app)
        session = await work.session()
    with closing(sqlite3.connect(home / DATABASE_NAME)) as connection, connection:
        seq = session.last_seq - 3
        connection.execute("DELETE FROM events WHERE session = ? AND seq > ?", (session.row, seq))
        connection.execute(
            "UPDATE sessions SET last_seq = ?, head = (SELECT hash FROM events WHERE session = ? AND seq = ?) "
            "WHERE id = ?",
            (seq, session.row, seq, session.row),
        )
    async with open_app(home, settings) as app:
        found = await verify(app, path)
        assert (ChainFault.CUT_OFF, seq + 1) in {(each.fault, each.number) for each in found.findings}


@requirement("flow:12")
async def test_a_head_of_another_home_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "seals"
    async with open_app(tmp_path / "home", config(audit={"seal_to": str(path)})) as app:
        await (await Story(app).opens("work")).answers("one")
    async with open_app(tmp_path / "other", config()) as app:
        with pytest.raises(Conflict) as refused:
            await verify(app, path)
        assert refused.value.code == "audit_other_home"


async def test_a_file_that_was_rotated_begins_anew_and_that_is_told(tmp_path: Path) -> None:
    home, path = tmp_path / "home", tmp_path / "seals"
    async with open_app(home, config(audit={"seal_to": str(path)})) as app:
        work = await Story(app).opens("work")
        await work.answers("one")
        await seal(app)
        path.rename(tmp_path / "seals.1")
        await work.answers("two")
        await seal(app)
        assert (await verify(app, path)).findings == (await verify(app, tmp_path / "seals.1")).findings == ()
        moved = await app.services.audits.list(OWNER, AuditKind.SEALS_MOVED, limit=5, after=None)
        assert [row.content["what"] for row in moved] == ["seals_began_anew"]


async def test_a_line_that_was_cut_off_is_left_out(tmp_path: Path) -> None:
    home, path = tmp_path / "home", tmp_path / "seals"
    settings = config(audit={"seal_to": str(path)})
    async with open_app(home, settings) as app:
        await (await Story(app).opens("work")).answers("one")
    whole = kept(path)
    with path.open("a") as file:
        file.write('{"home":"')
    assert kept(path) == whole
    async with open_app(home, settings) as app:
        await Story(app).session("work").answers("two")
    assert kept(path)[: len(whole)] == whole and len(kept(path)) > len(whole)
    path.write_text("notes of mine\n")
    with pytest.raises(Invalid) as refused:
        kept(path)
    assert refused.value.code == "seals_unreadable"


async def test_a_file_in_the_home_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with pytest.raises(Invalid) as refused:
        async with open_app(home, config(audit={"seal_to": str(home / "seals")})):
            pass
    assert refused.value.code == "seal_in_home"


async def test_what_cannot_be_written_is_written_later(tmp_path: Path) -> None:
    path = tmp_path / "away" / "seals"
    async with open_app(tmp_path / "home", config(audit={"seal_to": str(path)})) as app:
        await (await Story(app).opens("work")).answers("one")
        with pytest.raises(OSError):
            await seal(app)
        path.parent.mkdir()
        await seal(app)
        found = await verify(app, path)
        assert found.findings == () and found.kept == found.seals > 0
