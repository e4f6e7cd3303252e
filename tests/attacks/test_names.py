"""Attempts to have something opened by its name: a file, an address, a model, a program, an agent, a session.

None of them may tell whether the thing exists, show what is in it, or hold anybody up.
"""

import hashlib
import hmac
import importlib
import json
import os
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest
from msgspec.structs import fields
from pydantic import BaseModel

import antiphon
from antiphon.app import gateway_app, open_app
from antiphon.building import App
from antiphon.channels.hook.inbox import HookBody
from antiphon.channels.webhook.inbox import WebhookMessage
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.gateway.connections import SINGLE
from antiphon.gateway.operations.table import TABLE
from antiphon.gateway.page.table import ROUTES as PAGE
from antiphon.gateway.server import bind, serving
from antiphon.store.runs import RunFilter
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.attacks.names import (
    HEADERS,
    HOOK,
    OPERATIONS,
    TOOLS,
    WEBHOOK,
    Kind,
    headers_declared,
    headers_read,
    parameters_of_operations,
    parameters_of_tools,
)
from tests.claims import requirement
from tests.gateway.served import TOKEN, new_client
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

SECRET = "hunter2-of-the-host"
DOOR_SECRET = "s3cret-of-the-door-bell"
BOXED, PLAIN = "agent:boxed:cli:one", "agent:main:cli:one"


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming(Attempt):
    """What is asked for, and the codes of which one has to answer."""

    tool: str = "sessions_spawn"
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    codes: tuple[str, ...] = ("spawn_model",)


@dataclass(frozen=True, slots=True)
class World:
    app: App
    url: str
    owner: httpx.AsyncClient
    tokens: dict[str, str]
    """By session key, bound to it."""
    host: Path
    """A directory outside of the home, with files that nobody may learn of."""


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    host = tmp_path_factory.mktemp("host")
    (host / "secret.json").write_text(json.dumps({"password": SECRET}), "utf-8")
    (host / "script.json").write_text(json.dumps({"sessions": {"*": [[{"text": SECRET}]]}}), "utf-8")
    os.mkfifo(host / "pipe")
    home = host / "home"
    home.mkdir()
    (home / "link.json").symlink_to(host / "script.json")
    (home / "own.json").write_text(json.dumps({"sessions": {"*": [[{"text": "mine"}]]}}), "utf-8")
    agents = [{"id": "main"}, {"id": "boxed", "sandbox": {"mode": "all"}}]
    door = {"secret": DOOR_SECRET, "agent": "main"}
    settings = {
        "gateway": {"drain_seconds": 0},
        "agents": {"list": agents},
        "channels": {"webhook": {"door": door}},
        "providers": {"odd": {"base_url": "http://127.0.0.1:9", "api_key": "x"}},
    }
    async with open_app(home, Config.model_validate(settings)) as app:
        listener = bind("127.0.0.1", 0)
        async with (
            serving(gateway_app(app, TOKEN), listener, on_stop=app.services.hub.close) as url,
            new_client(url, TOKEN) as owner,
        ):
            tokens: dict[str, str] = {}
            for key in (BOXED, PLAIN):
                (await owner.post("/sessions", json={"key": key})).raise_for_status()
                answer = await owner.post("/tokens", json={"sessionKey": key})
                tokens[key] = answer.raise_for_status().json()["token"]
            yield World(app, url, owner, tokens, host)


NAMES = (
    *("scripted:HOST/secret.json", "scripted:HOST/script.json", "scripted:HOST/missing.json", "scripted:HOST/pipe"),
    *("scripted:HOST", "scripted:../secret.json", "scripted:link.json", "scripted:own.json", "scripted:/dev/zero"),
    *("scripted:/proc/self/environ", "SCRIPTED:HOST/secret.json", "scripted:HOST/secret.json\n", "scripted:a\0b"),
    *("file://HOST/secret.json", "http://127.0.0.1:9/x", "odd:model", "odd:../../admin", "ollama:x", "main", "*:*"),
)


def as_session(attacker: Attacker, door: Door, *names: str) -> list[Naming]:
    return [
        Naming(attacker=attacker, door=door, what=f"the model {name!r}", arguments={"task": "x", "model": name})
        for name in names
    ]


SPAWNS = [
    *as_session(Attacker.SANDBOXED, Door.HTTP, *NAMES),
    *as_session(Attacker.BOUND_TOKEN, Door.HTTP, *NAMES[:8]),
    *as_session(Attacker.BOUND_TOKEN, Door.MCP, *NAMES[:8]),
]


