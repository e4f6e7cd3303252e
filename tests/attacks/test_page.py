"""Attempts at the page and its streams: by nobody, by pages of other origins, by other users of the machine."""

# ruff: noqa: E501 - a row is one line

import os
import re
import subprocess
import threading
from collections.abc import Generator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from playwright.sync_api import Browser, Page, expect

from antiphon.domain.actor import OWNER
from antiphon.domain.message import text_content
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.cli.program import COMMAND, environment, serving
from tests.gateway.conftest import browser as browser
from tests.gateway.served_page import TOKEN, LiveGateway
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS, SECONDS, until

NOBODY, PAGE, LOCAL = Attacker.NOBODY, Attacker.PAGE, Attacker.LOCAL_USER
PLANTED = "planted-9f31"


@dataclass(frozen=True, slots=True)
class Stage:
    """A gateway with a secret in a session, and a browser that is signed in."""

    gateway: LiveGateway
    words: dict[str, str]
    """By name, what rows are written with: secrets of the browser that is signed in, and of one that is not any more."""

    @property
    def client(self) -> httpx.Client:
        return httpx.Client(base_url=self.gateway.url, timeout=SECONDS, trust_env=False)

    def link_code(self) -> str:
        return self.gateway.portal.call(self.gateway.app.services.sign_in.new_link_code, OWNER)

    def exchange(self, client: httpx.Client) -> dict[str, str]:
        answer = client.post("/auth/exchange", json={"code": self.link_code()})
        assert answer.status_code == 200
        return answer.json()

    def signed_in(self) -> httpx.Client:
        """A browser of its own."""
        client = self.client
        client.headers["Antiphon-Page"] = self.exchange(client)["pageSecret"]
        client.headers["Origin"] = self.gateway.url
        return client

    def count(self) -> int:
        """Browsers that are signed in and messages that are stored: what a successful write would change."""
        browsers = self.gateway.portal.call(self.gateway.app.services.sign_in.list, OWNER)
        tokens = self.gateway.portal.call(self.gateway.app.services.tokens.list, OWNER)
        return len(browsers) + len(tokens) + len(self.gateway.texts("api:planted"))


@pytest.fixture(scope="module")
def stage(tmp_path_factory: pytest.TempPathFactory) -> Generator[Stage]:
    gateway = LiveGateway(tmp_path_factory.mktemp("attacked") / "home")
    gateway.start()
    services = gateway.app.services

    async def plant() -> None:
        target = services.sessions.target("api:planted")
        await services.sessions.open(OWNER, target)
        await services.inbox.append(OWNER, target, text_content(PLANTED))

    gateway.portal.call(plant)
    stage = Stage(gateway, {"url": gateway.url, "port": gateway.url.rpartition(":")[2]})
    with stage.client as client:
        ended = stage.exchange(client)
        stage.words["ended_page"] = ended["pageSecret"]
        stage.words["ended_cookie"] = client.cookies[f"antiphon_session_{stage.words['port']}"]
        gateway.portal.call(services.tokens.revoke, OWNER, ended["browserId"])
    with stage.client as client:
        stage.words["page"] = stage.exchange(client)["pageSecret"]
        stage.words["cookie"] = client.cookies[f"antiphon_session_{stage.words['port']}"]
    with stage.client as client:
        code = stage.words["used"] = stage.link_code()  # the last, since making one removes those that were used
        stage.words["other_page"] = client.post("/auth/exchange", json={"code": code}).json()["pageSecret"]
    yield stage
    gateway.stop()


BOTH = "antiphon_session_{port}={cookie}"
HISTORY = "/sessions/api:planted/history"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request(Attempt):
    """A request that is to be refused, change nothing and bring nothing back."""

    path: str = HISTORY
    method: str = "GET"
    headers: dict[str, str] = field(default_factory=dict[str, str])
    body: str | None = None
    status: int = 401


def request(
    attacker: Attacker,
    what: str,
    path: str = HISTORY,
    status: int = 401,
    *,
    method: str = "GET",
    body: str | None = None,
    cookie: str = "",
    page: str = "",
    door: Door = Door.PAGE,
    **headers: str,
) -> Request:
    given = {
        "Cookie": cookie,
        "Antiphon-Page": page,
        **{name.replace("_", "-"): text for name, text in headers.items()},
    }
    return Request(
        attacker=attacker,
        door=door,
        what=what,
        path=path,
        method=method,
        body=body,
        status=status,
        headers={name: text for name, text in given.items() if text},
    )


