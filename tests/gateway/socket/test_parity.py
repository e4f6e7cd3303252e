"""Every operation over HTTP and over the WebSocket: the same answers, errors and scopes."""

import json
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from typing import Any, cast

import httpx
import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.tokens import TokenScope
from antiphon.gateway.operations.operation import AnyOperation
from antiphon.gateway.operations.table import TABLE
from antiphon.gateway.socket.methods import METHODS
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.gateway.asking import filled, request_of
from tests.gateway.served import Json, Served, new_client, serve
from tests.gateway.socket.speaking import Speaker, speaking

pytestmark = pytest.mark.anyio

KEPT = (
    *("sessions.list", "sessions.resolve", "sessions.create", "sessions.patch", "sessions.reset", "sessions.delete"),
    *("sessions.subscribe", "sessions.unsubscribe", "sessions.messages.subscribe", "sessions.messages.unsubscribe"),
    *("chat.history", "chat.send", "chat.abort", "agent", "agent.wait", "approvals.list", "approvals.resolve"),
    *("agents.list", "tools.invoke", "health"),
)
"""The names that the contract keeps."""
CHANGING = ("ts", "createdAt", "updatedAt", "startedAt", "endedAt", "interactedAt", "expiresAt", "lastUsedAt")
"""Times, and what is drawn anew for each request."""
DRAWN = (*CHANGING, "code", "token", "id", "key", "sessionId", "transcriptPath", "stalls", "bytes", "path")
MODIFYING = {"tokens.rotate-owner"}
"""What it changes would end the caller."""
ONCE = {
    "compartments.create",
    "people.remove",
    "people.merge",
    "sessions.delete",
    "standing-approvals.revoke",
    "trusted-content.revoke",
    "tasks.create",
}
"""Operations that answer otherwise the second time."""


