"""What comes of our own tools reaches a harness as it would reach a prompt: within its clearance, ceiling and rules."""

from pathlib import Path
from typing import Any

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.run import RunStatus
from tests.acp.stage import asked, decide, prompts, settings
from tests.conftest import OpenHome
from tests.story import telling

pytestmark = pytest.mark.anyio

SECRET = "the-wedding-is-off"


def diary(day: str) -> str:
    return f"{SECRET} on {day}"


_CONFIDENTIAL = tool(diary, effects=["reads"], classification={"level": "CONFIDENTIAL"})


async def test_a_result_above_what_may_go_to_the_harness_ends_the_run_and_never_reaches_it(
    open_home: OpenHome, home: Path
) -> None:
    async with telling(open_home, Parts(tools=[_CONFIDENTIAL]), **settings(home)) as story:
        coder = await story.opens("one", agent="coder")
        run = await coder.answers('!tool diary {"day": "monday"}', "!say . done")
    assert (run.status, run.code) == (RunStatus.ERROR, "runner_clearance")
    assert SECRET not in (run.reply or "")


async def test_a_result_that_came_after_a_restart_is_kept_from_the_harness_alike(
    open_home: OpenHome, home: Path
) -> None:
    asking = {"require": ["diary"]}
    more: dict[str, Any] = {**settings(home, park_seconds=0), "tools__approval": asking}
    async with telling(open_home, Parts(tools=[_CONFIDENTIAL]), **more) as story:
        coder = await story.opens("one", agent="coder")
        run_id = await coder.hears('!tool diary {"day": "monday"}', "!say . done")
        await decide(story, await asked(story))
        run = await story.end_of(run_id)
    assert (run.status, run.code) == (RunStatus.ERROR, "runner_clearance")
    assert SECRET not in str(prompts(home))


async def test_what_a_rule_takes_out_of_prompts_is_taken_out_of_what_the_harness_gets(
    open_home: OpenHome, home: Path
) -> None:
    said = tool(diary, effects=["reads"])
    when = [{"field": "text", "op": "contains", "value": SECRET}]
    hidden = {"id": "wedding", "hook": "PRE_CONTEXT_INJECTION", "when": when, "action": "REDACT"}
    async with telling(open_home, Parts(tools=[said]), **settings(home), flow__rules=[hidden]) as story:
        run = await (await story.opens("one", agent="coder")).answers('!tool diary {"day": "monday"}', "!say . done")
    assert run.status is RunStatus.OK and run.reply is not None
    assert SECRET not in run.reply and "[redacted: wedding] on monday" in run.reply
