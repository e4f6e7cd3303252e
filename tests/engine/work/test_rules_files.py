"""Rules are read anew when their file has changed, and only whole."""

import os
from pathlib import Path
from typing import Any

import anyio
import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Invalid, Unavailable
from antiphon.engine.work import rule_reloads
from antiphon.policy.written.fields import Hook
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import config

pytestmark = [pytest.mark.anyio, requirement("flow:9")]

RULE = '[[rules]]\nid = "a"\nhook = "PRE_OUTPUT"\naction = "BLOCK"\n'


async def test_a_file_that_is_being_written_is_not_read(
    open_home: OpenHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULE)
    monkeypatch.setattr(rule_reloads, "LOOK_SECONDS", 3_600)
    monkeypatch.setattr(rule_reloads, "SETTLE_SECONDS", 2.0)
    async with open_home(config(flow__rules_file=str(file))) as app:
        looked: list[object] = []
        stamp_of: Any = vars(rule_reloads)["_stamp"]

        def look(path: Path) -> Any:
            stamp = stamp_of(path)
            looked.append(stamp)
            return stamp

        monkeypatch.setattr(rule_reloads, "_stamp", look)
        written, reloads = app.services.rules.written, app.services.written
        assert written.asks(Hook.PRE_OUTPUT)
        file.write_text("")  # as an editor leaves it for a moment
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reloads.look)
            while not looked:  # at the empty file
                await anyio.sleep(0.01)
            file.write_text(RULE.replace("PRE_OUTPUT", "PRE_TOOL_CALL"))
        assert written.asks(Hook.PRE_OUTPUT)
        await reloads.look()
        assert written.asks(Hook.PRE_TOOL_CALL) and not written.asks(Hook.PRE_OUTPUT)


async def test_a_pipe_in_the_place_of_the_file_is_refused_at_once(open_home: OpenHome, tmp_path: Path) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULE)
    async with open_home(config(flow__rules_file=str(file))) as app:
        file.unlink()
        os.mkfifo(file)
        with anyio.fail_after(30), pytest.raises(Invalid, match="no file"):
            await app.services.written.reload(OWNER)
        assert app.services.rules.written.asks(Hook.PRE_OUTPUT)


async def test_a_look_that_failed_is_repeated(
    open_home: OpenHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "rules.toml"
    file.write_text(RULE)
    monkeypatch.setattr(rule_reloads, "LOOK_SECONDS", 3_600)
    monkeypatch.setattr(rule_reloads, "SETTLE_SECONDS", 0)
    async with open_home(config(flow__rules_file=str(file))) as app:
        reloads = app.services.written
        file.write_text(RULE.replace("PRE_OUTPUT", "PRE_TOOL_CALL"))

        async def fail(_: object) -> None:
            raise Unavailable("The database is away.")

        with monkeypatch.context() as broken:
            broken.setattr(rule_reloads, "read_compartments", fail)
            with pytest.raises(Unavailable):
                await reloads.look()
        await reloads.look()
        assert app.services.rules.written.asks(Hook.PRE_TOOL_CALL)
