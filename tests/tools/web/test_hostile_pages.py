"""Hostile addresses, names, servers and pages: each gets one plain refusal, and nothing goes where it must not."""

import gzip
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import psutil
import pytest
from anyio.abc import SocketStream

from antiphon.domain.errors import Invalid
from antiphon.domain.page_address import parse_page_address
from antiphon.policy.web_addresses import WebRules
from antiphon.tools.web import fetching, page_text
from antiphon.tools.web.fetching import MAX_BYTES, Fetcher
from antiphon.tools.web.pages import MAX_CHARACTERS, Pages
from tests.claims import requirement
from tests.tools.web.page_server import (
    OTHER_STAND_IN,
    PUBLIC_STAND_IN,
    Answer,
    Names,
    answer,
    leads_to,
    page_server,
)
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio
PRIVATE = ["10.0.0.7"]


async def read(
    url: str, names: Names, *, ports: tuple[int, ...] = (), stays: bool = False, part: int = 1, **rules: Any
) -> dict[str, Any]:
    """The page as the tool answers with it; the code alone for an address that is refused."""
    found = WebRules(ports=ports, **rules)
    pages = Pages(Fetcher(found, names.network), found)
    try:
        address = parse_page_address(url)
    except Invalid as error:
        assert error.message
        return {"code": "invalid_arguments", "error": error.message}
    if denied := pages.refuse([address]):
        return {"code": denied.rule, "error": denied.reason}
    with anyio.fail_after(SECONDS):
        (page,) = await pages.read([address], part=part, most=MAX_CHARACTERS, stays=stays)
    return page.shown


ADDRESSES = [
    ("http://169.254.169.254/latest/meta-data/", "page_refused"),
    ("http://[fd00:ec2::254]/", "page_refused"),
    ("http://168.63.129.16/", "page_refused"),
    ("http://100.100.100.200/", "page_refused"),
    ("http://0x7f000001/", "invalid_arguments"),
    ("http://0x7f.1/", "invalid_arguments"),
    ("http://017700000001/", "invalid_arguments"),
    ("http://0177.0.0.1/", "invalid_arguments"),
    ("http://2130706433/", "invalid_arguments"),
    ("http://127.1/", "invalid_arguments"),
    ("http://127.0.0.1/", "page_refused"),
    ("http://127.0.0.1:80/", "page_refused"),
    ("http://127.0.0.1./", "invalid_arguments"),
    ("http://0.0.0.0/", "page_refused"),
    ("http://0/", "invalid_arguments"),
    ("http://1.2.3.4.5/", "invalid_arguments"),
    ("http://256.1.1.1/", "invalid_arguments"),
    ("http://[::1]/", "page_refused"),
    ("http://[::]/", "page_refused"),
    ("http://[::ffff:7f00:1]/", "page_refused"),
    ("http://[::ffff:127.0.0.1]/", "page_refused"),
    ("http://[::7f00:1]/", "page_refused"),
    ("http://[64:ff9b::7f00:1]/", "page_refused"),
    ("http://[2002:7f00:1::]/", "page_refused"),
    ("http://[2001:0:7f00:1::]/", "page_refused"),
    ("http://[2001:db8::1]/", "page_refused"),
    ("http://[fe80::1]/", "page_refused"),
    ("http://[fe80::1%25eth0]/", "invalid_arguments"),
    ("http://[fc00::1]/", "page_refused"),
    ("http://[ff02::1]/", "page_refused"),
    ("http://10.1.2.3/", "page_refused"),
    ("http://172.31.0.1/", "page_refused"),
    ("http://192.168.1.1/", "page_refused"),
    ("http://100.64.0.1/", "page_refused"),
    ("http://192.0.2.1/", "page_refused"),
    ("http://198.18.0.1/", "page_refused"),
    ("http://224.0.0.1/", "page_refused"),
    ("http://255.255.255.255/", "page_refused"),
    ("http://１２７.０.０.１/", "invalid_arguments"),
    ("http://127。0。0。1/", "invalid_arguments"),
    ("http://①②⑦.⓪.⓪.①/", "invalid_arguments"),
    ("http://127.0.0.%31/", "invalid_arguments"),
    ("http://%6cocalhost/", "invalid_arguments"),
    ("http://localhost/", "page_refused"),
    ("http://LOCALHOST/", "page_refused"),
    ("http://ｌocalhost/", "page_refused"),
    ("http://localhost./", "invalid_arguments"),
    ("http://a.localhost/", "page_refused"),
    ("http://printer.local/", "page_refused"),
    ("http://metadata.google.internal/", "page_refused"),
    ("http://router/", "page_refused"),
    ("http://nas.home.arpa/", "page_refused"),
    ("http://gateway.example.org/", "page_refused"),
    ("http://GATEWAY.example.org/", "page_refused"),
    ("http://example.org:22/", "page_refused"),
    ("http://example.org:0/", "invalid_arguments"),
    ("http://example.org:99999/", "invalid_arguments"),
    ("http://example.org:８０/", "invalid_arguments"),
    ("http://user:secret@example.org/", "invalid_arguments"),
    ("http://example.org@127.0.0.1/", "invalid_arguments"),
    ("http://example.org\\@127.0.0.1/", "invalid_arguments"),
    ("http://127.0.0.1\t.example.org/", "invalid_arguments"),
    ("http://exa\u200bmple.org/", "invalid_arguments"),
    ("http:///path", "invalid_arguments"),
    ("http:example.org", "invalid_arguments"),
    ("file:///etc/passwd", "invalid_arguments"),
    ("ftp://example.org/", "invalid_arguments"),
    ("data:text/html,<h1>", "invalid_arguments"),
    ("gopher://example.org/", "invalid_arguments"),
    ("javascript:alert(1)", "invalid_arguments"),
    ("//example.org/", "invalid_arguments"),
    ("http://" + "a" * 64 + ".org/", "invalid_arguments"),
    ("http://-a.example.org/", "invalid_arguments"),
    ("http://a..example.org/", "invalid_arguments"),
    ("http://example.org/" + "a" * 3_000, "invalid_arguments"),
]


