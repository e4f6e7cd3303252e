"""Attempts to cause more than one's rights allow, by a guest, a bound token, a sandboxed agent and a child.

Commands leave a mark on the host where they run there; a mail tool and a server's tool count their calls.
"""

import hashlib
import hmac
import json
import sys
from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio
import httpx
import pytest

from antiphon.agents.toolset import tool
from antiphon.app import gateway_app, open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.gateway.server import bind, serving
from tests.attacks.attempt import Attacker, Attempt, Door, rows
from tests.claims import requirement
from tests.gateway.served import TOKEN, new_client
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

DOOR_SECRET = "s3cret-of-the-door-bell"
SECRET = "what-the-owner-said"
MAIN, PORTER = "agent:main:main", "agent:porter:cli:desk"
BOXED = "agent:boxed:cli:one"
PRIVATE = "agent:porter:cli:private"


@dataclass(slots=True)
class World:
    app: App
    url: str
    owner: httpx.AsyncClient
    host: Path
    mails: list[str]
    tokens: dict[str, str] = field(default_factory=dict[str, str])
    ids: dict[str, str] = field(default_factory=dict[str, str])
    """Of sessions, as messages name them here."""
    rung: int = 0

    @property
    def mark(self) -> Path:
        """There as soon as a command ran on the host that was not to."""
        return self.host / "mark"

    def filled(self, text: str) -> str:
        for name, id in self.ids.items():
            text = text.replace(name, id)
        return text.replace("MARK", str(self.mark))

    async def ring(self, peer: str, text: str, *, door: str = "door") -> str:
        """What the webhook's guest is answered."""
        self.rung += 1
        body = {"messageId": f"m-{self.rung}", "peer": peer, "text": self.filled(text), "wait": SECONDS}
        data = json.dumps(body).encode()
        timestamp = str(int(self.app.services.clock.now().timestamp()))
        signed = f"v2.in.{door}.{timestamp}.".encode() + data
        digest = hmac.new(DOOR_SECRET.encode(), signed, hashlib.sha256).hexdigest()
        headers = {
            "Content-Type": "application/json",
            "Antiphon-Timestamp": timestamp,
            "Antiphon-Signature": f"v2={digest}",
        }
        async with new_client(self.url) as client:
            answer = await client.post(f"/channels/webhook/{door}", content=data, headers=headers)
        return answer.raise_for_status().json().get("reply", "")

    async def ask(self, key: str, text: str) -> str:
        """What the owner is answered in the session."""
        path = f"/sessions/{key}/messages?wait={SECONDS}"
        answer = await self.owner.post(path, json={"text": self.filled(text)})
        return answer.raise_for_status().json().get("reply", "")

    def begin(self) -> None:
        """Forgets what an attempt before this one did."""
        self.mails.clear()
        for path in (self.mark, self.host / "calls"):
            path.unlink(missing_ok=True)

    def was_harmed(self) -> bool:
        return self.mark.exists() or bool(self.mails) or (self.host / "calls").exists()


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncGenerator[World]:
    """`main` is sandboxed but for its main session, `porter` never, `boxed` always; commands may run on the host."""
    host = tmp_path_factory.mktemp("host")
    mails: list[str] = []

    def find_mail(word: str) -> str:
        """Looks for a mail."""
        mails.append(word)
        return "found"

    def keep_note(word: str) -> str:
        """Keeps a note."""
        mails.append(word)
        return "kept"

    server = {"command": sys.executable, "args": ["-m", "tests.mcp.program", str(host)], "effects": {"*": ["reads"]}}
    settings: dict[str, Any] = {
        "gateway": {"drain_seconds": 0},
        "access": {"messages_per_minute": 10**6},  # all attempts come within one
        "agents": {
            "defaults": {
                "mcp_servers": {"things": {**server, "cwd": str(Path(__file__).parents[2])}},
                "subagents": {"allow_agents": ["*"], "max_spawn_depth": 3, "max_children_per_agent": 100},
            },
            "list": [
                {"id": "porter"},
                {"id": "main", "sandbox": {"mode": "non-main"}},
                {"id": "boxed", "sandbox": {"mode": "all"}, "tools": {"allow": ["run_command"]}},
            ],
        },
        "channels": {
            "webhook": {
                "door": {"secret": DOOR_SECRET, "agent": "porter"},
                "box": {"secret": DOOR_SECRET, "agent": "boxed"},
                "desk": {"secret": DOOR_SECRET, "principal": "owner", "url": "http://127.0.0.1:9/none"},
            }
        },
        "flow": {"untrusted": "allow"},
        "tools": {
            "run_command": {"mode": "host"},
            "approval": {"require": [], "people": []},
            "sessions": {"visibility": "all"},
            "agent_to_agent": {"enabled": True},
            "subagents": {"tools": ["sessions_send", "sessions_history", "sessions_list"]},
        },
        "session": {"agent_to_agent": {"max_ping_pong_turns": 0}},
    }
    parts = Parts(tools=[tool(find_mail, effects=["reads"]), tool(keep_note, effects=["writes"])])
    async with open_app(host / "home", Config.model_validate(settings), parts) as app:
        listener = bind("127.0.0.1", 0)
        async with (
            serving(gateway_app(app, TOKEN), listener, on_stop=app.services.hub.close) as url,
            new_client(url, TOKEN) as owner,
        ):
            world = World(app, url, owner, host, mails)
            for key in (MAIN, "agent:porter:main", PORTER, BOXED, PRIVATE):
                (await owner.post("/sessions", json={"key": key, "label": key[-7:]})).raise_for_status()
            for key in (BOXED, PORTER):
                answer = await owner.post("/tokens", json={"sessionKey": key})
                world.tokens[key] = answer.raise_for_status().json()["token"]
            await world.ask(PRIVATE, SECRET)
            await world.ring("eve", f"!say {SECRET}")
            for name, key in (("PRIVATE_ID", PRIVATE), ("EVE_ID", EVE), ("MAIN_ID", MAIN)):
                row = (await owner.get(f"/sessions/{key.replace('%', '%25')}")).raise_for_status().json()
                world.ids[name] = row["sessionId"]
            yield world


