"""What somebody without any credential can send to the port, and what becomes of it. Contract: gateway 5, answers 5."""

import json
import logging
import socket
import struct
from collections.abc import AsyncGenerator, Generator
from contextlib import ExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

import pytest
from anyio.from_thread import start_blocking_portal

from antiphon.app import gateway_app, open_app
from antiphon.config.config import Config
from antiphon.gateway.connections import ConnectionLimits
from antiphon.gateway.server import bind, serving
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.claims import requirement
from tests.waiting import SECONDS

TOKEN = "ant_" + "0" * 48
LIMITS = ConnectionLimits(connections=100, head_seconds=1.0, idle_seconds=0.5, body_seconds=1.0)
MOST_ANSWERED = 4096
"""Bytes of an answer to a stranger; what he sent is not sent back to him."""
LARGE = 3_000_000
WEBHOOK = "/channels/webhook/desk"
FORM = ("Content-Type: application/json", "Antiphon-Timestamp: 1", f"Antiphon-Signature: v2={'0' * 64}")
"""Headers that might sign a message."""
CLOSED = 0
"""The connection was closed without an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent(Attempt):
    """Bytes on a connection of one's own."""

    attacker: Attacker = Attacker.NOBODY
    door: Door = Door.HTTP
    sends: bytes
    status: int
    code: str = ""


def head(line: str, *headers: str | bytes) -> bytes:
    """A request line and headers, with a `Host` that is allowed."""
    lines = [line, "Host: localhost", *headers]
    return b"\r\n".join(each if isinstance(each, bytes) else each.encode("latin-1") for each in lines) + b"\r\n\r\n"


def post(path: str, body: bytes, *headers: str, kind: str = "application/json") -> bytes:
    sized = (f"Content-Length: {len(body)}", f"Content-Type: {kind}", "Connection: close", *headers)
    return head(f"POST {path} HTTP/1.1", *sized) + body


def chunked(path: str, *rest: bytes) -> bytes:
    kind = ("Transfer-Encoding: chunked", "Content-Type: application/json", "Connection: close")
    return head(f"POST {path} HTTP/1.1", *kind) + b"".join(rest)


GET = "GET /health HTTP/1.1"
MESSAGES = "/sessions/main/messages"
EXCHANGE = "/auth/exchange"
UNKNOWN = b"{" + b", ".join(b'"field%d": 1' % number for number in range(600_000)) + b"}"
FEW_UNKNOWN = json.dumps({f"field{number}": 1 for number in range(3000)}).encode()

