"""`HEAD` as a server sees it: one start, an empty body, and what answers `GET` ends there."""

from collections.abc import MutableMapping
from typing import Any

import anyio
import pytest

from antiphon.gateway.asgi import Receive, Scope, Send
from antiphon.gateway.head_only import HeadOnly
from tests.claims import requirement
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


@requirement("gateway:4")
@pytest.mark.parametrize("is_endless", [False, True])
async def test_a_read_ends_with_its_headers(*, is_endless: bool) -> None:
    sent: list[MutableMapping[str, Any]] = []
    has_ended = anyio.Event()

    async def answer(scope: Scope, receive: Receive, send: Send) -> None:
        assert scope["antiphon.outlet"] is None
        try:
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"words", "more_body": is_endless})
            if is_endless:
                await anyio.sleep_forever()
        finally:
            has_ended.set()

    async def receive() -> MutableMapping[str, Any]:
        await anyio.sleep_forever()
        raise AssertionError

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    with anyio.fail_after(SECONDS):
        await HeadOnly(answer)({"type": "http", "antiphon.outlet": object()}, receive, send)
        await has_ended.wait()
    assert [message["type"] for message in sent] == ["http.response.start", "http.response.body"]
    assert sent[1]["body"] == b""