@requirement("flow:7", "answers:6")
@pytest.mark.parametrize(("url", "code"), ADDRESSES)
async def test_an_address_that_is_not_public_is_refused_before_anything_is_looked_up(url: str, code: str) -> None:
    names = Names()
    told = await read(url, names, own=("gateway.example.org", "8.8.4.4"))
    assert told["code"] == code and len(told["error"]) < 400 and "secret" not in told["error"]
    assert names.asked == []


LED: list[tuple[str, list[list[str]], str]] = [
    ("private", [PRIVATE], "page_refused"),
    ("one public and one private", [[PUBLIC_STAND_IN, *PRIVATE]], "page_refused"),
    ("one private and one public", [[*PRIVATE, PUBLIC_STAND_IN]], "page_refused"),
    ("loopback", [["127.0.0.1"]], "page_refused"),
    ("loopback as IPv6", [["::1"]], "page_refused"),
    ("mapped", [["::ffff:127.0.0.1"]], "page_refused"),
    ("NAT64", [["64:ff9b::7f00:1"]], "page_refused"),
    ("metadata", [["169.254.169.254"]], "page_refused"),
    ("the gateway's public address", [["8.8.4.4"]], "page_refused"),
    ("no address", [[]], "page_unreachable"),
]


@requirement("flow:7")
@pytest.mark.parametrize(("answers", "code"), [row[1:] for row in LED], ids=[row[0] for row in LED])
async def test_a_name_with_one_private_address_is_not_connected_to(answers: list[list[str]], code: str) -> None:
    async with page_server() as server:
        names = Names({"evil.example.org": answers})
        told = await read(f"http://evil.example.org:{server.port}/", names, ports=(server.port,), own=("8.8.4.4",))
        assert told["code"] == code
        assert server.asked == server.strays == []


