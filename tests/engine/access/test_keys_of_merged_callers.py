"""A call from outside that is repeated with its `Idempotency-Key` after its caller was merged takes effect once."""

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.ids import RunId
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.access.test_people import invite
from tests.engine.approvals.test_approvals import Disk, pending
from tests.story import telling

pytestmark = pytest.mark.anyio


@requirement("tools:1", "access:3")
async def test_a_send_that_is_repeated_after_its_sender_was_merged_is_one_message(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        ann, ben = await invite(story.app), await invite(story.app, "Ben")
        room, other = await story.opens("room"), await story.opens("other")
        for each in (room, other):
            for who in (ann, ben):
                await each.admits(who)
        sending = {"sessionKey": other.key, "message": "hello", "timeoutSeconds": 0}
        first = await room.calls("sessions_send", key="k", principal=ann, **sending)
        await story.end_of(RunId(first["runId"]))
        await story.app.services.people.merge(OWNER, "ann", "ben")
        again = await room.calls("sessions_send", key="k", principal=ben, **sending)
        assert again["runId"] == first["runId"]


@requirement("approvals:5", "access:3")
async def test_an_approved_call_that_is_repeated_after_its_caller_was_merged_runs_once(open_home: OpenHome) -> None:
    disk = Disk()
    async with telling(open_home, disk.parts()) as story:
        ann = await invite(story.app)
        await invite(story.app, "Ben")
        room = await story.opens("room")
        await room.admits(ann)
        assert (await room.calls("delete", key="k", principal=ann, name="old"))["status"] == "pending"
        (approval,) = await pending(story.app)
        await story.app.services.approvals.resolve(OWNER, approval.id, Verdict.ONCE)
        done = await room.calls("delete", key="k", principal=ann, name="old")
        assert done["result"] == "deleted old"
        await story.app.services.people.merge(OWNER, "ann", "ben")
        assert await room.calls("delete", key="k", principal=ann, name="old") == done
        assert disk.calls == ["delete old"]
