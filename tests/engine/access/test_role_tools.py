"""Settings name the tools of a role; a run has its agent's tools within those of its person's role."""

import json
from typing import Any

import pytest

from antiphon.building import App
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.ids import RunId
from antiphon.domain.person import PersonRole
from antiphon.policy.rights import RoleTools, may_call
from antiphon.policy.standing import Standing
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_people import hear, invite
from tests.engine.approvals.test_approvals import Disk, code_of
from tests.engine.stage import config, wait_end

pytestmark = pytest.mark.anyio

UNASKED: dict[str, Any] = {"require": [], "people": []}
NOTE, PAY = to_call("note", text="milk"), to_call("pay", amount=3)
SPAWN = to_call("sessions_spawn", task=NOTE)


async def reply_to(app: App, who: Principal, text: str) -> str:
    run_id: RunId = await hear(app, who, str(who.name)[:6].lower(), text)
    reply = (await wait_end(app, run_id)).reply
    assert reply is not None
    return reply


def is_refused(reply: str) -> bool:
    return reply.startswith("{") and json.loads(reply)["status"] == "error" and code_of(reply) in REFUSALS


REFUSALS = ("unknown_tool", "tool_not_given")


@requirement("access:4")
async def test_users_have_only_the_tools_that_are_named_for_them(open_home: OpenHome) -> None:
    disk = Disk()
    named = config(access={"roles": {"user": {"tools": ["note"]}}}, tools__approval=UNASKED)
    async with open_home(named, disk.parts()) as app:
        ann = await invite(app)
        assert await reply_to(app, ann, NOTE) == "noted milk"
        for refused in (PAY, SPAWN):
            assert is_refused(await reply_to(app, ann, refused))
        assert json.loads(await reply_to(app, ann, to_call("sessions_list")))["count"] == 1
        assert await reply_to(app, OWNER, PAY) == "paid 3", "the setting is not about owners"
        await app.services.people.change_role(OWNER, ann.name, PersonRole.OWNER)
        assert await reply_to(app, ann, PAY) == "paid 3"
        await app.services.people.change_role(OWNER, ann.name, PersonRole.GUEST)
        assert is_refused(await reply_to(app, ann, NOTE)), "what is named for users is not for guests"
    assert disk.calls == ["note milk", "pay 3", "pay 3"]


@requirement("access:4")
async def test_users_have_their_agents_tools_if_none_are_named(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(tools__approval=UNASKED), disk.parts()) as app:
        ann = await invite(app)
        assert await reply_to(app, ann, PAY) == "paid 3"


@requirement("access:4")
async def test_a_tool_named_for_a_role_is_no_tool_of_an_agent_without_it(open_home: OpenHome) -> None:
    disk, agents = Disk(), [{"id": "main", "tools": {"allow": ["pay"]}}]
    named = config(access={"roles": {"user": {"tools": ["note"]}}}, tools__approval=UNASKED, agents__list=agents)
    async with open_home(named, disk.parts()) as app:
        ann = await invite(app)
        assert is_refused(await reply_to(app, ann, NOTE))
        assert is_refused(await reply_to(app, ann, PAY))
    assert disk.calls == []


@requirement("access:4")
def test_each_role_has_the_tools_named_for_it_and_those_that_all_have() -> None:
    ann = Principal(OWNER.kind, "ann")
    roles = RoleTools(guest=frozenset({"mail"}), user=frozenset({"sessions_spawn"}))
    cases = {
        PersonRole.OWNER: {"mail", "note", "sessions_list", "sessions_spawn", "subagents"},
        PersonRole.USER: {"sessions_list", "sessions_spawn", "subagents"},
        PersonRole.GUEST: {"mail", "sessions_list"},
    }
    for role, expected in cases.items():
        standing = Standing(principal=ann, role=role)
        assert {tool for tool in cases[PersonRole.OWNER] if may_call(tool, standing, roles)} == expected
