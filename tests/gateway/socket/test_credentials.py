"""Who is let in on a socket, and that a socket ends with what it was let in by. Contract: access 2, gateway 5, 6."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio
import httpx
import pytest
from websockets.exceptions import InvalidStatus

from antiphon.app import gateway_app
from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole
from antiphon.domain.tokens import ALL_SCOPES
from antiphon.engine.access.credentials import CredentialEnding
from antiphon.gateway.server import bind, serving
from antiphon.gateway.socket import connection
from antiphon.gateway.socket.frames import RequestFrame, read_request
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import TOKEN, Json, Served, new_client, serve
from tests.gateway.socket.speaking import CONNECT, Speaker, opened, opened_at, speaking
from tests.gateway.socket.test_bounds import closing
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

AT_WORK = ("queued", "running")


@asynccontextmanager
async def signed_in(served: Served) -> AsyncGenerator[tuple[httpx.AsyncClient, dict[str, str], Json]]:
    """A browser, the headers of its sockets, and its page secret with its id."""
    code = (await served.client.post("/auth/link")).json()["code"]
    async with new_client(served.url) as browser:
        answer: Json = (await browser.post("/auth/exchange", json={"code": code})).json()
        cookies = "; ".join(f"{name}={value}" for name, value in browser.cookies.items())
        browser.headers["Antiphon-Page"], browser.headers["Origin"] = answer["pageSecret"], served.url
        yield browser, {"Cookie": cookies, "Origin": served.url}, answer


async def outcome_of_connect(served: Served, headers: dict[str, str], **params: object) -> str:
    """`ok`, or the code of the refusal."""
    headers = dict(headers)
    origin = headers.pop("Origin", None)
    try:
        async with opened(served, additional_headers=headers, origin=origin) as speaker:
            answer = await speaker.ask("connect", **CONNECT | params)
            return "ok" if answer["ok"] else answer["error"]["code"]
    except InvalidStatus as refused:
        return str(refused.response.status_code)


@requirement("gateway:5", "gateway:6", "gateway:2")
async def test_a_browser_needs_its_cookie_its_page_secret_and_its_own_origin(open_home: OpenHome) -> None:
    async with serve(open_home) as served, signed_in(served) as (_, headers, answer):
        page, cookie = answer["pageSecret"], {"Cookie": headers["Cookie"]}
        assert await outcome_of_connect(served, headers, page=page) == "ok"
        assert await outcome_of_connect(served, headers) == "token_missing"
        assert await outcome_of_connect(served, headers, page="0" * 64) == "token_missing"
        assert await outcome_of_connect(served, {"Origin": served.url}, page=page) == "token_missing"
        assert await outcome_of_connect(served, cookie, page=page) == "origin_missing"
        assert await outcome_of_connect(served, cookie | {"Origin": "http://evil.test"}, page=page) == "403"
        assert await outcome_of_connect(served, cookie | {"Origin": "null"}, page=page) == "403"
        other = served.url.rpartition(":")[0] + ":1"
        assert await outcome_of_connect(served, cookie | {"Origin": other}, page=page) == "403"
        assert await outcome_of_connect(served, headers | {"Antiphon-Page": page}) == "token_missing"


@requirement("gateway:2")
async def test_the_token_may_stand_in_the_header_instead(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        assert await outcome_of_connect(served, {"Authorization": f"Bearer {TOKEN}"}) == "ok"
        assert await outcome_of_connect(served, {"Authorization": "Bearer nobody"}) == "bad_token"


@requirement("access:2", "gateway:2")
@pytest.mark.parametrize("end", ["revoked", "rotated", "demoted", "suspended"])
async def test_a_socket_and_its_requests_end_with_its_token(open_home: OpenHome, end: str) -> None:
    async with serve(open_home) as served:
        services = served.app.services
        (await served.client.post("/people", json={"name": "ann", "agents": ["main"]})).raise_for_status()
        await services.people.change_role(OWNER, "ann", PersonRole.OWNER)
        token, secret = await services.tokens.create_for_person(OWNER, "ann", ALL_SCOPES)
        await served.open("api:chat")
        run = (await served.client.post("/sessions/api:chat/messages", json={"text": "!sleep 3600"})).json()["runId"]
        async with speaking(served, secret) as speaker, speaking(served) as bystander:
            await speaker.call("sessions.subscribe")
            await speaker.call("sessions.messages.subscribe", key="api:chat")
            waiting = await speaker.send("runs.wait", {"runId": run, "wait": 600})
            match end:
                case "revoked":
                    await services.tokens.revoke(OWNER, token.id)
                case "rotated":
                    await services.tokens.rotate(OWNER, token.id)
                case "demoted":
                    await services.people.change_role(OWNER, "ann", PersonRole.GUEST)
                case _:
                    (await served.client.post("/people/ann/suspend", json={})).raise_for_status()
            answer = await speaker.answer(waiting)
            # The right to see the run may end before the token does.
            earlier = {"demoted": ["not_found"], "suspended": ["suspended"]}.get(end, [])
            assert answer["error"]["code"] in ["credential_ended", *earlier]
            assert await closing(speaker) == (1008, "revoked")
            assert (await bystander.call("health.get"))["ok"] is True
            assert (await served.client.get(f"/runs/{run}")).json()["status"] in AT_WORK, "work goes on"


@requirement("access:2", "gateway:2")
async def test_a_request_that_comes_as_its_token_ends_is_told_so(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with serve(open_home) as served:
        _, secret = await served.app.services.tokens.create_for_person(OWNER, "owner", ALL_SCOPES)

        def read(raw: bytes) -> RequestFrame:
            frame = read_request(raw)
            if frame.method == "health.get":
                (watched,) = credentials._watches  # pyright: ignore[reportPrivateUsage]
                credentials._end(watched, CredentialEnding.REVOKED)  # pyright: ignore[reportPrivateUsage]
            return frame

        credentials = served.app.services.credentials
        async with speaking(served, secret) as speaker:
            monkeypatch.setattr(connection, "read_request", read)
            refused = (await speaker.ask("health.get"))["error"]
            assert (refused["type"], refused["code"]) == ("unauthorized", "credential_ended")
            assert await closing(speaker) == (1008, "revoked")


@requirement("access:2")
async def test_who_replaces_their_own_token_gets_the_answer_and_then_the_end(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        _, secret = await served.app.services.tokens.create_for_person(OWNER, "owner", ALL_SCOPES)
        id = secret.rpartition("_")[0]
        async with speaking(served, secret) as speaker:
            rotated = await speaker.call("tokens.rotate", tokenId=id)
            assert await closing(speaker) == (1008, "revoked")
        async with speaking(served, rotated["token"]) as speaker:
            assert (await speaker.call("health.get")) == {"ok": True}


@requirement("gateway:6", "access:2")
async def test_a_browser_that_signs_out_ends_its_socket(open_home: OpenHome) -> None:
    async with serve(open_home) as served, signed_in(served) as (browser, headers, answer):
        origin = headers.pop("Origin")
        async with opened(served, additional_headers=headers, origin=origin) as speaker:
            await speaker.call("connect", **CONNECT, page=answer["pageSecret"])
            assert (await browser.post("/auth/sign-out")).status_code == 204
            assert await closing(speaker) == (1008, "revoked")


@requirement("gateway:2", "runs:3")
async def test_a_stop_answers_what_is_under_way_and_ends_sockets_with_1012(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        listener, run = bind("127.0.0.1", 0), ""
        async with anyio.create_task_group() as tasks:
            stopping, speakers = anyio.Event(), list[Speaker]()
            has_stopped = anyio.Event()

            async def other() -> None:
                async with serving(gateway_app(served.app, TOKEN), listener, on_stop=served.app.services.let_go):
                    await stopping.wait()
                has_stopped.set()

            tasks.start_soon(other)
            url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            async with opened_at(url) as speaker, opened_at(url) as silent:
                speakers.append(speaker)
                await speaker.call("connect", **CONNECT, token=TOKEN)
                await speaker.call("sessions.messages.subscribe", key="api:chat")
                run = (await speaker.call("chat.send", key="api:chat", text="!sleep 3600"))["runId"]
                waiting = await speaker.send("agent.wait", {"runId": run, "timeoutMs": 600_000})
                await speaker.call("health.get")
                stopping.set()
                answer = await speaker.answer(waiting)
                assert answer["error"]["code"] == "stopped"
                assert (await closing(speaker))[0] == 1012
                assert (await closing(silent))[0] == 1012
                with anyio.fail_after(SECONDS):
                    await has_stopped.wait()
        assert (await served.client.get(f"/runs/{run}")).json()["status"] in AT_WORK


@requirement("gateway:2", "runs:5", "sessions:4")
async def test_a_lost_connection_cancels_waits_and_never_work(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        async with speaking(served) as speaker:
            message = {"key": "api:chat", "text": "!sleep 3600", "messageId": "m"}
            await speaker.send("chat.send", message | {"wait": 600})
            while [run["status"] for run in (await speaker.call("runs.list", session="api:chat"))["runs"]] != [
                "running"
            ]:
                pass
            assert served.app.services.credentials.open_requests > 1
            speaker.socket.transport.abort()
        with anyio.fail_after(SECONDS):
            while served.app.services.credentials.open_requests:
                await anyio.sleep(0.01)
        async with speaking(served) as speaker:
            repeated = await speaker.call("chat.send", **message)
            assert (await speaker.call("runs.get", runId=repeated["runId"]))["status"] == "running"
            assert len(await served.messages("api:chat")) == 1