@requirement("gateway:2")
async def test_the_methods_are_the_operations_and_the_names_that_are_kept(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        methods = speaker.hello["methods"]
        assert set(KEPT) <= set(methods) and len(methods) == len(set(methods))
        only_http = {name for name, each in TABLE.items() if each.http.is_only}
        assert TABLE.keys() - set(methods) == only_http
        assert only_http == {
            *("sessions.events", "sessions.transcript", "browsers.sign-in", "browsers.sign-out", "gateways.prove"),
            *("webhooks.receive", "hooks.receive", "slack.receive", "telegram.receive"),
        }


def comparable(value: object, *, without: tuple[str, ...]) -> object:
    if isinstance(value, dict):
        found = cast("Json", value)
        return {name: comparable(each, without=without) for name, each in found.items() if name not in without}
    if isinstance(value, list):
        items = cast("list[object]", value)
        return [comparable(each, without=without) for each in items]
    return value


async def both(
    client: httpx.AsyncClient, speaker: Speaker, operation: AnyOperation, params: Json
) -> tuple[tuple[bool, object], tuple[bool, object]]:
    """Whether it is well, and the answer or the error: over HTTP, and over the WebSocket."""
    answer = await client.send(request_of(client, operation, params))
    is_well = answer.status_code < 400
    body: Any = None
    if answer.text:
        is_text = answer.headers["content-type"].startswith("text/plain")
        body = {"text": answer.text} if is_text else json.loads(answer.text)
    frame = await speaker.ask(operation.name, **params)
    return (is_well, body if is_well else body["error"]), (
        frame["ok"],
        frame.get("payload") if frame["ok"] else frame["error"],
    )


OPERATIONS = [each for name, each in TABLE.items() if name in METHODS and name not in MODIFYING]


async def prepare(served: Served) -> Json:
    """Something of each kind, and its names."""
    await served.open("agent:main:api:chat")
    run = (await served.post("api:chat", "hello"))["runId"]
    return {"key": "agent:main:api:chat", "sessionKey": "agent:main:api:chat", "runId": run, "name": "session_status"}


@requirement("gateway:2", "access:5", "answers:5")
async def test_every_operation_has_the_same_answer_over_http_and_the_websocket(open_home: OpenHome) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        given = await prepare(served)
        for operation in OPERATIONS:
            if operation.name in ONCE:
                continue
            params = filled(operation, **given)
            http, socket = await both(served.client, speaker, operation, params)
            assert comparable(http, without=DRAWN) == comparable(socket, without=DRAWN) or is_alike(http, socket), (
                operation.name,
                http,
                socket,
            )


def is_alike(http: tuple[bool, object], socket: tuple[bool, object]) -> bool:
    """Whether both answers have one form: for what the first of two requests changed."""
    return http[0] and socket[0] and shape(http[1]) == shape(socket[1])


def shape(value: object) -> object:
    if isinstance(value, dict):
        return sorted(cast("Json", value))
    return type(value).__name__


@requirement("gateway:2", "answers:3", "answers:5")
@pytest.mark.parametrize("wrong", ["missing", "unknown", "target"])
async def test_every_operation_has_the_same_errors_over_http_and_the_websocket(open_home: OpenHome, wrong: str) -> None:
    async with serve(open_home) as served, speaking(served) as speaker:
        await prepare(served)
        for operation in OPERATIONS:
            params = filled(operation)
            match wrong:
                case "missing" if "{" in operation.http.path:
                    continue
                case "missing":
                    params = {}
                case "unknown":
                    params["scope"] = "admin"
                case _:
                    pass
            if wrong == "unknown":
                frame = await speaker.ask(operation.name, **params)
                assert (frame["ok"], frame["error"]["code"]) == (False, "invalid_request"), operation.name
                continue
            http, socket = await both(served.client, speaker, operation, params)
            if operation.name not in ONCE and not (http[0] and socket[0]):
                without = ("message",) if wrong == "missing" else ()
                assert comparable(http, without=without) == comparable(socket, without=without), operation.name


SCOPES = tuple(frozenset({scope}) for scope in TokenScope)
READING = frozenset({TokenScope.READ})


@pytest.fixture
async def scoped(open_home: OpenHome) -> AsyncGenerator[list[tuple[httpx.AsyncClient, Speaker]]]:
    """Clients with one scope each."""
    async with AsyncExitStack() as stack:
        served = await stack.enter_async_context(serve(open_home))
        found: list[tuple[httpx.AsyncClient, Speaker]] = []
        for scopes in SCOPES:
            _, secret = await served.app.services.tokens.create_for_person(OWNER, "owner", scopes)
            client = await stack.enter_async_context(new_client(served.url, secret))
            found.append((client, await stack.enter_async_context(speaking(served, secret))))
        yield found


@requirement("gateway:2", "access:5", "access:2")
async def test_every_operation_needs_the_same_scope_over_http_and_the_websocket(
    scoped: list[tuple[httpx.AsyncClient, Speaker]],
) -> None:
    refused = 0
    for client, speaker in scoped:
        for operation in OPERATIONS:
            params = filled(operation)
            http, socket = await both(client, speaker, operation, params)
            told = [str(each[1]) if "scope_missing" in str(each[1]) else "" for each in (http, socket)]
            assert told[0] == told[1], operation.name
            refused += told[0] != ""
    assert refused > len(OPERATIONS)


@requirement("gateway:2", "gateway:3", "access:5")
async def test_a_subscription_needs_the_scope_of_its_operation(open_home: OpenHome) -> None:
    async with serve(open_home) as served:
        await served.open("api:chat")
        _, secret = await served.app.services.tokens.create_for_person(OWNER, "owner", READING)
        _, weak = await served.app.services.tokens.create_for_person(OWNER, "owner", frozenset({TokenScope.APPROVALS}))
        async with speaking(served, weak) as speaker:
            for name in ("sessions.subscribe", "runs.subscribe"):
                assert (await speaker.ask(name))["error"]["code"] == "scope_missing"
            refused = await speaker.ask("sessions.messages.subscribe", key="api:chat")
            assert refused["error"]["code"] == "scope_missing"
            assert (await speaker.ask("approvals.subscribe"))["ok"]
        async with speaking(served, secret) as speaker:
            assert (await speaker.ask("sessions.subscribe"))["ok"]
            assert (await speaker.ask("approvals.subscribe"))["error"]["code"] == "scope_missing"
