"""`fetch_page` in conversations: who has it, what it may carry, when it asks, and what "always" allows."""

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from antiphon.agents.toolset import Toolset, tool
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Approval, Verdict
from antiphon.domain.classification import Integrity, Level
from antiphon.domain.errors import Invalid
from antiphon.domain.ids import AgentId
from antiphon.domain.run import RunStatus
from antiphon.policy.standing import Standing
from antiphon.store.people import find_standing
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.access.test_people import ROLES, hear, invite
from tests.engine.approvals.test_approvals import S, decide, pending
from tests.engine.approvals.test_standing_approvals import allow_always, standing
from tests.engine.parley import target_of
from tests.engine.stage import ask, config, find_session, open_session, post, wait_end
from tests.tools.web.page_server import Names, PageServer, answer, leads_to, page_server

pytestmark = pytest.mark.anyio


class Web:
    """A home whose agent reads pages of a server of ours."""

    def __init__(self, app: App, server: PageServer, names: Names) -> None:
        self.app = app
        self.server = server
        self.names = names

    def url(self, path: str = "/", host: str = "example.org") -> str:
        return f"http://{host}:{self.server.port}{path}"

    def call(self, *paths: str, host: str = "example.org", **arguments: Any) -> str:
        return to_call("fetch_page", urls=[self.url(path, host) for path in paths or ("/",)], **arguments)

    async def fetches(self, *paths: str, host: str = "example.org", **arguments: Any) -> dict[str, Any]:
        """What the agent is told, in a run that is not asked about it."""
        run = await ask(self.app, S, self.call(*paths, host=host, **arguments))
        assert run.status is RunStatus.OK and run.reply is not None
        return json.loads(run.reply)

    async def asks(self, *lines: str) -> Approval:
        """The request of a run that waits."""
        await post(self.app, S, "\n".join(lines))
        (approval,) = await pending(self.app)
        return approval

    async def has_read(self) -> None:
        """The session has read a page."""
        assert (await self.fetches())["status"] == "ok"
        self.server.asked.clear()


@asynccontextmanager
async def web(open_home: OpenHome, *, tools: Sequence[Any] = (), **settings: Any) -> AsyncGenerator[Web]:
    names = Names({"evil.example.org": [["10.0.0.7"]]})
    async with page_server() as server:
        server.pages |= {
            "/": answer(b"<title>Home</title><p>Welcome."),
            "/one": answer(b"one", kind="text/plain"),
            "/two": answer(b"two", kind="text/plain"),
        }
        of_pages = {"ports": [server.port], **settings.pop("fetch_page", {})}
        found = config(tools={"fetch_page": of_pages, **settings.pop("tools", {})}, **settings)
        async with open_home(found, Parts(network=names.network, tools=tools)) as app:
            await open_session(app, S)
            yield Web(app, server, names)


@requirement("flow:2", "flow:10")
async def test_a_fresh_agent_reads_several_pages_in_one_call_and_then_each_further_call_asks(
    open_home: OpenHome,
) -> None:
    async with web(open_home) as home:
        told = await home.fetches("/one", "/gone", "/two")
        assert told["status"] == "ok"
        assert [page.get("text", page.get("code")) for page in told["pages"]] == ["one", "page_status", "two"]
        session = await find_session(home.app, S)
        assert session.taint.integrity is Integrity.UNTRUSTED and session.taint.level is Level.PUBLIC
        approval = await home.asks(home.call("/one"))
        (call,) = approval.calls
        assert call.is_untrusted and call.tool == "fetch_page"
        assert f"Always would allow every page of example.org:{home.server.port}." in call.reason
        await decide(home.app, approval, Verdict.ONCE)


@requirement("approvals:3", "flow:10")
async def test_always_allows_every_page_of_the_hosts_and_no_other(open_home: OpenHome) -> None:
    async with web(open_home) as home:
        await home.has_read()
        approval = await home.asks(home.call("/one"))
        await allow_always(home.app, approval)
        assert approval.run is not None
        await wait_end(home.app, approval.run)
        (allowed,) = await standing(home.app)
        assert allowed.fields == ("host",) and json.loads(allowed.arguments) == {
            "host": [f"example.org:{home.server.port}"]
        }
        assert (await home.fetches("/two", part=1))["pages"][0]["text"] == "two"
        assert (await home.fetches("/one", "/two"))["status"] == "ok"
        for others in (["/one", "/two"], ["/one"]):
            urls = [home.url(others[0], "other.org"), *(home.url(path) for path in others[1:])]
            approval = await home.asks(to_call("fetch_page", urls=urls))
            await decide(home.app, approval, Verdict.DENY)
        for lookalike in ("example.org.evil.org", "www.example.org", "xexample.org"):
            approval = await home.asks(home.call("/", host=lookalike))
            await decide(home.app, approval, Verdict.DENY)


@requirement("approvals:3")
async def test_always_for_two_hosts_covers_calls_of_one_of_them(open_home: OpenHome) -> None:
    async with web(open_home) as home:
        await home.has_read()
        both = [home.url("/one"), home.url("/one", "other.org")]
        approval = await home.asks(to_call("fetch_page", urls=both))
        assert (
            "every page of example.org" in approval.calls[0].reason and " and of other.org" in approval.calls[0].reason
        )
        await allow_always(home.app, approval)
        assert approval.run is not None
        await wait_end(home.app, approval.run)
        assert (await home.fetches("/two", host="other.org"))["status"] == "ok"
        approval = await home.asks(to_call("fetch_page", urls=[*both, home.url("/", "third.org")]))
        await decide(home.app, approval, Verdict.DENY)


