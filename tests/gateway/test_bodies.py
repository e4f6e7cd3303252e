"""How large bodies may be, and in how few words what does not fit is refused. Contract: gateway 5, answers 3, 5."""

import importlib
import json
import pkgutil
import time
from typing import Any

import anyio
import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

import antiphon
from antiphon.app import gateway_app
from antiphon.building import App
from antiphon.domain.message import MAX_PARTS, MAX_TEXT_BYTES
from antiphon.gateway.asgi import AsgiApp
from antiphon.gateway.bodies import LARGE_BYTES, SMALL_BYTES, WEBHOOK_BYTES, limit_of
from antiphon.gateway.guard import Guard
from antiphon.gateway.operations.messages import PostParams
from antiphon.incoming import MAX_VALUES, Misfit, NotJson, check_values, decode
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.served import TOKEN, Served, serve
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

MOST_TOLD = 2400
"""Ten problems of 200 characters, and what stands around them."""


@requirement("gateway:5")
async def test_only_where_messages_enter_may_bodies_be_large(open_home: OpenHome) -> None:
    large = {("POST", "/sessions/{key}/messages"), ("POST", "/tools/{name}"), ("POST", "/mcp")}
    async with open_home() as app:
        guard = gateway_app(app, TOKEN)
        assert isinstance(guard, Guard)
        limits = {
            (method, address.path): endpoint.max_body_bytes
            for address in guard.addresses
            for method, endpoint in address.endpoints.items()
        }
    assert {place for place, limit in limits.items() if limit == LARGE_BYTES} == large
    assert {place for place, limit in limits.items() if limit == WEBHOOK_BYTES} == {
        ("POST", "/audit/verify"),  # seals that were kept elsewhere
        ("POST", "/channels/webhook/{name}"),
        ("POST", "/channels/slack/{account}"),
        ("POST", "/channels/telegram/{account}"),
        ("POST", "/hooks/{name}"),
    }
    assert set(limits.values()) == {SMALL_BYTES, WEBHOOK_BYTES, LARGE_BYTES} and len(limits) > 30
    assert {limit_of(limit, 1000) for limit in limits.values()} == {1000}
    assert limit_of(LARGE_BYTES, 10**9) == 10**9 and limit_of(SMALL_BYTES, 10**9) == SMALL_BYTES


@requirement("gateway:5")
async def test_a_body_without_a_length_is_refused_at_its_limit_and_not_at_its_end(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        head = f"POST /sessions HTTP/1.1\r\nHost: localhost:{served.port}\r\nAuthorization: Bearer {TOKEN}\r\n"
        head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        async with await anyio.connect_tcp("127.0.0.1", served.port) as stream:
            await stream.send(head.encode() + b"%x\r\n%s\r\n" % (SMALL_BYTES + 1, b" " * (SMALL_BYTES + 1)))
            with anyio.fail_after(SECONDS):
                assert (await stream.receive()).startswith(b"HTTP/1.1 413 ")


@requirement("gateway:5")
async def test_small_routes_take_small_bodies(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        for path in ("/sessions", "/tokens", "/auth/exchange", "/sessions/main/fork"):
            answer = await served.client.post(path, json={"code": "x" * SMALL_BYTES})
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large"), path
        await served.open("main")
        assert await served.append("main", "x" * MAX_TEXT_BYTES)


@requirement("answers:5")
@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/sessions", {f"field{number}": "SECRET" for number in range(3000)}),
        ("/sessions", {"source": {"x" * 5000: 1}, "label": ["SECRET"] * 2000}),
        ("/tokens", {"sessionKey": 1, **{f"f{number}": "SECRET" for number in range(3000)}}),
        ("/sessions/main/messages", {f"field{number}": "SECRET" for number in range(9_000)}),
        ("/sessions/main/messages", {"text": ["SECRET"]}),
        ("/sessions/main/messages", {"text": "x", "queueMode": "SECRET"}),
        ("/sessions/main/messages", {"content": [{"type": "SECRET"}]}),
        ("/sessions/main/messages", {"content": [{"type": "text"}] * 2000}),
        ("/tools/sessions_list", {"sessionKey": "main", "arguments": {f"f{n}": "SECRET" for n in range(9_000)}}),
        ("/tools/sessions_list", {"sessionKey": "main", "arguments": {"kinds": ["SECRET"] * 5000}}),
        ("/tools/sessions_list", {"sessionKey": "main", "arguments": {"y" * 1_000_000: 1}}),
        ("/tools/sessions_spawn", {"sessionKey": "main", "arguments": {"attachments": [{"SECRET": 1}] * 900}}),
    ],
)
async def test_what_does_not_fit_is_told_in_few_words_without_its_values(
    open_home: OpenHome, path: str, body: dict[str, Any]
) -> None:
    async with serve(open_home) as served:
        await served.open("main")
        answer = await served.client.post(path, json=body)
        told = answer.json()
        text = told["error"] if answer.status_code == 200 else told["error"]["message"]
        assert answer.status_code in (200, 422) and len(text) <= MOST_TOLD
        values = json.dumps(list(body.values()))
        assert "SECRET" not in text or '"SECRET":' in values or '{"SECRET' in values, "only names may be told"


