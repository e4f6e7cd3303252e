"""A person is merged into another while a run of theirs is at work: what that run asks for later is the other's."""

from typing import Any

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.errors import Denied
from antiphon.domain.run import RunStatus
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, to_spawn, wait_at
from tests.engine.access.test_people import invite, refusal
from tests.engine.approvals.test_approvals import Disk, pending
from tests.story import Character, Story, telling

pytestmark = pytest.mark.anyio

UNASKED: dict[str, Any] = {"require": [], "people": []}


async def merged_at_work(story: Story, *then: str) -> tuple[Character, Any, Any]:
    """Ann's run goes on with these lines after she was merged into Ben."""
    people = story.app.services.people
    ann, ben = await invite(story.app), await invite(story.app, "Ben")
    room = await story.opens("room")
    await room.admits(ann)
    await room.hears(wait_at("go"), *then, principal=ann)
    await story.comes_to("go")
    await people.merge(OWNER, "ann", "ben")
    story.opens_gate("go")
    return room, ann, ben


@requirement("access:1")
async def test_the_survivors_suspension_ends_a_child_that_was_spawned_after_the_merge(open_home: OpenHome) -> None:
    async with telling(open_home, tools__approval=UNASKED) as story:
        room, _, _ = await merged_at_work(story, to_spawn(wait_at("child")))
        await story.comes_to("child")
        (child,) = await room.children()
        (run,) = await child.runs()
        await story.app.services.people.suspend(OWNER, "ben")
        ended = await story.end_of(run.id)
        assert ended.status is RunStatus.CANCELLED


@requirement("approvals:3")
async def test_the_survivor_does_not_decide_what_they_asked_for(open_home: OpenHome) -> None:
    disk = Disk()
    more: dict[str, Any] = {
        "access": {"roles": {"user": {"approve": ["main"]}}},
        "tools__approval": {"require": ["delete"], "people": []},
    }
    async with telling(open_home, disk.parts(), **more) as story:
        _, _, ben = await merged_at_work(story, to_spawn(to_call("delete", name="old")))
        (approval,) = await pending(story.app)
        refused = await refusal(story.app.services.approvals.resolve(ben, approval.id, Verdict.ONCE))
        assert isinstance(refused, Denied) and refused.code == "own_request"
        assert disk.calls == []


@requirement("approvals:3")
async def test_the_survivor_does_not_decide_what_another_session_asked_on_their_behalf(open_home: OpenHome) -> None:
    disk = Disk()
    more: dict[str, Any] = {
        "access": {"roles": {"user": {"approve": ["main"]}}},
        "tools__approval": {"require": ["delete"], "people": []},
    }
    async with telling(open_home, disk.parts(), **more) as story:
        ann, ben = await invite(story.app), await invite(story.app, "Ben")
        room, other = await story.opens("room"), await story.opens("other")
        for each in (room, other):
            for who in (ann, ben):
                await each.admits(who)
        send = to_call("sessions_send", sessionKey=other.key, message=to_call("delete", name="old"), timeoutSeconds=0)
        await room.hears(wait_at("go"), send, principal=ann)
        await story.comes_to("go")
        await story.app.services.people.merge(OWNER, "ann", "ben")
        story.opens_gate("go")
        (approval,) = await pending(story.app)
        refused = await refusal(story.app.services.approvals.resolve(ben, approval.id, Verdict.ONCE))
        assert isinstance(refused, Denied) and refused.code == "own_request"
