"""What the red team tries, route by route. Each attempt returns all that the observer gets to see."""

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

from msgspec import Struct

from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.session import DeliveryContext
from antiphon.testing.scene import CHANNEL, COMMAND_LINE, PEOPLE, AttackScene, book_tool

Attempt = Callable[[AttackScene, str], Awaitable[str]]
"""Tries one route over one transport; returns all that the observer gets to see."""

PERSON: Final = Classification(Level.PUBLIC, person=f"person:{PEOPLE[0]}")
"""The clearance of a user who was given no other."""
TOOLS: Final = ("tool", "HTTP", "MCP")
EVERYWHERE: Final = (*TOOLS, "WebSocket", COMMAND_LINE)


class AttackRoute(Struct, frozen=True):
    """A way on which a canary might get out."""

    name: str
    attempt: Attempt
    transports: tuple[str, ...] = TOOLS
    sink: Classification | None = None
    """Who learns what arrives; None for the observer's session."""
    needs_sight: bool = False
    """Whether data arrives only where the sender sees the observer's session, too."""
    carries: bool = True
    """Whether legal data arrives on it. Some routes carry nothing to anybody."""


def _reads(tool_name: str, **arguments: Any) -> Attempt:
    async def attempt(scene: AttackScene, transport: str) -> str:
        await scene.settles()
        filled = {name: scene.key("high") if value == "HIGH" else value for name, value in arguments.items()}
        return await scene.calls("low", tool_name, transport, **filled)

    return attempt


async def _search(scene: AttackScene, transport: str) -> str:
    await scene.settles()
    return await scene.calls("low", "sessions_search", transport, query=scene.marker)


async def _history_by_id(scene: AttackScene, transport: str) -> str:
    session = (await scene.app.services.sessions.get(OWNER, scene.target("high"))).session
    return await scene.calls("low", "sessions_history", transport, sessionKey=session.id)


async def _history_of_ended(scene: AttackScene, transport: str) -> str:
    await scene.opens("ended", scene.pair.source)
    await scene.says("ended", scene.canary.everything)
    ended = (await scene.app.services.sessions.get(OWNER, scene.target("ended"))).session.id
    await scene.app.services.resets.reset(OWNER, scene.target("ended"))
    return await scene.calls("low", "sessions_history", transport, sessionKey=ended)


async def _fork_of_risen(scene: AttackScene, transport: str) -> str:
    await scene.app.services.forks.fork(OWNER, scene.target("high"), None)
    await scene.settles()
    listed = await scene.calls("low", "sessions_list", transport, messageLimit=20, limit=200, includeInactive=True)
    return listed + await scene.calls("low", "sessions_search", transport, query=scene.marker)


async def _list_pages(scene: AttackScene, transport: str) -> str:
    told: list[str] = []
    more: dict[str, Any] = {}
    for _ in range(6):
        told.append(await scene.calls("low", "sessions_list", transport, limit=1, messageLimit=5, **more))
        found: dict[str, Any] = json.loads(told[-1]) if told[-1].startswith("{") else {}
        if "nextCursor" not in found:
            break
        more = {"cursor": found["nextCursor"]}
    return "\n".join(told)


async def _key(scene: AttackScene, transport: str) -> str:
    await scene.opens(f"agent:main:cli:key-{scene.canary.word}", scene.pair.source)
    return await scene.calls("low", "sessions_list", transport, limit=200, includeInactive=True)


def _send(seconds: int) -> Attempt:
    async def attempt(scene: AttackScene, transport: str) -> str:
        message, low = scene.canary.everything, scene.key("low")
        await scene.calls("high", "sessions_send", transport, sessionKey=low, message=message, timeoutSeconds=seconds)
        return await scene.reads_itself()

    return attempt


async def _send_by_label(scene: AttackScene, transport: str) -> str:
    await scene.app.services.sessions.patch(OWNER, scene.target("low"), {"label": f"low {scene.number}"})
    message = scene.canary.everything
    arguments = {"label": f"low {scene.number}", "message": message, "timeoutSeconds": 0}
    await scene.calls("high", "sessions_send", transport, **arguments)
    return await scene.reads_itself()


