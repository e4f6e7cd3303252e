"""`GET /search`: names and messages in two groups, for everything that the caller may read, with jumps."""

from collections.abc import AsyncGenerator

import msgspec
import pytest

from antiphon.domain.actor import Principal, PrincipalKind
from antiphon.gateway.operations.operation import OperationRequest
from antiphon.gateway.operations.search import FindParams, find
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import until_indexed
from tests.gateway.served import Json, Served, serve
from tests.gateway.test_operations import gateway_of
from tests.story import Story

pytestmark = [pytest.mark.anyio, requirement("gateway:4", "search:1")]

CHAT, OTHER = "agent:main:api:chat", "agent:main:api:other"
GUEST = Principal(PrincipalKind.PERSON, "webhook:door:eve")


@pytest.fixture
async def served(open_home: OpenHome) -> AsyncGenerator[Served]:
    async with serve(open_home) as served:
        for key in (CHAT, OTHER):
            await served.open(key)
        yield served


async def search(served: Served, q: str, **params: str | int) -> Json:
    await until_indexed(served.app)
    answer = await served.client.get("/search", params={"q": q, **params})
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_the_owner_finds_names_and_words_of_every_session(served: Served) -> None:
    await served.client.patch(f"/sessions/{CHAT}", json={"label": "Umbrella"})
    seq = await served.append(OTHER, "the RED umbrella is here")
    await served.append(CHAT, "a red hat")
    found = await search(served, "umbrella")
    assert [row["key"] for row in found["sessions"]] == [CHAT] and not found["moreSessions"]
    (hit,) = found["messages"]
    assert (hit["sessionKey"], hit["seq"], hit["role"]) == (OTHER, seq, "user")
    assert hit["snippet"] == "the RED umbrella is here" and hit["createdAt"] > 0 and "nextCursor" not in found
    assert [each["label"] for each in (await search(served, "hat"))["messages"]] == ["Umbrella"]
    assert (await search(served, "red hat umbrella"))["messages"] == []


async def test_a_hit_leads_to_its_message_also_in_a_conversation_that_has_ended(served: Served) -> None:
    for number in range(30):
        await served.append(CHAT, f"before {number}")
    seq = await served.append(CHAT, "the needle")
    for number in range(30):
        await served.append(CHAT, f"after {number}")
    await served.client.post(f"/sessions/{CHAT}/reset")
    await served.append(CHAT, "a new life")
    (hit,) = (await search(served, "needle"))["messages"]
    page = (
        await served.client.get(f"/sessions/{hit['sessionId']}/history", params={"upTo": hit["seq"], "limit": 5})
    ).json()
    assert [message["seq"] for message in page["messages"]] == list(range(seq - 4, seq + 1))
    assert page["messages"][-1]["content"][0]["text"] == "the needle"
    older = {"cursor": page["nextCursor"], "limit": 2}
    page = (await served.client.get(f"/sessions/{hit['sessionId']}/history", params=older)).json()
    assert [message["seq"] for message in page["messages"]] == [seq - 6, seq - 5]


async def test_pages_of_messages_lose_and_repeat_nothing(served: Served) -> None:
    seqs = [await served.append(CHAT, f"needle {number}") for number in range(11)]
    found: list[int] = []
    page = await search(served, "needle", limit=4)
    while True:
        found += [hit["seq"] for hit in page["messages"]]
        if "nextCursor" not in page:
            break
        await served.append(CHAT, "needle: written meanwhile")
        assert len(found) < len(seqs)
        page = await search(served, "needle", limit=4, cursor=page["nextCursor"])
        assert page["sessions"] == []
    assert found == seqs[::-1]
    first = await search(served, "needle", limit=4)
    answer = await served.client.get("/search", params={"q": "hat", "cursor": first["nextCursor"]})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_cursor")


async def test_a_guest_finds_what_it_takes_part_in_and_no_sign_of_the_rest(served: Served) -> None:
    await Story(served.app).session(CHAT).admits(GUEST)
    for key in (CHAT, OTHER):
        await served.client.patch(f"/sessions/{key}", json={"label": f"Harbour of {key[-5:]}"})
        await served.append(key, "a harbour")
    await until_indexed(served.app)
    guest = OperationRequest(gateway=gateway_of(served), who=GUEST)
    found = msgspec.to_builtins(await find.handle(guest, FindParams(q="harbour", limit=1)))
    assert [row["key"] for row in found["sessions"]] == [CHAT] and not found["moreSessions"]
    assert [hit["sessionKey"] for hit in found["messages"]] == [CHAT] and "nextCursor" not in found


async def test_a_search_without_a_word_is_refused(served: Served) -> None:
    for query in ("", "?!", " "):
        answer = await served.client.get("/search", params={"q": query})
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_query")