@requirement("gateway:5")
@pytest.mark.parametrize("path", ["/sessions/main/messages", "/tools/sessions_list", "/mcp?session=main"])
async def test_bodies_of_very_many_values_are_not_read(open_home: OpenHome, path: str) -> None:
    async with serve(open_home) as served:
        await served.open("main")
        body = b'{"sessionKey": "main", "arguments": {"x": [' + b"[]," * 2_000_000 + b"[]]}}"
        headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
        answer = await served.client.post(path, content=body, headers=headers)
        assert (answer.status_code, answer.json()["error"]["code"]) == (400, "not_json"), answer.text[:300]


@requirement("gateway:5")
async def test_a_message_has_bounds_by_part_and_text_whatever_the_door(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        many = [{"type": "text", "text": "x"}] * (MAX_PARTS + 1)
        answer = await served.client.post("/sessions/main/messages", json={"content": many})
        assert answer.status_code == 422
        answer = await served.client.post("/sessions/main/messages", json={"content": many[:-1]})
        assert answer.status_code == 200
        for text in ("x" * (MAX_TEXT_BYTES + 1), "é" * (MAX_TEXT_BYTES // 2 + 1)):
            answer = await served.client.post("/sessions/main/messages?append=1", json={"text": text})
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "text_too_large")


async def test_commas_within_texts_are_no_values() -> None:
    check_values(json.dumps({"text": '[{,"\\' * 100_000}).encode())
    with pytest.raises(NotJson):
        check_values(b"[" + b'"",' * (MAX_VALUES + 1) + b'""]')


@given(st.binary(max_size=300) | st.text(max_size=100).map(str.encode))
@settings(max_examples=300, derandomize=True, database=None)
def test_whatever_comes_is_decoded_or_refused(body: bytes) -> None:
    for wrapped in (body, b'{"text": ' + body, b'{"' + body + b'": 1}', b'{"content": [' + body + b"]}"):
        try:
            decode(wrapped, msgspec.json.Decoder(PostParams))
        except (Misfit, NotJson) as error:
            assert len(str(error)) <= MOST_TOLD


def test_no_model_shows_its_input_in_errors() -> None:
    for module in pkgutil.walk_packages(antiphon.__path__, "antiphon."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
    pending: list[type[BaseModel]] = [BaseModel]
    ours: list[type[BaseModel]] = []
    while pending:
        for each in pending.pop().__subclasses__():
            pending.append(each)
            if each.__module__.startswith("antiphon."):
                ours.append(each)
    assert len(ours) > 20
    for each in ours:
        assert each.model_config.get("hide_input_in_errors") is True, each


async def test_a_connection_of_an_unknown_kind_is_refused(open_home: OpenHome) -> None:
    guards: list[AsgiApp] = []

    def build(app: App, token: str) -> AsgiApp:
        guards.append(gateway_app(app, token))
        return guards[0]

    async with serve(open_home, build=build) as served:
        assert isinstance(served, Served)
        sent: list[Any] = []

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: Any) -> None:
            sent.append(message)

        headers = [(b"host", b"localhost"), (b"authorization", f"Bearer {TOKEN}".encode())]
        await guards[0]({"type": "websocket", "path": "/", "headers": headers}, receive, send)
        assert (sent[0]["type"], sent[0]["status"]) == ("websocket.http.response.start", 404)
        for kind in ("lifespan", "gopher"):
            with pytest.raises(ValueError, match="not supported"):
                await guards[0]({"type": kind, "headers": headers}, receive, send)


@requirement("gateway:5")
def test_a_body_of_too_many_texts_costs_no_more_than_finding_that_out() -> None:
    """Read to its end, eight times as many cost eight times as much, and hold up everybody."""

    def cost(texts: int) -> float:
        body = b"[" + b'",",' * texts + b"1]"
        spent: list[float] = []
        for _ in range(5):
            began = time.thread_time()
            with pytest.raises(NotJson):
                check_values(body)
            spent.append(time.thread_time() - began)
        return min(spent)

    assert cost(2_000_000) < 5 * cost(250_000)


async def test_a_body_without_a_content_type_is_refused_by_the_headers_name(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        body = b'{"text": "hello"}'
        missing = await served.client.post("/sessions/main/messages", content=body)
        other = await served.client.post(
            "/sessions/main/messages", content=body, headers={"Content-Type": "text/plain"}
        )
    for answer, told in ((missing, "The Content-Type header is missing."), (other, "header is 'text/plain'.")):
        assert (answer.status_code, answer.json()["error"]["code"]) == (415, "not_json")
        assert told in answer.json()["error"]["message"]