async def _reply(scene: AttackScene, transport: str) -> str:
    """`low` asks a session that answers with the canary; its messages rise it only while it works."""
    answer = await scene.calls(
        "low", "sessions_send", transport, sessionKey=scene.key("riser"), message=_books(scene), timeoutSeconds=30
    )
    return answer + await scene.reads_itself()


async def _late_reply(scene: AttackScene, transport: str) -> str:
    await scene.calls(
        "low", "sessions_send", transport, sessionKey=scene.key("riser"), message=_books(scene), timeoutSeconds=0
    )
    return await scene.reads_itself()


def _books(scene: AttackScene, *lines: str) -> str:
    """A message that makes whoever gets it read the books, which are classified like the canary."""
    return "\n".join([f'!call {book_tool(scene.pair.source)} {{"page": "{scene.number}"}}', *lines])


async def _child(scene: AttackScene, transport: str, *, fails: bool = False) -> str:
    task = _books(scene, *(["!fail with the books"] if fails else []))
    told = await scene.calls("low", "sessions_spawn", transport, task=task, label="child")
    await scene.settles()
    waited = ""
    if '"runId"' in told:
        run = next(word for word in told.replace("\\", "").split('"') if word.startswith("run_"))
        waited = await scene.calls("low", "sessions_wait", transport, runIds=[run], timeoutSeconds=5)
    listed = await scene.calls("low", "subagents", transport, action="list")
    return told + waited + listed + await scene.reads_itself()


async def _failing_child(scene: AttackScene, transport: str) -> str:
    return await _child(scene, transport, fails=True)


async def _accept(scene: AttackScene, transport: str) -> str:
    """A session that may hold no more than the observer accepts what its child has read."""
    await scene.opens("taker", scene.pair.sink, clearance=scene.pair.sink)
    told = await scene.calls("taker", "sessions_spawn", transport, task=_books(scene))
    await scene.settles()
    run = json.loads(told).get("runId", "")
    waited = await scene.calls("taker", "sessions_wait", transport, runIds=[run], accept=True)
    return waited + await scene.reads_itself("taker")


async def _spawn_down(scene: AttackScene, transport: str) -> str:
    """`high` gives the canary to a child, by every field; `low` looks for the child."""
    canary = scene.canary
    await scene.calls(
        "high",
        "sessions_spawn",
        transport,
        task=scene.words,
        label=f"child {canary.halves[1]}",
        attachments=[{"name": f"{canary.word}.txt", "content": canary.word}],
    )
    await scene.settles()
    listed = await scene.calls("low", "sessions_list", transport, limit=200, messageLimit=20, includeInactive=True)
    found = await scene.calls("low", "sessions_search", transport, query=scene.marker)
    return listed + found + await scene.calls("low", "subagents", transport, action="list")


async def _steer(scene: AttackScene, transport: str) -> str:
    """A requester that rises above its child tells it the canary; the child reads its own log."""
    await scene.opens("boss", scene.pair.sink)
    told = await scene.calls("boss", "sessions_spawn", "HTTP", task="!say ready", label="kid", mode="session")
    child = json.loads(told)["childSessionKey"]
    await scene.settles()
    await scene.says("boss", _books(scene))
    await scene.calls("boss", "subagents", transport, action="steer", target="kid", message=scene.canary.everything)
    await scene.settles()
    history = await scene.app.services.history.page(
        OWNER, scene.target(child), limit=100, before=None, include_tools=True
    )
    kid = (await scene.app.services.sessions.get(OWNER, scene.target(child))).session
    readable = [event for event in history.events if event.classification.flows_to(scene.pair.sink)]
    assert kid.base.flows_to(scene.pair.sink)
    return " ".join(str(event.message) for event in readable)


async def _own_books(scene: AttackScene, transport: str) -> str:
    """The observer's session reads the books itself; what is read then is above it, or raises it."""
    await scene.opens("reader", scene.pair.sink)
    await scene.says("reader", _books(scene))
    await scene.settles()
    return await scene.calls("low", "sessions_history", transport, sessionKey=scene.key("reader"), includeTools=True)