STREAM = "/sessions/api:planted/events"
ENTRIES = "/page/entries?session=api:planted&after=0"
POST = "/sessions/api:planted/messages?append=1"
TEXT = '{{"text": "from an attacker"}}'
EVIL = "http://127.0.0.1:1"

REQUESTS = rows(
    # Another server on 127.0.0.1 gets the cookie, whichever port it listens on, and is a program: it forges all it wants.
    request(LOCAL, "cookie alone reads", cookie=BOTH),
    request(LOCAL, "cookie alone reads the list", "/sessions", cookie=BOTH),
    request(LOCAL, "cookie alone reads the page's content", "/page", cookie=BOTH),
    request(LOCAL, "cookie alone reads the list's fragment", "/page/sessions", cookie=BOTH),
    request(LOCAL, "cookie alone reads earlier messages", "/page/older?session=api:planted&before=9", cookie=BOTH),
    request(LOCAL, "cookie alone reads a head", "/page/header?session=api:planted", cookie=BOTH),
    request(LOCAL, "cookie alone lists browsers", "/page/browsers", cookie=BOTH),
    request(LOCAL, "cookie alone lists tokens", "/tokens", cookie=BOTH),
    request(LOCAL, "cookie alone reads the description", "/openapi.json", cookie=BOTH),
    request(LOCAL, "cookie alone follows", STREAM, cookie=BOTH, door=Door.SSE),
    request(LOCAL, "cookie alone reads the page's entries", ENTRIES, cookie=BOTH),
    request(LOCAL, "cookie and forged Origin read", cookie=BOTH, Origin="{url}"),
    request(LOCAL, "cookie and forged Origin post", POST, method="POST", body=TEXT, cookie=BOTH, Origin="{url}"),
    request(LOCAL, "cookie and forged Origin mint a link", "/auth/link", method="POST", cookie=BOTH, Origin="{url}"),
    request(LOCAL, "cookie and forged Origin mint a token", "/tokens", method="POST", cookie=BOTH, Origin="{url}",
            body='{{"sessionKey": "agent:main:api:planted"}}'),
    request(LOCAL, "cookie and forged Origin replace the token", "/tokens/rotate", method="POST", cookie=BOTH, Origin="{url}"),
    request(LOCAL, "cookie and forged Origin delete", "/sessions/api:planted", method="DELETE", cookie=BOTH, Origin="{url}"),
    request(LOCAL, "cookie and forged Origin sign out", "/auth/sign-out", method="POST", cookie=BOTH, Origin="{url}"),
    request(LOCAL, "cookie and forged Origin call a tool", "/tools/sessions_list", method="POST", cookie=BOTH, Origin="{url}",
            body='{{"sessionKey": "agent:main:api:planted"}}'),
    request(LOCAL, "cookie and forged Origin speak MCP", "/mcp", method="POST", cookie=BOTH, Origin="{url}", door=Door.MCP,
            body='{{"jsonrpc": "2.0", "id": 1, "method": "tools/list"}}'),
    request(LOCAL, "cookie and forged Sec-Fetch-Site", cookie=BOTH, Origin="{url}", Sec_Fetch_Site="same-origin"),
    request(LOCAL, "cookie and a page secret of one sign", cookie=BOTH, page="-"),
    request(LOCAL, "cookie and a guessed page secret", cookie=BOTH, page="0" * 48),
    request(LOCAL, "cookie as the page secret", cookie=BOTH, page="{cookie}"),
    request(LOCAL, "cookie and the page secret of another browser", cookie=BOTH, page="{other_page}"),
    request(LOCAL, "cookie and the page secret of one signed out", cookie=BOTH, page="{ended_page}"),
    request(LOCAL, "cookie as a bearer token", Authorization="Bearer {cookie}"),
    request(LOCAL, "page secret as a bearer token", Authorization="Bearer {page}"),
    request(LOCAL, "page secret alone", page="{page}"),
    request(LOCAL, "page secret as the cookie", cookie="antiphon_session_{port}={page}", page="{cookie}"),
    request(LOCAL, "page secret in the address", f"{HISTORY}?antiphon-page=0", cookie=BOTH),
    request(LOCAL, "both in the cookie of before", cookie="antiphon_session={cookie}", page="{page}"),
    request(LOCAL, "both, the cookie without a port", cookie="antiphon_session_={cookie}", page="{page}"),
    request(LOCAL, "both, the cookie of port 80", cookie="antiphon_session_80={cookie}", page="{page}"),
    request(LOCAL, "both, the cookie of another port", cookie="antiphon_session_1={cookie}", page="{page}"),
    request(LOCAL, "both at another port's name", cookie=BOTH, page="{page}", Host="127.0.0.1:1"),
    request(LOCAL, "both at a name without a port", cookie=BOTH, page="{page}", Host="localhost"),
    request(LOCAL, "both of a browser that was revoked", cookie="antiphon_session_{port}={ended_cookie}", page="{ended_page}"),
    request(LOCAL, "both, at a name of elsewhere", status=403, cookie=BOTH, page="{page}", Host="evil.example:{port}"),
    # Even a page that has both, by whatever way, is refused where the browser tells the truth about it.
    request(PAGE, "both, from another site", status=403, cookie=BOTH, page="{page}", Sec_Fetch_Site="cross-site"),
    request(PAGE, "both, from another port of the host", status=403, cookie=BOTH, page="{page}", Sec_Fetch_Site="same-site"),
    request(PAGE, "both, with a site that nobody knows", status=403, cookie=BOTH, page="{page}", Sec_Fetch_Site="x"),
    request(PAGE, "both, from another site, to a stream", STREAM, 403, cookie=BOTH, page="{page}", Sec_Fetch_Site="cross-site", door=Door.SSE),
    request(PAGE, "both, and another Origin", status=403, cookie=BOTH, page="{page}", Origin=EVIL),
    request(PAGE, "both, and the Origin null", status=403, cookie=BOTH, page="{page}", Origin="null"),
    request(PAGE, "both, and an Origin that begins alike", status=403, cookie=BOTH, page="{page}", Origin="{url}.evil.example"),
    request(PAGE, "both, a write without Origin", POST, 403, method="POST", body=TEXT, cookie=BOTH, page="{page}"),
    request(PAGE, "both, a write from another port", POST, 403, method="POST", body=TEXT, cookie=BOTH, page="{page}", Origin=EVIL),
    request(PAGE, "both, a write as a form", POST, 403, method="POST", body=TEXT, cookie=BOTH, page="{page}",
            Content_Type="text/plain"),
    # Links.
    request(NOBODY, "a link that was used", "/auth/exchange", 403, method="POST", body='{{"code": "{used}"}}'),
    request(NOBODY, "a link that was guessed", "/auth/exchange", 403, method="POST", body='{{"code": "' + "0" * 48 + '"}}'),
    request(NOBODY, "an empty link", "/auth/exchange", 403, method="POST", body='{{"code": ""}}'),
    request(NOBODY, "a cookie as a link", "/auth/exchange", 403, method="POST", body='{{"code": "{cookie}"}}'),
    request(NOBODY, "a page secret as a link", "/auth/exchange", 403, method="POST", body='{{"code": "{page}"}}'),
    request(NOBODY, "half a character as a link", "/auth/exchange", 400, method="POST", body='{{"code": "\\ud800"}}'),
    request(NOBODY, "a link without its code", "/auth/exchange", 422, method="POST", body="{{}}"),
    request(PAGE, "a link from another origin", "/auth/exchange", 403, method="POST", body='{{"code": "x"}}', Origin=EVIL),
    request(NOBODY, "a link is made", "/auth/link", method="POST"),
    # The owner's token.
    request(NOBODY, "an empty token", Authorization="Bearer", door=Door.HTTP),
    request(NOBODY, "a token that was cut", Authorization=f"Bearer {TOKEN[:-1]}", door=Door.HTTP),
    request(NOBODY, "a token's hash", Authorization="Bearer" + "0" * 64, door=Door.HTTP),
    request(NOBODY, "a token of one process", Authorization="Bearer own_" + "0" * 48, door=Door.HTTP),
    request(NOBODY, "a bound token that does not exist", Authorization="Bearer tok_0_0", door=Door.HTTP),
    request(NOBODY, "a token by Basic", Authorization=f"Basic {TOKEN}", door=Door.HTTP),
    request(NOBODY, "a token is replaced", "/tokens/rotate", method="POST", door=Door.HTTP),
    request(NOBODY, "a browser is revoked", "/tokens/brw_0", method="DELETE", door=Door.HTTP),
)  # fmt: skip


