import hashlib
import hmac
import json
import time
from collections.abc import Generator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest

from antiphon.testing.ports import free_port
from tests.claims import requirement
from tests.cli.program import Serving, antiphon, antiphon_json, serving
from tests.waiting import PROCESS_SECONDS, SECONDS

pytestmark = requirement("cli:1")

SECRET = "s3cret-of-the-door-bell"


def ring(gateway: Serving, text: str) -> None:
    """Posts as the webhook `door`, and waits for the reply."""
    body = json.dumps({"messageId": text, "peer": "anna", "text": text, "wait": 60}).encode()
    timestamp = str(int(time.time()))
    digest = hmac.new(SECRET.encode(), f"v2.in.door.{timestamp}.".encode() + body, hashlib.sha256).hexdigest()
    headers = {
        "Antiphon-Timestamp": timestamp,
        "Antiphon-Signature": f"v2={digest}",
        "Content-Type": "application/json",
    }
    answer = httpx.post(
        f"{gateway.url}/channels/webhook/door", content=body, headers=headers, timeout=PROCESS_SECONDS, trust_env=False
    )
    assert (answer.status_code, answer.json()["status"]) == (202, "ok"), answer.text


def until(home: Path, status: str, *, attempts: int) -> dict[str, Any]:
    """The only delivery, once it has the status after at least so many attempts: the next may come while we look."""
    deadline = time.monotonic() + PROCESS_SECONDS
    while time.monotonic() < deadline:
        (found,) = antiphon_json("deliveries", "list", home=home)["deliveries"]
        if found["status"] == status and found["attempts"] >= attempts:
            return found
    raise AssertionError(f"The delivery did not become {status!r}")


def configure(home: Path, port: int) -> None:
    """A home whose webhook sends to the port."""
    home.mkdir(mode=0o700)
    settings = f'[channels.webhook.door]\nsecret_env = "DOOR_BELL"\nurl = "http://127.0.0.1:{port}/"\n'
    (home / "antiphon.toml").write_text(settings, "utf-8")


class Refusing(BaseHTTPRequestHandler):
    """Answers 404 to whatever is posted."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_error(404)

    def log_message(self, format: str, *args: Any) -> None:
        return


@pytest.fixture
def refusing_port() -> Generator[int]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Refusing) as server:
        thread = Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server.server_port
        server.shutdown()
        thread.join(SECONDS)


def checks(home: Path, env: dict[str, str]) -> tuple[int, dict[str, Any]]:
    done = antiphon("doctor", "--json", home=home, env=env)
    return done.returncode, {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def test_deliveries_are_listed_shown_and_tried_again(home: Path) -> None:
    configure(home, free_port())
    with serving(home, env={"DOOR_BELL": SECRET}) as gateway:
        ring(gateway, "hello there")
        waiting = until(home, "queued", attempts=1)
        assert waiting["text"] == "echo: hello there" and waiting["accountId"] == "door"
        shown = antiphon("deliveries", "show", waiting["deliveryId"], home=home).stdout
        assert "webhook:door anna" in shown and "channel_unreachable" in shown and "echo: hello there" in shown
        listed = antiphon("deliveries", "list", "--status", "queued", "--limit", "5", home=home).stdout
        assert waiting["deliveryId"] in listed and "cannot be reached" in listed
        assert "There are no deliveries." in antiphon("deliveries", "list", "--status", "dead", home=home).stdout
        again = antiphon_json("deliveries", "retry", waiting["deliveryId"], home=home)
        assert (again["status"], again["attempts"]) == ("queued", 0)
        assert antiphon("deliveries", "show", "dlv_none", home=home).returncode == 3
        older = antiphon_json("deliveries", "list", "--before", waiting["deliveryId"], home=home)
        assert older["count"] == 0
        code, found = checks(home, {"DOOR_BELL": SECRET})
        assert code == 0 and found["webhooks"]["detail"] == "door (both ways)"
        assert found["deliveries"] == {"name": "deliveries", "status": "ok", "detail": "none given up, 1 waiting"}


def test_the_doctor_tells_what_was_given_up_and_that_a_secret_is_missing(home: Path, refusing_port: int) -> None:
    configure(home, refusing_port)
    with serving(home, env={"DOOR_BELL": SECRET}) as gateway:
        ring(gateway, "!say lost")
        until(home, "dead", attempts=1)
    code, found = checks(home, {"DOOR_BELL": SECRET, "ANTIPHON_PORT": str(free_port())})
    assert (code, found["deliveries"]["status"]) == (0, "warning")
    assert found["deliveries"]["detail"] == "1 given up, 0 waiting"
    assert "antiphon deliveries list --status dead" in found["deliveries"]["remedy"]
    code, found = checks(home, {"ANTIPHON_PORT": str(free_port())})
    assert (code, found["webhooks"]["status"]) == (1, "broken")
    refused = antiphon("serve", "--port", "0", home=home)
    assert refused.returncode == 2 and "channels.webhook.door needs one (variable DOOR_BELL)" in refused.stderr
