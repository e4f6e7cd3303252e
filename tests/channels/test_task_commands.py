"""`/task` in chats: the forms, what is answered, who may, and where tasks belong."""

import re
from datetime import timedelta

import pytest

from tests.channels.test_chat_commands import BASE, Chatting, chatting
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import Json, new_client
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

ID = re.compile(r"task-[0-9a-f]{10}")


async def stored(chat: Chatting) -> list[Json]:
    """All tasks, as an owner sees them, by name."""
    tasks = (await chat.served.client.get("/tasks")).json()["tasks"]
    return sorted(tasks, key=lambda task: task["name"])


async def made(chat: Chatting, text: str = "every 1h Standup: !say done") -> str:
    """The id of a new task."""
    found = ID.search(await answered(chat, f"/task new {text}"))
    assert found is not None
    return found[0]


async def answered(chat: Chatting, text: str) -> str:
    answer = await chat.says(text)
    assert answer is not None
    return answer


async def run(chat: Chatting, id: str) -> str:
    """The id of a run that the chat has begun."""
    found = re.search(r"run_[0-9a-f]+", await answered(chat, f"/task run {id}"))
    assert found is not None
    return found[0]


async def ended(chat: Chatting, run_id: str) -> Json:
    return (await chat.served.client.get(f"/runs/{run_id}?wait={SECONDS}")).json()


@requirement("channels:3", "tasks:1")
async def test_a_new_task_belongs_to_its_chat_and_is_shown_with_its_next_times(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        answer = await answered(chat, "/task new every 1h Standup: summarise mail")
        assert ID.sub("task-1", answer) == (
            'Created task "Standup" (task-1): every hour. '
            "Next: Wed 2026-03-04 13:00 UTC, Wed 2026-03-04 14:00 UTC, Wed 2026-03-04 15:00 UTC\n"
            "Prompt: summarise mail"
        )
        (task,) = await stored(chat)
        assert (task["name"], task["prompt"], task["sessionKey"]) == ("Standup", "summarise mail", BASE)
        assert (task["trigger"]["kind"], task["trigger"]["seconds"]) == ("every", 3600)
        assert task["agentId"] == "main" and task["maker"] == "person:owner"


@requirement("channels:3", "tasks:1")
@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("friday at 10 call Mum", ["once, Fri 2026-03-06 10:00 UTC", "Prompt: call Mum"]),
        ("on 24 december at 18:00 call Mum", ["once, Thu 2026-12-24 18:00 UTC", "Prompt: call Mum"]),
        ("in 1 hour and 30 minutes call Mum", ["once, Wed 2026-03-04 13:30 UTC", "Prompt: call Mum"]),
        (
            "tomorrow at 9 remind me of the meeting on friday at 10",
            ["once, Thu 2026-03-05 09:00 UTC", "Prompt: remind me of the meeting on friday at 10"],
        ),
    ],
)
async def test_a_sentence_is_shown_back_as_it_was_understood(open_home: OpenHome, text: str, said: list[str]) -> None:
    async with chatting(open_home) as chat:
        client = chat.served.client
        answer = await answered(chat, f"/task new {text}")
        previewed = (await client.post("/tasks?preview=1", json={"text": text})).json()
        created = (await client.post("/tasks", json={"text": text})).json()
        assert all(part in answer for part in said)
        for shape in (previewed, created):
            assert [shape["trigger"]["words"], f"Prompt: {shape['prompt']}"] == said
            assert len(shape["upcoming"]) == 1


@requirement("channels:3", "tasks:1")
@pytest.mark.parametrize(
    "text",
    [
        *("friday at 10 or 11 call", "every day at 8 until friday look", "friday at 8ish call", "on 5/6 at 8 call"),
        *(
            "on 24 decembre at 18:00 call",
            "on friday remind me to call Mum at 10",
            "every monday at 8 for 3 weeks look",
        ),
    ],
)
async def test_a_sentence_that_is_not_understood_whole_saves_nothing_anywhere(open_home: OpenHome, text: str) -> None:
    async with chatting(open_home) as chat:
        client = chat.served.client
        await chat.served.open("main")
        assert "Created" not in await answered(chat, f"/task new {text}")
        said = (await client.post("/sessions/main/command", json={"text": f"/task new {text}"})).json()
        assert "Created" not in said["answer"]
        for address in ("/tasks?preview=1", "/tasks"):
            refused = await client.post(address, json={"text": text})
            assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_time")
        assert await stored(chat) == []