@pytest.mark.parametrize("attempt", REQUESTS)
def test_a_request_is_refused_and_changes_nothing(stage: Stage, attempt: Request) -> None:
    before = stage.count()
    headers = {name: text.format(**stage.words) for name, text in attempt.headers.items()}
    content = None if attempt.body is None else attempt.body.format(**stage.words)
    if content is not None:
        headers.setdefault("Content-Type", "application/json")
    with stage.client as client:
        answer = client.request(attempt.method, attempt.path, headers=headers, content=content)
    assert answer.status_code == attempt.status, answer.text
    assert PLANTED not in answer.text and "set-cookie" not in answer.headers
    assert not [word for name, word in stage.words.items() if name not in ("url", "port") and word in answer.text]
    assert stage.count() == before
    own = {"Cookie": BOTH.format(**stage.words), "Antiphon-Page": stage.words["page"]}
    with stage.client as client:
        assert PLANTED in client.get(HISTORY, headers=own).text, "who is signed in stays so"


SHELLS = rows(
    request(NOBODY, "a navigation without anything", "/"),
    request(NOBODY, "a navigation to a session", "/?session=api:planted"),
    request(LOCAL, "a navigation with the cookie", "/?session=api:planted", cookie=BOTH),
    request(LOCAL, "a navigation with both", "/?session=api:planted", cookie=BOTH, page="{page}"),
    request(PAGE, "a navigation from another site", "/?session=api:planted", cookie=BOTH, Sec_Fetch_Site="cross-site"),
    request(PAGE, "a navigation in a frame", "/?session=api:planted", cookie=BOTH, Sec_Fetch_Dest="iframe"),
    request(PAGE, "markup in the address", "/?session=<script>alert(1)</script>", cookie=BOTH),
)


