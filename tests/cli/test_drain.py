"""Stopping a gateway: what is at work may end, and whoever waits for it hears of that. Contract: first_start 1."""

import http.client
import json
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx

from tests.claims import requirement
from tests.cli.program import Serving, antiphon, antiphon_json, serving
from tests.waiting import SECONDS, until

BODY = {
    "Content-Type": "application/json",
    "Accept": "application/json, text/event-stream",
    "Antiphon-Session": "main",
}


def headers(gateway: Serving) -> dict[str, str]:
    return {"Authorization": f"Bearer {(gateway.home / 'owner.token').read_text().strip()}"}


def client_of(gateway: Serving) -> httpx.Client:
    return httpx.Client(base_url=gateway.url, headers=headers(gateway), timeout=SECONDS)


class Asking:
    """One request, whose answer is read later."""

    def __init__(self, gateway: Serving, path: str, body: object = None) -> None:
        address = urlsplit(gateway.url)
        assert address.hostname is not None
        self._connection = http.client.HTTPConnection(address.hostname, address.port, timeout=SECONDS)
        # The connection is known to the server before, and another answer is read after: it has been begun then.
        self._ask(gateway, "/health", None)
        self._connection.getresponse().read()
        self._ask(gateway, path, body)
        assert httpx.get(f"{gateway.url}/health", timeout=SECONDS).is_success

    def _ask(self, gateway: Serving, path: str, body: object) -> None:
        content = None if body is None else json.dumps(body)
        self._connection.request("POST" if content else "GET", path, content, {**headers(gateway), **BODY})

    def close(self) -> None:
        self._connection.close()

    def text(self) -> tuple[int, str]:
        response = self._connection.getresponse()
        return response.status, response.read().decode()

    def answer(self) -> tuple[int, Any]:
        status, text = self.text()
        return status, json.loads(text)


@requirement("first_start:1")
def test_a_gateway_that_drains_goes_on_answering_until_its_work_has_ended(home: Path) -> None:
    with serving(home, env={"ANTIPHON_GATEWAY__DRAIN_SECONDS": "600"}) as gateway, client_of(gateway) as client:
        run_id = client.post("/sessions/main/messages", json={"text": "!sleep 600"}).json()["runId"]
        until(lambda: client.get(f"/runs/{run_id}").json()["status"] == "running")
        with closing(Asking(gateway, f"/runs/{run_id}?wait=600")) as asking:
            gateway.process.terminate()
            until(lambda: client.get("/ready").status_code == 503)
            assert client.get("/ready").json()["error"]["code"] == "draining"
            later = client.post("/sessions/main/messages", json={"text": "later"}).json()["runId"]
            assert antiphon("serve", "--port", "0", home=home).stderr.count(gateway.url) == 1, "it is still there"
            cancelled = antiphon("runs", "cancel", run_id, home=home)
            # The gateway may end, since its work has, before it is asked how the run ended.
            assert cancelled.returncode == 0 or "The run was told to stop" in cancelled.stderr, cancelled.stderr
            status, run = asking.answer()
        assert (status, run["status"]) == (200, "cancelled")
        assert gateway.process.wait(SECONDS) == 0
    assert antiphon_json("runs", "show", later, "--wait", "60", home=home)["reply"] == "echo: later"


@requirement("first_start:1")
def test_who_waits_for_what_has_not_ended_is_told_that_the_gateway_stops(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    short = {"ANTIPHON_GATEWAY__DRAIN_SECONDS": "0.1"}
    with serving(home, env=short, log=log) as gateway, client_of(gateway) as client:
        run_id = client.post("/sessions/main/messages", json={"text": "!sleep 600"}).json()["runId"]
        with closing(Asking(gateway, f"/runs/{run_id}?wait=600")) as asking:
            gateway.process.terminate()
            status, answer = asking.answer()
        assert gateway.process.wait(SECONDS) == 0
    assert (status, answer["error"]["code"]) == (503, "stopped")
    assert "Traceback" not in log.read_text() and "error" not in log.read_text()
    assert antiphon_json("runs", "show", run_id, home=home, env=short)["status"] in ("queued", "running")


@requirement("first_start:1")
def test_calls_of_tools_from_outside_are_answered_when_the_gateway_stops(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    short = {"ANTIPHON_GATEWAY__DRAIN_SECONDS": "0.1"}
    with serving(home, env=short, log=log) as gateway, client_of(gateway) as client:
        client.post("/sessions/main/messages", json={"text": "hello"}, params={"wait": 60}).raise_for_status()
        spawn = {"sessionKey": "main", "arguments": {"task": "!sleep 600"}}
        run_id = client.post("/tools/sessions_spawn", json=spawn).json()["runId"]
        waiting = {"runIds": [run_id], "timeoutSeconds": 50}
        call = {"name": "sessions_wait", "arguments": waiting}
        with (
            closing(Asking(gateway, "/tools/sessions_wait", {"sessionKey": "main", "arguments": waiting})) as over_http,
            closing(
                Asking(gateway, "/mcp", {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call})
            ) as over_mcp,
        ):
            gateway.process.terminate()
            assert over_http.answer()[1]["code"] == "stopped"
            assert '"code":"stopped"' in over_mcp.text()[1]
        assert gateway.process.wait(SECONDS) == 0
    assert "Traceback" not in log.read_text() and "error" not in log.read_text()


@requirement("gateway:4")
def test_a_streamed_answer_says_that_the_gateway_stops(home: Path) -> None:
    short = {"ANTIPHON_GATEWAY__DRAIN_SECONDS": "0.1"}
    with serving(home, env=short) as gateway, client_of(gateway) as client:
        body = {"text": "!sleep 600"}
        with client.stream("POST", "/sessions/main/messages", params={"stream": True}, json=body) as response:
            pieces = response.iter_text()
            assert "message_ack" in next(pieces)
            gateway.process.terminate()
            assert '"code":"stopped"' in "".join(pieces)
        assert gateway.process.wait(SECONDS) == 0
