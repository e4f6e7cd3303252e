"""`search_web`: what goes to the engine, what comes back, and what rude engines get."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from anyio.abc import SocketStream

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.classification import Integrity
from antiphon.tools.web import fetching
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.approvals.test_approvals import S, decide, pending
from tests.engine.approvals.test_standing_approvals import allow_always
from tests.engine.parley import target_of
from tests.engine.stage import ask, config, find_session, open_session, post, wait_end
from tests.tools.web.page_server import Answer, Names, PageServer, answer, leads_to, page_server
from tests.tools.web.search_fakes import BRAVE, SEARXNG, asked_of, brave, brave_result, searxng, searxng_result

pytestmark = pytest.mark.anyio
KEY = "brave-key-of-the-test"


@asynccontextmanager
async def engine(
    open_home: OpenHome, kind: str = "searxng", *, tools: Any = (), **search: Any
) -> AsyncGenerator[tuple[App, PageServer]]:
    async with page_server() as server:
        url = f"http://engine.example.org:{server.port}"
        keyed = {"key_env": "TEST_BRAVE_KEY"} if kind == "brave" else {}
        setting = {"kind": kind, "url": url, **keyed, **search}
        settings = config(tools={"search_web": setting, "fetch_page": {"ports": [server.port]}})
        async with open_home(settings, Parts(network=Names().network, tools=tools)) as app:
            await open_session(app, S)
            yield app, server


async def search(app: App, query: str = "opening hours", **arguments: Any) -> Any:
    with anyio.fail_after(60):
        return await app.tool_calls.call(
            OWNER, target_of(app, await find_session(app, S)), "search_web", {"query": query, **arguments}
        )


@pytest.fixture(autouse=True)
def key(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEST_BRAVE_KEY", KEY)


@requirement("flow:7")
async def test_searxng_answers_with_titles_addresses_and_snippets(open_home: OpenHome) -> None:
    async with engine(open_home) as (app, server):
        server.pages[SEARXNG] = searxng(
            searxng_result("Opening\n hours", "https://library.example.org/hours?a=1", "Nine to\u202e six.\x1b[2J"),
            searxng_result("No page", "magnet:?xt=1", ""),
            searxng_result("Long", "https://long.example.org/", "x" * 1_000),
        )
        told = await search(app, "öffnungszeiten & mehr")
        assert told["status"] == "ok" and told["count"] == 2
        first, second = told["results"]
        assert first == {
            "title": "Opening hours",
            "url": "https://library.example.org/hours?a=1",
            "snippet": "Nine to six.[2J",
        }
        assert len(second["snippet"]) == 400
        assert asked_of(server) == {"q": ["öffnungszeiten & mehr"], "format": ["json"]}


@requirement("flow:7")
async def test_brave_gets_its_key_in_a_header_and_nobody_else_does(open_home: OpenHome) -> None:
    async with engine(open_home, "brave") as (app, server):
        page = f"http://library.example.org:{server.port}/hours"
        server.pages |= {
            BRAVE: brave(brave_result("Hours", page, "Nine to six."), brave_result("More", "https://b.org/", "")),
            "/hours": answer(b"<title>Hours</title><p>From nine to six."),
        }
        told = await search(app, read=1)
        first, second = told["results"]
        assert first["page"]["text"] == "From nine to six." and "page" not in second
        asked_engine, asked_page = server.asked
        assert f"X-Subscription-Token: {KEY}".encode() in asked_engine and KEY.encode() not in asked_page
        assert b"count=10" in asked_engine and KEY not in json.dumps(told)


async def test_a_page_that_fails_says_so_in_its_row(open_home: OpenHome) -> None:
    async with engine(open_home) as (app, server):
        server.pages |= {
            SEARXNG: searxng(
                searxng_result("Gone", f"http://a.example.org:{server.port}/gone", ""),
                searxng_result("Mine", "http://127.0.0.1/", ""),
                searxng_result("Good", f"http://b.example.org:{server.port}/good", ""),
            ),
            "/good": answer(b"good", kind="text/plain"),
        }
        told = await search(app, read=3)
        assert [each["page"].get("text", each["page"].get("code")) for each in told["results"]] == [
            "page_status",
            "page_refused",
            "good",
        ]


async def _slow(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n{")
    await anyio.sleep_forever()


async def _endless(stream: SocketStream) -> None:
    await stream.send(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[")
    while True:
        await stream.send(b"1," * 8_192)


RUDE: list[tuple[str, str, Answer, str, str]] = [
    ("JSON is off", "searxng", answer(b"", status="403 Forbidden"), "search_failed", "search.formats"),
    ("too many", "searxng", answer(b"", status="429 Too Many Requests"), "search_limited", "later"),
    ("HTML", "searxng", answer(b"<html>results"), "search_failed", "no JSON"),
    ("cut", "searxng", b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n{", "search_failed", "as it should"),
    ("slow", "searxng", _slow, "search_failed", "too long"),
    ("endless", "searxng", _endless, "search_failed", "too long"),
    ("deep", "searxng", answer(b"[" * 200_000), "search_failed", "no JSON"),
    ("many values", "searxng", answer(b"[" + b"1," * 200_000 + b"1]"), "search_failed", "no JSON"),
    ("no object", "searxng", answer(b"[]"), "search_failed", "no JSON"),
    ("results that are none", "searxng", answer(b'{"results": 7}'), "search_failed", "no JSON"),
    ("half a character", "searxng", answer(b'{"results": "\\ud800"}'), "search_failed", "no JSON"),
    ("leads on", "brave", leads_to("http://evil.example.org/"), "search_failed", "as it should"),
    ("a refused key", "brave", answer(b"{}", status="401 Unauthorized"), "search_failed", "key_env"),
    ("a wrong key", "brave", answer(b"{}", status="422 Unprocessable Entity"), "search_failed", "key_env"),
    ("broken", "brave", answer(b"", status="503 Service Unavailable"), "search_failed", "503"),
    ("nothing", "brave", b"", "search_failed", "as it should"),
]


@requirement("answers:1")
@pytest.mark.parametrize(("kind", "given", "code", "said"), [row[1:] for row in RUDE], ids=[row[0] for row in RUDE])
async def test_a_rude_engine_gets_one_plain_failure(
    open_home: OpenHome, kind: str, given: Answer, code: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetching, "SECONDS", 2.0)
    async with engine(open_home, kind) as (app, server):
        server.pages[BRAVE if kind == "brave" else SEARXNG] = given
        told = await search(app, "a secret query", read=1)
        assert (told["status"], told["code"]) == ("error", code) and said in told["error"]
        assert KEY not in told["error"] and "secret" not in told["error"] and len(server.asked) == 1


async def test_rows_that_are_none_are_left_out(open_home: OpenHome) -> None:
    async with engine(open_home) as (app, server):
        good = searxng_result("Good", "https://good.example.org/", "")
        server.pages[SEARXNG] = searxng(
            None, 7, [], {}, {"url": 7}, {"url": "x"}, {**good, "title": None, "content": []}
        )
        assert (await search(app))["results"] == [{"title": "", "url": "https://good.example.org/", "snippet": ""}]
        server.pages[SEARXNG] = searxng()
        assert (await search(app, "nothing"))["results"] == []


@requirement("flow:2", "flow:10", "approvals:3")
async def test_after_a_search_each_further_one_asks_until_an_owner_allows_any(open_home: OpenHome) -> None:
    async with engine(open_home) as (app, server):
        server.pages[SEARXNG] = searxng(searxng_result("A", "https://a.example.org/", "a"))
        await ask(app, S, to_call("search_web", query="one"))
        assert (await find_session(app, S)).taint.integrity is Integrity.UNTRUSTED
        await post(app, S, to_call("search_web", query="two"))
        (approval,) = await pending(app)
        await app.services.approvals.resolve(OWNER, approval.id, Verdict.ALWAYS, fields={"1": ()})
        assert approval.run is not None
        await wait_end(app, approval.run)
        assert "a.example.org" in ((await ask(app, S, to_call("search_web", query="three"))).reply or "")
        await post(app, S, to_call("fetch_page", urls=["https://a.example.org/"]))
        (approval,) = await pending(app)
        await decide(app, approval, Verdict.DENY)


async def test_always_means_the_same_query_unless_fields_are_named(open_home: OpenHome) -> None:
    async with engine(open_home) as (app, server):
        server.pages[SEARXNG] = searxng()
        await ask(app, S, to_call("search_web", query="one"))
        await post(app, S, to_call("search_web", query="two"))
        (approval,) = await pending(app)
        await allow_always(app, approval)
        assert approval.run is not None
        await wait_end(app, approval.run)
        await post(app, S, to_call("search_web", query="three"))
        await decide(app, (await pending(app))[0], Verdict.DENY)


@requirement("flow:7")
@pytest.mark.parametrize("clearance", [None, {"level": "CONFIDENTIAL"}])
async def test_a_confidential_context_searches_only_if_the_engine_may_have_it(
    open_home: OpenHome, clearance: dict[str, str] | None
) -> None:
    def books() -> str:
        """Reads."""
        return "the accounts"

    secret = tool(books, effects=["reads"], classification={"level": "CONFIDENTIAL"})
    given: dict[str, Any] = {} if clearance is None else {"clearance": clearance}
    async with engine(open_home, tools=[secret], **given) as (app, server):
        server.pages[SEARXNG] = searxng()
        await ask(app, S, to_call("books"))
        told = json.loads((await ask(app, S, to_call("search_web", query="accounts"))).reply or "")
        assert told.get("code") == (None if clearance else "write_down")
        assert len(server.asked) == (1 if clearance else 0)


@requirement("config:1")
@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"kind": "searxng"}, "needs url"),
        ({"kind": "brave"}, "needs key_env"),
        ({"kind": "google"}, "searxng"),
        ({"kind": "searxng", "url": "http://user:word@127.0.0.1"}, "password"),
        ({"kind": "searxng", "url": "http://127.0.0.1/?q=1"}, "without ?"),
    ],
)
def test_a_setting_that_cannot_work_stops_the_start(settings: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said.replace("?", r"\?")):
        Config.model_validate({"tools": {"search_web": settings}})


async def test_without_an_engine_there_is_no_such_tool(open_home: OpenHome) -> None:
    async with open_home() as app:
        assert app.tools.find("search_web") is None and app.tools.find("fetch_page") is not None