@pytest.mark.parametrize("attempt", SHELLS)
def test_a_navigation_gets_a_shell_that_holds_nothing(stage: Stage, attempt: Request) -> None:
    with stage.client as client:
        empty = client.get("/").text
        answer = client.get(attempt.path, headers={n: t.format(**stage.words) for n, t in attempt.headers.items()})
    assert (answer.status_code, answer.text) == (200, empty)
    assert (
        PLANTED not in empty
        and "planted" not in empty
        and "frame-ancestors 'none'" in answer.headers["content-security-policy"]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Kept(Attempt):
    """A stream that is kept open over the end of what it was let in by."""

    path: str
    end: str


def kept(what: str, end: str, path: str = STREAM) -> Kept:
    return Kept(attacker=LOCAL, door=Door.SSE, what=what, end=end, path=path)


@pytest.mark.parametrize(
    "attempt",
    rows(
        kept("events over a sign-out", "sign-out"),
        kept("events over a revocation", "revoke"),
        kept("events over another link of the same browser", "again"),
        kept("a followed history over a revocation", "revoke", f"{HISTORY}?follow=1"),
    ),
)
def test_a_stream_is_not_kept_over_the_end_of_its_sign_in(stage: Stage, attempt: Kept) -> None:
    with closing(stage.signed_in()) as client:
        browsers = client.get("/tokens").json()["tokens"]
        (own,) = [row["id"] for row in browsers if row.get("isThis")]
        with client.stream("GET", attempt.path, headers={"Last-Event-ID": "0"}) as stream:
            assert stream.status_code == 200
            match attempt.end:
                case "sign-out":
                    assert client.post("/auth/sign-out").status_code == 204
                case "revoke":
                    assert client.delete(f"/tokens/{own}").status_code == 204
                case _:
                    stage.exchange(client)
            received = "".join(stream.iter_text())
        assert received.endswith('event: end\ndata: {"reason":"revoked"}\n\n')


class _Listener(BaseHTTPRequestHandler):
    """Another server of this machine: notes what it gets and answers a page that does as it was told."""

    def do_GET(self) -> None:
        server = self.server
        assert isinstance(server, _EvilServer)
        server.seen.append(f"{self.path}\n{self.headers}")
        body = server.page.encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the library's name

    def log_message(self, format: str, *args: object) -> None:
        pass


class _EvilServer(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Listener)
        self.seen: list[str] = []
        self.page = "<!doctype html><title>other</title><body>"
        threading.Thread(target=self.serve_forever, daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


@contextmanager
def evil_server() -> Generator[_EvilServer]:
    with _EvilServer() as server:
        yield server
        server.shutdown()


@dataclass(frozen=True, slots=True)
class Visit:
    """A browser that is signed in, and visits a page of another port of the same host."""

    stage: Stage
    own: Page
    evil: Page
    server: _EvilServer


@pytest.fixture(scope="module")
def visit(stage: Stage, browser: Browser) -> Generator[Visit]:
    with ExitStack() as stack:
        server = stack.enter_context(evil_server())
        context = browser.new_context()
        context.set_default_timeout(1000 * PROCESS_SECONDS)
        stack.callback(context.close)
        own = context.new_page()
        own.goto(f"{stage.gateway.url}/?session=api:planted#code={stage.link_code()}")
        expect(own.locator("#entries")).to_contain_text(PLANTED)
        evil = context.new_page()
        evil.goto(server.url)
        yield Visit(stage, own, evil, server)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script(Attempt):
    """What a page of another port tries in the browser; it gives what it could read."""

    script: str


def script(what: str, text: str) -> Script:
    return Script(attacker=PAGE, door=Door.PAGE, what=what, script=text)


FETCH = "async (url) => { try { const a = await fetch(url + '%s', %s); return a.type + a.status + await a.text(); } catch (e) { return 'refused'; } }"
ELEMENT = "(url) => new Promise(done => { const e = document.createElement('%s'); e.onload = () => done('loaded ' + (e.contentDocument?.body?.textContent ?? '')); e.onerror = () => done('refused'); e.%s = url + '%s'; document.body.append(e); setTimeout(() => done('nothing'), 3000); })"

SCRIPTS = rows(
    script("fetch with credentials", FETCH % (HISTORY, "{credentials: 'include'}")),
    script("fetch without CORS", FETCH % (HISTORY, "{credentials: 'include', mode: 'no-cors'}")),
    script("fetch with a page secret of its own", FETCH % ("/page", "{credentials: 'include', headers: {'Antiphon-Page': 'x'}}")),
    script("fetch of the content", FETCH % ("/page?session=api:planted", "{credentials: 'include'}")),
    script("post as a form", FETCH % (POST, "{credentials: 'include', mode: 'no-cors', method: 'POST', body: new URLSearchParams({text: 'x'})}")),
    script("post as text", FETCH % (POST, "{credentials: 'include', mode: 'no-cors', method: 'POST', body: '{\"text\": \"x\"}'}")),
    script("mint a link", FETCH % ("/auth/link", "{credentials: 'include', mode: 'no-cors', method: 'POST'}")),
    script("sign out", FETCH % ("/auth/sign-out", "{credentials: 'include', mode: 'no-cors', method: 'POST'}")),
    script("replace the token", FETCH % ("/tokens/rotate", "{credentials: 'include', mode: 'no-cors', method: 'POST'}")),
    script("delete with a preflight", FETCH % ("/sessions/api:planted", "{credentials: 'include', method: 'DELETE'}")),
    script("take a link's code", FETCH % ("/auth/exchange", "{mode: 'no-cors', method: 'POST', body: '{\"code\": \"x\"}'}")),
    script("EventSource", "(url) => new Promise(done => { const s = new EventSource(url + '/sessions/api:planted/events', {withCredentials: true}); s.onmessage = e => done(e.data); s.addEventListener('user_message', e => done(e.data)); s.onerror = () => done('refused'); })"),
    script("frame", ELEMENT % ("iframe", "src", "/?session=api:planted")),
    script("frame of the content", ELEMENT % ("iframe", "src", "/page?session=api:planted")),
    script("script", ELEMENT % ("script", "src", "/page/sessions")),
    script("image", ELEMENT % ("img", "src", HISTORY)),
    script("WebSocket", "(url) => new Promise(done => { try { const s = new WebSocket(url.replace('http', 'ws') + '/ws'); s.onopen = () => done('loaded open'); s.onerror = () => done('refused'); } catch { done('refused'); } })"),
    script("storage of the other port", "() => JSON.stringify(Object.entries(localStorage)) + document.cookie"),
    script("opened window", "(url) => new Promise(done => { const w = open(url + '/?session=api:planted'); setTimeout(() => { let t = 'refused'; try { t = w.document.body.textContent + w.localStorage.getItem('antiphon.page'); } catch {} w?.close(); done(t); }, 1500); })"),
)  # fmt: skip


@pytest.mark.browser
@pytest.mark.parametrize("attempt", SCRIPTS)
def test_a_page_of_another_port_reads_and_changes_nothing(visit: Visit, attempt: Script) -> None:
    before = visit.stage.count()
    read = str(visit.evil.evaluate(attempt.script, visit.stage.gateway.url))
    secret = visit.own.evaluate("localStorage.getItem('antiphon.page')")
    assert secret and PLANTED not in read and secret not in read
    assert visit.stage.count() == before
    visit.own.reload()
    expect(visit.own.locator("#entries")).to_contain_text(PLANTED)


@pytest.mark.browser
def test_what_another_server_gets_of_a_browser_opens_nothing(visit: Visit) -> None:
    """The browser sends it the cookie. So it has that, and is a program that can forge every header."""
    visit.evil.reload()
    (cookie,) = {found for text in visit.server.seen for found in re.findall(r"antiphon_session_\d+=\w+", text)}
    secret = visit.own.evaluate("localStorage.getItem('antiphon.page')")
    assert secret not in "".join(visit.server.seen)
    forged = {"Cookie": cookie, "Origin": visit.stage.gateway.url, "Sec-Fetch-Site": "same-origin"}
    before = visit.stage.count()
    with visit.stage.client as client:
        for method, path in (("GET", HISTORY), ("POST", "/auth/link"), ("POST", "/tokens"), ("GET", STREAM)):
            assert client.request(method, path, headers=forged).status_code == 401
        assert client.get(HISTORY, headers={**forged, "Antiphon-Page": secret}).status_code == 200, (
            "the row tries it right"
        )
    assert visit.stage.count() == before


def command_lines() -> str:
    """What every user of the machine sees of all programs."""
    found: list[str] = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(process.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return "\n".join(found)


@dataclass(frozen=True, slots=True, kw_only=True)
class Look(Attempt):
    """Where another user of the machine looks for a code while one is printed or opened."""

    command: list[str]
    variables: dict[str, str] = field(default_factory=dict[str, str])


@pytest.mark.parametrize(
    "attempt",
    rows(
        Look(attacker=LOCAL, door=Door.COMMAND_LINE, what="output of serve in a pipe", command=["serve", "--port", "0"]),
        Look(
            attacker=LOCAL, door=Door.COMMAND_LINE, what="output of serve with colours forced",
            command=["serve", "--port", "0"], variables={"FORCE_COLOR": "1"},
        ),
        Look(attacker=LOCAL, door=Door.COMMAND_LINE, what="output of serve as JSON", command=["serve", "--port", "0", "--json"]),
    ),
)  # fmt: skip
def test_no_code_is_printed_where_others_read(tmp_path: Path, attempt: Look) -> None:
    said = tmp_path / "journal"
    home = tmp_path / "home"
    with (
        said.open("w") as journal,
        ending(
            subprocess.Popen(
                [*COMMAND, *attempt.command],
                env=environment({"ANTIPHON_HOME": str(home), **attempt.variables}),
                stdin=subprocess.DEVNULL,
                stdout=journal,
                stderr=journal,
            )
        ) as process,
    ):
        until(
            lambda: "Ctrl-C stops it" in said.read_text("utf-8") or '"pid"' in said.read_text("utf-8"),
            seconds=PROCESS_SECONDS,
        )
        process.terminate()
        process.wait(PROCESS_SECONDS)
    assert "code=" not in said.read_text("utf-8")


def test_no_code_stands_in_a_command_line(tmp_path: Path) -> None:
    """`antiphon open` starts a browser that waits here, while all command lines are read."""
    home, gate = tmp_path / "home", tmp_path / "gate"
    browser = tmp_path / "browser"
    os.mkfifo(gate)
    browser.write_text(f"#!/bin/sh\nread line < {gate}\n", "utf-8")
    browser.chmod(0o700)
    script = (
        "import sys, webbrowser\nfrom pathlib import Path\nfrom antiphon.cli.connection.link_page import write_page\n"
        "webbrowser.open(write_page(Path(sys.argv[1]), Path(sys.argv[2]).read_text().strip()).as_uri())\n"
    )
    with serving(home) as gateway:
        link = tmp_path / "link"
        link.write_text("http://127.0.0.1:1/#code=" + "ab" * 24, "utf-8")
        with ending(
            subprocess.Popen(
                [COMMAND[0], "-c", script, str(home), str(link)],
                env=environment({"BROWSER": f"{browser} %s", "DISPLAY": ":9"}),
            )
        ) as opening:
            until(lambda: (home / "open.html").as_uri() in command_lines(), seconds=PROCESS_SECONDS)
            assert "ab" * 24 not in command_lines()
            with gate.open("w") as opened:
                opened.write("done\n")
            assert opening.wait(PROCESS_SECONDS) == 0
        assert gateway.stop() == 0
    assert not (home / "open.html").exists()