def directive(name: str, **arguments: Any) -> str:
    return f"!call {name} {json.dumps(arguments)}"


COMMAND = directive("run_command", command="touch MARK")
MAIL = directive("find_mail", word="password")
SERVER = directive("things__add", a=1, b=2)
EVE = "agent:porter:webhook:door:direct:eve"


@dataclass(frozen=True, slots=True, kw_only=True)
class Said(Attempt):
    """What a guest writes, and the code that has to answer: None for an answer without anything of others."""

    text: str
    code: str | None = "unknown_tool"
    box: bool = False
    """Whether it is written to the sandboxed agent."""
    is_owners: bool = True
    """Whether the same agent does it for its owner."""


def guest(what: str, text: str, code: str | None = "unknown_tool", **more: bool) -> Said:
    return Said(attacker=Attacker.GUEST, door=Door.WEBHOOK, what=what, text=text, code=code, **more)


def hidden(what: str, tool: str, **arguments: Any) -> Said:
    is_there = arguments.get("sessionKey") != NOBODYS
    return guest(what, directive(tool, **arguments), "not_found", is_owners=is_there)


NOBODYS = "agent:porter:cli:none"
UNOPENED = "agent:boxed:main"
GUESTS = [
    guest("a command", COMMAND),
    guest("a command in the sandbox", directive("run_command", command="true"), box=True),
    guest("a function that only reads", MAIL),
    guest("a function that writes", directive("keep_note", word="x")),
    guest("a tool of a server that only reads", SERVER),
    guest("a tool of a server that there is not", directive("things__none"), is_owners=False),
    guest("a tool of a server that is not configured", directive("other__none"), is_owners=False),
    guest("a child", directive("sessions_spawn", task="!say x")),
    guest("a child that stays", directive("sessions_spawn", task="!say x", mode="session")),
    guest("a child with the conversation", directive("sessions_spawn", task="!say x", context="fork")),
    guest("a child of another agent", directive("sessions_spawn", task=COMMAND, agentId="main")),
    guest("a sandboxed child", directive("sessions_spawn", task="!say x", agentId="boxed")),
    guest("a list of children", directive("subagents", action="list")),
    guest("an end of all children", directive("subagents", action="cancel", target="all")),
    guest("a word to a child", directive("subagents", action="steer", target="x", message="x")),
    guest("a wait", directive("sessions_wait", runIds=["run_1"])),
    guest("an end with a promise", directive("sessions_yield")),
    guest("the list of agents", directive("agents_list")),
    guest("a message by the channel", directive("message", channel="webhook:door", recipient="eve", text="x")),
    *(
        guest(f"a message to {what}", directive("message", channel=channel, recipient=to, text="x"), is_owners=is_there)
        for what, channel, to, is_there in (
            ("the owner by the owner's webhook", "webhook:desk", "owner", True),
            ("a peer of the owner's webhook", "webhook:desk", "anna", False),
            ("a group", "telegram", "-100", False),
            ("a group that there is not", "telegram", "-999", False),
        )
    ),
    *(
        hidden(f"{tool} of {what}", tool, sessionKey=key, **more)
        for tool, more in (
            ("sessions_history", {}),
            ("session_status", {}),
            ("sessions_send", {"message": "!say x", "timeoutSeconds": 5}),
        )
        for what, key in (
            ("the owner's main session", MAIN),
            ("another session of the agent", PRIVATE),
            ("another session by its id", "PRIVATE_ID"),
            ("another peer", EVE),
            ("another peer by their id", "EVE_ID"),
            ("the main session by its id", "MAIN_ID"),
            ("the agent's own main session", "main"),
            ("a session that is not there", NOBODYS),
        )
    ),
    hidden("a message to a main that nobody has opened", "sessions_send", sessionKey=UNOPENED, message="!say x"),
    hidden("a message to a label", "sessions_send", label="private", message="!say x"),
    hidden("a message to a label of the agent", "sessions_send", label="private", agentId="porter", message="!say x"),
    hidden("a command by another session", "sessions_send", sessionKey=MAIN, message=COMMAND),
    guest("sessions by a name", directive("sessions_list", search="private"), None),
    guest("sessions of another agent", directive("sessions_list", agentId="main"), None),
    guest("sessions with their messages", directive("sessions_list", messageLimit=20, includeInactive=True), None),
    guest("words of others", directive("sessions_search", query=SECRET), None),
]
LEAST_GUESTS = 40


