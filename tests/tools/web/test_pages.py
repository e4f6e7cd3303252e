"""What pages say: their encodings, kinds, titles and links, and the parts of long ones."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from antiphon.policy.web_addresses import WebRules
from antiphon.tools.web.page_text import PROGRAM
from antiphon.tools.web.pages import MAX_CHARACTERS
from tests.claims import requirement
from tests.tools.web.page_server import Names, answer, leads_to, page_server
from tests.tools.web.test_hostile_pages import read

pytestmark = pytest.mark.anyio

CHARSETS = [
    ("text/html; charset=utf-8", "<p>grün", "utf-8", "grün"),
    ("text/html; charset=iso-8859-1", "<p>grün – €", "cp1252", "grün – €"),
    ("text/html", '<meta charset="koi8-r"><p>мир', "koi8-r", "мир"),
    ("text/html", '<meta http-equiv=Content-Type content="text/html; charset=shift_jis"><p>世界', "shift_jis", "世界"),
    ("text/html", "<p>grün", "cp1252", "grün"),
    ("text/html; charset=utf-8", "\ufeff<p>grün", "utf-16-le", "grün"),
    ("text/html; charset=koi8-r", "\ufeff<p>grün", "utf-8", "grün"),
    ("text/plain; charset=gb2312", "世界", "gb18030", "世界"),
    ("text/plain; charset=nonsense", "grün", "utf-8", "grün"),
    ("text/plain; charset=utf-8", "grün", "cp1252", "gr\ufffdn"),
    ("text/plain; charset=zlib", "plain", "utf-8", "plain"),
    ("text/plain; charset=utf-7", "a +AGI- b", "utf-8", "a +AGI- b"),
    ("text/plain; charset=unicode_escape", "a\\x41", "utf-8", "a\\x41"),
]


@pytest.mark.parametrize(("kind", "text", "encoding", "shown"), CHARSETS)
async def test_a_page_is_read_in_its_encoding(kind: str, text: str, encoding: str, shown: str) -> None:
    async with page_server() as server:
        server.pages["/"] = answer(text.encode(encoding), kind=kind)
        told = await read(f"http://example.org:{server.port}/", Names(), ports=(server.port,))
        assert told["text"] == shown


async def test_html_is_told_with_its_title_its_links_and_its_last_address() -> None:
    links = "One <a href='/one'>link</a>, <a href='#top'>top</a>.<a name=x></a>"
    html = f"<title> News &amp; more\n</title><h1>News</h1><p>{links}"
    async with page_server() as server:
        server.pages |= {"/old": leads_to("/new?q=grün"), "/new": answer(html.encode())}
        told = await read(f"http://example.org:{server.port}/old#part", Names(), ports=(server.port,))
        assert told == {
            "url": f"http://example.org:{server.port}/old",
            "finalUrl": f"http://example.org:{server.port}/new?q=gr%C3%BCn",
            "title": "News & more",
            "type": "text/html",
            "text": "News\n\nOne link (/one), top.",
        }


@pytest.mark.parametrize("kind", ["text/plain", "application/json", "application/feed+json", "application/rss+xml", ""])
async def test_other_texts_come_as_they_are(kind: str) -> None:
    async with page_server() as server:
        server.pages["/"] = answer(b'{"a": [1,  2]}', kind=kind)
        told = await read(f"http://example.org:{server.port}/", Names(), ports=(server.port,))
        assert told["text"] == '{"a": [1,  2]}'


async def test_a_long_page_is_read_on_by_its_parts() -> None:
    whole = "".join(f"{number:06d} " for number in range(15_000))
    async with page_server() as server:
        server.pages["/"] = answer(whole.encode(), kind="text/plain")
        url, ports = f"http://example.org:{server.port}/", (server.port,)
        found = [await read(url, Names(), ports=ports, part=part) for part in (1, 2, 3)]
        assert "".join(each["text"] for each in found) == whole.strip()
        assert [(each["part"], each["parts"]) for each in found] == [(1, 3), (2, 3), (3, 3)]
        assert max(len(each["text"]) for each in found) == MAX_CHARACTERS
        told = await read(url, Names(), ports=ports, part=4)
        assert told["code"] == "page_part" and "3 parts" in told["error"]


@requirement("flow:7")
async def test_a_request_says_no_more_than_it_must() -> None:
    async with page_server() as server:
        server.pages["/"] = answer(b"hello", "Set-Cookie: a=1")
        for _ in range(2):
            await read(f"http://grün.example.org:{server.port}/", Names(), ports=(server.port,))
        names = [
            sorted(line.partition(b":")[0].decode().lower() for line in head.split(b"\r\n")[1:] if line)
            for head in server.asked
        ]
        assert names == [["accept", "accept-encoding", "host", "user-agent"]] * 2
        assert f"Host: xn--grn-ioa.example.org:{server.port}".encode() in server.asked[0]


async def test_no_proxy_of_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with page_server() as server:
        server.pages["/"] = answer(b"hello")
        assert (await read(f"http://example.org:{server.port}/", Names(), ports=(server.port,)))["text"] == "hello"


@requirement("flow:7")
async def test_private_addresses_are_reached_only_as_the_settings_name_them() -> None:
    names = Names({"nas.lan": [["10.0.0.7"]], "evil.example.org": [["10.0.0.7"]]})
    for url in ("http://nas.lan/", "http://10.0.0.7/", "http://evil.example.org/"):
        assert (await read(url, names))["code"] == "page_refused"
    allowed = WebRules(private=("nas.lan", "10.0.1.0/24"))
    assert allowed.admits("nas.lan", ip_address("10.0.0.7")) and allowed.admits("any.org", ip_address("10.0.1.9"))
    assert not allowed.admits("any.org", ip_address("10.0.0.7"))
    for never in ("127.0.0.1", "169.254.169.254", "0.0.0.0", "::1", "fe80::1"):
        assert (await read("http://nas.lan/", Names({"nas.lan": [[never]]}), private=("nas.lan", never)))["code"] == (
            "page_refused"
        )


async def test_a_refusal_names_a_setting_only_where_it_helps_and_tells_not_where_a_name_leads() -> None:
    setting = "tools.fetch_page.private"
    for url, is_helped in (("http://192.168.1.1/", True), ("http://169.254.169.254/", False), ("http://[::1]/", False)):
        assert (setting in (await read(url, Names()))["error"]) is is_helped
    said = [
        (await read("http://nas.example.org/", Names({"nas.example.org": [[answer]]})))["error"]
        for answer in ("10.0.0.7", "127.0.0.1", "169.254.169.254")
    ]
    assert len(set(said)) == 1 and setting in said[0]


async def test_hosts_limit_every_step() -> None:
    async with page_server() as server:
        server.pages["/"] = leads_to(f"http://other.org:{server.port}/")
        rules: dict[str, Any] = {"ports": (server.port,), "hosts": ("example.org", "*.example.org")}
        assert (await read(f"http://other.org:{server.port}/", Names(), **rules))["code"] == "page_refused"
        assert (await read(f"http://www.example.org:{server.port}/", Names(), **rules))["code"] == "page_refused"
        assert server.asked_for == ["/"]


def test_the_program_of_the_child_imports_nothing_of_this_project() -> None:
    assert "antiphon" not in Path(PROGRAM).read_text("utf-8").replace("page_text_program", "")
