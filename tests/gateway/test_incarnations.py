"""The earlier conversations of a session: listed, read by their ids, continued by a fork."""

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.errors import NotFound
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import Json, Served, new_client, serve
from tests.gateway.test_clearances import AGENTS, let_in, token_for

pytestmark = pytest.mark.anyio

DESK = "agent:main:api:desk"
SECRET = "sk-" + "A1b2C3d4E5f6" * 4


async def earlier(served: Served, **query: object) -> Json:
    answer = await served.client.get(f"/sessions/{DESK}/incarnations", params={k: str(v) for k, v in query.items()})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def talk_and_reset(served: Served, *texts: str) -> str:
    """A conversation of these messages, which then ends; its id."""
    row = await served.open(DESK)
    for text in texts:
        await served.append(DESK, text)
    await reset(served)
    return str(row["sessionId"])


async def reset(served: Served) -> None:
    answer = await served.client.post(f"/sessions/{DESK}/reset")
    assert answer.status_code == 200, answer.text


@requirement("gateway:4", "sessions:6", "keys:6")
async def test_ended_conversations_are_listed_newest_first_by_their_first_words(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        first = await talk_and_reset(served, "plan  the\ngarden", "and the pond")
        second = await talk_and_reset(served, f"the key is {SECRET}")
        third = await talk_and_reset(served)
        await served.append(DESK, "of today")
        answer = await earlier(served)
        rows = answer["incarnations"]
        assert (answer["sessionKey"], answer["count"]) == (DESK, 3)
        assert [row["sessionId"] for row in rows] == [third, second, first]
        assert [row["messageCount"] for row in rows] == [0, 1, 2]
        assert [row.get("firstWords") for row in rows] == [None, "the key is [redacted]", "plan the garden"]
        assert all(row["startedAt"] <= row["endedAt"] and "withheld" not in row for row in rows)
        by_id = await served.client.get(f"/sessions/{first}/incarnations")
        assert by_id.json() == answer


@requirement("gateway:4", "keys:6", "sessions:8")
async def test_an_ended_conversation_is_read_and_continued_by_its_id(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        first = await talk_and_reset(served, "plan the garden")
        await served.append(DESK, "of today")
        (message,) = await served.messages(first)
        assert message["content"] == [{"type": "text", "text": "plan the garden"}]
        fork = (await served.client.post(f"/sessions/{first}/fork")).json()
        (copy,) = await served.messages(fork["key"])
        assert copy["content"] == message["content"]


@requirement("gateway:4")
async def test_pages_of_ended_conversations_skip_none_and_repeat_none(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        ids = [await talk_and_reset(served, f"words {n}") for n in range(5)]
        found: list[str] = []
        page = await earlier(served, limit=2)
        begun = page["nextCursor"]
        found += [row["sessionId"] for row in page["incarnations"]]
        await talk_and_reset(served, "meanwhile")
        while cursor := page.get("nextCursor"):
            page = await earlier(served, limit=2, cursor=cursor)
            found += [row["sessionId"] for row in page["incarnations"]]
        assert found == ids[::-1]
        await served.open("agent:main:main")
        for name in ("agent:main:main", ids[0]):
            other = await served.client.get(f"/sessions/{name}/incarnations", params={"cursor": begun})
            assert (other.status_code, other.json()["error"]["code"]) == (400, "invalid_cursor")


@requirement("sessions:6")
async def test_a_long_beginning_is_cut_to_three_hundred_characters(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await talk_and_reset(served, "word " * 20_000)
        (row,) = (await earlier(served))["incarnations"]
        assert row["firstWords"].startswith("word word") and row["firstWords"].endswith("…")
        assert len(row["firstWords"]) <= 300


@requirement("gateway:4", "flow:3", "answers:2")
async def test_first_words_above_the_reader_are_withheld(open_home: OpenHome) -> None:
    async with serve(open_home, AGENTS) as served:
        assert (await served.client.post("/people", json={"name": "Ann"})).status_code == 201
        secret: Json = {"key": DESK, "taint": {"level": "CONFIDENTIAL"}}
        assert (await served.client.post("/sessions", json=secret)).status_code == 201
        await let_in(served, "ann", DESK)
        await talk_and_reset(served, "the books", "more of them")
        (owners,) = (await earlier(served))["incarnations"]
        assert (owners["firstWords"], owners["messageCount"], "withheld" in owners) == ("the books", 2, False)
        async with new_client(served.url, await token_for(served, personId="ann")) as ann:
            (row,) = (await ann.get(f"/sessions/{DESK}/incarnations")).json()["incarnations"]
            assert (row["withheld"], row["messageCount"], row.get("firstWords")) == (True, 0, None)
            answer = await served.client.patch("/people/ann", json={"clearance": {"level": "CONFIDENTIAL"}})
            assert answer.status_code == 200
            (row,) = (await ann.get(f"/sessions/{DESK}/incarnations")).json()["incarnations"]
            assert row == owners


@requirement("gateway:4", "answers:2")
async def test_hidden_sessions_are_as_missing(open_home: OpenHome) -> None:
    async with serve(open_home, AGENTS) as served:
        assert (await served.client.post("/people", json={"name": "Ann"})).status_code == 201
        await talk_and_reset(served, "the books")
        async with new_client(served.url, await token_for(served, personId="ann")) as ann:
            hidden = await ann.get(f"/sessions/{DESK}/incarnations")
            missing = await ann.get("/sessions/agent:main:api:none/incarnations")
            assert hidden.status_code == missing.status_code == 404
            assert hidden.text.replace(DESK, "…") == missing.text.replace("agent:main:api:none", "…")


@requirement("sessions:6", "cli:1")
async def test_a_program_reads_them_too(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        first = await talk_and_reset(served, "plan the garden")
        services = served.app.services
        target = services.sessions.target(DESK)
        (found,) = (await services.incarnations.ended(OWNER, target, limit=5)).conversations
        assert (found.id, found.first_words) == (first, "plan the garden")
        with pytest.raises(NotFound):
            await services.incarnations.ended(OWNER, services.sessions.target("api:none"), limit=5)
