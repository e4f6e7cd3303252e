"""Who is let in, from where, and by what; refusals tell nothing. Contract: gateway 5, 6, answers 5."""

import logging
import re
from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import httpx
import pytest

from antiphon.app import Parts
from antiphon.gateway.guard import COOKIE
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.gateway.served import TOKEN, Json, Served, new_client, serve

pytestmark = pytest.mark.anyio

CHAT = "/sessions/main/messages"
OWNER = {"Authorization": f"Bearer {TOKEN}"}


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
async def served(open_home: OpenHome, clock: ManualClock) -> AsyncGenerator[Served]:
    async with serve(
        open_home, {"gateway": {"drain_seconds": 0, "allowed_hosts": ["box.example"]}}, Parts(clock=clock)
    ) as served:
        yield served


@pytest.fixture
async def stranger(served: Served) -> AsyncGenerator[httpx.AsyncClient]:
    """A client without a token; keeps no cookies."""
    async with new_client(served.url) as client:
        yield client


def refusal(answer: httpx.Response, status: int, code: str) -> None:
    body: Json = answer.json()
    assert (answer.status_code, body["error"]["code"]) == (status, code), body
    assert list(body) == ["ok", "error"] and list(body["error"]) == ["type", "message", "code"]
    assert body["error"]["type"] == {401: "unauthorized", 403: "forbidden"}[status]
    assert ("www-authenticate" in answer.headers) == (status == 401)
    assert "set-cookie" not in answer.headers


@requirement("gateway:5")
@pytest.mark.parametrize(
    "host",
    [
        "evil.example",
        "evil.example:7464",
        "127.0.0.1.evil.example",
        "localhost.evil.example:80",
        "",
        "127.0.0.1@evil",
        "[::2]",
        "0.0.0.0",
    ],
)
async def test_a_name_that_was_rebound_to_this_machine_is_refused(stranger: httpx.AsyncClient, host: str) -> None:
    for path in ("/health", "/sessions", "/", "/static/page.js", "/auth/exchange"):
        refusal(await stranger.get(path, headers={**OWNER, "Host": host}), 403, "host_not_allowed")


@requirement("gateway:5")
@pytest.mark.parametrize(
    "host", ["localhost", "LOCALHOST:99", "127.0.0.1:7464", "[::1]:7464", "box.example", "box.example:1"]
)
async def test_local_and_configured_names_are_answered(stranger: httpx.AsyncClient, host: str) -> None:
    assert (await stranger.get("/sessions", headers={**OWNER, "Host": host})).status_code == 200


@requirement("gateway:5")
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "null",
        "http://127.0.0.1:1",
        "http://[",
        "file://",
        "",
        "http://127.0.0.1:{port}.evil.example",
        "x",
    ],
)
async def test_pages_of_other_sites_are_refused_even_with_the_token(served: Served, origin: str) -> None:
    headers = {"Origin": origin.format(port=served.port)}
    for method, path in (("GET", "/sessions"), ("GET", "/health"), ("POST", CHAT), ("POST", "/auth/exchange")):
        refusal(await served.client.request(method, path, headers=headers), 403, "origin_not_allowed")
    assert (await served.client.get("/sessions", headers={"Origin": served.url})).status_code == 200


@requirement("gateway:5", "answers:5", "access:2")
async def test_without_a_token_every_address_gives_the_same_answer(served: Served, stranger: httpx.AsyncClient) -> None:
    await served.open("api:there")
    bodies = set[bytes]()
    for method, path in (
        ("GET", "/sessions"),
        ("GET", "/sessions/api:there"),
        ("GET", "/sessions/api:missing"),
        ("POST", CHAT),
        ("GET", "/runs"),
        ("GET", "/nothing"),
        ("PUT", "/sessions"),
        ("GET", "/openapi.json"),
        ("POST", "/auth/link"),
        ("GET", "/health/"),
    ):
        answer = await stranger.request(method, path)
        refusal(answer, 401, "token_missing")
        bodies.add(answer.content)
    assert len(bodies) == 1


@requirement("gateway:5", "access:2")
@pytest.mark.parametrize(
    "authorization",
    [f"Bearer {TOKEN}x", f"Bearer {TOKEN[:-1]}", "Bearer", f"bearer x{TOKEN}", "Bearer \xe9"],
)
async def test_a_wrong_token_is_refused_even_where_none_is_needed(
    stranger: httpx.AsyncClient, authorization: str
) -> None:
    bodies = set[bytes]()
    for path in ("/sessions", "/health", "/"):
        answer = await stranger.get(path, headers={b"Authorization": authorization.encode("latin-1")})
        refusal(answer, 401, "bad_token")
        bodies.add(answer.content)
    assert len(bodies) == 1


