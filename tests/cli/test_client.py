"""A client of a gateway that lives, and does not do what is asked."""

import json
from collections.abc import Generator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

import pytest

from antiphon.cli.connection import client as module
from antiphon.cli.connection.client import Client
from antiphon.domain.errors import Unavailable


@contextmanager
def refusing(code: str) -> Generator[tuple[str, list[str]]]:
    """The address of a gateway that refuses everything with 503, and what it was asked."""
    asked: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            asked.append(self.path)
            body = json.dumps({"ok": False, "error": {"code": code, "message": "No."}}).encode()
            self.send_response(503)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", asked
        finally:
            server.shutdown()


def client_of(url: str) -> Client:
    """One that finds the same gateway again, whenever it looks."""
    return Client(url, "token", lambda: client_of(url))


@pytest.mark.parametrize("code", ["stopped", "draining", "store_busy"])
def test_a_gateway_that_is_still_there_is_not_asked_for_ever(code: str) -> None:
    with refusing(code) as (url, asked), pytest.raises(Unavailable) as raised:
        client_of(url).get("/runs")
    assert (raised.value.code, asked) == (code, ["/runs"])


@pytest.mark.parametrize("code", ["stopped", "store_busy"])
def test_who_follows_a_gateway_that_refuses_pauses_says_so_and_gives_up(
    monkeypatch: pytest.MonkeyPatch, code: str
) -> None:
    monkeypatch.setattr(module, "GIVE_UP_SECONDS", 1.0)
    told: list[str] = []
    with refusing(code) as (url, asked), pytest.raises(Unavailable):
        list(client_of(url).follow("/events", after=0, tell=told.append))
    assert told == ["Connection to the gateway is lost; trying again."]
    assert 1 < len(asked) < 10


def test_a_gateway_that_takes_no_connections_any_more_is_waited_for_until_it_has_ended() -> None:
    with refusing("stopped") as (ended, _):
        pass
    with refusing("store_busy") as (other, asked), pytest.raises(Unavailable) as raised:
        found = iter([ended, ended, other])
        Client(ended, "token", lambda: client_of(next(found))).get("/runs")
    assert (raised.value.code, asked) == ("store_busy", ["/runs"])
