"""What persons below owner cause beyond reading waits for a yes; what they are counts when the call begins."""

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.approval import Verdict
from antiphon.domain.ids import RunId
from antiphon.domain.person import PersonRole
from antiphon.domain.run import RunStatus
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_people import hear, invite
from tests.engine.approvals.test_approvals import Disk, decide, pending
from tests.engine.stage import config, wait_end
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

NOTE = to_call("note", text="milk")


async def note_as(app: App, who: Principal, *lines: str) -> RunId:
    return await hear(app, who, "one", "\n".join([NOTE, *lines]))


@requirement("approvals:1", "access:4")
async def test_what_a_user_writes_waits_and_what_the_owner_writes_does_not(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann = await invite(app)
        assert (await wait_end(app, await note_as(app, OWNER))).reply == "noted milk"
        run_id = await note_as(app, ann)
        (approval,) = await pending(app)
        assert (approval.principal, approval.run) == (ann, run_id)
        assert approval.calls[0].reason == "It writes. Only owners do that without asking."
        assert disk.calls == ["note milk"]
        await decide(app, approval)
        assert (await wait_end(app, run_id)).reply == "noted milk"
        assert disk.calls == ["note milk"] * 2


@requirement("approvals:1")
async def test_the_setting_lets_people_write_unasked(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(tools__approval={"people": []}), disk.parts()) as app:
        ann = await invite(app)
        assert (await wait_end(app, await note_as(app, ann))).reply == "noted milk"
        await hear(app, ann, "one", to_call("delete", name="old"))
        assert len(await pending(app)) == 1, "what always asks does so for people, too"


@requirement("approvals:1")
async def test_what_people_read_and_their_session_tools_do_not_ask(open_home: OpenHome) -> None:
    def look() -> str:
        """Reads."""
        return "seen"

    async with open_home(config(), Parts(tools=[tool(look, effects=["reads"])])) as app:
        ann = await invite(app)
        assert (await wait_end(app, await hear(app, ann, "one", to_call("look")))).reply == "seen"
        spawning = to_call("sessions_spawn", task="work")
        assert (await wait_end(app, await hear(app, ann, "one", spawning))).status is RunStatus.OK
        await pending(app, 0)


@requirement("approvals:1", "approvals:4")
async def test_what_a_child_of_a_user_writes_waits(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann = await invite(app)
        await hear(app, ann, "one", to_call("sessions_spawn", task=NOTE))
        (approval,) = await pending(app)
        assert approval.principal == ann and ":subagent:" in approval.session_key
        assert disk.calls == []


@requirement("approvals:1", "access:1")
async def test_what_a_person_is_when_the_call_begins_decides(open_home: OpenHome, home: Path) -> None:
    """The first call of each step changes the role, after the step was recorded and judged."""
    disk, roles = Disk(), iter([PersonRole.USER, PersonRole.OWNER])

    async def change() -> str:
        """Changes Ann's role."""
        await app.services.people.change_role(OWNER, "ann", next(roles))
        return "changed"

    calls: list[dict[str, Any]] = [{"name": "change", "arguments": {}}, {"name": "note", "arguments": {"text": "milk"}}]
    home.mkdir(mode=0o700, exist_ok=True)
    script = {"sessions": {"*": [[{"calls": calls}, {"calls": calls}, {"text": "done"}]]}}
    (home / "calls.json").write_text(json.dumps(script), "utf-8")
    parts = Parts(tools=[tool(change, effects=["reads"]), tool(disk.note)])
    async with open_home(config(agents__defaults={"model": "scripted:calls.json"}), parts) as app:
        ann = await invite(app, role=PersonRole.OWNER)
        run_id = await hear(app, ann, "one")
        (approval,) = await pending(app)
        assert disk.calls == [], "an owner's call was judged, and a user's would have begun"
        await decide(app, approval)
        (second,) = await pending(app)
        assert second.id != approval.id and disk.calls == ["note milk"], "a user's call was judged"
        await decide(app, second, Verdict.DENY)
        assert (await wait_end(app, run_id)).reply == "done"
        assert disk.calls == ["note milk"]


@requirement("approvals:1", "access:1")
async def test_after_a_promotion_the_same_run_writes_unasked(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann = await invite(app)
        run_id = await note_as(app, ann)
        (approval,) = await pending(app)
        await app.services.people.change_role(OWNER, "ann", PersonRole.OWNER)
        await decide(app, approval)
        assert (await wait_end(app, run_id)).reply == "noted milk"
        assert (await wait_end(app, await note_as(app, ann))).reply == "noted milk"
        await pending(app, 0)


@requirement("approvals:5", "approvals:1")
async def test_what_a_user_calls_from_outside_waits_too(open_home: OpenHome) -> None:
    disk = Disk()
    async with open_home(config(), disk.parts()) as app:
        ann = await invite(app)
        await wait_end(app, await hear(app, ann, "one"))
        target = app.services.sessions.target("agent:main:test:direct:one")
        assert (await app.tool_calls.call(ann, target, "note", {"text": "milk"}))["status"] == "pending"
        assert disk.calls == []
        assert (await app.tool_calls.call(OWNER, target, "note", {"text": "milk"}))["result"] == "noted milk"
        (approval,) = await pending(app)
        await decide(app, approval)
        answered = await app.services.approvals.wait(ann, approval.id, timedelta(seconds=SECONDS))
        assert json.loads(answered.outcome or "")["result"] == "noted milk" and len(disk.calls) == 2
