"""Tasks over HTTP: who sees them, what is refused with which reason, and that nothing half is saved."""

from datetime import UTC, datetime
from typing import Any

import httpx
import pytest

from antiphon.building import Parts
from antiphon.domain.stored_task import MAX_PROMPT_BYTES, MOST_TASKS
from antiphon.store.database import Transaction
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.gateway.served import Json, Served, serve
from tests.gateway.test_clearances import DESK, let_in, with_ann

pytestmark = pytest.mark.anyio

OTHER = "agent:main:api:other"
WEEKDAYS = {"text": "every weekday at 8 News: tell me what changed", "zone": "Europe/Berlin"}
SECRET_AGENTS: Json = {"list": [{"id": "main", "classification": {"level": "INTERNAL"}}]}


async def make(served: Served, **said: Any) -> Json:
    answer = await served.client.post("/tasks", json=WEEKDAYS | said)
    assert answer.status_code == 201, answer.text
    return answer.json()


async def count(served: Served) -> int:
    return (await served.client.get("/tasks")).json()["count"]


@requirement("tasks:2", "flow:3", "answers:2")
async def test_a_task_above_the_reader_does_not_exist_for_them(open_home: OpenHome) -> None:
    async with with_ann(open_home, agents=SECRET_AGENTS) as (served, ann):
        task = await make(served, sessionKey=DESK)
        seen = [await ann.get(f"/tasks/{id}") for id in (task["taskId"], "task-none")]
        assert [answer.status_code for answer in seen] == [404, 404]
        assert len({answer.text.replace(task["taskId"], "*").replace("task-none", "*") for answer in seen}) == 1
        for verb in ("run", "pause", "resume"):
            assert (await ann.post(f"/tasks/{task['taskId']}/{verb}")).status_code == 404
        assert (await ann.delete(f"/tasks/{task['taskId']}")).status_code == 404
        assert (await ann.get("/tasks")).json() == {"count": 0, "tasks": []}
        assert await count(served) == 1