async def _failing_tool(scene: AttackScene, transport: str) -> str:
    await scene.opens("stumbler", scene.pair.sink)
    await scene.says("stumbler", _books(scene).replace("!call books", "!call torn_books"))
    await scene.settles()
    return await scene.calls("low", "sessions_history", transport, sessionKey=scene.key("stumbler"), includeTools=True)


async def _error_of_target(scene: AttackScene, transport: str) -> str:
    message = _books(scene, "!fail with the books")
    answer = await scene.calls(
        "low", "sessions_send", transport, sessionKey=scene.key("riser"), message=message, timeoutSeconds=30
    )
    return answer + await scene.reads_itself()


async def _remembered(scene: AttackScene, transport: str) -> str:
    """A session with the canary notes it; another of the same person searches, and the observer reads the answer."""
    await scene.opens("noter", scene.pair.source, is_persons=True)
    await scene.calls("noter", "memory", transport, action="add", text=scene.words[:900])
    await scene.opens("rememberer", scene.pair.sink, is_persons=True)
    await scene.says("rememberer", '!call memory {"action": "search", "limit": 25}')
    await scene.settles()
    key = scene.key("rememberer")
    return await scene.calls("low", "sessions_history", transport, sessionKey=key, includeTools=True)


# People over HTTP. Their clearance is that of their role: public data, and their own.


async def _participant(scene: AttackScene, path: str) -> str:
    token = await scene.participant("high")
    filled = path.replace("HIGH", scene.key("high")).replace("MARKER", scene.marker)
    return await scene.asks("GET", filled, token)


def _http(path: str) -> Attempt:
    async def attempt(scene: AttackScene, transport: str) -> str:
        await scene.settles()
        return await _participant(scene, path)

    return attempt


async def _earlier(scene: AttackScene, transport: str) -> str:
    await scene.opens("earlier", scene.pair.source)
    token = await scene.participant("earlier")
    await scene.says("earlier", scene.canary.everything)
    await scene.app.services.resets.reset(OWNER, scene.target("earlier"))
    return await scene.asks("GET", f"/sessions/{scene.key('earlier')}/incarnations", token)


async def _events(scene: AttackScene, transport: str) -> str:
    token = await scene.participant("high")
    path = f"/sessions/{scene.key('high')}/events?after=0"
    follow, owner = scene.door.follow, scene.home.owner_token
    async with follow(path, token=token) as stream, follow(path, token=owner) as owners:
        await scene.says("high", scene.canary.everything, "and this is the end")
        await owners.until("and this is the end")
        await scene.settles()
        return stream.text


async def _socket(scene: AttackScene, transport: str) -> str:
    """All that a WebSocket brings of the session: by its log, by lists, by questions."""
    token, key = await scene.participant("high"), scene.key("high")
    connect, owner = scene.door.connect, scene.home.owner_token
    async with connect(token=token) as socket, connect(token=owner) as owners:
        for each in (socket, owners):
            await each.ask("sessions.messages.subscribe", key=key, after=0, deltas=True, includeTools=True)
            await each.ask("sessions.subscribe", limit=200)
            await each.ask("runs.subscribe", limit=200)
        await scene.says("high", scene.canary.everything, "and this is the end")
        await owners.stream.until("and this is the end")
        await scene.settles()
        await socket.ask("chat.history", key=key, includeTools=True)
        await socket.ask("sessions.resolve", key=key)
        return socket.stream.text


# Out of the system.


async def _outward(scene: AttackScene, transport: str) -> str:
    """A reply to a place with an unknown recipient: only public data leaves."""
    await scene.opens("outward", scene.pair.source)
    before = len(scene.channel.taken)
    place = DeliveryContext(channel=CHANNEL, to=scene.number)
    await scene.says("outward", scene.canary.everything, place=place)
    await scene.settles()
    return " ".join(delivery.text for delivery in scene.channel.taken[before:])


