"""Trees of sessions, and who is at work, over HTTP."""

from collections.abc import AsyncGenerator

import pytest

from antiphon.gateway.operations.trees import MAX_ROOTS
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.parley import key_of, open_peer
from tests.gateway.served import Json, Served, serve
from tests.story import Story

pytestmark = pytest.mark.anyio


@pytest.fixture
async def served(open_home: OpenHome) -> AsyncGenerator[Served]:
    """A root with a child, which has one too, and another session."""
    async with serve(open_home) as served:
        root = await open_peer(served.app, "root")
        child = await open_peer(served.app, "child", parent=root.row)
        await open_peer(served.app, "grandchild", parent=child.row)
        await open_peer(served.app, "other")
        yield served


@requirement("gateway:4", "answers:4")
async def test_a_tree_lists_rows_in_order_with_their_level(served: Served) -> None:
    await served.post(key_of("grandchild"), "hello")
    body: Json = (await served.client.get(f"/sessions/{key_of('root')}/tree")).json()
    assert [(row["key"], row["level"], row["depth"], row.get("spawnedBy")) for row in body["sessions"]] == [
        (key_of("root"), 0, 0, None),
        (key_of("child"), 1, 1, key_of("root")),
        (key_of("grandchild"), 2, 2, key_of("child")),
    ]
    assert (body["count"], body["omitted"], body["hasMore"]) == (3, 0, False)
    root, _, grandchild = body["sessions"]
    assert (root["childSessions"], root["descendants"], root["busyDescendants"]) == (1, 2, 0)
    assert (root["totalTokens"], root["treeTokens"]) == (0, grandchild["totalTokens"])
    assert grandchild["lastRun"]["status"] == "ok" and type(grandchild["lastRun"]["endedAt"]) is int
    assert (grandchild["model"], grandchild["preview"], grandchild["status"]) == ("offline", "echo: hello", "idle")
    assert "null" not in (await served.client.get(f"/sessions/{key_of('root')}/tree")).text


async def test_all_trees_are_bounded_and_say_so(served: Served) -> None:
    whole = (await served.client.get("/tree")).json()
    assert [row["label"] for row in whole["sessions"]] == ["other", "root", "child", "grandchild"]
    few = (await served.client.get("/tree", params={"roots": 1})).json()
    assert ([row["label"] for row in few["sessions"]], few["hasMore"]) == (["other"], True)
    cut = (await served.client.get("/tree", params={"limit": 1})).json()
    assert ([row["label"] for row in cut["sessions"]], cut["omitted"]) == (["other", "root", "child"], 1)
    for query in ({"limit": 10**12}, {"roots": 10**12}):
        answer = await served.client.get("/tree", params=query)
        assert (answer.status_code, answer.json()["count"]) == (200, 4)
    for path, name in (
        ("/tree", "limit"),
        ("/tree", "roots"),
        (f"/sessions/{key_of('root')}/tree", "limit"),
        ("/who", "limit"),
    ):
        for number in (0, -5):
            answer = await served.client.get(path, params={name: number})
            assert (answer.status_code, name in answer.json()["error"]["message"]) == (422, True), answer.text
    for number in range(MAX_ROOTS):
        await open_peer(served.app, f"n{number}")
    most = (await served.client.get("/tree", params={"roots": 10**12})).json()
    assert (most["count"], most["hasMore"]) == (MAX_ROOTS, True)


@requirement("answers:2")
async def test_a_tree_of_what_is_missing_is_the_error_of_any_other_route(served: Served) -> None:
    tree = await served.client.get("/sessions/agent:main:cli:nobody/tree")
    row = await served.client.get("/sessions/agent:main:cli:nobody")
    assert (tree.status_code, tree.content) == (404, row.content)


async def test_who_says_what_is_asked_of_whom_and_by_which_process(served: Served) -> None:
    assert (await served.client.get("/who")).json()["sessions"] == []
    await served.client.post(f"/sessions/{key_of('child')}/messages", json={"text": "!sleep 60"})
    await Story(served.app).until_work(lambda work: any(each.started_at for each in work.activities))
    body: Json = (await served.client.get("/who")).json()
    ((session,), (process,)) = body["sessions"], body["processes"]
    assert (session["key"], session["agentId"], session["request"]) == (key_of("child"), "main", "!sleep 60")
    assert (session["run"]["status"], session["processId"]) == ("running", process["processId"])
    assert (body["count"], body["total"], process["agents"]) == (1, 1, ["main"])
    tree: Json = (await served.client.get(f"/sessions/{key_of('root')}/tree")).json()
    assert [row.get("run", {}).get("status") for row in tree["sessions"]] == [None, "running", None]
    assert tree["sessions"][0]["busyDescendants"] == 1
    assert (await served.client.get("/who", headers={"Authorization": "Bearer wrong"})).status_code == 401
