"""What is hidden and what is missing get the same bytes from the same statements, whoever asks, by every tool."""

import json
import re
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import anyio
import httpx
import pytest

from antiphon.app import gateway_app, open_app
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import Classification, Level
from antiphon.domain.ids import SessionRow
from antiphon.domain.keys import parse_key
from antiphon.domain.message import JsonObject, text_content
from antiphon.domain.session import Session
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction
from antiphon.store.sqlite import connect_sqlite
from antiphon.tools.sessions_history import question
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.parley import open_peer, target_of
from tests.engine.stage import wait_end
from tests.story import settings
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

GUEST = Principal(PrincipalKind.PERSON, "webhook:x")
AGENTS = [{"id": "main"}, {"id": "other"}]
SECRET = Classification(Level.RESTRICTED)

HIDDEN_BY = ("tree", "agent", "taint", "deletion", "participation")
"""Why a session is hidden; each in a world where nothing else hides it."""

CALLS: dict[str, dict[str, Any]] = {
    "history by key": {"tool": "sessions_history", "sessionKey": "{key}"},
    "history by id": {"tool": "sessions_history", "sessionKey": "{id}"},
    "history with a cursor": {
        "tool": "sessions_history",
        "sessionKey": "{key}",
        "cursor": "{cursor}",
        "includeTools": True,
    },
    "status by key": {"tool": "session_status", "sessionKey": "{key}"},
    "status by id": {"tool": "session_status", "sessionKey": "{id}"},
    "send by key": {"tool": "sessions_send", "sessionKey": "{key}", "message": "hello"},
    "send by id": {"tool": "sessions_send", "sessionKey": "{id}", "message": "hello", "timeoutSeconds": 0},
    "send by label": {"tool": "sessions_send", "label": "{label}", "message": "hello"},
    "list by label": {"tool": "sessions_list", "label": "{label}"},
    "list by search": {"tool": "sessions_list", "search": "{label}", "messageLimit": 3, "includeInactive": True},
}
WHO = ("outside", "in a run")


@dataclass
class Tap:
    """Counts the statements that the home's connections carry out."""

    counts: Counter[str] = field(default_factory=Counter[str])

    def connect(self, path: Path, **options: Any) -> sqlite3.Connection:
        connection: Any = connect_sqlite(path, **options)
        connection.set_trace_callback(self._note)
        return connection

    def _note(self, statement: str) -> None:
        self.counts[re.sub(r"'[^']*'|-?\b\d+\b", "?", statement)] += 1


@dataclass(frozen=True)
class World:
    app: App
    caller: Session
    principal: Principal
    names: dict[str, dict[str, str]]
    """The names of the session that is `hidden`, and of one that is `missing`."""


@pytest.fixture(params=HIDDEN_BY)
async def world(request: pytest.FixtureRequest, open_home: OpenHome) -> AsyncGenerator[World]:
    why: str = request.param
    visibility = "tree" if why == "tree" else "agent"
    config = settings(tools__sessions__visibility=visibility, agents__list=AGENTS)
    async with open_home(config) as app:
        caller = await open_peer(app, "caller")
        agent = "other" if why == "agent" else "main"
        hidden = await open_peer(app, "hidden1", agent=agent, taint=SECRET if why == "taint" else None)
        if why == "deletion":
            await app.services.sessions.delete(OWNER, target_of(app, hidden))
        if why == "participation":
            await app.database.run(_let_in, caller.row)
        names = {
            name: {"key": f"agent:{agent}:cli:{name}1", "id": f"cli:{name}1", "label": f"{name}1"}
            for name in ("hidden", "missing")
        }
        yield World(app, caller, GUEST if why == "participation" else OWNER, names)


async def _let_in(tx: Transaction, session: SessionRow) -> None:
    await rows.add_participant(tx, session, str(GUEST))


def arguments_of(call: str, names: dict[str, str]) -> tuple[str, dict[str, Any]]:
    filled = {name: value.format(**names) if isinstance(value, str) else value for name, value in CALLS[call].items()}
    return filled.pop("tool"), filled