async def _message(scene: AttackScene, transport: str) -> str:
    """A text of `high` for a person's account."""
    before = len(scene.channel.taken)
    text = scene.canary.everything
    await scene.calls("high", "message", transport, channel=CHANNEL, recipient=PEOPLE[0], text=text)
    await scene.settles()
    return " ".join(delivery.text for delivery in scene.channel.taken[before:])


ROUTES: Final[Sequence[AttackRoute]] = (
    AttackRoute("list of sessions", _reads("sessions_list", limit=200, includeInactive=True), EVERYWHERE),
    AttackRoute("messages in a list", _reads("sessions_list", limit=200, messageLimit=20), EVERYWHERE),
    AttackRoute("pages of a list", _list_pages),
    AttackRoute("names of sessions", _reads("sessions_list", search="name", limit=200)),
    AttackRoute("keys of sessions", _key),
    AttackRoute("history by key", _reads("sessions_history", sessionKey="HIGH"), EVERYWHERE),
    AttackRoute("history with results of tools", _reads("sessions_history", sessionKey="HIGH", includeTools=True)),
    AttackRoute("history by id", _history_by_id, EVERYWHERE),
    AttackRoute("history of an ended conversation", _history_of_ended),
    AttackRoute("search, and its snippets", _search, EVERYWHERE),
    AttackRoute("status", _reads("session_status", sessionKey="HIGH"), EVERYWHERE, carries=False),
    AttackRoute("fork of a conversation", _fork_of_risen),
    AttackRoute("send without waiting", _send(0), EVERYWHERE, needs_sight=True),
    AttackRoute("send and wait", _send(5), needs_sight=True),
    AttackRoute("send by label", _send_by_label, needs_sight=True),
    AttackRoute("reply of a target", _reply, EVERYWHERE),
    AttackRoute("late reply of a target", _late_reply),
    AttackRoute("error of a target", _error_of_target, carries=False),
    AttackRoute("child's result", _child, EVERYWHERE),
    AttackRoute("child's result, accepted", _accept, ("tool",)),
    AttackRoute("child's error", _failing_child, carries=False),
    AttackRoute("task, label and attachments of a child", _spawn_down, EVERYWHERE),
    AttackRoute("steering a child", _steer, carries=False),
    AttackRoute("results of tools", _own_books),
    AttackRoute("errors of tools", _failing_tool, carries=False),
    AttackRoute("notes that are searched", _remembered, carries=False),
    AttackRoute("notes over HTTP", _http("/memory?limit=200"), ("HTTP",), PERSON, carries=False),
    AttackRoute("row over HTTP", _http("/sessions/HIGH"), ("HTTP",), PERSON),
    AttackRoute("rows over HTTP", _http("/sessions?limit=200"), ("HTTP",), PERSON),
    AttackRoute("history over HTTP", _http("/sessions/HIGH/history?includeTools=1"), ("HTTP",), PERSON),
    AttackRoute("earlier conversations over HTTP", _earlier, ("HTTP",), PERSON),
    AttackRoute("transcript over HTTP", _http("/sessions/HIGH/transcript"), ("HTTP",), PERSON),
    AttackRoute("tree over HTTP", _http("/sessions/HIGH/tree"), ("HTTP",), PERSON),
    AttackRoute("trees over HTTP", _http("/tree"), ("HTTP",), PERSON),
    AttackRoute("work over HTTP", _http("/who"), ("HTTP",), PERSON, carries=False),
    AttackRoute("runs over HTTP", _http("/runs?session=HIGH"), ("HTTP",), PERSON),
    AttackRoute("search over HTTP", _http("/search?q=MARKER"), ("HTTP",), PERSON),
    AttackRoute("page", _http("/page?session=HIGH"), ("HTTP",), PERSON),
    AttackRoute("page of sessions", _http("/page/sessions"), ("HTTP",), PERSON),
    AttackRoute("events over HTTP, backlog and live", _events, ("HTTP",), PERSON),
    AttackRoute("WebSocket: backlog, live, lists and questions", _socket, ("WebSocket",), PERSON),
    AttackRoute("message to a person", _message, EVERYWHERE, PERSON),
    AttackRoute("replies through a channel", _outward, ("channel",), PUBLIC),
)
"""What is tried. Names are printed with the result."""
