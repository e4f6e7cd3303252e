import asyncio
import sys
from pathlib import Path

import anyio
import pytest

from antiphon.building import Parts
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import RunId
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import HeldRunner, ask, config, post, wait_end
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


def install(directory: Path, module: str, code: str, points: str) -> None:
    """A package as an installer would leave it."""
    (directory / f"{module}.py").write_text(code, "utf-8")
    information = directory / f"{module}-1.0.dist-info"
    information.mkdir()
    (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n", "utf-8")
    (information / "entry_points.txt").write_text(f"[antiphon.tools]\n{points}\n", "utf-8")


@requirement("foreign_tools:1")
async def test_installed_packages_offer_tools_under_the_names_of_their_entry_points(
    open_home: OpenHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = 'def forecast(city: str) -> str:\n    """The weather."""\n    return f"Sunny in {city}"\n'
    install(tmp_path, "offered_weather", code, "weather = offered_weather:forecast")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    async with open_home(config(flow__untrusted="allow")) as app:  # nobody has reviewed it
        assert "weather" in app.tools.names
        assert (await ask(app, "main", '!call weather {"city": "Chennai"}')).reply == "Sunny in Chennai"


async def test_an_installed_tool_that_cannot_be_loaded_is_named(
    open_home: OpenHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(tmp_path, "offered_nothing", "", "gone = offered_nothing:missing")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    with pytest.raises(Invalid, match="'gone' = 'offered_nothing:missing'"):
        async with open_home():
            pass


@requirement("runs:8")
async def test_a_program_that_is_cancelled_hands_back_its_runs_and_ends(open_home: OpenHome) -> None:
    """The cancelled scope lies around the system, so that it reaches all that the system runs at once."""
    runner, begun = HeldRunner(), list[RunId | None]()

    async def live() -> None:
        with anyio.CancelScope() as scope:
            async with open_home(config(gateway__drain_seconds=0), Parts(runner=runner)) as app:
                begun.append((await post(app, "main", "hello")).run_id)
                await runner.until_begun(1)
                scope.cancel()
                await anyio.sleep_forever()

    done, _ = await asyncio.wait([asyncio.ensure_future(live())], timeout=SECONDS)
    assert done, "what the end of the system waits for cannot be cancelled"
    async with open_home() as app:
        ended = await wait_end(app, begun[0])
        assert (ended.status, ended.reply) == ("ok", "echo: hello")
