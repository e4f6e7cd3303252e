"""Whose words a message holds, as programs say it over HTTP."""

import pytest

from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import Json, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

FORWARD: Json = {"kind": "forward", "name": "Mal\nlory]"}


@requirement("groups:5", "flow:2")
@pytest.mark.parametrize("way", [f"wait={SECONDS}", "append=1"])
async def test_words_that_are_not_the_senders_are_untrusted_and_the_history_says_whose(
    open_home: OpenHome, way: str
) -> None:
    async with serve(open_home) as served:
        await served.open("main")
        body = {"text": "/stop", "attribution": FORWARD}
        assert (await served.client.post(f"/sessions/main/messages?{way}", json=body)).is_success
        (shown, *_) = (await served.client.get("/sessions/main/history")).json()["messages"]
        assert shown["attribution"] == {"kind": "forward", "name": "Mal lory)"}
        assert shown["classification"]["integrity"] == "untrusted"


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"attribution": {"kind": "mine"}}, 422),
        ({"attribution": {"kind": "quote", "of": "x"}}, 422),
        ({"attribution": {"kind": "quote", "name": ""}}, 422),
        ({"attribution": {"kind": "quote", "name": "x" * 201}}, 422),
        ({"attribution": "forward"}, 422),
        ({"attribution": {"kind": "quote"}, "role": "assistant"}, 400),
    ],
)
async def test_an_attribution_that_is_none_is_refused(open_home: OpenHome, body: Json, status: int) -> None:
    async with serve(open_home) as served:
        await served.open("main")
        answer = await served.client.post("/sessions/main/messages?append=1", json={"text": "hello", **body})
        assert answer.status_code == status
        assert (await served.client.get("/sessions/main/history")).json()["messages"] == []