MALFORMED = [
    Sent(what="two Host headers", sends=head(GET, "Host: localhost"), status=400, code="repeated_header"),
    Sent(what="two other Hosts", sends=head(GET, "host: evil.example"), status=400, code="repeated_header"),
    Sent(
        what="two Origin headers",
        sends=head(GET, "Origin: http://localhost", "Origin: http://evil.example"),
        status=400,
        code="repeated_header",
    ),
    Sent(
        what="two Authorization headers",
        sends=head(GET, "Authorization: Bearer a", "AUTHORIZATION: Bearer b"),
        status=400,
        code="repeated_header",
    ),
    Sent(what="two cookies", sends=head(GET, "Cookie: a=1", "Cookie: b=2"), status=400, code="repeated_header"),
    Sent(
        what="two Content-Types",
        sends=head("POST /auth/exchange HTTP/1.1", "Content-Type: text/plain", "Content-Type: application/json"),
        status=400,
        code="repeated_header",
    ),
    Sent(
        what="two Sec-Fetch-Sites",
        sends=head(GET, "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: none"),
        status=400,
        code="repeated_header",
    ),
    Sent(
        what="two idempotency keys",
        sends=head("POST /tools/x HTTP/1.1", "Idempotency-Key: a", "Idempotency-Key: b"),
        status=400,
        code="repeated_header",
    ),
    Sent(what="no Host", sends=b"GET /health HTTP/1.1\r\n\r\n", status=403, code="host_not_allowed"),
    Sent(
        what="another Host", sends=b"GET / HTTP/1.1\r\nHost: evil.example\r\n\r\n", status=403, code="host_not_allowed"
    ),
    Sent(what="an empty Host", sends=b"GET / HTTP/1.1\r\nHost: \r\n\r\n", status=403, code="host_not_allowed"),
    Sent(
        what="a Host that begins well",
        sends=b"GET / HTTP/1.1\r\nHost: localhost.evil.example\r\n\r\n",
        status=403,
        code="host_not_allowed",
    ),
    Sent(
        what="a Host with a user",
        sends=b"GET / HTTP/1.1\r\nHost: localhost@evil.example\r\n\r\n",
        status=403,
        code="host_not_allowed",
    ),
    Sent(what="another Origin", sends=head(GET, "Origin: http://evil.example"), status=403, code="origin_not_allowed"),
    Sent(what="a null Origin", sends=head(GET, "Origin: null"), status=403, code="origin_not_allowed"),
    Sent(what="a broken Origin", sends=head(GET, "Origin: http://[::1"), status=403, code="origin_not_allowed"),
    Sent(what="a whole address of another host", sends=head("GET http://evil.example/runs HTTP/1.1"), status=401),
    Sent(what="CONNECT", sends=head("CONNECT evil.example:443 HTTP/1.1"), status=400, code="invalid_http"),
    Sent(what="HTTP/0.9", sends=b"GET /\r\n\r\n", status=403, code="host_not_allowed"),
    Sent(what="HTTP/2 by foreknowledge", sends=b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", status=400, code="invalid_http"),
    Sent(what="HTTP/3.0", sends=head("GET / HTTP/3.0"), status=400, code="invalid_http"),
    Sent(what="TLS", sends=bytes.fromhex("16030100a5010000a10303"), status=400, code="invalid_http"),
    Sent(what="noise", sends=bytes(range(256)) * 8, status=400, code="invalid_http"),
    Sent(what="a NUL in a header", sends=head(GET, b"X: a\0b"), status=400, code="invalid_http"),
    Sent(what="a folded header", sends=head(GET, "X: a\r\n b"), status=400, code="invalid_http"),
    Sent(what="a blank before the colon", sends=b"GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", status=400),
    Sent(what="bare newlines", sends=b"GET / HTTP/1.1\nHost: localhost\n\n", status=400, code="invalid_http"),
    Sent(what="a method that does not exist", sends=head("STEAL / HTTP/1.1"), status=400, code="invalid_http"),
    Sent(what="a path that is not ASCII", sends="GET /é HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(), status=400),
    Sent(what="a path above the root", sends=head("GET /static/../../owner.token HTTP/1.1"), status=404),
    Sent(
        what="an encoded path above the root", sends=head("GET /static/%2e%2e/%2e%2e/owner.token HTTP/1.1"), status=404
    ),
    Sent(what="an encoded slash past an open prefix", sends=head("GET /static/..%2f..%2fruns HTTP/1.1"), status=404),
    Sent(what="a path with NUL", sends=head("GET /static/%00 HTTP/1.1"), status=404),
    Sent(
        what="an open path that goes on", sends=head("GET /health/../runs HTTP/1.1"), status=401, code="token_missing"
    ),
    Sent(what="a doubled slash", sends=head("GET //runs HTTP/1.1"), status=401, code="token_missing"),
    Sent(what="TRACE", sends=head("TRACE /runs HTTP/1.1"), status=401, code="token_missing"),
    Sent(what="a method by header", sends=head("GET /runs HTTP/1.1", "X-HTTP-Method-Override: POST"), status=401),
    Sent(
        what="an address by header",
        sends=head("GET /runs HTTP/1.1", "X-Forwarded-For: 127.0.0.1", "X-Original-URL: /health"),
        status=401,
    ),
    Sent(
        what="a websocket",
        sends=head(
            "GET /runs HTTP/1.1",
            "Connection: Upgrade",
            "Upgrade: websocket",
            "Sec-WebSocket-Version: 13",
            "Sec-WebSocket-Key: eHh4eHh4eHh4eHh4eHh4eA==",
        ),
        status=404,
        code="not_found",
    ),
    Sent(
        what="a request behind an upgrade",
        sends=head("GET /health HTTP/1.1", "Connection: Upgrade", "Upgrade: h2c")
        + head("DELETE /sessions/main HTTP/1.1"),
        status=200,
    ),
]

SMUGGLED = [
    Sent(
        what=f"a body framed by {what}",
        sends=head("POST /auth/exchange HTTP/1.1", "Content-Type: application/json", *framing) + b"0\r\n\r\n",
        status=400,
        code=code,
    )
    for what, framing, code in (
        ("length and chunks", ("Content-Length: 5", "Transfer-Encoding: chunked"), "invalid_http"),
        ("chunks and length", ("Transfer-Encoding: chunked", "Content-Length: 5"), "invalid_http"),
        ("two lengths", ("Content-Length: 5", "Content-Length: 6"), ""),
        ("two equal lengths", ("Content-Length: 5", "Content-Length: 5"), ""),
        ("a list of lengths", ("Content-Length: 5, 5",), "invalid_http"),
        ("a length with a sign", ("Content-Length: +5",), "invalid_http"),
        ("a negative length", ("Content-Length: -5",), "invalid_http"),
        ("a hexadecimal length", ("Content-Length: 0x5",), "invalid_http"),
        ("a length without end", (f"Content-Length: {'9' * 40}",), "invalid_http"),
        ("an unknown coding", ("Transfer-Encoding: xchunked",), "invalid_http"),
        ("chunks that are not last", ("Transfer-Encoding: chunked, identity",), "invalid_http"),
        ("two codings", ("Transfer-Encoding: chunked", "Transfer-Encoding: identity"), ""),
        ("a coding behind a tab stop", ("Transfer-Encoding: \x0bchunked",), "invalid_http"),
    )
]

LARGE_HEADS = [
    Sent(what="101 headers", sends=head(GET, *[f"X{n}: y" for n in range(100)]), status=400, code="too_many_headers"),
    Sent(what="a header of 3 MB", sends=head(GET, "X: " + "y" * LARGE), status=400, code="head_too_large"),
    Sent(what="a name of 3 MB", sends=head(GET, "X" * LARGE + ": y"), status=400, code="head_too_large"),
    Sent(what="an address of 3 MB", sends=head(f"GET /{'y' * LARGE} HTTP/1.1"), status=400, code="head_too_large"),
    Sent(what="a method of 3 MB", sends=b"G" * LARGE, status=400, code="invalid_http"),
    Sent(
        what="many headers of 64 KiB together",
        sends=head(GET, *[f"X{n}: {'y' * 1000}" for n in range(70)]),
        status=400,
        code="head_too_large",
    ),
    Sent(
        what="a cookie of 60 KiB",
        sends=head("GET /runs HTTP/1.1", "Cookie: " + "a=b; " * 12_000, "Connection: close"),
        status=401,
    ),
    Sent(
        what="a cookie of 60 KB of quoted quotes",
        sends=head(GET, 'Cookie: antiphon_session_80="' + '\\"' * 30_000 + '"', "Connection: close"),
        status=200,
    ),
    Sent(
        what="30,000 parameters",
        sends=head(f"GET /health?{'a&' * 30_000} HTTP/1.1", "Connection: close"),
        status=400,
        code="too_many_parameters",
    ),
    Sent(
        what="a file 30,000 directories down",
        sends=head(f"GET /static/{'a/' * 30_000} HTTP/1.1", "Connection: close"),
        status=404,
    ),
    Sent(
        what="an Authorization of 60 KiB",
        sends=head("GET /runs HTTP/1.1", "Authorization: Bearer " + "y" * 60_000, "Connection: close"),
        status=401,
        code="bad_token",
    ),
    Sent(
        what="101 trailers",
        sends=chunked(EXCHANGE, b"1\r\n{\r\n0\r\n", *[b"X%d: y\r\n" % n for n in range(101)]),
        status=400,
        code="too_many_headers",
    ),
    Sent(
        what="a trailer of 3 MB",
        sends=chunked(EXCHANGE, b"1\r\n{\r\n0\r\nX: ", b"y" * LARGE),
        status=400,
        code="head_too_large",
    ),
    Sent(
        what="a chunk's extension of 3 MB",
        sends=chunked(EXCHANGE, b"1;", b"y" * LARGE),
        status=400,
        code="head_too_large",
    ),
    Sent(
        what="a token as a trailer",
        sends=chunked("/sessions", b"2\r\n{}\r\n0\r\nAuthorization: Bearer ", TOKEN.encode(), b"\r\n\r\n"),
        status=401,
        code="token_missing",
    ),
    Sent(what="a thousand requests at once", sends=head("GET /who HTTP/1.1") * 1000, status=CLOSED),
]

SLOW = [
    Sent(what="nothing", sends=b"", status=CLOSED),
    Sent(what="empty lines", sends=b"\r\n\r\n", status=400, code="head_too_slow"),
    Sent(what="half a request line", sends=b"GE", status=400, code="head_too_slow"),
    Sent(what="half a head", sends=b"GET / HTTP/1.1\r\nHost: local", status=400, code="head_too_slow"),
    Sent(
        what="half a second head",
        sends=head(GET) + b"GET / HTTP/1.1\r\nHost: local",
        status=200,
    ),
    Sent(what="a connection that is kept", sends=head(GET), status=200),
    Sent(
        what="half a body",
        sends=head("POST /auth/exchange HTTP/1.1", "Content-Length: 50", "Content-Type: application/json") + b"{",
        status=400,
        code="body_too_slow",
    ),
    Sent(
        what="half a webhook's body",
        door=Door.WEBHOOK,
        sends=head(f"POST {WEBHOOK} HTTP/1.1", "Content-Length: 5000", "Content-Type: application/json") + b"{",
        status=401,
        code="bad_signature",
    ),
    Sent(what="half a chunk", sends=chunked(EXCHANGE, b"ff\r\n{"), status=400, code="body_too_slow"),
]

BODIES = [
    Sent(what="24 MB of unknown fields", sends=post(EXCHANGE, UNKNOWN), status=413, code="body_too_large"),
    Sent(what="3,000 unknown fields", sends=post(EXCHANGE, FEW_UNKNOWN), status=422, code="invalid_request"),
    Sent(
        what="3,000 unknown fields in a proof",
        sends=post("/auth/prove", FEW_UNKNOWN),
        status=422,
        code="invalid_request",
    ),
    Sent(
        what="an unknown field with a long name",
        sends=post(EXCHANGE, json.dumps({"y" * 60_000: 1}).encode()),
        status=422,
        code="invalid_request",
    ),
    Sent(
        what="a code of 60 KB",
        sends=post(EXCHANGE, json.dumps({"code": "y" * 60_000}).encode()),
        status=422,
        code="invalid_request",
    ),
    Sent(what="a code that is none", sends=post(EXCHANGE, b'{"code": "y"}'), status=403, code="bad_code"),
    Sent(what="60,000 lists in one another", sends=post(EXCHANGE, b"[" * 60_000), status=400, code="not_json"),
    Sent(what="deep objects", sends=post(EXCHANGE, b'{"code":' * 8000), status=422),
    Sent(
        what="60,000 lists beside one another",
        sends=post(EXCHANGE, b"[" + b"[]," * 20_000),
        status=400,
        code="not_json",
    ),
    Sent(what="a number of 60,000 digits", sends=post(EXCHANGE, b'{"code": ' + b"9" * 60_000 + b"}"), status=422),
    Sent(what="a number without bounds", sends=post(EXCHANGE, b'{"code": 1e999999999}'), status=422),
    Sent(what="the same name twice", sends=post(EXCHANGE, b'{"code": "a", "code": "b"}'), status=403, code="bad_code"),
    Sent(what="NaN", sends=post(EXCHANGE, b'{"code": NaN}'), status=400, code="not_json"),
    Sent(what="half a surrogate pair", sends=post(EXCHANGE, b'{"code": "\\ud800"}'), status=400, code="not_json"),
    Sent(what="a body that is not UTF-8", sends=post(EXCHANGE, b'{"code": "\xff"}'), status=400, code="not_json"),
    Sent(what="an empty body", sends=post(EXCHANGE, b""), status=400, code="not_json"),
    Sent(what="a form", sends=post(EXCHANGE, b"code=a", kind="text/plain"), status=415, code="not_json"),
    Sent(
        what="a body announced too large that does not come",
        sends=head("POST /auth/prove HTTP/1.1", "Content-Length: 99999999"),
        status=400,
        code="body_too_slow",
    ),
    Sent(
        what="a body in chunks that is too large",
        sends=chunked(EXCHANGE, *[b"4000\r\n" + b"y" * 0x4000 + b"\r\n"] * 8, b"0\r\n\r\n"),
        status=413,
        code="body_too_large",
    ),
    Sent(
        what="a body in chunks of one byte",
        sends=chunked(EXCHANGE, b"1\r\ny\r\n" * 60_000, b"0\r\n\r\n"),
        status=400,
        code="chunks_too_small",
    ),
    Sent(
        what="a message in chunks of one byte",
        door=Door.WEBHOOK,
        sends=head(f"POST {WEBHOOK} HTTP/1.1", "Transfer-Encoding: chunked", *FORM, "Connection: close")
        + b"1\r\ny\r\n" * 60_000,
        status=400,
        code="chunks_too_small",
    ),
    Sent(
        what="8 MiB to a session without a token",
        sends=post(MESSAGES, b"y" * 8_000_000),
        status=401,
        code="token_missing",
    ),
    Sent(what="8 MiB to a tool without a token", sends=post("/tools/sessions_list", b"y" * 8_000_000), status=401),
    Sent(
        what="a call of MCP without a token",
        door=Door.MCP,
        sends=post("/mcp", UNKNOWN),
        status=401,
        code="token_missing",
    ),
    Sent(
        what="a stream without a token",
        door=Door.SSE,
        sends=head("GET /sessions/main/history?follow=1 HTTP/1.1", "Accept: text/event-stream"),
        status=401,
        code="token_missing",
    ),
    Sent(
        what="a stream with an empty token",
        door=Door.SSE,
        sends=head("GET /sessions/main/events HTTP/1.1", "Authorization: Bearer "),
        status=401,
        code="bad_token",
    ),
    Sent(
        what="a token in the address",
        door=Door.SSE,
        sends=head(f"GET /sessions/main/events?token={TOKEN} HTTP/1.1"),
        status=401,
        code="token_missing",
    ),
    Sent(what="an unsigned message", door=Door.WEBHOOK, sends=post(WEBHOOK, b'{"text": "x"}'), status=401),
    Sent(what="an unsigned message to no webhook", door=Door.WEBHOOK, sends=post(WEBHOOK + "x", b"{}"), status=401),
    Sent(
        what="a message of 1 MiB and one byte",
        door=Door.WEBHOOK,
        sends=post(WEBHOOK, b"y" * (1024 * 1024 + 1)),
        status=413,
        code="body_too_large",
    ),
    Sent(
        what="a message of unknown fields, unsigned",
        door=Door.WEBHOOK,
        sends=post(WEBHOOK, FEW_UNKNOWN, "X-Antiphon-Signature: v1=00"),
        status=401,
    ),
]


@asynccontextmanager
async def _serve(home: Path) -> AsyncGenerator[str]:
    webhook = {"desk": {"secret": "s" * 32}}
    config = Config.model_validate({"gateway": {"drain_seconds": 0}, "channels": {"webhook": webhook}})
    async with open_app(home, config) as app:
        listener = bind("127.0.0.1", 0)
        async with serving(gateway_app(app, TOKEN), listener, on_stop=app.services.hub.close, limits=LIMITS) as url:
            yield url


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory) -> Generator[int]:
    with ExitStack() as stack:
        portal = stack.enter_context(start_blocking_portal("asyncio"))
        url = stack.enter_context(portal.wrap_async_context_manager(_serve(tmp_path_factory.mktemp("edge") / "home")))
        yield int(url.rpartition(":")[2])


def answers(port: int, sends: bytes, *, ends: bool = False) -> bytes:
    """All that comes back until the gateway closes the connection; with `ends` it is told that nothing more comes."""
    with socket.create_connection(("127.0.0.1", port), timeout=SECONDS) as connection:
        received = b""
        with suppress(BrokenPipeError, ConnectionResetError):  # refused before all was sent
            connection.sendall(sends)
            if ends:
                connection.shutdown(socket.SHUT_WR)
        with suppress(ConnectionResetError):
            while part := connection.recv(65536):
                received += part
        return received


def is_healthy(port: int) -> bool:
    began = monotonic()
    return answers(port, head(GET, "Connection: close")).startswith(b"HTTP/1.1 200") and monotonic() - began < SECONDS


@requirement("gateway:5", "answers:5")
@pytest.mark.parametrize("attempt", rows(*MALFORMED, *SMUGGLED, *LARGE_HEADS, *SLOW, *BODIES))
def test_nobody_gets_past_the_edge(port: int, attempt: Sent) -> None:
    answer = answers(port, attempt.sends)
    if attempt.status == CLOSED:
        assert answer == b""
    else:
        assert answer.startswith(b"HTTP/1.1 %d " % attempt.status), answer[:300]
        assert len(answer) < MOST_ANSWERED
        assert TOKEN.encode() not in answer
        if attempt.status >= 400:
            error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
            assert attempt.code in ("", error["code"])
            assert len(error["message"]) < 300
    assert is_healthy(port)


@requirement("gateway:5")
def test_silent_connections_are_dropped_for_others(port: int) -> None:
    with ExitStack() as stack:
        silent = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(1000)]
        assert is_healthy(port)
        silent[0].settimeout(SECONDS)
        assert silent[0].recv(1) == b"", "the oldest was closed"