@requirement("gateway:5")
async def test_a_token_in_the_address_opens_nothing(stranger: httpx.AsyncClient) -> None:
    for query in (f"token={TOKEN}", f"access_token={TOKEN}", f"authorization=Bearer%20{TOKEN}"):
        refusal(await stranger.get(f"/sessions?{query}"), 401, "token_missing")
    refusal(await stranger.get("/sessions", headers={"Authorization": f"Basic {TOKEN}"}), 401, "token_missing")


async def sign_in(served: Served, browser: httpx.AsyncClient) -> httpx.Response:
    code = (await served.client.post("/auth/link")).json()["code"]
    return await browser.post("/auth/exchange", json={"code": code})


@requirement("gateway:6")
async def test_a_link_lets_one_browser_in_once(served: Served, stranger: httpx.AsyncClient) -> None:
    made = (await served.client.post("/auth/link")).json()
    assert made["expiresInSeconds"] == 600 and len(made["code"]) >= 32
    first = await stranger.post("/auth/exchange", json={"code": made["code"]})
    assert (first.status_code, first.content) == (204, b"")
    flags = {flag.strip().lower() for flag in first.headers["set-cookie"].split(";")[1:]}
    assert {"httponly", "samesite=strict", "path=/"} <= flags
    assert not any(flag.startswith("domain") for flag in flags)
    async with new_client(served.url) as other:
        answers = [
            await other.post("/auth/exchange", json={"code": code})
            for code in (made["code"], "none", "", made["code"][:-1])
        ]
    for answer in answers:
        refusal(answer, 403, "bad_code")
    assert len({answer.content for answer in answers}) == 1
    assert (await stranger.get("/sessions")).status_code == 200


@requirement("gateway:6")
async def test_links_and_cookies_expire(served: Served, stranger: httpx.AsyncClient, clock: ManualClock) -> None:
    code = (await served.client.post("/auth/link")).json()["code"]
    clock.pass_time(timedelta(minutes=10, milliseconds=1))
    refusal(await stranger.post("/auth/exchange", json={"code": code}), 403, "bad_code")
    code = (await served.client.post("/auth/link")).json()["code"]
    clock.pass_time(timedelta(minutes=9, seconds=59))
    assert (await stranger.post("/auth/exchange", json={"code": code})).status_code == 204
    clock.pass_time(timedelta(days=29))
    assert (await stranger.get("/sessions")).status_code == 200
    clock.pass_time(timedelta(days=2))
    refusal(await stranger.get("/sessions"), 401, "token_missing")


@requirement("gateway:6")
async def test_writes_by_cookie_need_the_pages_own_origin(served: Served, stranger: httpx.AsyncClient) -> None:
    await sign_in(served, stranger)
    own = {"Origin": served.url}
    assert (await stranger.get("/sessions")).status_code == 200
    for method, path in (
        ("POST", CHAT),
        ("DELETE", "/sessions/api:x"),
        ("PATCH", "/sessions/main"),
        ("POST", "/auth/link"),
    ):
        refusal(await stranger.request(method, path), 403, "origin_missing")
        refusal(
            await stranger.request(method, path, headers={"Origin": "http://evil.example"}), 403, "origin_not_allowed"
        )
    assert (await stranger.post(CHAT, json={"text": "x"}, headers=own)).status_code == 200
    assert (await served.client.post(CHAT, json={"text": "x"})).status_code == 200


@requirement("gateway:6")
async def test_signing_out_ends_the_cookie(served: Served, stranger: httpx.AsyncClient) -> None:
    await sign_in(served, stranger)
    cookie = stranger.cookies[COOKIE]
    assert (await stranger.post("/auth/sign-out", headers={"Origin": served.url})).status_code == 204
    refusal(await stranger.get("/sessions", headers={"Cookie": f"{COOKIE}={cookie}"}), 401, "token_missing")
    for text in (f"{COOKIE}=", f"{COOKIE}=x", "a=b; c", f'{COOKIE}="\\"', "\xff=\xff"):
        refusal(await stranger.get("/sessions", headers={b"Cookie": text.encode("latin-1")}), 401, "token_missing")


@requirement("gateway:5", "gateway:6")
async def test_secrets_stand_in_no_log_and_no_stored_row(
    served: Served, stranger: httpx.AsyncClient, home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG):
        code = (await served.client.post("/auth/link")).json()["code"]
        await stranger.post("/auth/exchange", json={"code": code})
        cookie = stranger.cookies[COOKIE]
        await stranger.get(f"/sessions?x={TOKEN[:-1]}")
        await served.client.get("/sessions/api:none")
        await served.post("main", "!fail x")
    logged = "\n".join(
        record.getMessage() + repr(vars(record))
        for record in caplog.records
        if record.name.startswith(("antiphon", "uvicorn"))
    )
    stored = b"".join(path.read_bytes() for path in home.iterdir() if path.name != "owner.token")
    for secret in (TOKEN, code, cookie):
        assert secret not in logged
        assert secret.encode() not in stored
    answer = await served.client.get("/", headers={"Accept": "text/html"})
    assert not re.search(f"{TOKEN}|{cookie}|{code}", answer.text)