@requirement("flow:7")
async def test_a_name_whose_answers_change_is_connected_to_as_it_was_checked() -> None:
    async with page_server() as server:
        server.pages["/"] = answer(b"hello", kind="text/plain")
        names = Names({"evil.example.org": [[PUBLIC_STAND_IN], ["127.0.0.1"]]})
        told = await read(f"http://evil.example.org:{server.port}/", names, ports=(server.port,))
        assert told["text"] == "hello"
        assert names.asked == ["evil.example.org"] and server.strays == []


@requirement("flow:7")
async def test_the_addresses_of_the_gateways_own_name_are_refused() -> None:
    names = Names({"evil.example.org": [[OTHER_STAND_IN]], "home.example.org": [[OTHER_STAND_IN]]})
    told = await read("http://evil.example.org/", names, own=("home.example.org",))
    assert told["code"] == "page_refused" and "this machine itself" in told["error"]


@requirement("flow:7")
@pytest.mark.parametrize(
    ("location", "code"),
    [
        ("http://127.0.0.1:{port}/", "page_refused"),
        ("http://evil.example.org:{port}/", "page_refused"),
        ("http://[::1]:{port}/", "page_refused"),
        ("http://0x7f000001:{port}/", "page_refused"),
        ("//127.0.0.1:{port}/", "page_refused"),
        ("http://example.org:22/", "page_refused"),
        ("http://user:secret@example.org/", "page_refused"),
        ("file:///etc/passwd", "page_refused"),
        ("data:text/plain,hello", "page_refused"),
        ("javascript:1", "page_refused"),
        ("http://[", "page_refused"),
        ("http://nowhere.example.org:{port}/", "page_unreachable"),
        ("/", "page_unreadable"),
    ],
)
async def test_every_redirect_is_checked_again(location: str, code: str) -> None:
    async with page_server() as server:
        server.pages["/"] = leads_to(location.format(port=server.port))
        names = Names({"evil.example.org": [["127.0.0.1"]], "nowhere.example.org": [[]]})
        told = await read(f"http://example.org:{server.port}/", names, ports=(server.port,))
        assert told["code"] == code and server.strays == []
        assert len(server.asked) == (6 if location == "/" else 1)


@requirement("flow:7", "flow:10")
async def test_a_redirect_to_another_host_is_followed_only_while_nothing_was_read() -> None:
    async with page_server() as server:
        server.pages |= {"/": leads_to(f"http://other.example.org:{server.port}/there?q=1"), "/there": answer(b"there")}
        url = f"http://example.org:{server.port}/"
        told = await read(url, Names(), ports=(server.port,), stays=True)
        assert told["code"] == "page_elsewhere" and "other.example.org" in told["error"] and "?q=1" in told["error"]
        assert server.asked_for == ["/"]
        assert (await read(url, Names(), ports=(server.port,)))["text"] == "there"
        server.pages["/"] = leads_to(f"http://www.example.org:{server.port}/there")
        assert (await read(url, Names(), ports=(server.port,), stays=True))["text"] == "there"
        async with page_server() as other:
            server.pages["/"] = leads_to(f"http://example.org:{other.port}/there")
            told = await read(url, Names(), ports=(server.port, other.port), stays=True)
            assert told["code"] == "page_elsewhere" and other.asked == []