def _others() -> list[Naming]:
    def spawn(what: str, code: str, **arguments: Any) -> Naming:
        asked = {"task": "x", **arguments}
        return Naming(attacker=Attacker.BOUND_TOKEN, door=Door.HTTP, what=what, arguments=asked, codes=(code,))

    def named(name: str) -> list[dict[str, str]]:
        return [{"name": name, "content": ""}]

    def read(key: str) -> Naming:
        return Naming(
            attacker=Attacker.BOUND_TOKEN,
            door=Door.HTTP,
            what=f"history of {key!r}",
            tool="sessions_history",
            arguments={"sessionKey": key},
            codes=("not_found", "invalid_key", "invalid_session_id", "invalid_arguments"),
        )

    return [
        spawn("an agent that is a path", "invalid_agent_id", agentId="../boxed"),
        spawn("an agent that is not allowed", "spawn_agent", agentId="boxed"),
        spawn("an agent that does not exist", "spawn_agent", agentId="nobody"),
        spawn("a file above the workspace", "attachment_name", attachments=named("../x")),
        spawn("a file by its absolute path", "attachment_name", attachments=named("/etc/cron.d/x")),
        spawn("a device of Windows", "attachment_name", attachments=named("nul")),
        spawn("another runtime", "spawn_runtime", runtime="acp"),
        *(read(key) for key in ("../../etc/passwd", "agent:boxed:cli:one", "file:///etc/passwd", "a\0b")),
    ]


async def call(world: World, attempt: Naming) -> dict[str, Any]:
    """What the tool answered."""
    key = BOXED if attempt.attacker is Attacker.SANDBOXED else PLAIN
    arguments = json.loads(json.dumps(attempt.arguments).replace("HOST", str(world.host)))
    async with new_client(world.url, world.tokens[key]) as client:
        if attempt.door is Door.MCP:
            request = {
                "jsonrpc": "2.0",
                "id": 1,
                "method": "tools/call",
                "params": {"name": attempt.tool, "arguments": arguments},
            }
            headers = {"Accept": "application/json, text/event-stream"}
            answer = await client.post("/mcp", json=request, headers=headers)
            text = answer.text
            data = text[text.index("{") :] if not text.startswith("{") else text
            return json.loads(data.splitlines()[0])["result"]["structuredContent"]
        return (await client.post(f"/tools/{attempt.tool}", json={"arguments": arguments})).json()


@requirement("spawn:2", "answers:2")
@pytest.mark.parametrize("attempt", rows(*SPAWNS, *_others()))
async def test_a_name_in_an_argument_opens_nothing(world: World, attempt: Naming) -> None:
    before = len(await world.app.services.runs.list(OWNER, RunFilter(), limit=1000))
    with anyio.fail_after(SECONDS):
        answer = await call(world, attempt)
    assert answer.get("code") in attempt.codes, answer
    said = json.dumps(answer)
    assert SECRET not in said and str(world.host) not in said
    assert len(await world.app.services.runs.list(OWNER, RunFilter(), limit=1000)) == before


@requirement("spawn:2")
async def test_every_refused_model_gets_the_same_answer(world: World) -> None:
    answers = [await call(world, attempt) for attempt in SPAWNS if attempt.door is Door.HTTP]
    assert len({json.dumps(answer) for answer in answers}) == 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Patch(Attempt):
    """A model that the page would set for a session; the owner may name any that is configured."""

    model: str


PATCHES = [
    Patch(attacker=Attacker.PAGE, door=Door.HTTP, what=f"the session's model {name!r}", model=name)
    for name in NAMES
    if name.partition(":")[0] not in ("odd", "ollama") and name != "scripted:own.json"
]


@requirement("gateway:4")
@pytest.mark.parametrize("attempt", rows(*PATCHES))
async def test_what_is_no_configured_model_is_no_session_s(world: World, attempt: Patch) -> None:
    model = attempt.model.replace("HOST", str(world.host))
    with anyio.fail_after(SECONDS):
        answer = await world.owner.patch(f"/sessions/{PLAIN}", json={"model": model})
    assert answer.status_code == 400 and answer.json()["error"]["code"] == "unknown_model", answer.text
    assert SECRET not in answer.text
    shown = (await world.owner.get(f"/sessions/{PLAIN}")).json()
    assert shown["model"] == "offline"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ring(Attempt):
    """A peer or thread by which a webhook's guest would reach another place."""

    peer: str
    thread: str | None = None


RINGS = [
    Ring(attacker=Attacker.GUEST, door=Door.WEBHOOK, what=f"the chat {peer!r} {thread!r}", peer=peer, thread=thread)
    for peer, thread in (
        ("../../etc/passwd", None),
        ("anna:thread:x", None),
        ("x", "../y"),
        ("agent:main:main", None),
        ("%2e%2e", None),
        ("x", "y:thread:z"),
        ("main", None),
        ("*", None),
    )
]


