"""What is allowed until the run ends is allowed in the run that continues it, whatever is decided beside it."""

import json
from pathlib import Path
from typing import Any

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.run import RunStatus
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.approvals.test_approvals import S, decide, pending
from tests.engine.approvals.test_standing_approvals import allow_always
from tests.engine.stage import ask, config, open_session, post, wait_end

pytestmark = pytest.mark.anyio


def calling(command: str) -> dict[str, Any]:
    return {"calls": [{"name": "run_command", "arguments": {"command": command}}]}


@requirement("approvals:3")
@pytest.mark.parametrize("verdict", [Verdict.ONCE, Verdict.ALWAYS])
async def test_a_command_stays_allowed_when_another_is_allowed_while_the_run_is_parked(
    open_home: OpenHome, home: Path, verdict: Verdict
) -> None:
    ran: list[str] = []

    async def run_command(command: str) -> str:
        """Runs a command."""
        ran.append(command)
        return "ran"

    home.mkdir(mode=0o700, exist_ok=True)
    scripts = {
        "calls": [calling("make"), calling("test")],
        "hello": [{"text": "hello"}],
        "again": [{}, calling("make"), {"text": "done"}],  # the first step of a continuation repeats what waited
    }
    for name, steps in scripts.items():
        (home / f"{name}.json").write_text(json.dumps({"sessions": {"*": [steps]}}), "utf-8")
    parts = Parts(tools=[tool(run_command, effects=["deletes"])])
    async with open_home(config(agents__defaults={"model": "scripted:calls.json"}), parts) as app:
        await open_session(app, S)
        run_id = (await post(app, S, "build")).run_id
        (first,) = await pending(app)
        await allow_always(app, first)
        (second,) = await pending(app)
        assert ran == ["make"] and second.calls[0].arguments == '{"command":"test"}'
        target = app.services.sessions.target(S)
        await app.services.sessions.patch(OWNER, target, {"model": "scripted:hello.json"})
        assert (await ask(app, S, "hello")).reply == "hello"
        await app.services.sessions.patch(OWNER, target, {"model": "scripted:again.json"})
        if verdict is Verdict.ALWAYS:
            await allow_always(app, second)
        else:
            await decide(app, second)
        ended = await wait_end(app, run_id)
        assert ended.status is RunStatus.OK
        assert ran == ["make", "test", "make"], "it was allowed until the run ends"
