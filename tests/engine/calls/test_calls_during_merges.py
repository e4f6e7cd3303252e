"""A call from outside that begins while its caller is merged into another is the survivor's: it takes effect once."""

import anyio
import pytest

from antiphon.config.config import DatabaseSection
from antiphon.domain.actor import Principal
from antiphon.domain.message import JsonObject
from antiphon.domain.person import PersonId, PersonRole
from antiphon.engine.access.people import merge_into
from antiphon.store.database import Transaction
from tests.barrier import Barrier, barrier_in
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.access.test_people import hear, invite
from tests.engine.approvals.test_approvals import Disk, S
from tests.engine.stage import config, open_session, wait_end

pytestmark = pytest.mark.anyio

CHAT = "agent:main:test:direct:one"
CALLS: dict[str, tuple[str, JsonObject]] = {
    "note": ("note", {"text": "milk"}),
    "request": ("delete", {"name": "old"}),
    "send": ("sessions_send", {"sessionKey": S, "message": "hello", "timeoutSeconds": 0}),
    "spawn": ("sessions_spawn", {"task": "look"}),
}


async def merge_held_up(tx: Transaction, barrier: Barrier) -> None:
    await merge_into(tx, PersonId("old"), PersonId("ann"))
    await barrier.pass_by(tx)


@requirement("tools:1", "access:1")
@pytest.mark.parametrize("made", CALLS)
async def test_a_call_that_begins_before_the_merge_is_committed_is_the_survivors(
    open_home: OpenHome, database_section: DatabaseSection, made: str
) -> None:
    disk, answers, (tool, arguments) = Disk(), list[JsonObject](), CALLS[made]
    async with open_home(config(tools__sessions={"visibility": "all"}), disk.parts()) as app:
        ann, old = await invite(app, "Ann", PersonRole.OWNER), await invite(app, "Old", PersonRole.OWNER)
        await wait_end(app, await hear(app, ann, "one"))
        await open_session(app, S)
        target = app.services.sessions.target(CHAT)

        async def make(who: Principal) -> None:
            answers.append(await app.tool_calls.call(who, target, tool, arguments, idempotency_key="k"))

        with barrier_in(database_section) as barrier:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(app.database.run, merge_held_up, barrier)
                await barrier.wait_for(1, or_once=answers)
                tasks.start_soon(make, old)
                await barrier.wait_for(2, or_once=answers)
                barrier.open()
        await make(ann)
        first, again = ({name: each.get(name) for name in ("result", "runId", "approvalId")} for each in answers)
        assert first == again and any(first.values())
        assert disk.calls == (["note milk"] if made == "note" else [])