@requirement("tasks:2", "access:4")
async def test_people_have_the_tasks_of_their_sessions_and_only_makers_edit_them(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        await served.open(OTHER)
        elsewhere = await make(served, sessionKey=OTHER)
        task = await make(served, sessionKey=DESK)
        listed = (await ann.get("/tasks")).json()["tasks"]
        assert [each["taskId"] for each in listed] == [task["taskId"]]
        assert (await ann.get(f"/tasks/{elsewhere['taskId']}")).status_code == 404
        refused = await ann.patch(f"/tasks/{task['taskId']}", json={"prompt": "tell me everything"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "not_maker")
        assert (await ann.post(f"/tasks/{task['taskId']}/approve")).status_code == 403
        paused = (await ann.post(f"/tasks/{task['taskId']}/pause")).json()
        assert (paused["state"], paused["upcoming"]) == ("paused", []) and task["upcoming"]
        own = (await ann.post("/tasks", json={"prompt": "walk", "every": "1h", "sessionKey": DESK})).json()
        assert (own["maker"], own["name"]) == ("person:ann", "walk")
        assert (await ann.patch(f"/tasks/{own['taskId']}", json={"every": "2h"})).json()["trigger"]["seconds"] == 7200


@requirement("tasks:2", "channels:3", "answers:2")
async def test_in_a_chat_a_task_of_another_chat_is_as_if_it_did_not_exist(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        await served.open(OTHER)
        await let_in(served, "ann", OTHER)
        id = (await ann.post("/tasks", json=WEEKDAYS | {"sessionKey": OTHER})).json()["taskId"]

        async def says(text: str, client: httpx.AsyncClient = ann) -> str:
            answer = await client.post(f"/sessions/{DESK}/command", json={"text": text})
            assert answer.status_code == 200, answer.text
            return answer.json()["answer"]

        for verb in ("show", "run", "runs", "last", "pause", "resume", "cancel"):
            hidden, missing = [await says(f"/task {verb} {name}") for name in (id, "task-0000000000")]
            assert hidden.startswith("Task not found: ")
            assert hidden.replace(id, "*") == missing.replace("task-0000000000", "*")
        assert await says("/task list") == await says("/task list", served.client)
        assert id in await says("/task list all")
        assert id in await says(f"/task show {id}", served.client)  # an owner names any task
        assert (await served.client.get(f"/tasks/{id}")).json()["state"] == "active"


@requirement("tasks:1", "answers:5")
@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        ({"text": "cron 0 0 8 * * 1 -- look"}, 400, "invalid_cron"),
        ({"prompt": "look", "cron": "0 0 30 2 *"}, 400, "invalid_cron"),
        ({"prompt": "look", "cron": "*/0 * * * *"}, 400, "invalid_cron"),
        ({"prompt": "look", "cron": "0 8 * * 1", "zone": "Mars/Phobos"}, 400, "invalid_zone"),
        ({"prompt": "look", "every": "0"}, 400, "invalid_duration"),
        ({"prompt": "look", "every": "30s"}, 400, "invalid_duration"),
        ({"prompt": "look", "at": "2020-01-01 08:00"}, 400, "invalid_time"),
        ({"prompt": "look", "at": "9999-12-31 08:00"}, 400, "invalid_time"),
        ({"prompt": "look"}, 400, "invalid_task"),
        ({"every": "1h"}, 400, "invalid_task"),
        ({"prompt": "look", "every": "1h", "at": "08:00"}, 400, "invalid_task"),
        ({"text": "every 1h look", "prompt": "look"}, 400, "invalid_task"),
        ({"prompt": "look", "every": "1h", "name": "two\nlines"}, 400, "invalid_task"),
        ({"prompt": "x" * (MAX_PROMPT_BYTES + 1), "every": "1h"}, 413, "prompt_too_large"),
        ({"prompt": "x" * 2**20, "every": "1h"}, 413, "body_too_large"),
        ({"prompt": "look", "every": "1h", "limits": {"runsAnHour": 0}}, 422, "invalid_request"),
        ({"prompt": "look", "every": "1h", "maker": "person:ann"}, 422, "invalid_request"),
        ({"prompt": "look", "every": "1h", "sessionKey": "cli:nobody"}, 404, "not_found"),
    ],
)
async def test_what_is_no_task_is_refused_with_the_reason_and_nothing_is_saved(
    open_home: OpenHome, said: Json, status: int, code: str
) -> None:
    async with serve(open_home) as served:
        answer = await served.client.post("/tasks", json=said)
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
        assert len(answer.json()["error"]["message"]) < 300
        assert await count(served) == 0


@requirement("tasks:2")
async def test_the_same_request_again_makes_no_second_task(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await make(served)
        again = await served.client.post("/tasks", json=WEEKDAYS)
        assert (again.status_code, again.json()["error"]["code"]) == (409, "task_name_taken")
        assert await count(served) == 1


@requirement("tasks:2")
async def test_a_run_that_is_asked_for_again_with_the_same_key_is_the_same_run(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        task = await make(served, sessionKey=DESK)
        path, named = f"/tasks/{task['taskId']}/run", {"Idempotency-Key": "evening-1"}
        first = await served.client.post(path, headers=named)
        assert first.status_code == 200, first.text
        again = await served.client.post(path, headers=named)
        assert again.status_code == 200, (first.text, again.text)
        assert again.json()["runId"] == first.json()["runId"]
        await served.client.get(f"/runs/{first.json()['runId']}", params={"wait": 30})
        later = await served.client.post(path, headers=named)
        assert (later.json()["runId"], later.json()["outcome"]) == (first.json()["runId"], "ok")
        hers = await ann.post(path, headers=named)
        assert hers.json()["runId"] != first.json()["runId"]
        bad = await served.client.post(path, headers={"Idempotency-Key": "x" * 201})
        assert (bad.status_code, bad.json()["error"]["code"]) == (400, "invalid_idempotency_key")


@requirement("tasks:2", "access:3")
async def test_a_run_that_is_asked_for_again_after_its_asker_was_merged_is_the_same_run(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        task = await make(served, sessionKey=DESK)
        path, named = f"/tasks/{task['taskId']}/run", {"Idempotency-Key": "evening-1"}
        first = await ann.post(path, headers=named)
        assert first.status_code == 200, first.text
        await served.client.get(f"/runs/{first.json()['runId']}", params={"wait": 30})
        assert (await served.client.post("/people/ann/merge", json={"into": "owner"})).status_code == 200
        again = await ann.post(path, headers=named)
        assert again.json()["runId"] == first.json()["runId"]


@requirement("flow:13", "tasks:2")
async def test_the_name_of_a_task_above_the_reader_is_free(open_home: OpenHome) -> None:
    async with with_ann(open_home) as (served, ann):
        task = await make(served, sessionKey=DESK)
        taken = await ann.post("/tasks", json=WEEKDAYS | {"sessionKey": DESK})
        assert taken.json()["error"]["code"] == "task_name_taken"
        await served.app.database.run(_raise, task["taskId"])
        free = await ann.post("/tasks", json=WEEKDAYS | {"sessionKey": DESK})
        assert free.status_code == 201, free.text
        other = await ann.post("/tasks", json=WEEKDAYS | {"sessionKey": DESK, "name": "Other"})
        await served.app.database.run(_raise, free.json()["taskId"])
        renamed = await ann.patch(f"/tasks/{other.json()['taskId']}", json={"name": "News"})
        assert renamed.status_code == 200, renamed.text


async def _raise(tx: Transaction, id: str) -> None:
    await tx.execute("UPDATE tasks SET level = 2 WHERE id = ?", (id,))


@requirement("tasks:2")
async def test_a_person_has_no_more_than_so_many_tasks(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        for number in range(MOST_TASKS):
            await make(served, name=f"Task {number}")
        refused = await served.client.post("/tasks", json=WEEKDAYS)
        assert (refused.status_code, refused.json()["error"]["code"]) == (403, "task_cap")
        page = (await served.client.get("/tasks?limit=30")).json()["tasks"]
        rest = (await served.client.get("/tasks", params={"limit": 30, "after": page[-1]["taskId"]})).json()["tasks"]
        assert len({each["taskId"] for each in (*page, *rest)}) == len(page) + len(rest) == MOST_TASKS


@requirement("tasks:2")
async def test_of_two_editors_the_second_is_told(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        task = await make(served)
        path, version = f"/tasks/{task['taskId']}", task["version"]
        first = await served.client.patch(path, json={"prompt": "one", "version": version})
        second = await served.client.patch(path, json={"prompt": "two", "version": version})
        assert (first.status_code, second.json()["error"]["code"]) == (200, "task_changed")
        assert (await served.client.get(path)).json()["prompt"] == "one"
        for wrong in ({"zone": "UTC"}, {"every": "1h", "at": "08:00"}, {"cron": "0 0 8 * * *"}, {"name": ""}):
            assert (await served.client.patch(path, json=wrong)).status_code == 400
        assert (await served.client.get(path)).json() == first.json()


@requirement("tasks:1")
async def test_a_preview_shows_the_day_on_which_clocks_change_and_saves_nothing(open_home: OpenHome) -> None:
    clock = ManualClock(datetime(2026, 3, 27, 10, tzinfo=UTC))
    async with serve(open_home, None, Parts(clock=clock)) as served:
        said = {"prompt": "look", "every": "day at 2:30", "zone": "Europe/Berlin"}
        preview = (await served.client.post("/tasks?preview=1", json=said)).json()
        shown = [time["shown"] for time in preview["upcoming"]]
        assert shown == ["Sat 2026-03-28 02:30 CET", "Sun 2026-03-29 03:00 CEST", "Mon 2026-03-30 02:30 CEST"]
        assert await count(served) == 0
