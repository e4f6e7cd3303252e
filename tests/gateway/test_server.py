"""What becomes of requests when the server stops, whatever the application does with them. Contract: first_start 1."""

import logging

import anyio
import httpx
import pytest

from antiphon.gateway import server
from antiphon.gateway.guard import Receive, Scope, Send
from antiphon.gateway.server import bind, serving
from tests.claims import requirement
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


class Slow:
    """An application that answers nothing, or begins to and stops in the middle."""

    def __init__(self, expected: int) -> None:
        self._missing = expected
        self.has_all = anyio.Event()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["path"] == "/begun":
            await send({"type": "http.response.start", "status": 200, "headers": []})
            await send({"type": "http.response.body", "body": b"half", "more_body": True})
        self._missing -= 1
        if not self._missing:
            self.has_all.set()
        await anyio.sleep_forever()


@requirement("first_start:1")
async def test_requests_that_do_not_end_are_ended_so_that_clients_see_it(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "QUICK_SECONDS", 5.0)  # for a request that comes meanwhile, on a busy machine too
    app = Slow(2)
    is_stopping = anyio.Event()
    answers: dict[str, httpx.Response | httpx.TransportError] = {}

    async with httpx.AsyncClient(timeout=SECONDS) as client:

        async def ask(url: str, path: str) -> None:
            try:
                answers[path] = await client.get(url + path)
            except httpx.TransportError as error:
                answers[path] = error

        async def ask_late(url: str) -> None:
            await is_stopping.wait()
            await ask(url, "/late")

        with caplog.at_level(logging.WARNING):
            async with (
                anyio.create_task_group() as tasks,
                serving(app, bind("127.0.0.1", 0), on_stop=is_stopping.set) as url,
            ):
                tasks.start_soon(ask, url, "/waits")
                tasks.start_soon(ask, url, "/begun")
                await app.has_all.wait()
                tasks.start_soon(ask_late, url)
    assert [record.getMessage() for record in caplog.records] == []
    for path, code in {"/waits": "stopped", "/late": "draining"}.items():
        answer = answers[path]
        assert isinstance(answer, httpx.Response)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, code)
        assert answer.headers["retry-after"] == "1"
    assert isinstance(answers["/begun"], httpx.TransportError), "half an answer is not taken for the whole"
