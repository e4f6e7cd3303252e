"""Rules for calls of MCP servers, and for calls that carry a secret of the settings along."""

import json
from typing import Any

import pytest

from antiphon.domain.classification import NO_COMPARTMENTS
from antiphon.domain.message import ToolResult
from antiphon.policy.written.fields import Hook
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.stage import ask, read_log
from tests.flow.test_written_hooks import rule
from tests.mcp.test_reviews import confirm, home_with, opened
from tests.policy.test_written_rules import rules_of

pytestmark = [pytest.mark.anyio, requirement("flow:9", "simulate:1")]

MCP = rule("mcp", ("server", "eq", "raw"), ("tool", "eq", "raw__odd"), hook=Hook.MCP_TOOL_CALL)
SECRET = rule("secret", ("server", "eq", "raw"), hook=Hook.SECRET_ACCESS)


@pytest.mark.parametrize("carries", [True, False])
@pytest.mark.parametrize("raw", [MCP, SECRET], ids=["mcp", "secret"])
async def test_calls_of_servers_and_calls_with_secrets_have_hooks_of_their_own(
    open_home: OpenHome, raw: dict[str, object], *, carries: bool
) -> None:
    settings: dict[str, Any] = {"headers": {"x-key": "secret-of-the-settings"}} if carries else {}
    async with home_with(open_home, **settings) as (app, _):
        await confirm(app)
        key = await opened(app, "one")
        app.services.rules.written.replace(rules_of(raw), NO_COMPARTMENTS)
        simulated = to_call("simulate_tool_call", tool_name="raw__odd", args={})
        await ask(app, key, f"{simulated}\n!call raw__odd {{}}\n!say done")
        foreseen, made = [
            event.message.text for event in await read_log(app, key) if isinstance(event.message, ToolResult)
        ]
        is_blocked = raw is MCP or carries
        assert (json.loads(foreseen)["rules"] == [raw["id"]]) is is_blocked
        assert ('"code": "rule"' in made and f'"{raw["id"]}"' in made) is is_blocked
        assert "secret-of-the-settings" not in made + foreseen