def test_a_guest_tries_enough() -> None:
    assert len(GUESTS) >= LEAST_GUESTS


@requirement("access:4", "answers:2")
@pytest.mark.parametrize("attempt", rows(*GUESTS))
async def test_a_guest_causes_nothing_beyond_its_own_session(world: World, attempt: Said) -> None:
    world.begin()
    peer = "bob" if attempt.code is not None else attempt.what.replace(" ", "-")  # one who has named nobody before
    reply = await world.ring(peer, attempt.text, door="box" if attempt.box else "door")
    assert json.loads(reply).get("code") == attempt.code, reply
    assert not world.was_harmed()
    if attempt.code is None:
        assert not any(other in reply for other in (MAIN, PRIVATE, PORTER, EVE))
    assert SECRET not in reply or SECRET in attempt.text


@requirement("access:4")
@pytest.mark.parametrize("attempt", rows(*(each for each in GUESTS if each.is_owners)))
async def test_the_same_agent_does_for_its_owner_what_it_does_for_no_guest(world: World, attempt: Said) -> None:
    """Else the rows above would prove nothing."""
    world.begin()
    reply = await world.ask(BOXED if attempt.box else PORTER, attempt.text)
    if attempt.code is None:
        assert SECRET in reply or MAIN in reply or PRIVATE in reply, reply
    else:
        refused = json.loads(reply).get("code") if reply.startswith("{") else None
        assert refused not in (attempt.code, "forbidden"), reply


