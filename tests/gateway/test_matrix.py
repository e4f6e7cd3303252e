"""Who may do what: every operation × every kind of caller × every way to name its target, over HTTP and MCP.

What is expected stands in the small table below, which is written by hand and shares nothing with the code that it
judges. An operation that has no line in it fails.
"""

import json
from collections import Counter
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed

from antiphon.app import gateway_app, open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import SessionRow
from antiphon.domain.tokens import ALL_SCOPES
from antiphon.gateway.operations.operation import AnyOperation, TargetKind
from antiphon.gateway.operations.table import TABLE
from antiphon.gateway.server import bind, serving
from antiphon.store import sessions as rows
from antiphon.store.database import Transaction
from antiphon.wire.errors import TYPES
from tests.claims import requirement
from tests.gateway.asking import filled, request_of
from tests.gateway.served import TOKEN, Json, new_client
from tests.gateway.socket.speaking import CONNECT, Speaker, opened_at
from tests.tools.test_hidden_is_missing import Tap

pytestmark = pytest.mark.anyio

SHARED, HIDDEN = "agent:main:telegram:group:shared", "agent:main:discord:group:hidden"
MISSING, MAIN = "agent:main:telegram:group:nobody", "agent:main:main"
OUTSIDERS = ("user", "guest", "channel")

OWNERS, USERS, EVERYONE = "owner", "user", "guest"
"""The least role that may do something."""
OPEN = "open"
"""Anyone may, whatever credential they show or do not."""
NOBODY = "nobody"
"""Refused for everyone here, whatever their rights."""