@requirement("channels:4")
async def test_three_lines_make_three_tasks_or_none(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        good = ("/task new every 1h A: a", "/task new cron 0 9 * * 1 -- B: b", "/task new at 08:00 C: c")
        for bad, said in (
            ("/task new every banana C: c", "Task 3: Invalid duration"),
            ("/task new cron 0 0 9 * * 1 -- C: c", "Task 3: Cron expression has 6 fields"),
            ("/task new every 2h A: again", "Task name is taken here: 'A'"),
            ("/task list", "can only be /task new"),
        ):
            answer = await answered(chat, "\n".join((*good[:2], bad)))
            assert said in answer and answer.endswith("Nothing was saved.")
            assert await stored(chat) == []
        answer = await answered(chat, "\n".join(good))
        assert [ID.sub("", line)[:12] for line in answer.splitlines()] == [
            *("Created 3 ta", '- "A" (): ev', "Prompt: a", '- "B" (): at', "Prompt: b", '- "C" (): on', "Prompt: c"),
        ]
        assert [task["name"] for task in await stored(chat)] == ["A", "B", "C"]


@requirement("channels:3", "tasks:2")
async def test_a_chat_lists_its_own_tasks_and_all_only_when_asked(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        here = await made(chat)
        other = Chatting(chat.served, chat.client, chat.clock, peer="43")
        there = await made(other, "every 2h Elsewhere: look")
        listed = await answered(chat, "/task list")
        assert here in listed and there not in listed
        everywhere = await answered(chat, "/task list all")
        assert here in everywhere and there in everywhere


@requirement("channels:3", "tasks:2")
async def test_a_task_is_shown_paused_resumed_run_and_removed_by_its_id_or_name(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        id = await made(chat)
        shown = await answered(chat, f"/task show {id}")
        assert "every hour" in shown and "Prompt: !say done" in shown
        assert await chat.says("/task pause standup") == f'"Standup" ({id}) is paused.'
        assert "paused" in (await chat.says("/task") or "")
        resumed = await answered(chat, f"/task resume {id}")
        assert resumed.startswith(f'"Standup" ({id}) goes on: every hour. Next: ')
        assert await chat.says(f"/task runs {id}") == (f'"Standup" ({id}) has not run yet. /task run {id} runs it now.')
        await ended(chat, await run(chat, id))
        for command in (f"/task last {id}", f"/task runs {id} 50"):
            answer = await answered(chat, command)
            assert answer.count("\n- ") == 1 and ": ok, by hand" in answer
        assert await chat.says(f"/task cancel {id}") == f'"Standup" ({id}) is removed. A run in progress goes on.'
        assert await stored(chat) == []


@requirement("channels:3", "tasks:2")
async def test_a_single_time_that_came_during_a_pause_is_not_said_to_go_on(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        id = await made(chat, "in 1h Standup: !say done")
        await chat.says(f"/task pause {id}")
        chat.clock.pass_time(timedelta(hours=2))
        answer = await answered(chat, f"/task resume {id}")
        assert answer.startswith(f'"Standup" ({id}) has ended: ') and "goes on" not in answer and "/task new" in answer
        (task,) = await stored(chat)
        assert task["state"] == "ended"


@requirement("tasks:2")
async def test_at_most_ten_times_are_listed(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        id = await made(chat)
        for _ in range(12):
            chat.clock.pass_time(timedelta(minutes=1))
            await ended(chat, (await chat.served.client.post(f"/tasks/{id}/run")).json()["runId"])
        for text, lines in (("", 5), (" 7", 7), (" 50", 10)):
            answer = await answered(chat, f"/task runs {id}{text}")
            assert answer.count("\n- ") == lines


@requirement("tasks:2")
async def test_a_task_that_runs_is_not_run_again_and_removing_it_lets_its_run_go_on(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        id = await made(chat, "every 1h Nap: !sleep 1")
        started = await run(chat, id)
        assert await chat.says(f"/task run {id}") == "Task did not run: 'Nap' is running already."
        await chat.says(f"/task cancel {id}")
        assert (await ended(chat, started))["status"] == "ok"


@requirement("channels:4", "access:4")
async def test_guests_have_no_tasks(open_home: OpenHome) -> None:
    async with chatting(open_home, principal="guest") as chat:
        await chat.says("hello")
        assert await chat.says("/task new every 1h Standup: look") is None
        assert await chat.says("/task") is None
        assert await stored(chat) == []


@requirement("channels:3", "access:2")
async def test_tasks_are_set_on_the_page_too_and_approving_them_needs_its_scope(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        served = chat.served
        await served.open("main")
        said = {"text": "/task new every weekday at 8 tell me what changed"}
        answer = (await served.client.post("/sessions/main/command", json=said)).json()
        assert answer["isCommand"] and "at 08:00 on Monday through Friday" in answer["answer"]
        (task,) = await stored(chat)
        assert (task["sessionKey"], task["delivers"]) == ("agent:main:main", False)
        scopes = ["sessions.read", "sessions.write"]
        token = (await served.client.post("/tokens", json={"personId": "owner", "scopes": scopes})).json()["token"]
        async with new_client(served.url, token) as weak:
            refused = await weak.post("/sessions/main/command", json={"text": f"/task approve {task['taskId']}"})
            assert refused.json()["error"]["code"] == "scope_missing"
        approved = await served.client.post("/sessions/main/command", json={"text": f"/task approve {task['taskId']}"})
        assert "may ask other agents" in approved.json()["answer"]
        assert (await stored(chat))[0]["consults"]


@requirement("channels:4", "tasks:2")
async def test_a_command_that_comes_again_makes_no_second_task(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        for _ in range(2):
            await chat.send("/task new every 1h Standup: look", id="m-1")
        assert len(await stored(chat)) == 1


@requirement("tasks:1")
async def test_a_prompt_that_is_too_large_saves_nothing(open_home: OpenHome) -> None:
    async with chatting(open_home) as chat:
        answer = await answered(chat, "/task new every 1h Long: " + "x" * 20_000)
        assert "too large" in answer
        assert await stored(chat) == []
