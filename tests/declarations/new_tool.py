"""What holds of the tool `sessions_echo`, which `test_declarations.py` declares."""

import pytest

from antiphon.config.config import Config
from antiphon.config.named import ineffective_names, refuse_misspelt
from antiphon.domain.actor import OWNER
from antiphon.domain.agent import Effect
from antiphon.domain.classification import Integrity
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.message import ToolResult
from antiphon.domain.person import PersonRole
from antiphon.policy.approvals import ApprovalRules, decide_call, problem_of_pattern
from antiphon.policy.decision import ALLOW
from antiphon.policy.standing import Standing
from tests.conftest import OpenHome
from tests.gateway.served import serve
from tests.story import Story, telling

pytestmark = pytest.mark.anyio

TOOL = "sessions_echo"


def offered(story: Story, role: PersonRole, depth: int = 0) -> set[str]:
    standing = Standing(principal=OWNER, role=role)
    return {*story.app.tools.for_session(AgentId("main"), depth, standing, story.app.services.rules).names}


async def test_policy_gives_it_as_declared(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        assert TOOL in offered(story, PersonRole.OWNER) & offered(story, PersonRole.GUEST)
        assert TOOL not in offered(story, PersonRole.OWNER, depth=1)
    async with telling(open_home, tools__subagents__tools=["sessions_echo"]) as story:
        assert TOOL in offered(story, PersonRole.OWNER, depth=1)
    agents = [{"id": "main", "tools": {"sessions": {"status": False}}}]
    async with telling(open_home, agents__list=agents) as story:
        assert offered(story, PersonRole.OWNER).isdisjoint({TOOL, "session_status"})


async def test_a_run_has_it_and_takes_its_results_for_words_of_others(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        own = await story.opens("own")
        assert (await own.calls_in_a_run(TOOL, text="hello"))["said"] == "hello"
        (result,) = [event for event in await own.log() if isinstance(event.message, ToolResult)]
        assert result.classification.integrity is Integrity.UNTRUSTED


async def test_programs_find_and_call_it(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        key = "agent:main:cli:own"
        await served.open(key)
        answer = await served.client.get("/tools", params={"sessionKey": key})
        assert TOOL in {each["name"] for each in answer.json()["tools"]}
        answer = await served.client.post(f"/tools/{TOOL}", json={"sessionKey": key, "arguments": {"text": "hi"}})
        assert answer.json()["said"] == "hi"


def test_nobody_approves_it_and_no_pattern_may_ask() -> None:
    rules = ApprovalRules(require=("*",))
    guest = Standing(principal=OWNER, role=PersonRole.GUEST)
    assert decide_call(rules, TOOL, set(Effect), guest, is_from_server=False) is ALLOW
    assert "never asks" in (problem_of_pattern(TOOL) or "")


def test_settings_know_its_name() -> None:
    def config(name: str) -> Config:
        return Config.model_validate({"tools": {"subagents": {"tools": {"allow": [name]}}}})

    assert ineffective_names(config(TOOL), ()) == []
    with pytest.raises(Invalid, match=TOOL):
        refuse_misspelt(config("sessions_ecco"), ())