async def _endless(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n")
    while True:
        await stream.send(b"<p>more " * 8_192)


async def _endless_chunks(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nTransfer-Encoding: chunked\r\n\r\n")
    while True:
        await stream.send(b"10000\r\n" + b"x" * 65_536 + b"\r\n")


async def _dripping(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n")
    while True:
        await stream.send(b"x")
        await anyio.sleep(0.01)


async def _silent(stream: SocketStream) -> None:
    await anyio.sleep_forever()


async def _header_flood(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\n")
    for number in range(1_000_000):
        await stream.send(f"X-{number}: {'y' * 1_000}\r\n".encode())


async def _early_hints_for_ever(stream: SocketStream) -> None:
    while True:
        await stream.send(b"HTTP/1.1 103 Early Hints\r\n\r\n")


async def _cut(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 100\r\n\r\nhalf")


SERVERS: list[tuple[str, Answer, str]] = [
    ("endless body", _endless, "page_too_large"),
    ("endless chunks", _endless_chunks, "page_too_large"),
    ("a length that is too much", answer(b"").replace(b"Length: 0", b"Length: 99999999"), "page_too_large"),
    ("a length that is none", answer(b"").replace(b"Length: 0", b"Length: -1"), "page_unreadable"),
    ("a bomb of gzip", answer(gzip.compress(b"\0" * 50_000_000), "Content-Encoding: gzip"), "page_unreadable"),
    ("compressed by brotli", answer(b"x", "Content-Encoding: br"), "page_unreadable"),
    ("a bomb of gzip as text", answer(gzip.compress(b"\0" * 50_000_000), kind="text/plain"), "page_type"),
    ("slow drip", _dripping, "page_timeout"),
    ("silence", _silent, "page_timeout"),
    ("header flood", _header_flood, "page_unreadable"),
    ("hints for ever", _early_hints_for_ever, "page_timeout"),
    ("cut in the middle", _cut, "page_unreadable"),
    ("no HTTP", b"SSH-2.0-OpenSSH_9.6\r\n", "page_unreadable"),
    ("HTTP/0.9", b"<html>hello</html>", "page_unreadable"),
    ("HTTP/1.0 with garbage", b"HTTP/1.0 abc\r\n\0\0\r\n\r\n", "page_unreadable"),
    ("nothing", b"", "page_unreadable"),
    ("304 without a body", b"HTTP/1.1 304 Not Modified\r\n\r\n", "page_status"),
    ("a redirect to nowhere", answer(b"", status="302 Found"), "page_status"),
    ("401", answer(b"sign in", 'WWW-Authenticate: Basic realm="x"', status="401 Unauthorized"), "page_status"),
    ("407", answer(b"", status="407 Proxy Authentication Required"), "page_status"),
    ("429", answer(b"", status="429 Too Many Requests"), "page_status"),
    ("500", answer(b"<h1>oops", status="500 Internal Server Error"), "page_status"),
    ("101", b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n", "page_unreadable"),
    ("a PDF", answer(b"%PDF-1.7 ...", kind="application/pdf"), "page_type"),
    ("a PDF that says it is HTML", answer(b"%PDF-1.7 ...", kind="text/html"), "page_type"),
    ("an image that says it is text", answer(b"\x89PNG\r\n\x1a\n" + b"\0" * 99, kind="text/plain"), "page_type"),
    ("bytes that say they are text", answer(b"\x01\x00" * 500, kind="text/plain"), "page_type"),
    ("a type with controls", answer(b"x", kind="application/\x1b[2J"), "page_type"),
    ("a type without end", answer(b"x", kind="a/" + "b" * 5_000), "page_type"),
]


@requirement("flow:7", "answers:1")
@pytest.mark.parametrize(("given", "code"), [row[1:] for row in SERVERS], ids=[row[0] for row in SERVERS])
async def test_a_hostile_server_gets_one_plain_refusal(
    given: Answer, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SECONDS", 1.0)
    async with page_server() as server:
        server.pages["/"] = given
        told = await read(f"http://example.org:{server.port}/", Names(), ports=(server.port,))
        assert told["code"] == code and 0 < len(told["error"]) < 400
        assert told["error"].isprintable() and "text" not in told


PAGES: list[tuple[str, bytes, Callable[[str], bool]]] = [
    ("100,000 attributes", b"<p " + b" ".join(b"a%d=1" % n for n in range(100_000)) + b">hello", "hello".__eq__),
    ("nested 100,000 deep", b"<div>" * 100_000 + b"hello", lambda text: "hello" in text),
    ("unclosed tags", b"<b><i><a><p>" * 10_000 + b"hello", lambda text: "hello" in text),
    ("a table in a table", b"<table><tr><td>" * 20_000 + b"hello", lambda text: "hello" in text),
    ("entities", b"&amp;" * 100_000, lambda text: set(text) == {"&"}),
    ("a comment without end", b"hello<!--" + b"-" * 1_000_000, "hello".__eq__),
    ("null bytes", b"he\0llo" + b" x" * 200, lambda text: "\0" not in text),
    ("scripts", b"<script>evil()</script><style>x{}</style>hello", "hello".__eq__),
    ("invisible words", "he\u200bl\u202elo\U000e0041".encode(), "hello".__eq__),
    ("terminal sequences", b"<pre>he\x1b[2Jllo</pre>", lambda text: "\x1b" not in text),
    ("nothing", b"", "".__eq__),
    ("2 MiB of tags", b"<p>x</p>" * (MAX_BYTES // 8), lambda text: text.startswith("x")),
]


@requirement("flow:7")
@pytest.mark.parametrize(("body", "fits"), [row[1:] for row in PAGES], ids=[row[0] for row in PAGES])
async def test_a_hostile_page_gives_its_text_or_a_plain_refusal_within_the_limits(
    body: bytes, fits: Callable[[str], bool]
) -> None:
    async with page_server() as server:
        server.pages["/"] = answer(body)
        told = await read(f"http://example.org:{server.port}/", Names(), ports=(server.port,))
        if "code" in told:
            assert told["code"] == "page_unreadable" and told["error"]
        else:
            assert fits(told["text"]) and len(told["text"]) <= MAX_CHARACTERS


@requirement("flow:7", "answers:1")
@pytest.mark.parametrize(
    ("body", "limit"),
    [
        (b"<p " + b" ".join(b"a%d=1" % number for number in range(200_000)) + b">hello", "5 s of processor time"),
        (b"<b><i><a><p>" * 170_000, "512 MiB of memory"),
    ],
    ids=["processor time", "memory"],
)
async def test_a_page_that_takes_more_than_its_reader_may_is_refused_with_the_limit(body: bytes, limit: str) -> None:
    async with page_server() as server:
        server.pages["/"] = answer(body)
        told = await read(f"http://example.org:{server.port}/", Names(), ports=(server.port,))
        assert told["code"] == "page_unreadable" and limit in told["error"]


READERS = {
    "sleeps for ever": "import time; time.sleep(1000)",
    "leaves a child behind that holds its output": """
        import os, time
        if os.fork() == 0:
            time.sleep(1000)
        """,
    "writes for ever": """
        import sys
        while True:
            sys.stdout.write("x" * 65536)
        """,
    "writes something else": "print('hello')",
    "writes another form": "print('[]')",
    "breaks": "import os; os.abort()",
    "does not read": "import sys; sys.stdin.close(); print('{')",
}
"""What code in the page's reader could do that a page has taken over."""


@requirement("flow:7", "answers:1")
@pytest.mark.parametrize("does", READERS)
async def test_whatever_the_reader_does_the_call_ends_and_no_process_is_left(
    does: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mark = tmp_path / "reader.py"
    mark.write_text(textwrap.dedent(READERS[does]), "utf-8")
    monkeypatch.setattr(page_text, "PROGRAM", mark)
    monkeypatch.setattr(page_text, "SECONDS", 2.0)
    async with page_server() as server:
        server.pages["/"] = answer(b"<p>x" * 400_000)
        told = await read(f"http://example.org:{server.port}/", Names(), ports=(server.port,))
        assert told["code"] == "page_unreadable" and told["error"]
        left = [each for each in psutil.process_iter(["cmdline"]) if str(mark) in (each.info["cmdline"] or ())]
        with anyio.fail_after(SECONDS):
            while any(each.is_running() and each.status() != psutil.STATUS_ZOMBIE for each in left):
                await anyio.sleep(0.01)
