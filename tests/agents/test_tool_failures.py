"""A function that raises leaves its traceback in the log. Contract: foreign_tools 1."""

import json
import logging

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ask, open_session

pytestmark = pytest.mark.anyio


class Unspeakable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("it has no text")


def loads() -> str:
    """Loads a file."""
    return _read("missing")


def _read(name: str) -> str:
    raise OSError(f"cannot read {name}")


async def waits() -> str:
    """Waits."""
    raise Unspeakable


def tells_much() -> str:
    """Fails with many words."""
    raise ValueError("é" * 10_000_000)


PARTS = Parts(tools=[tool(function, effects=["reads"]) for function in (loads, waits, tells_much)])


@requirement("foreign_tools:1")
@pytest.mark.parametrize(
    ("name", "place", "error"),
    [
        ("loads", "_read", "ToolRaised: OSError"),
        ("waits", "waits", "ToolRaised: Unspeakable"),
        ("tells_much", "tells_much", "ToolRaised: ValueError"),
    ],
    ids=["loads", "waits", "tells_much"],
)
async def test_a_tool_that_raises_leaves_a_traceback_with_the_id_of_its_run(
    open_home: OpenHome, caplog: pytest.LogCaptureFixture, name: str, place: str, error: str
) -> None:
    with caplog.at_level(logging.ERROR, "antiphon.agents.toolset"):
        async with open_home(parts=PARTS) as app:
            await open_session(app, "api:a")
            run = await ask(app, "api:a", f"!call {name} {{}}")
    assert json.loads(run.reply or "")["code"] == "tool_failed"
    (record,) = [record for record in caplog.records if record.__dict__.get("action") == "tool_failed"]
    assert (record.__dict__["run_id"], record.__dict__["tool"]) == (run.id, name)
    shown = logging.Formatter().formatException(record.exc_info or (None, None, None))
    assert f"in {place}\n" in shown and error in shown
    assert len(shown) < 10_000