@requirement("approvals:3")
async def test_an_owner_may_fix_the_exact_addresses_instead(open_home: OpenHome) -> None:
    async with web(open_home) as home:
        await home.has_read()
        approval = await home.asks(home.call("/one"))
        with pytest.raises(Invalid) as refused:
            await allow_always(home.app, approval, "part")
        assert refused.value.code in ("route_open", "invalid_always")
        await allow_always(home.app, approval, "urls")
        assert approval.run is not None
        await wait_end(home.app, approval.run)
        assert (await home.fetches("/one"))["status"] == "ok"
        approval = await home.asks(home.call("/two"))
        await decide(home.app, approval, Verdict.DENY)


@requirement("flow:10")
async def test_an_allowed_host_leads_to_no_other(open_home: OpenHome) -> None:
    async with web(open_home) as home:
        home.server.pages["/out"] = leads_to(home.url("/one?secret", "other.org"))
        assert (await home.fetches("/out"))["pages"][0]["text"] == "one"  # nothing was read before
        home.server.asked.clear()
        approval = await home.asks(home.call("/out", part=1))
        await allow_always(home.app, approval)
        assert approval.run is not None
        run = await wait_end(home.app, approval.run)
        assert json.loads(run.reply or "")["code"] == "page_elsewhere"
        assert home.server.asked_for == ["/out"]


@requirement("flow:10", "answers:6")
async def test_a_bad_address_is_refused_before_anybody_is_asked_and_changes_nothing(open_home: OpenHome) -> None:
    async with web(open_home) as home:
        for url, code in (("http://127.0.0.1/", "page_refused"), ("ftp://example.org/", "invalid_arguments")):
            run = await ask(home.app, S, to_call("fetch_page", urls=[url]))
            assert json.loads(run.reply or "")["code"] == code
        assert (await home.fetches("/", host="evil.example.org"))["code"] == "page_refused"
        assert (await find_session(home.app, S)).taint.integrity is Integrity.TRUSTED
        await home.has_read()
        for url, code in (("http://127.0.0.1/", "page_refused"), ("ftp://example.org/", "invalid_arguments")):
            run = await ask(home.app, S, to_call("fetch_page", urls=[home.url(), url]))
            assert run.status is RunStatus.OK and json.loads(run.reply or "")["code"] == code
        assert home.server.asked == []


@requirement("flow:7")
async def test_a_confidential_context_fetches_nothing(open_home: OpenHome) -> None:
    def books() -> str:
        """Reads."""
        return "the accounts"

    secret = tool(books, effects=["reads"], classification={"level": "CONFIDENTIAL"})
    async with web(open_home, tools=[secret]) as home:
        await ask(home.app, S, to_call("books"))
        assert (await home.fetches())["code"] == "write_down"
        told = await home.app.tool_calls.call(
            OWNER, target_of(home.app, await find_session(home.app, S)), "fetch_page", {"urls": [home.url()]}
        )
        assert told["code"] == "write_down" and home.server.asked == []


@requirement("flow:10", "approvals:1")
async def test_a_host_allowed_to_a_person_leads_to_no_other_though_nothing_was_read(open_home: OpenHome) -> None:
    async with web(open_home) as home:
        home.server.pages["/out"] = leads_to(home.url("/one?secret", "other.org"))
        ann = await invite(home.app)
        run_id = await hear(home.app, ann, "one", home.call("/one"))
        (approval,) = await pending(home.app)
        await allow_always(home.app, approval)
        await wait_end(home.app, run_id)
        home.server.asked.clear()
        run = await wait_end(home.app, await hear(home.app, ann, "two", home.call("/out")))
        assert json.loads(run.reply or "")["code"] == "page_elsewhere"
        assert home.server.asked_for == ["/out"]


@requirement("access:4", "tools:1", "flow:10")
async def test_guests_lack_it_unless_it_is_named_and_children_have_it(open_home: OpenHome) -> None:
    named = {"access__roles__guest__tools": ["fetch_page"]}
    for settings, has_it in (({}, False), (named, True)):
        async with web(open_home, **settings) as home:
            eve = await invite(home.app, "Eve", ROLES.GUEST)
            rights = await home.app.database.read(find_standing, eve)
            owner = await home.app.database.read(find_standing, OWNER)

            def given(standing: Standing, depth: int, app: App = home.app) -> Toolset:
                return app.tools.for_session(AgentId("main"), depth, standing, app.services.rules)

            assert (given(rights, 0).find("fetch_page") is not None) is has_it
            assert given(owner, 0).find("fetch_page") is not None
            assert given(owner, 1).find("fetch_page") is not None
            assert given(owner, 1).that_read().find("fetch_page") is not None


@requirement("approvals:1")
async def test_a_person_below_owner_is_asked_from_the_first_page_on(open_home: OpenHome) -> None:
    async with web(open_home) as home:
        ann = await invite(home.app)
        run_id = await hear(home.app, ann, "one", home.call("/one"))
        (approval,) = await pending(home.app)
        await allow_always(home.app, approval)
        assert "one" in ((await wait_end(home.app, run_id)).reply or "")
        assert (await standing(home.app))[0].fields == ("host",)


@requirement("tools:1")
async def test_an_agent_may_be_without_it(open_home: OpenHome) -> None:
    without: list[dict[str, Any]] = [
        {"fetch_page": {"enabled": False}},
        {"agents__defaults": {"tools": {"allow": ["other"]}}},
    ]
    for settings in without:
        async with web(open_home, **settings) as home:
            run = await ask(home.app, S, home.call())
            assert "unknown_tool" in (run.reply or "") and home.server.asked == []


@requirement("runs:8")
async def test_a_call_of_unknown_outcome_is_not_repeated(open_home: OpenHome) -> None:
    async with web(open_home) as home:
        found = home.app.tools.find("fetch_page")
        assert found is not None and not found.is_idempotent