@requirement("gateway:5")
def test_messages_that_strangers_do_not_finish_make_room_for_one_that_comes_whole(port: int) -> None:
    part = head(f"POST {WEBHOOK} HTTP/1.1", "Content-Length: 1048576", *FORM) + b"y" * 1_000_000
    with ExitStack() as stack:
        halves = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(70)]
        for half in halves:
            half.sendall(part)
        halves[0].settimeout(SECONDS)
        assert halves[0].recv(65536).startswith(b"HTTP/1.1 503 ")
        whole = post(WEBHOOK, b"y" * 1_000_000, *FORM[1:])
        assert b"bad_signature" in answers(port, whole)


@requirement("gateway:5")
def test_strangers_who_leave_write_nothing_into_the_log(port: int, caplog: pytest.LogCaptureFixture) -> None:
    """Each such line has kilobytes, and whoever reaches the port can make thousands a second."""
    begun = head(f"POST {WEBHOOK} HTTP/1.1", "Content-Length: 5000", *FORM) + b"{"
    exchange = head(f"POST {EXCHANGE} HTTP/1.1", "Content-Length: 50", "Content-Type: application/json") + b"{"
    large = chunked(EXCHANGE, *[b"4000\r\n" + b"y" * 0x4000 + b"\r\n"] * 8, b"0\r\n\r\n")
    several = head("GET /static/page.js HTTP/1.1") * 8
    with caplog.at_level(logging.WARNING):
        for sends in (begun, exchange, large, several) * 10:
            with socket.create_connection(("127.0.0.1", port)) as connection:
                with suppress(ConnectionError):
                    connection.sendall(sends)
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            assert is_healthy(port)
    lines = [record for record in caplog.records if "Event loop" not in record.getMessage()]
    assert not [record for record in lines if record.exc_info], "nothing failed here"
    assert len(lines) < 10