async def answer(world: World, who: str, call: str, name: str) -> str:
    """The answer's bytes, with the caller's own word for the target taken out."""
    names = world.names[name]
    sought = world.app.services.sessions.target(names["key"])
    asked = question(world.caller.row, world.principal, sought, include_tools=True)
    tool, arguments = arguments_of(call, {**names, "cursor": world.app.services.cursors.seal(asked, 2)})
    target = target_of(world.app, world.caller)
    if who == "outside":
        told = await world.app.tool_calls.call(world.principal, target, tool, arguments)
        text = json.dumps(told)
    else:
        words = text_content(f"!call {tool} {json.dumps(arguments)}")
        posted = await world.app.services.inbox.post(world.principal, target, words)
        text = (await wait_end(world.app, posted.run_id)).reply or ""
    return text.replace(f"{name}1", "NAME")


@requirement("answers:2", "visibility:4", "flow:3", "access:1")
@pytest.mark.parametrize("who", WHO)
async def test_every_tool_answers_alike_for_hidden_and_for_missing(world: World, who: str) -> None:
    for call in CALLS:
        hidden = await answer(world, who, call, "hidden")
        missing = await answer(world, who, call, "missing")
        assert _plain(hidden) == _plain(missing), call
        if not call.startswith("list"):
            assert json.loads(hidden)["status"] == "not_found", call


def _plain(text: str) -> str:
    """Without what tells of the caller's own last message, which is another each time."""
    return re.sub(
        r'"(updatedAt|contextTokens|totalTokens|seq|createdAt)": ?\d+', "", re.sub(r"(run|msg)_\w+", "", text)
    )


@requirement("answers:2")
@pytest.mark.parametrize("why", ["tree", "taint", "deletion"])
async def test_hidden_and_missing_cost_the_same_statements(home: Path, why: str) -> None:
    tap = Tap()
    visibility = "tree" if why == "tree" else "agent"
    parts = Parts(connect=tap.connect)
    async with open_app(home, settings(tools__sessions__visibility=visibility), parts) as app:
        caller = await open_peer(app, "caller")
        hidden = await open_peer(app, "hidden1", taint=SECRET if why == "taint" else None)
        if why == "deletion":
            await app.services.sessions.delete(OWNER, target_of(app, hidden))
        names = {
            name: {"key": f"agent:main:cli:{name}1", "id": f"cli:{name}1", "label": f"{name}1"}
            for name in ("hidden", "missing")
        }
        world = World(app, caller, OWNER, names)
        for call in CALLS:
            hidden_work = await repeated(tap, world, call, "hidden")
            missing_work = await repeated(tap, world, call, "missing")
            # Upkeep may add a statement to a count, and may open the transaction that a call joins.
            alike = [work for work in hidden_work if work in missing_work]
            assert alike, (call, hidden_work, missing_work)
            assert sum(alike[0].values()) > 1, call


async def repeated(tap: Tap, world: World, call: str, name: str) -> list[Counter[str]]:
    """The statements while the call is made, for each of some repetitions."""
    counts: list[Counter[str]] = []
    for _ in range(25):
        tap.counts.clear()
        await answer(world, "outside", call, name)
        counts.append(tap.counts.copy())
    return counts


@requirement("answers:2", "search:1")
async def test_a_search_finds_nothing_alike_for_hidden_words_and_for_none(world: World) -> None:
    app, hidden = world.app, world.names["hidden"]["key"]
    sessions = app.services.sessions
    existing = await app.database.read(rows.find_by_key, parse_key(hidden))
    if existing is not None:
        await app.services.inbox.append(OWNER, sessions.target(hidden), text_content("zanzibar"))
    await app.services.inbox.append(OWNER, target_of(app, world.caller), text_content("visible"))
    with anyio.fail_after(SECONDS):
        while await app.services.search.lag():
            await anyio.sleep(0.01)
    target = target_of(app, world.caller)
    told = [
        await app.tool_calls.call(world.principal, target, "sessions_search", {"query": word})
        for word in ("zanzibar", "nowhere", "visible")
    ]
    assert told[0] == told[1] == {"count": 0, "results": []}
    assert told[2]["count"] == 1