async def ring(world: World, body: bytes) -> httpx.Response:
    timestamp = str(int(world.app.services.clock.now().timestamp()))
    signed = f"v2.in.door.{timestamp}.".encode() + body
    digest = hmac.new(DOOR_SECRET.encode(), signed, hashlib.sha256).hexdigest()
    headers = {
        "Content-Type": "application/json",
        "Antiphon-Timestamp": timestamp,
        "Antiphon-Signature": f"v2={digest}",
    }
    async with new_client(world.url) as client:
        return await client.post("/channels/webhook/door", content=body, headers=headers)


@requirement("channels:1")
@pytest.mark.parametrize("attempt", rows(*RINGS))
async def test_a_peer_is_one_segment_of_a_key_of_its_own(world: World, attempt: Ring) -> None:
    thread = {} if attempt.thread is None else {"threadId": attempt.thread}
    body = {"messageId": attempt.what, "peer": attempt.peer, "text": "hello", "wait": 60, **thread}
    answer = (await ring(world, json.dumps(body).encode())).json()
    prefix, _, segment = answer["sessionKey"].removeprefix("agent:main:webhook:door:direct:").partition(":")
    assert answer["sessionKey"].startswith("agent:main:webhook:door:direct:") and "/" not in answer["sessionKey"]
    assert bool(segment) is (attempt.thread is not None) and ":" not in segment.removeprefix("thread:")
    assert prefix and answer["reply"] == "echo: hello"


async def test_every_parameter_says_what_it_names(tmp_path: Path) -> None:
    engine = {"kind": "searxng", "url": "http://127.0.0.1:9"}
    settings = Config.model_validate(
        {
            "tools": {"run_command": {"mode": "sandboxed"}, "search_web": engine},
            "agents": {"defaults": {"skills": ["walks"]}},
        }
    )
    async with open_app(tmp_path / "home", settings) as app:
        assert parameters_of_tools(app.tool_calls.schemas) == TOOLS.keys()
    assert parameters_of_operations((*TABLE.values(), *PAGE)) == OPERATIONS.keys()
    assert {field.encode_name for field in fields(WebhookMessage)} == WEBHOOK.keys()
    assert {field.encode_name for field in fields(HookBody)} == HOOK.keys()


def test_every_header_that_is_read_says_what_it_names() -> None:
    declared = headers_declared((*TABLE.values(), *PAGE))
    assert headers_read(Path(antiphon.__file__).parent) | declared == HEADERS.keys()
    decisive = {name for name, kind in HEADERS.items() if kind not in (Kind.STORED, Kind.CHOICE)}
    assert decisive <= {name.decode() for name in SINGLE}


@dataclass(frozen=True, slots=True, kw_only=True)
class Header(Attempt):
    """A header by which a request of the owner names a session that there is not."""

    value: str


SESSIONS = [
    Header(attacker=Attacker.TOOL_RESULT, door=Door.MCP, what=f"the session {value!r}", value=value)
    for value in (
        *("../../etc/passwd", "file:///etc/passwd", "HOST/secret.json", "agent:main:cli:none", "agent:nobody:main"),
        *("%00", "*", "agent:main:cli:one%0d%0aX: y", "x" * 8_000),
    )
]


@requirement("tools:1", "gateway:4")
@pytest.mark.parametrize("attempt", rows(*SESSIONS))
async def test_a_session_in_a_header_is_a_key_and_nothing_else(world: World, attempt: Header) -> None:
    call: dict[str, Any] = {"name": "session_status", "arguments": {}}
    request: dict[str, Any] = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    named = attempt.value.replace("HOST", str(world.host))
    for place in ({"headers": {"Antiphon-Session": named}}, {"params": {"session": named}}):
        headers = {"Accept": "application/json, text/event-stream", **place.get("headers", {})}
        answer = await world.owner.post("/mcp", json=request, headers=headers, params=place.get("params"))
        assert any(code in answer.text for code in ("not_found", "invalid_key", "invalid_session_id")), answer.text
        assert SECRET not in answer.text and len(answer.text) < 2_000
        bound = {**headers, "Authorization": f"Bearer {world.tokens[PLAIN]}"}
        async with new_client(world.url) as client:
            refused = await client.post("/mcp", json=request, headers=bound, params=place.get("params"))
        assert any(code in refused.text for code in ("token_bound", "invalid_key", "invalid_session_id")), refused.text


@pytest.mark.parametrize("kind", Kind)
def test_every_kind_of_name_has_a_rule_that_decides(kind: Kind) -> None:
    module, _, name = kind.value.strip().rpartition(".")
    assert hasattr(importlib.import_module(module), name)


def test_no_model_of_input_shows_what_it_refused() -> None:
    """Whatever is read from outside is read by one of these, so that no message quotes it."""

    def below(model: type[BaseModel]) -> set[type[BaseModel]]:
        return {model}.union(*(below(each) for each in model.__subclasses__()))

    ours = {model for model in below(BaseModel) if model.__module__.startswith("antiphon.")}
    assert len(ours) > 20
    assert not [model.__name__ for model in ours if not model.model_config.get("hide_input_in_errors")]
