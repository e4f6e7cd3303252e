"""Approved calls that no process can carry out do not hold up those that one can."""

import json
from datetime import timedelta

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import ApprovalState, Verdict
from antiphon.domain.ids import ApprovalId
from antiphon.engine.calls.calls import BATCH
from antiphon.engine.calls.steps import MAX_OPEN
from antiphon.store.approvals import ApprovalFilter
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.approvals.test_approvals import Disk
from tests.engine.stage import config, open_session
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


@requirement("approvals:5")
async def test_a_call_is_carried_out_beside_many_whose_tool_is_gone(open_home: OpenHome) -> None:
    disk = Disk()
    rooms = [f"api:s{number}" for number in range(BATCH // MAX_OPEN)]
    async with open_home(config(), disk.parts()) as app:
        for room in rooms:
            await open_session(app, room)
            for number in range(MAX_OPEN):
                target = app.services.sessions.target(room)
                asked = await app.tool_calls.call(OWNER, target, "delete", {"name": str(number)})
                assert asked["status"] == "pending"
    async with open_home(config(), Parts(tools=[tool(disk.pay, effects=["spends"])])) as app:
        waiting = await app.services.approvals.list(OWNER, ApprovalFilter(state=ApprovalState.PENDING), limit=200)
        assert len(waiting) == BATCH
        for each in waiting:
            await app.services.approvals.resolve(OWNER, each.id, Verdict.ONCE)
        await open_session(app, "api:other")
        other = app.services.sessions.target("api:other")
        asked = await app.tool_calls.call(OWNER, other, "pay", {"amount": 3})
        id = ApprovalId(str(asked["approvalId"]))
        await app.services.approvals.resolve(OWNER, id, Verdict.ONCE)
        settled = await app.services.approvals.wait(OWNER, id, timedelta(seconds=SECONDS))
        assert settled.outcome is not None and json.loads(settled.outcome)["result"] == "paid 3"
