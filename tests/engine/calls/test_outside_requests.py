"""Requests of calls from outside a run, beside what happens to their session meanwhile."""

from datetime import timedelta

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.approval import ApprovalState
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.approvals.test_approvals import Disk, S, asking, call, decide, pending
from tests.engine.stage import ManualClock, ask, config, find_session

pytestmark = pytest.mark.anyio


@requirement("approvals:2", "approvals:5", "sessions:6")
async def test_a_policys_reset_waits_for_the_request_of_a_call_from_outside(open_home: OpenHome) -> None:
    disk, clock = Disk(), ManualClock()
    settings = config(session__reset={"mode": "idle", "idleMinutes": 30})
    async with asking(open_home, disk, clock, settings) as app:
        first = (await find_session(app, S)).id
        assert (await call(app, "delete", "k", name="old"))["status"] == "pending"
        (approval,) = await pending(app)
        clock.pass_time(timedelta(hours=1))
        await ask(app, S, "hello")
        assert (await app.services.approvals.get(OWNER, approval.id)).state is ApprovalState.PENDING
        assert (await find_session(app, S)).id == first
        await decide(app, approval)
        assert (await call(app, "delete", "k", name="old"))["result"] == "deleted old"


@requirement("approvals:2", "runs:5")
async def test_cancelling_a_sessions_work_withdraws_the_request_of_a_call_from_outside(open_home: OpenHome) -> None:
    disk = Disk()
    async with asking(open_home, disk) as app:
        assert (await call(app, "delete", "k", name="old"))["status"] == "pending"
        (approval,) = await pending(app)
        await app.services.runs.cancel_session(OWNER, app.services.sessions.target(S))
        assert (await app.services.approvals.get(OWNER, approval.id)).state is ApprovalState.WITHDRAWN