@requirement("access:4", "channels:1")
async def test_a_guest_sees_and_finds_its_own_session_alone(world: World) -> None:
    listed = json.loads(await world.ring("bob", directive("sessions_list")))
    assert [row["key"] for row in listed["sessions"]] == ["agent:porter:webhook:door:direct:bob"]
    found = json.loads(await world.ring("bob", directive("sessions_search", query=SECRET)))
    assert {hit["sessionKey"] for hit in found["results"]} <= {"agent:porter:webhook:door:direct:bob"}
    own = json.loads(await world.ring("bob", directive("session_status")))
    assert own["sessionKey"] == "agent:porter:webhook:door:direct:bob"


@dataclass(frozen=True, slots=True, kw_only=True)
class Caused(Attempt):
    """Sessions that carry a message one to the next; the first one's owner asks, the last carries out."""

    chain: tuple[str, ...]
    last: str = COMMAND
    child: str | None = None
    """Of which the message comes, spawned by the first session under that agent."""


def carried(chain: Sequence[str], last: str) -> str:
    for key in reversed(chain):
        last = directive("sessions_send", sessionKey=key, message=last, timeoutSeconds=60)
    return last


def sandboxed(what: str, *chain: str, last: str = COMMAND) -> Caused:
    return Caused(attacker=Attacker.SANDBOXED, door=Door.HTTP, what=what, chain=chain, last=last)


def child(what: str, agent: str, *chain: str, last: str = COMMAND) -> Caused:
    return Caused(attacker=Attacker.CHILD, door=Door.HTTP, what=what, chain=chain, last=last, child=agent)


SPAWN_PORTER = directive("sessions_spawn", task=COMMAND, agentId="porter")
CHAINS = [
    sandboxed("its own command", BOXED),
    sandboxed("a command by main", BOXED, MAIN),
    sandboxed("a command by another agent", BOXED, PORTER),
    sandboxed("a command over two sends", BOXED, MAIN, PORTER),
    sandboxed("a command by a child of another", BOXED, MAIN, last=SPAWN_PORTER),
    sandboxed("a command by a child over two sends", BOXED, MAIN, PORTER, last=SPAWN_PORTER),
    child("its own command", "main", MAIN),
    child("a command by its parent", "main", MAIN, "parent"),
    child("a command by its parent, of another agent", "boxed", PORTER, "parent"),
    child("a command beyond its parent", "main", MAIN, "parent", PORTER),
    child("a command by its parent's other child", "main", MAIN, "parent", last=SPAWN_PORTER),
]


@requirement("visibility:2", "send:4")
@pytest.mark.parametrize("attempt", rows(*CHAINS))
async def test_what_a_sandboxed_session_causes_runs_no_command_on_the_host(world: World, attempt: Caused) -> None:
    world.begin()
    first, *rest = attempt.chain
    text = carried(rest, attempt.last)
    if attempt.child is None:
        await world.ask(first, text)
    else:
        await world.ask(first, directive("sessions_spawn", task=text, agentId=attempt.child))
    await Story(world.app).settles()
    assert not world.was_harmed()


@pytest.mark.parametrize("key", [MAIN, PORTER])
async def test_what_the_owner_causes_runs_on_the_host(world: World, key: str) -> None:
    """Else the rows above would prove nothing."""
    proof = world.host / f"proof-{key.split(':')[1]}"
    await world.ask(key, directive("run_command", command=f"touch {proof}"))
    await world.ask(
        PORTER, carried([key] if key != PORTER else [MAIN], directive("run_command", command=f"touch {proof}2"))
    )
    await Story(world.app).settles()
    assert proof.exists() and Path(f"{proof}2").exists()


