"""The tool `tasks`: what an agent may set for later, in whose name, and when a person is asked first."""

from datetime import timedelta
from typing import Any

import pytest

from antiphon.building import App
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.stored_task import MAX_PROMPT_BYTES, StoredTask
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_people import hear, invite
from tests.engine.approvals.test_approvals import decide, pending
from tests.engine.stage import config, wait_end
from tests.story import Character, telling
from tests.tools.test_codes import declared, documented, told
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

WATER: dict[str, Any] = {"action": "new", "prompt": "!say water", "name": "Plants", "every": "1h"}


async def stored(app: App) -> list[StoredTask]:
    return await app.services.tasks.list(OWNER, limit=100)


@requirement("tasks:1", "tasks:2")
async def test_an_agent_makes_lists_pauses_and_removes_the_tasks_of_its_session(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        desk, other = await story.opens("desk"), await story.opens("other")
        made = await desk.calls_in_a_run("tasks", **WATER)
        assert (made["status"], made["task"]["when"], len(made["task"]["next"])) == ("ok", "every hour", 3)
        id = made["task"]["taskId"]
        (task,) = await stored(story.app)
        assert (task.id, task.maker, task.session_key) == (id, OWNER, str(desk.key))
        assert (await desk.calls("tasks", action="list"))["tasks"] == [made["task"]]
        assert await other.calls("tasks", action="list") == {"count": 0, "tasks": []}
        hidden = await other.calls("tasks", action="pause", task=id)
        missing = await other.calls("tasks", action="pause", task="task-0000000000")
        assert {**hidden, "error": hidden["error"].replace(id, "*")} == {
            **missing,
            "error": missing["error"].replace("task-0000000000", "*"),
        }
        assert (await desk.calls("tasks", action="pause", task=id))["task"]["state"] == "paused"
        assert (await desk.calls("tasks", action="cancel", task=id))["status"] == "ok"
        assert await stored(story.app) == []


@requirement("tasks:1")
async def test_an_agent_names_where_results_go_and_a_place_of_others_does_not_exist(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        desk, other = await story.opens("desk"), await story.opens("other")
        made = await desk.calls_in_a_run("tasks", **WATER, sendTo="log")
        assert made["task"]["sendTo"] == "log"
        refused = {
            "nowhere": "invalid_task",
            "me": "no_place",
            "telegram/-100": "not_found",
            f"chat:{other.key}x": "not_found",
        }
        for number, (to, code) in enumerate(refused.items()):
            wanted: dict[str, Any] = {**WATER, "name": f"N{number}", "sendTo": to}
            answer = await desk.calls_in_a_run("tasks", **wanted)
            assert answer.get("code", answer["status"]) == code and answer["error"].count(". ") <= 2, answer
        assert [task.name for task in await stored(story.app)] == ["Plants"]


@requirement("tasks:1")
async def test_an_agent_is_shown_when_a_task_fires_and_what_it_asks_for(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        desk = await story.opens("desk")
        times: list[dict[str, Any]] = [{"every": "weekday at 8 and 17"}, {"at": "tomorrow at 9"}, {"every": "2h"}]
        for number, given in enumerate(times):
            made = await desk.calls_in_a_run("tasks", action="new", prompt="!say hi", name=f"N{number}", **given)
            task = made["task"]
            assert task["when"] and task["prompt"] == "!say hi"
            assert len(task["next"]) == (1 if "at" in given else 3)
        times = [{"at": "friday at 10 or 11"}, {"every": "day at 8 until friday"}, {"at": "every day at 8"}]
        for given in times:
            refused = await desk.calls_in_a_run("tasks", action="new", prompt="!say hi", **given)
            assert refused["code"] == "invalid_time", refused
        assert len(await stored(story.app)) == 3


@requirement("approvals:1", "tasks:2")
async def test_making_one_waits_for_a_yes_unless_the_owner_speaks(open_home: OpenHome) -> None:
    async with open_home(config(access__roles={"user": {"agents": ["main"]}})) as app:
        ann = await invite(app)
        await hear_and_end(app, OWNER)
        assert [task.maker for task in await stored(app)] == [OWNER]
        run_id = await hear(app, ann, "two", to_call("tasks", **{**WATER, "name": "Ann's"}))
        (approval,) = await pending(app)
        assert (approval.principal, approval.calls[0].tool) == (ann, "tasks")
        assert len(await stored(app)) == 1
        await decide(app, approval)
        assert '"status":"ok"' in ((await wait_end(app, run_id)).reply or "")
        assert {task.maker for task in await stored(app)} == {OWNER, ann}


async def hear_and_end(app: App, who: Principal) -> None:
    await wait_end(app, await hear(app, who, "one", to_call("tasks", **WATER)))


@requirement("tasks:2", "access:4")
async def test_a_guest_and_a_child_do_not_have_it_and_a_task_makes_no_task(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        desk = await story.opens("desk")
        child = await desk.spawns_in_a_run(to_call("tasks", **WATER))
        await story.app.services.waits.wait(child.run_id, timedelta(seconds=SECONDS))
        assert await stored(story.app) == []
        tasks, target = story.app.services.tasks, desk.target
        nested: dict[str, Any] = {**WATER, "prompt": to_call("tasks", **{**WATER, "name": "More"})}
        made = await desk.calls_in_a_run("tasks", **nested)
        slot = await tasks.run(OWNER, made["task"]["taskId"])
        assert slot.run is not None
        ended = await story.app.services.waits.wait(slot.run, timedelta(seconds=SECONDS))
        assert ended is not None and "task_in_task" in (ended.reply or ended.error or "")
        assert len(await tasks.list(OWNER, target, limit=9)) == 1


@requirement("answers:1", "tasks:1")
async def test_what_is_no_task_is_told_with_its_code_and_saves_nothing(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        desk = await story.opens("desk")
        statuses, codes = documented(), declared(story.app, "tasks")
        for more, code in (
            ({"every": "0"}, "invalid_duration"),
            ({"every": None, "cron": "0 0 8 * * 1"}, "invalid_cron"),
            ({"every": None, "at": "9999-01-01 08:00"}, "invalid_time"),
            ({"zone": "Mars/Phobos"}, "invalid_zone"),
            ({"at": "08:00"}, "invalid_task"),
            ({"prompt": None}, "invalid_task"),
            ({"prompt": "x" * (MAX_PROMPT_BYTES + 1)}, "prompt_too_large"),
            ({"action": "pause"}, "invalid_arguments"),
            ({"action": "remove"}, "invalid_arguments"),
            ({"maker": "person:ann"}, "invalid_arguments"),
        ):
            said = {name: value for name, value in {**WATER, **more}.items() if value is not None}
            answer = await call(desk, said)
            assert told(answer) == (code, statuses[code]), answer
            assert code in codes
        assert await stored(story.app) == []
        await call(desk, WATER)
        assert told(await call(desk, WATER)) == ("task_name_taken", statuses["task_name_taken"])


async def call(session: Character, arguments: dict[str, Any]) -> dict[str, Any]:
    return await session.calls("tasks", **arguments)


@requirement("tasks:2")
async def test_a_thousand_calls_leave_a_bounded_answer(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        desk = await story.opens("desk")
        for number in range(50):
            await call(desk, {**WATER, "name": f"Task {number}", "prompt": "x" * 10_000})
        answer = await call(desk, WATER)
        assert told(answer) == ("task_cap", "forbidden")
        listed = await call(desk, {"action": "list"})
        assert listed["count"] == 50
        assert all(len(each["prompt"]) <= 300 for each in listed["tasks"])