LEAST: Mapping[str, str] = {
    "sessions.list": USERS,
    "sessions.create": USERS,
    "sessions.get": EVERYONE,
    "sessions.patch": USERS,
    "sessions.delete": USERS,
    "sessions.checkpoint": OWNERS,  # groups; users may in their own direct chats
    "sessions.reset": OWNERS,  # groups; others may reset their own direct chats
    "sessions.cancel": EVERYONE,
    "sessions.fork": USERS,  # with an agent that is open to them
    "sessions.post": EVERYONE,
    "sessions.append": EVERYONE,
    "commands.run": EVERYONE,  # each command has rights of its own besides
    "sessions.history": EVERYONE,
    "sessions.incarnations": EVERYONE,
    "sessions.events": EVERYONE,
    "sessions.transcript": EVERYONE,
    "sessions.tree": USERS,
    "sessions.contents": EVERYONE,
    "search.find": EVERYONE,
    "trees.list": USERS,
    "activities.list": USERS,
    "costs.get": USERS,
    "agents.list": EVERYONE,
    "runs.list": USERS,
    "runs.get": EVERYONE,
    "runs.wait": EVERYONE,
    "runs.cancel": EVERYONE,
    "runs.tree": USERS,
    "tasks.list": USERS,
    "tasks.create": USERS,
    "tasks.preview": USERS,
    "tasks.get": USERS,
    "tasks.edit": USERS,
    "tasks.run": USERS,
    "tasks.runs": USERS,
    "tasks.pause": USERS,
    "tasks.resume": USERS,
    "tasks.approve": OWNERS,
    "tasks.cancel": USERS,
    "approvals.list": OWNERS,
    "approvals.get": OWNERS,
    "approvals.wait": OWNERS,
    "approvals.resolve": OWNERS,
    "standing-approvals.list": OWNERS,
    "standing-approvals.revoke": OWNERS,
    "trusted-content.list": OWNERS,
    "trusted-content.revoke": OWNERS,
    "rules.list": OWNERS,
    "rules.get": OWNERS,
    "rules.reload": OWNERS,
    "refusals.last": OWNERS,
    "deliveries.list": OWNERS,
    "deliveries.get": OWNERS,
    "deliveries.retry": OWNERS,
    "memory.list": EVERYONE,
    "memory.get": EVERYONE,
    "memory.add": EVERYONE,
    "memory.update": EVERYONE,
    "memory.delete": EVERYONE,
    "tools.list": EVERYONE,
    "tools.invoke": EVERYONE,
    "people.list": OWNERS,
    "people.get": OWNERS,
    "people.invite": OWNERS,
    "people.link": OWNERS,
    "people.role": OWNERS,
    "people.patch": OWNERS,
    "people.suspend": OWNERS,
    "people.resume": OWNERS,
    "people.merge": OWNERS,
    "people.remove": OWNERS,
    "pairings.list": OWNERS,
    "pairings.approve": OWNERS,
    "pairings.refuse": OWNERS,
    "join-links.create": OWNERS,
    "link-codes.create": USERS,  # for an account of their own
    "groups.list": OWNERS,
    "groups.allow": OWNERS,
    "groups.refuse": OWNERS,
    "routes.list": OWNERS,
    "routes.set": OWNERS,
    "routes.clear": OWNERS,
    "compartments.list": OWNERS,
    "agents.forget": OWNERS,
    "compartments.create": OWNERS,
    "audit.list": OWNERS,
    "audit.verify": OWNERS,
    "tool-reviews.list": OWNERS,
    "tool-reviews.confirm": OWNERS,
    "tool-reviews.withdraw": OWNERS,
    "skills.list": OWNERS,
    "skills.show": OWNERS,
    "skills.trust": OWNERS,
    "skills.remove": OWNERS,
    "tokens.list": OWNERS,
    "tokens.create": OWNERS,
    "tokens.rotate": OWNERS,
    "tokens.rotate-owner": OWNERS,
    "tokens.revoke": OWNERS,
    "links.create": OWNERS,
    "browsers.sign-in": OPEN,
    "browsers.sign-out": NOBODY,  # no browser asks here
    "gateways.prove": OPEN,
    "webhooks.receive": OPEN,
    "hooks.receive": OPEN,
    "slack.receive": OPEN,
    "telegram.receive": OPEN,
    "metrics.get": OWNERS,
    "health.get": OPEN,
    "health.ready": OPEN,
}
"""What each operation needs; everyone below owner also takes part in the session or run that they name."""
OF_CHANNELS = frozenset(
    {
        *(f"sessions.{verb}" for verb in ("list", "get", "patch", "cancel", "post", "append", "history", "events")),
        *(
            "sessions.transcript",
            "sessions.incarnations",
            "sessions.tree",
            "sessions.contents",
            "search.find",
            "trees.list",
            "runs.list",
            "runs.get",
            "runs.wait",
            "runs.tree",
            "costs.get",
        ),
        *("runs.cancel", "commands.run", "agents.list"),
    }
)
"""What the token of a channel may do in its namespace; it opens sessions only by ids and keys of that."""
BEYOND_CHANNELS = (
    *("approvals.", "compartments.", "standing-approvals.", "people.", "tokens.", "links.", "tools.invoke", "metrics."),
    *("audit.", "agents.forget", "tool-reviews.", "skills.", "trusted-content.", "rules.", "refusals."),
    *("pairings.", "join-links.", "link-codes.", "groups.", "routes.", "tasks.approve"),
)
"""How the names of operations begin whose scopes such a token never has."""
OF_THIS_MACHINE = {"metrics.get"}
"""Operations that programs of this machine may ask for without a credential."""
HIDES_ITSELF = {"deliveries.get", "deliveries.retry"}
"""Operations of owners alone that answer others as if there were nothing."""
LOOKS_FIRST = {
    *("sessions.fork", "sessions.reset", "sessions.checkpoint", "sessions.tree", "runs.tree", "routes.set"),
    "tasks.approve",
}
"""Operations that look for their target before they refuse a role: what others may not see does not exist first."""
REFUSES_GUESTS = {"tasks.approve"}
"""Of these, those that refuse guests before they look."""
LAST = ("tokens.rotate", "tokens.revoke", "people.remove", "tokens.rotate-owner")
"""Operations that take away what the others ask with."""
WAYS = ("key", "id", "main", "alias", "other case", "missing")
RANKS = (EVERYONE, USERS, OWNERS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    operation: str
    who: str
    """`owner`, `user`, `guest`, `channel`, `node`, `bound`, `suspended`, `none`."""
    where: str
    """The session: `shared`, in which all of them take part, or `hidden`."""
    way: str
    """How the target is named."""


def expected(cell: Cell, kind: TargetKind) -> tuple[str, ...]:
    """The possible outcomes, by the table above."""
    least = LEAST[cell.operation]
    if least == OPEN:
        return ("allowed",)
    match cell.who:
        case "none" if cell.operation in OF_THIS_MACHINE:
            return ("allowed",)
        case "none":
            return ("token_missing",)
        case "suspended":
            return ("suspended",)
        case "channel":
            return (expected_of_channel(cell, kind),)
        case "node" if cell.operation != "sessions.post":
            return ("token_bound",)
        case "node":
            return ("invalid",) if cell.way == "other case" else ("not_found",)
        case "bound" if cell.operation != "tools.invoke":
            return ("token_bound",)
        case "bound" if cell.way == "other case":
            return ("invalid",)
        case "bound":
            is_own = cell.where == "shared" and cell.way in ("key", "id", "alias")
            return ("allowed",) if is_own else ("token_bound",)
        case _:
            pass
    if least == NOBODY:
        return ("forbidden",)
    if kind is TargetKind.SESSION and cell.way == "other case":
        return ("invalid",)
    is_reached = cell.way != "missing" and (cell.who == OWNERS or (cell.where == "shared" and cell.way != "main"))
    if RANKS.index(cell.who) < RANKS.index(least):
        is_refused_first = cell.who == EVERYONE and cell.operation in REFUSES_GUESTS
        if cell.operation in LOOKS_FIRST and not is_reached and not is_refused_first:
            return ("not_found",)
        return ("not_found",) if cell.operation in HIDES_ITSELF else ("forbidden",)
    if kind is TargetKind.NONE:
        return ("allowed",)
    return ("allowed",) if is_reached else ("not_found",)


def expected_of_channel(cell: Cell, kind: TargetKind) -> str:
    """The outcome for the token of a channel, of whose sessions `shared` is one and `hidden` is none."""
    if cell.operation.startswith(BEYOND_CHANNELS):
        return "scope_missing"
    if kind is TargetKind.SESSION and cell.way == "other case":
        return "invalid"
    is_reached = cell.where == "shared" and cell.way not in ("missing", "main")
    if cell.operation in LOOKS_FIRST and not is_reached:
        return "not_found"
    if cell.operation not in OF_CHANNELS:
        return "not_found" if cell.operation in HIDES_ITSELF else "forbidden"
    return "allowed" if kind is TargetKind.NONE or is_reached else "not_found"


def outcome(answer: httpx.Response, text: str) -> str:
    """One word for what came back; `allowed` for everything that rights did not refuse."""
    if answer.status_code < 400:
        return "allowed"
    return outcome_of(answer.status_code, json.loads(text)["error"]["code"])


def outcome_of(status: int, code: str) -> str:
    """One word for an error."""
    match status, code:
        case (401, "token_missing") | (403, "token_bound" | "suspended" | "forbidden") | (404, "not_found"):
            return code
        case (400, "invalid_key"):
            return "invalid"
        case (403, "agent_not_open"):
            return "forbidden"
        case (403, "scope_missing"):
            return code
        case _:
            return "allowed"


STATUSES = {name: status for status, name in sorted(TYPES.items(), reverse=True)}
"""The status of each type of error over HTTP."""
NAMED = (
    "key",
    "sessionKey",
    "runId",
    "deliveryId",
    "approvalId",
    "standingId",
    "tokenId",
    "personId",
    "groupId",
    "pairing",
    "taskId",
)
"""The parameters that name a target."""


@dataclass(slots=True, kw_only=True)
class World:
    app: App
    tap: Tap
    clients: dict[str, httpx.AsyncClient]
    connect: Callable[[str], Awaitable[Speaker | Json]]
    sockets: dict[str, Speaker | Json] = field(default_factory=dict[str, "Speaker | Json"])
    """The connected WebSocket of each caller; or the answer that refused to connect it."""
    names: dict[tuple[str, str], str]
    """The name of a session, by where and in which way."""
    runs: dict[str, str] = field(default_factory=dict[str, str])
    objects: dict[TargetKind, str] = field(default_factory=dict[TargetKind, str])
    """The id of one of each of the other things."""

    def name(self, cell: Cell, kind: TargetKind) -> str:
        if kind is TargetKind.SESSION:
            return self.names[cell.where, cell.way]
        if kind is TargetKind.NONE:
            return ""
        if cell.way == "missing":
            return {TargetKind.RUN: "run_nobody"}.get(kind, "nobody")
        return self.runs[cell.where] if kind is TargetKind.RUN else self.objects[kind]

    def request(self, cell: Cell) -> httpx.Request:
        return request_of(self.clients[cell.who], TABLE[cell.operation], self.params(cell))

    def params(self, cell: Cell) -> Json:
        operation = TABLE[cell.operation]
        name = self.name(cell, operation.target)
        given: Json = dict.fromkeys(NAMED, name)
        if operation.target is not TargetKind.SESSION:
            del given["key"], given["sessionKey"]
        if operation.name == "tokens.create":
            del given["personId"]
        said = filled(operation, **given) | EXTRA.get(operation.name, {})
        if cell.who == "channel" and operation.name in ("sessions.post", "sessions.append", "commands.run"):
            said["sender"] = {"id": "4711"}
        return said

    async def ask_by_socket(self, cell: Cell) -> tuple[str, str]:
        """The outcome over the caller's WebSocket, and the error's text; of connecting, if that was refused."""
        speaker = self.sockets[cell.who]
        if isinstance(speaker, Speaker):
            try:
                frame = await speaker.ask(cell.operation, **self.params(cell))
            except ConnectionClosed:
                frame = None
            if frame is None or frame.get("error", {}).get("code") == "credential_ended":
                # An operation before this one changed the caller's rights.
                self.sockets[cell.who] = await self.connect(cell.who)
                return await self.ask_by_socket(cell)
        else:
            frame = speaker
        if frame["ok"]:
            return "allowed", ""
        error = frame["error"]
        return outcome_of(STATUSES[error["type"]], error["code"]), json.dumps(error)

    async def ask(self, cell: Cell) -> tuple[str, str]:
        """The outcome, and the answer's text; a stream's is empty."""
        answer = await self.clients[cell.who].send(self.request(cell), stream=True)
        try:
            is_stream = answer.headers.get("content-type", "").startswith("text/event-stream")
            text = "" if is_stream else (await answer.aread()).decode()
            return outcome(answer, text), text
        finally:
            await answer.aclose()


EXTRA: Mapping[str, Json] = {
    "sessions.create": {"agentId": "main"},
    "sessions.patch": {"description": "x"},
    "commands.run": {"text": "/help"},
    "tools.invoke": {"name": "session_status"},
    "people.role": {"role": "user"},
    "people.patch": {"clearance": {"level": "INTERNAL"}},
    "people.merge": {"into": "owner"},
    "people.invite": {"name": "Nick"},
    "approvals.resolve": {"decision": "deny"},
    "compartments.create": {"name": "finance"},
    "trusted-content.revoke": {"sessionKey": SHARED},
    "tasks.create": {"text": "every 1h walk"},
    "tasks.preview": {"text": "every 1h walk"},
}


async def _let_in(tx: Transaction, session: SessionRow, principal: str) -> None:
    await rows.add_participant(tx, session, principal)


@pytest.fixture
async def world(tmp_path: Path) -> AsyncGenerator[World]:
    limits = {"guest": {"requestsPerMinute": 10**6, "burst": 10**6, "sessions": 10**4}}
    settings = {"gateway": {"drain_seconds": 0}, "limits": limits}
    tap = Tap()
    async with AsyncExitStack() as stack:
        app = await stack.enter_async_context(
            open_app(tmp_path / "home", Config.model_validate(settings), Parts(connect=tap.connect))
        )
        url = await stack.enter_async_context(
            serving(gateway_app(app, TOKEN), bind("127.0.0.1", 0), on_stop=app.services.hub.close)
        )
        owner = await stack.enter_async_context(new_client(url, TOKEN))
        secrets: dict[str, str | None] = {"none": None}
        for person, role in (("user", "user"), ("guest", "guest"), ("suspended", "user"), ("spare", "user")):
            (await owner.post("/people", json={"name": person, "agents": ["main"]})).raise_for_status()
            (await owner.post(f"/people/{person}/role", json={"role": role})).raise_for_status()
            _, secrets[person] = await app.services.tokens.create_for_person(OWNER, person, ALL_SCOPES)
        of_channel = {"key": SHARED, "source": {"kind": "channel", "platform": "telegram"}}
        found = {SHARED: (await owner.post("/sessions", json=of_channel)).json()}
        found |= {key: (await owner.post("/sessions", json={"key": key})).json() for key in (HIDDEN, MAIN)}
        for person in ("user", "guest", "suspended"):
            session = await app.services.sessions.get(OWNER, app.services.sessions.target(SHARED))
            await app.database.run(_let_in, session.session.row, f"person:{person}")
        secrets["bound"] = (await owner.post("/tokens", json={"sessionKey": SHARED})).json()["token"]
        secrets["node"] = (await owner.post("/tokens", json={"nodeId": "kitchen"})).json()["token"]
        secrets["channel"] = (await owner.post("/tokens", json={"namespace": "telegram"})).json()["token"]
        (await owner.post("/people/suspended/suspend", json={})).raise_for_status()
        clients = {who: await stack.enter_async_context(new_client(url, secret)) for who, secret in secrets.items()}
        names: dict[tuple[str, str], str] = {}
        for where, key in (("shared", SHARED), ("hidden", HIDDEN)):
            alias, other_case = key.removeprefix("agent:main:"), key.replace("group", "Group")
            forms = (key, found[key]["sessionId"], "main", alias, other_case, MISSING)
            names |= {(where, way): form for way, form in zip(WAYS, forms, strict=True)}
        secrets["owner"] = TOKEN

        def connect(who: str) -> Awaitable[Speaker | Json]:
            return connected(stack, url, secrets[who])

        world = World(app=app, tap=tap, clients={**clients, "owner": owner}, connect=connect, names=names)
        world.sockets = {who: await connect(who) for who in secrets}
        for where, key in (("shared", SHARED), ("hidden", HIDDEN)):
            posted = (await owner.post(f"/sessions/{key}/messages?wait=60", json={"text": "hello"})).json()
            world.runs[where] = posted["runId"]
        spare, _ = await app.services.tokens.create_for_person(OWNER, "spare")
        world.objects = {TargetKind.TOKEN: spare.id, TargetKind.PERSON: "spare"}
        yield world


async def connected(stack: AsyncExitStack, url: str, secret: str | None) -> Speaker | Json:
    """A WebSocket that is connected with this token, or the answer that refused it."""
    speaker = await stack.enter_async_context(opened_at(url))
    answer = await speaker.ask("connect", **(CONNECT if secret is None else CONNECT | {"token": secret}))
    return speaker if answer["ok"] else answer


ALWAYS_MISSING = (
    *(TargetKind.DELIVERY, TargetKind.APPROVAL, TargetKind.STANDING_APPROVAL),
    *(TargetKind.PAIRING, TargetKind.GROUP, TargetKind.NOTE, TargetKind.TASK),
    *(TargetKind.TOOLS, TargetKind.SKILL, TargetKind.TRUSTED_CONTENT, TargetKind.RULE, TargetKind.AGENT),
)
"""Of these there are none here."""


def cells_of(operation: AnyOperation) -> list[Cell]:
    """Every cell of an operation's line."""
    ways = {TargetKind.SESSION: WAYS, TargetKind.NONE: ("key",), TargetKind.RUN: ("key", "missing")}
    found: list[Cell] = []
    for who in ("none", "suspended", "bound", "node", "channel", "guest", "user", "owner"):
        for where in ("shared", "hidden"):
            if operation.target in ALWAYS_MISSING:
                names: tuple[str, ...] = ("missing",)
            else:
                names = ways.get(operation.target, ("missing", "key"))
            if operation.target not in (TargetKind.SESSION, TargetKind.RUN) and where == "hidden":
                continue
            found += [Cell(operation=operation.name, who=who, where=where, way=way) for way in names]
    return found


@requirement("access:1", "access:2", "access:4", "access:5", "answers:2")
async def test_every_operation_answers_every_caller_as_the_table_says(world: World) -> None:
    assert LEAST.keys() == TABLE.keys(), "an operation without a line, or a line without an operation"
    wrong: list[str] = []
    count = 0
    last = [TABLE[name] for name in LAST]
    for operation in [*(each for each in TABLE.values() if each not in last), *last]:
        for cell in cells_of(operation):
            found, text = await world.ask(cell)
            count += 1
            if found not in expected(cell, operation.target):
                wrong.append(f"{cell}: {found}, not {expected(cell, operation.target)}: {text[:200]}")
    print(f"{count} cells over HTTP")
    assert not wrong, f"{len(wrong)} of {count} cells are wrong:\n" + "\n".join(wrong[:40])
    assert count > 1_000


@requirement("access:1", "access:2", "access:4", "access:5", "answers:2", "gateway:2")
async def test_every_operation_answers_every_caller_over_the_websocket_as_the_table_says(world: World) -> None:
    wrong: list[str] = []
    count = 0
    last = [TABLE[name] for name in LAST]
    for operation in [*(each for each in TABLE.values() if each not in last), *last]:
        if operation.http.is_only:
            continue
        for cell in cells_of(operation):
            found, text = await world.ask_by_socket(cell)
            count += 1
            if found not in expected_by_socket(cell, operation):
                wrong.append(f"{cell}: {found}, not {expected_by_socket(cell, operation)}: {text[:200]}")
    print(f"{count} cells over the WebSocket")
    assert not wrong, f"{len(wrong)} of {count} cells are wrong:\n" + "\n".join(wrong[:40])
    assert count > 1_000


def expected_by_socket(cell: Cell, operation: AnyOperation) -> tuple[str, ...]:
    """As over HTTP; but nobody is connected without a credential, not even for open operations."""
    if cell.who in ("none", "suspended"):
        return ("token_missing",) if cell.who == "none" else ("suspended",)
    return expected(cell, operation.target)


@requirement("access:2", "access:5", "answers:2", "tools:1")
async def test_tools_answer_every_caller_over_mcp_as_over_http(world: World) -> None:
    wrong: list[str] = []
    told: dict[Cell, str] = {}
    for cell in cells_of(TABLE["tools.invoke"]):
        call: Json = {"name": "session_status", "arguments": {}}
        request: Json = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
        name = world.name(cell, TargetKind.SESSION)
        headers = {"Accept": "application/json, text/event-stream", "Antiphon-Session": name}
        answer = await world.clients[cell.who].post("/mcp", json=request, headers=headers)
        found = outcome(answer, answer.text)
        if answer.status_code == 200:
            content = json.loads(answer.text[answer.text.index("{") :].splitlines()[0])["result"]["structuredContent"]
            found = str(content.get("code", "allowed")).replace("invalid_key", "invalid")
            told[cell] = without(json.dumps(content), name)
        if found not in expected(cell, TargetKind.SESSION):
            wrong.append(f"{cell}: {found}, not {expected(cell, TargetKind.SESSION)}: {answer.text[:200]}")
    print(f"{len(cells_of(TABLE['tools.invoke']))} cells over MCP")
    assert not wrong, "\n".join(wrong)
    for who in ("user", "guest"):
        cells = [Cell(operation="tools.invoke", who=who, where="hidden", way=way) for way in ("key", "missing")]
        assert told[cells[0]] == told[cells[1]]


def without(text: str, name: str) -> str:
    """The text without the caller's own word for the target."""
    return text.replace(name, "NAME")


MOST_ROUNDS = 30


@requirement("answers:2", "access:1")
@pytest.mark.parametrize("who", OUTSIDERS)
async def test_hidden_and_missing_are_one_answer_of_the_same_statements(world: World, who: str) -> None:
    """Byte by byte but for the name, for every operation that names a session or a run."""
    named = [each for each in TABLE.values() if each.target in (TargetKind.SESSION, TargetKind.RUN)]
    for operation in named:
        texts, counts = dict[str, str](), {"key": list[Counter[str]](), "missing": list[Counter[str]]()}
        alike = list[Counter[str]]()
        # Upkeep may add a statement to a count, and may open the transaction that a request joins.
        for _ in range(MOST_ROUNDS):
            for way, counted in counts.items():
                cell = Cell(operation=operation.name, who=who, where="hidden", way=way)
                world.tap.counts.clear()
                found, text = await world.ask(cell)
                counted.append(world.tap.counts.copy())
                assert found in ("not_found", "forbidden", "scope_missing"), (cell, text)
                texts[way] = without(text, world.name(cell, operation.target))
            assert texts["key"] == texts["missing"], operation.name
            if alike := [count for count in counts["key"] if count in counts["missing"]]:
                break
        assert alike, (operation.name, counts)
        cell = Cell(operation=operation.name, who=who, where="hidden", way="missing")
        is_refused_first = who == "channel" and expected_of_channel(cell, operation.target) != "not_found"
        assert sum(alike[0].values()) > (0 if is_refused_first else 1), operation.name