@requirement("access:2", "tools:1")
async def test_a_tool_that_there_is_not_tells_of_no_tool_that_is_not_given(world: World) -> None:
    for key in (BOXED, PORTER):
        listed = (await world.owner.get("/tools", params={"sessionKey": key})).json()["tools"]
        async with new_client(world.url, world.tokens[key]) as client:
            refused = (await client.post("/tools/nothing", json={"arguments": {}})).json()["error"]
        named = refused["message"].rpartition(": ")[2].removesuffix(".").split(", ")
        callable_ = {tool["name"] for tool in listed if "server" not in tool}  # those of servers only runs can call
        assert (refused["code"], set(named)) == ("unknown_tool", callable_)
        assert ("find_mail" in named) is (key == PORTER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound(Attempt):
    """A call by a token that is bound to a sandboxed session, and the codes of which one has to answer."""

    tool: str
    arguments: dict[str, Any] = field(default_factory=dict[str, Any])
    session: str | None = None
    codes: tuple[str | None, ...] = ("not_found",)


def bound(what: str, tool: str, *codes: str | None, session: str | None = None, **arguments: Any) -> list[Bound]:
    return [
        Bound(
            attacker=Attacker.BOUND_TOKEN,
            door=door,
            what=what,
            tool=tool,
            arguments=arguments,
            session=session,
            codes=codes or ("not_found",),
        )
        for door in (Door.HTTP, Door.MCP)
    ]


CALLS = [
    *bound("the owner's session", "sessions_history", sessionKey=MAIN),
    *bound("a session of its visibility outside of the tree", "sessions_send", sessionKey=PORTER, message=COMMAND),
    *bound("the main of its agent that nobody has opened", "sessions_send", sessionKey=UNOPENED, message=COMMAND),
    *bound("another session as its own", "session_status", "token_bound", session=MAIN),
    *bound("a command", "run_command", None, command="touch MARK"),
    *bound("an unsandboxed child", "sessions_spawn", "spawn_unsandboxed", task=COMMAND, agentId="porter"),
    *bound("who it is", "sessions_send", "invalid_arguments", sessionKey=MAIN, message="x", principal="owner"),
    *bound("a tool of a server", "things__add", "unknown_tool", a=1, b=2),
]


@requirement("access:2")
@pytest.mark.parametrize("attempt", rows(*CALLS))
async def test_a_bound_token_has_its_sessions_rights_by_every_door(world: World, attempt: Bound) -> None:
    world.begin()
    arguments = json.loads(world.filled(json.dumps(attempt.arguments)))
    async with new_client(world.url, world.tokens[BOXED]) as client:
        if attempt.door is Door.HTTP:
            body = {"arguments": arguments} | ({} if attempt.session is None else {"sessionKey": attempt.session})
            answer: Any = (await client.post(f"/tools/{attempt.tool}", json=body)).json()
        else:
            call = {"name": attempt.tool, "arguments": arguments}
            request = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
            headers = {"Accept": "application/json, text/event-stream"}
            if attempt.session is not None:
                headers["Antiphon-Session"] = attempt.session
            said = (await client.post("/mcp", json=request, headers=headers)).text
            answer = json.loads(said[said.index("{") :].splitlines()[0])
            answer = answer["result"]["structuredContent"] if "result" in answer else answer
    code = answer["error"]["code"] if isinstance(answer.get("error"), dict) else answer.get("code")
    is_unavailable = code == "sandbox_unavailable" and attempt.tool == "run_command"
    assert is_unavailable or code in attempt.codes, answer
    with anyio.fail_after(SECONDS):
        await Story(world.app).settles()
    assert not world.was_harmed()
