"""Requests for approval of runs that a program carries out."""

from contextlib import aclosing

import anyio

from antiphon import Antiphon, Approval, SessionHandle
from tests.waiting import SECONDS


async def asked(app: Antiphon, session: SessionHandle) -> Approval:
    """The session's open request, once there is one."""
    with anyio.fail_after(SECONDS):
        async with aclosing(session.follow(after=0)) as events:
            async for event in events:
                if event.type == "approval_requested":
                    requests = await app.approvals.list(session=session.key, status="pending")
                    if requests:
                        return requests[0]
    raise AssertionError("the session is not followed any more")