@requirement("answers:2", "answers:5", "access:2")
async def test_every_route_answers_alike_for_a_session_that_was_deleted_and_for_one_that_never_was(
    home: Path,
) -> None:
    async with open_app(home, settings()) as app:
        caller, gone = await open_peer(app, "caller"), await open_peer(app, "hidden1")
        await app.services.sessions.delete(OWNER, target_of(app, gone))
        _, secret = await app.services.tokens.create(OWNER, target_of(app, caller))
        transport = httpx.ASGITransport(gateway_app(app, "owner"))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            for token in ("owner", secret):
                client.headers["Authorization"] = f"Bearer {token}"
                for method, path, body in ROUTES:
                    for form in ("agent:main:cli:{}1", "cli:{}1"):
                        hidden, missing = [
                            await ask_route(client, method, path, body, form, name) for name in ("hidden", "missing")
                        ]
                        assert hidden == missing, (method, path)
                        status, text = hidden
                        is_bound = token != "owner" and "caller" not in str(body)
                        assert status in ((401, 403) if is_bound else (200, 404)), (method, path, status)
                        assert is_bound or "not_found" in text


async def ask_route(
    client: httpx.AsyncClient, method: str, path: str, body: JsonObject | None, form: str, name: str
) -> tuple[int, str]:
    named = form.format(name)
    answer = await client.request(method, path.format(named), json=_filled(body, named))
    return answer.status_code, answer.text.replace(f"{name}1", "NAME")


def _filled(value: Any, named: str) -> Any:
    if isinstance(value, dict):
        return {key: _filled(each, named) for key, each in cast(dict[str, Any], value).items()}
    return named if value == "{}" else value


ROUTES: list[tuple[str, str, JsonObject | None]] = [
    ("GET", "/sessions/{}", None),
    ("PATCH", "/sessions/{}", {"label": "x"}),
    ("DELETE", "/sessions/{}", None),
    ("POST", "/sessions/{}/messages", {"text": "hello"}),
    ("POST", "/sessions/{}/messages?append=1", {"text": "hello"}),
    ("POST", "/sessions/{}/reset", None),
    ("POST", "/sessions/{}/cancel", None),
    ("POST", "/sessions/{}/fork", {}),
    ("GET", "/sessions/{}/history", None),
    ("GET", "/sessions/{}/history?follow=1", None),
    ("GET", "/sessions/{}/history?follow=1&after=1", None),
    ("GET", "/sessions/{}/events", None),
    ("GET", "/sessions/{}/transcript", None),
    ("GET", "/runs?session={}", None),
    ("POST", "/tokens", {"sessionKey": "{}"}),
    ("POST", "/tools/session_status", {"sessionKey": "{}", "arguments": {}}),
    ("POST", "/tools/session_status", {"sessionKey": "agent:main:cli:caller", "arguments": {"sessionKey": "{}"}}),
    ("POST", "/tools/sessions_history", {"sessionKey": "agent:main:cli:caller", "arguments": {"sessionKey": "{}"}}),
    (
        "POST",
        "/tools/sessions_send",
        {"sessionKey": "agent:main:cli:caller", "arguments": {"sessionKey": "{}", "message": "m"}},
    ),
]


@requirement("answers:2")
async def test_the_answer_names_the_setting_and_depends_on_the_callers_policy_alone(open_home: OpenHome) -> None:
    told: set[str] = set()
    for visibility in ("self", "tree", "agent", "all"):
        async with open_home(settings(tools__sessions__visibility=visibility)) as app:
            caller = await open_peer(app, "caller")
            missing = await app.tool_calls.call(
                OWNER, target_of(app, caller), "session_status", {"sessionKey": "agent:nobody:cli:x"}
            )
            assert f"tools.sessions.visibility = '{visibility}'" in str(missing["error"])
            told.add(str(missing["error"]))
    assert len(told) == 4
