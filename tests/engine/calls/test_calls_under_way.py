"""A call from outside that is under way while its session is deleted or reset, or its caller merged away."""

from typing import Any

import anyio
import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.errors import NotFound
from antiphon.domain.person import PersonRole
from antiphon.store.database import Query
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.access.test_people import hear, invite
from tests.engine.approvals.test_approvals import decide, pending
from tests.engine.calls.test_keyed_calls import CHAT, NOTES, Counter, asking_beside
from tests.engine.stage import config, wait_end
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


async def _due(query: Query) -> list[str]:
    return [row[0] for row in await query.fetch_all("SELECT id FROM calls WHERE is_due = 1")]


@requirement("tools:1", "approvals:5", "sessions:6", "sessions:7", "access:1")
@pytest.mark.parametrize("change", ["deleted", "reset", "merged"])
@pytest.mark.parametrize("effect", ["writes", "deletes"], ids=["keyed", "approved"])
async def test_a_call_under_way_has_one_effect_and_at_most_one_answer(
    open_home: OpenHome, effect: str, change: str
) -> None:
    counter, answers = Counter(), list[Any]()
    async with open_home(config(), counter.parts(effects=[effect])) as app:
        ann, old = await invite(app, "Ann", PersonRole.OWNER), await invite(app, "Old", PersonRole.OWNER)
        await wait_end(app, await hear(app, ann, "one"))
        services, target = app.services, app.services.sessions.target(CHAT)
        async with anyio.create_task_group() as tasks:
            if effect == "deletes":
                await app.tool_calls.call(old, target, "note", NOTES, idempotency_key="k")
                (approval,) = await pending(app)
                await decide(app, approval)
            await asking_beside(app, tasks, answers, old, CHAT)
            with anyio.fail_after(SECONDS):
                await counter.begun.wait()
            match change:
                case "deleted":
                    await services.sessions.delete(OWNER, target)
                case "reset":
                    await services.resets.reset(OWNER, target)
                case _:
                    await services.people.merge(OWNER, "old", "ann")
            counter.released.set()
        with anyio.fail_after(SECONDS):
            while await app.database.read(_due):
                await anyio.sleep(0.01)
        who = ann if change == "merged" else old
        if change == "deleted":
            with pytest.raises(NotFound):
                await app.tool_calls.call(who, target, "note", NOTES, idempotency_key="k")
        else:
            (answer,) = answers
            assert answer["result"] == "canary milk"
            assert await app.tool_calls.call(who, target, "note", NOTES, idempotency_key="k") == answer
        assert counter.calls == ["milk"]
