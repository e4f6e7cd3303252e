"""One of two worlds: a real home in memory, the acts above the observers, and what the observers see."""

import hashlib
import hmac
import json
import re
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import anyio
from pydantic import SecretStr

from antiphon.agents.toolset import tool
from antiphon.app import gateway_app, open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Approval, ApprovalState, Verdict
from antiphon.domain.classification import EVERYTHING, Classification, Level, NamedClassification
from antiphon.domain.ids import ApprovalId, RunId, SessionRow, TaskId
from antiphon.domain.message import text_content
from antiphon.domain.note import MemoryScope
from antiphon.domain.person import Identity, PersonId
from antiphon.domain.session import DeliveryContext, SessionType, Source
from antiphon.domain.tokens import ALL_SCOPES
from antiphon.engine.memory.notes import NoteAuthor, add_note
from antiphon.engine.sessions.inbox import Envelope
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.policy.memory import session_holder
from antiphon.store import people as people_rows
from antiphon.store import sessions as rows
from antiphon.store.approvals import ApprovalFilter
from antiphon.store.database import Query, Transaction
from antiphon.testing.door import Door, DoorAnswer
from tests.channels.fake_channel import NAME as FAKE
from tests.channels.fake_channel import FakeChannel
from tests.directives import to_call
from tests.engine.stage import ManualClock
from tests.gateway.served import TOKEN, EventParser, Json
from tests.waiting import SECONDS
from tests.worlds.naming import Naming, nameless
from tests.worlds.plans import Plan, Step, canary

SECRET = Classification(Level.CONFIDENTIAL)
WEBHOOK_SECRET = "s3cret-of-both-worlds"
SETTINGS: dict[str, Any] = {
    "gateway": {"drain_seconds": 0},
    "tools": {"sessions": {"visibility": "agent"}},
    "groups": {"owner_trigger": "mention"},
    "agents": {"defaults": {"subagents": {"max_spawn_depth": 3, "max_children_per_agent": 20}}},
    "channels": {
        "webhook": {
            "door": {"secret": WEBHOOK_SECRET, "queue_mode": "enqueue"},
            "safe": {
                "secret": WEBHOOK_SECRET,
                "queue_mode": "enqueue",
                "principal": "owner",
                "classification": {"level": "CONFIDENTIAL"},
            },
        }
    },
    "access": {"roles": {"guest": {"tools": ["indexes"]}, "user": {"approve": ["main"]}}},
    "limits": {"guest": {"requestsPerMinute": 10**6, "burst": 10**6, "sessions": 10**4}},
}


PIECES = ("delta", "delay")
HITS_A_PAGE = 10
"""Of a search whose question names no number."""


class CountedIds:
    """Ids that are the same in both worlds: what one world does alone draws others.

    Random ones would tell nothing either, but their ends, which a snippet may cut off, would differ.
    """

    def __init__(self, clock: ManualClock) -> None:
        self.is_alone = False
        """Whether the world does now what the other does not."""
        self._clock = clock
        self._drawn = {False: 0, True: 1 << 60}

    def new(self, prefix: str) -> str:
        return f"{prefix}_{self._clock.now_ms():011x}{self._next():020x}"

    def random_hex(self, digits: int) -> str:
        return hashlib.sha512(str(self._next()).encode()).hexdigest()[:digits].ljust(digits, "a")

    def _next(self) -> int:
        self._drawn[self.is_alone] += 1
        return self._drawn[self.is_alone]


@dataclass(frozen=True, slots=True)
class Seen:
    """What an observer was answered, with ids renamed."""

    question: str
    text: str


@dataclass(slots=True)
class World:
    side: str
    app: App
    door: Door
    clock: ManualClock
    ids: CountedIds
    ann: str
    """The token of a user."""
    books: dict[str, str]
    """What the tool `books` finds in this world, by page."""
    naming: Naming = field(default_factory=Naming)
    bound: dict[str, str] = field(default_factory=dict[str, str])
    """Tokens bound to sessions, by key."""
    children: dict[str, str] = field(default_factory=dict[str, str])
    """The run of the newest child of a session, by key."""
    kids: dict[int, str] = field(default_factory=dict[int, str])
    """The key of the newest child whose requester rose above it, by plan."""
    approved: dict[int, tuple[str, str]] = field(default_factory=dict[int, tuple[str, str]])
    """The key and the page of the newest call from outside that was approved, by plan."""

    async def live(self, plan: Plan) -> list[Seen]:
        """Carries out the plan, and returns what its observers saw."""
        cast = Cast(self, plan)
        await cast.enters()
        seen: list[Seen] = []
        async with AsyncExitStack() as stack:
            watched = [
                (
                    name,
                    await stack.enter_async_context(
                        self.door.follow(WATCHERS[name].format(n=plan.seed), token=self.ann)
                    ),
                )
                for name in plan.watchers
            ]
            for step in plan.steps:
                if step.only in (None, self.side):
                    self.ids.is_alone = step.only is not None
                    await cast.performs(step)
                    await self.settles()
                    self.ids.is_alone = False
                if step.act in PUBLIC_ACTS or step.act in SHARED_ACTS:
                    self.clock.pass_time(timedelta(seconds=1))  # never by what one world does alone
            for number, question in enumerate(plan.questions):
                self.clock.pass_time(timedelta(seconds=1))
                if "search" in question:
                    await until_indexed(self.app)
                seen.append(self._seen(question, await QUESTIONS[question](cast, number)))
                await self.settles()
            if watched:
                bell = f"the bell rings {plan.seed}"
                await self.app.services.inbox.append(OWNER, cast.target("room"), text_content(bell))
                for name, stream in watched:
                    await stream.until(bell)
                    seen.append(self._seen(name, cast.heard(stream.text)))
        return seen

    def _seen(self, question: str, text: str) -> Seen:
        return Seen(question, self.naming.plain(ordered_by_time(text) if "search" in question else text))

    async def settles(self) -> None:
        """Returns when nothing is at work and nothing waits to be sent."""
        with anyio.fail_after(SECONDS):
            while await self.app.database.read(_count_work):
                await anyio.sleep(0.005)

    async def token_of(self, key: str) -> str:
        if key not in self.bound:
            target = self.app.services.sessions.target(key)
            public = NamedClassification(level=Level.PUBLIC)
            self.bound[key] = (await self.app.services.tokens.create(OWNER, target, clearance=public))[1]
        return self.bound[key]


def ordered_by_time(text: str) -> str:
    """The hits of a search, with those of one moment in an order of their own: which log is indexed first is timing.

    Of a full page, the hits of its oldest moment are left out: which of them are on it is timing as well.
    """
    first = re.search(r'\[\{(?=(\\*)"sessionKey)', text)
    if first is None:
        return text
    # A snippet may show a list as well, with more backslashes.
    head, rest = text[: first.end()], text[first.end() :]
    found, end, tail = rest.rpartition("}]")
    hits = re.split(rf'\}},\{{(?={re.escape(first[1])}"sessionKey)', found)
    times = [moment[1] if (moment := re.search(r'"createdAt\\*":(\d+)', hit)) else "" for hit in hits]
    oldest = times[-1] if len(hits) == HITS_A_PAGE else None
    shown = [hit for hit, time in zip(hits, times, strict=True) if time != oldest]
    return "\n".join([head, *times, *sorted(shown, key=nameless), end + tail])


async def until_indexed(app: App) -> None:
    with anyio.fail_after(SECONDS):
        while await app.services.search.lag():
            await anyio.sleep(0.005)


async def _count_runs_of(query: Query, key: str) -> int:
    row = await query.fetch_one(
        "SELECT COUNT(*) FROM runs r JOIN sessions s ON s.id = r.session "
        "WHERE s.key = ? AND r.status IN ('queued', 'running')",
        (key,),
    )
    assert row is not None
    return row[0]


async def _count_work(query: Query) -> int:
    row = await query.fetch_one(
        "SELECT (SELECT COUNT(*) FROM runs WHERE status IN ('queued', 'running')) + "
        "(SELECT COUNT(*) FROM deliveries WHERE status IN ('queued', 'claimed'))"
    )
    assert row is not None
    return row[0]


@asynccontextmanager
async def open_world(home: Path, side: str, url: str | None = None) -> AsyncGenerator[World]:
    """A fresh home, with its database in a file or at the address.

    Nothing is flushed to disk: what is compared does not survive the test.
    """
    clock, books = ManualClock(), dict[str, str]()
    ids = CountedIds(clock)

    def read_books(page: str) -> str:
        """Reads a page of the books."""
        return books.get(page, "empty")

    def break_books(page: str) -> str:
        """Fails with a page of the books."""
        raise RuntimeError(books.get(page, "empty"))

    def burn(page: str) -> str:
        """Burns a page of the books."""
        return f"burnt {books.get(page, page)}"

    async def rests(session: str) -> str:
        """Returns when nothing is at work in the session, so that what comes of this run comes after what it does."""
        with anyio.fail_after(SECONDS):
            while await app.database.read(_count_runs_of, session):
                await anyio.sleep(0.005)
        return "at rest"

    async def indexes() -> str:
        """Returns when everything can be found, also the message that asks."""
        await until_indexed(app)
        return "indexed"

    level = {"level": "CONFIDENTIAL"}
    tools = [
        tool(rests, effects=["reads"]),
        tool(indexes, effects=["reads"]),
        tool(read_books, name="books", effects=["reads"], classification=level),
        tool(break_books, name="torn_books", effects=["reads"], classification=level),
        tool(burn, name="burn", effects=["deletes"], classification=level),
        tool(read_books, name="rumours", effects=["reads"], classification={**level, "integrity": "untrusted"}),
    ]
    parts = Parts(tools=tools, clock=clock, ids=ids, synchronous="OFF", channels=[FakeChannel()])
    section = DatabaseSection() if url is None else DatabaseSection(url=SecretStr(url), connections=6)
    settings = Config.model_validate(SETTINGS).model_copy(update={"database": section})
    async with open_app(home, settings, parts) as app:
        people = app.services.people
        door = Door(gateway_app(app, TOKEN))
        invited = await door.ask("POST", "/people", token=TOKEN, body={"name": "ann", "agents": ["main"]})
        assert invited.status < 300, invited.text
        await door.ask("POST", "/people/ann/role", token=TOKEN, body={"role": "user"})
        assert people is not None
        _, ann = await app.services.tokens.create_for_person(OWNER, "ann", ALL_SCOPES)
        account = Identity(channel=FAKE, account="", platform_id="ann")
        await app.database.run(people_rows.insert_identity, account, PersonId("ann"), 0)
        yield World(side, app, door, clock, ids, ann, books)


class Cast:
    """The sessions of one plan, and what happens to them."""

    def __init__(self, world: World, plan: Plan) -> None:
        self.world = world
        self.plan = plan
        self.app = world.app

    def key(self, name: str) -> str:
        return f"agent:main:cli:{name}{self.plan.seed}"

    @property
    def group(self) -> str:
        return f"agent:main:fake:group:g{self.plan.seed}"

    def target(self, name: str) -> Any:
        return self.app.services.sessions.target(name if ":" in name else self.key(name))

    async def enters(self) -> None:
        for name, taint in (("desk", None), ("peer", None), ("risen", None), ("room", None), ("vault", SECRET)):
            await self.opens(name, taint, label=f"{name}{self.plan.seed}")
        source = Source(kind="channel", platform="fake", type=SessionType.GROUP)
        group = self.app.services.sessions.target(self.group)
        await self.app.services.sessions.open(OWNER, group, source=source)
        room = await self.app.services.sessions.get(OWNER, self.target("room"))
        await self.app.database.run(_let_in, room.session.row)

    async def opens(self, name: str, taint: Classification | None, *, label: str | None = None) -> None:
        attributes = SessionAttributes(taint=taint, label=label)
        await self.app.services.sessions.open(OWNER, self.target(name), attributes=attributes)

    async def performs(self, step: Step) -> None:
        act = PUBLIC_ACTS.get(step.act) or SHARED_ACTS.get(step.act) or HIDDEN_ACTS[step.act]
        await act(self, step)

    def words(self, step: Step) -> str:
        return self.plan.words(step, self.world.side)

    async def posts(self, name: str, text: str, route: Classification | None = None) -> RunId:
        envelope = Envelope() if route is None else Envelope(classification=route)
        posted = await self.app.services.inbox.post(OWNER, self.target(name), text_content(text), envelope=envelope)
        assert posted.run_id is not None
        return posted.run_id

    async def calls(self, name: str, tool: str, **arguments: Any) -> Mapping[str, Any]:
        """The answer to a call from outside as the session, which nobody observes."""
        return await self.app.tool_calls.call(OWNER, self.target(name), tool, arguments)

    async def answers(
        self, name: str, tool: str, verdict: Verdict = Verdict.ONCE, *, trusts: bool = False
    ) -> list[Approval]:
        """The session's requests for calls of the tool that waited, which the owner has answered.

        With `trusts`, what was read is trusted. Others stay: what was to be sent down would be released with them.
        """
        await self.world.settles()
        services = self.app.services
        session = (await services.sessions.get(OWNER, self.target(name))).session.row
        where = ApprovalFilter(session=session, state=ApprovalState.PENDING)
        found = await services.approvals.list(OWNER, where, limit=100)
        waiting = [each for each in found if {call.tool for call in each.calls} == {tool}]
        for approval in waiting:
            trust = approval.trustable if trusts or approval.is_release else ()
            await services.approvals.resolve(OWNER, approval.id, verdict, trust=trust)
        await self.world.settles()
        return waiting

    async def turns_page(self, step: Step) -> str:
        """A page of the books with this world's words."""
        page = f"{self.plan.seed}-{step.number}"
        self.world.books[page] = self.words(step)
        return page

    async def rings(self, webhook: str, peer: str, text: str, number: object, **more: Any) -> DoorAnswer:
        body = json.dumps({"messageId": f"m{number}", "peer": peer, "text": text, **more}).encode()
        time = str(int(self.world.clock.now().timestamp()))
        signed = f"v2.in.{webhook}.{time}.".encode() + body
        signature = hmac.new(WEBHOOK_SECRET.encode(), signed, hashlib.sha256).hexdigest()
        headers = {"antiphon-timestamp": time, "antiphon-signature": f"v2={signature}"}
        return await self.world.door.ask("POST", f"/channels/webhook/{webhook}", body=body, headers=headers)

    def heard(self, text: str) -> str:
        """The events of a stream. Of the pieces of replies, which may be cut anywhere, only secret words are kept."""
        sent = EventParser().feed(text.encode())
        events = [f"{each.event} {each.id} {json.dumps(each.data)}" for each in sent if each.event not in PIECES]
        pieces = "".join(str(each.data.get("text", "")) for each in sent if each.event == "delta")
        words = [canary(self.plan.seed, step.number, self.world.side) for step in self.plan.steps]
        return "\n".join([*events, *(f"delta {word}" for word in words if word in pieces)])

    # What observers ask.

    async def asks_tool(self, by: str, way: str, tool: str, number: int, arguments: Mapping[str, Any]) -> str:
        """The tool's answer to the session: to a call from outside, in a run, or by MCP."""
        arguments = {name: self._filled(value) for name, value in arguments.items()}
        key = self.key(by) if by != "KID" else self.world.kids.get(self.plan.seed, self.key("desk"))
        match way:
            case "outside":
                token = await self.world.token_of(key)
                answer = await self.world.door.ask("POST", f"/tools/{tool}", token=token, body={"arguments": arguments})
                return f"{answer.status} {answer.text}"
            case "run":
                calls = [to_call("indexes")] * (tool == "sessions_search") + [to_call(tool, **arguments)]
                run_id = await self.posts(key, "\n".join(calls))
                run = await self.app.services.waits.wait(run_id, timedelta(seconds=SECONDS))
                assert run is not None
                return f"{run.status} {run.code} {run.error} {run.reply}"
            case _:
                token = await self.world.token_of(key)
                request = {
                    "jsonrpc": "2.0", "id": number, "method": "tools/call",
                    "params": {"name": tool, "arguments": arguments},
                }  # fmt: skip
                headers = {"accept": "application/json, text/event-stream"}
                answer = await self.world.door.ask("POST", "/mcp", token=token, body=request, headers=headers)
                return f"{answer.status} {answer.text}"

    async def asks_outside(self, by: str, tool: str, arguments: Mapping[str, Any], key: str) -> str:
        """The answer to a call from outside under an idempotency key."""
        answer = await self.world.door.ask(
            "POST",
            f"/tools/{tool}",
            token=await self.world.token_of(self.key(by)),
            body={"arguments": arguments},
            headers={"idempotency-key": key},
        )
        return f"{answer.status} {answer.text}"

    async def asks_page(self, by: str, way: str, tool: str, number: int, arguments: Mapping[str, Any]) -> str:
        """The pages of a list, one after the other."""
        told: list[str] = []
        cursor: dict[str, str] = {}
        for _ in range(4):
            text = await self.asks_tool(by, way, tool, number, {**arguments, **cursor})
            told.append(text)
            found: Json = json.loads(text[text.index("{") :]) if "{" in text else {}
            if "nextCursor" not in found:
                break
            cursor = {"cursor": found["nextCursor"]}
        return "\n".join(told)

    async def asks_http(self, path: str) -> str:
        answer = await self.world.door.ask("GET", self._filled(path), token=self.world.ann)
        return f"{answer.status} {answer.text}"

    async def asks_http_pages(self, path: str) -> str:
        told: list[str] = []
        more = ""
        for _ in range(4):
            text = await self.asks_http(path + more)
            told.append(text)
            found = json.loads(text.partition(" ")[2])
            if not found.get("nextCursor"):
                break
            more = f"&cursor={found['nextCursor']}"
        return "\n".join(told)

    async def asks_peer(self, number: int, text: str) -> str:
        answer = await self.rings("door", f"p{self.plan.seed}", text, f"q{self.plan.seed}-{number}", wait=SECONDS)
        return f"{answer.status} {answer.text}"

    def _filled(self, value: Any) -> Any:
        """The text with the plan's number, a canary of its first step, and the run of the desk's newest child."""
        if isinstance(value, list):
            return [self._filled(each) for each in cast("list[Any]", value)]
        if not isinstance(value, str):
            return value
        child = self.world.children.get(self.key("desk"), "run_nobody")
        word = canary(self.plan.seed, 0, "a")
        return value.replace("{n}", str(self.plan.seed)).replace("{canary}", word).replace("{child}", child)


async def _let_in(tx: Transaction, session: SessionRow) -> None:
    await rows.add_participant(tx, session, "person:ann")


Act = Callable[[Cast, Step], Awaitable[object]]


# Acts above the observers: in one world alone, or in both with other words.


async def _open_above(cast: Cast, step: Step) -> None:
    await cast.opens(f"above{step.number}-", SECRET, label=cast.words(step)[:60])


async def _say_above(cast: Cast, step: Step) -> None:
    await cast.posts("vault", cast.words(step))


async def _say_much_above(cast: Cast, step: Step) -> None:
    """Far more words than all others say, so that averages over all messages change."""
    await cast.app.services.inbox.append(OWNER, cast.target("vault"), text_content(" ".join([cast.words(step)] * 200)))


async def _append_above(cast: Cast, step: Step) -> None:
    await cast.app.services.inbox.append(OWNER, cast.target("vault"), text_content(cast.words(step)))


async def _label_above(cast: Cast, step: Step) -> None:
    text = cast.words(step)[:60]
    changes = {"label": text, "display_name": text, "description": text}
    await cast.app.services.sessions.patch(OWNER, cast.target("vault"), changes)


async def _reset_above(cast: Cast, step: Step) -> None:
    await cast.posts("vault", cast.words(step))
    await cast.world.settles()
    await cast.app.services.resets.reset(OWNER, cast.target("vault"))


async def _remember_above(cast: Cast, step: Step) -> None:
    """A note that the vault has made, also in the desk's memory: no prompt of the desk has it by itself."""
    await cast.posts("vault", to_call("memory", action="add", text=cast.words(step)))
    desk = (await cast.app.services.sessions.get(OWNER, cast.target("desk"))).session
    author = NoteAuthor(
        scope=MemoryScope(desk.agent_id, session_holder(desk.row)),
        made_of=SECRET,
        ceiling=EVERYTHING,
        made_by="agent",
    )
    await cast.app.database.run(add_note, author, cast.words(step)[:900])


async def _fork_above(cast: Cast, step: Step) -> None:
    await cast.posts("vault", cast.words(step))
    await cast.world.settles()
    await cast.app.services.forks.fork(OWNER, cast.target("vault"), None)


async def _delete_above(cast: Cast, step: Step) -> None:
    name = f"brief{step.number}-"
    await cast.opens(name, SECRET, label=cast.words(step)[:60])
    await cast.app.services.sessions.delete(OWNER, cast.target(name))


async def _spawn_above(cast: Cast, step: Step) -> None:
    await cast.calls("vault", "sessions_spawn", task=cast.words(step), label=cast.words(step)[:60])


async def _send_down(cast: Cast, step: Step) -> None:
    for name in ("peer", "desk"):
        arguments = {"sessionKey": cast.key(name), "message": cast.words(step), "timeoutSeconds": 0}
        await cast.posts("vault", to_call("sessions_send", **arguments))
        await cast.world.settles()


async def _ask_above(cast: Cast, step: Step) -> None:
    await cast.posts("vault", to_call("burn", page=cast.words(step)))


async def _trust_above(cast: Cast, step: Step) -> None:
    """The owner trusts what was read, and revokes that in one of the worlds."""
    page = await cast.turns_page(step)
    await cast.posts("vault", f"{to_call('rumours', page=page)}\n{to_call('burn', page=page)}")
    for trusted in await cast.answers("vault", "burn", trusts=True):
        if cast.world.side == "a":
            services = cast.app.services
            for sha256 in trusted.trustable:
                await services.trusted_contents.revoke(OWNER, trusted.session, sha256)


async def _release_above(cast: Cast, step: Step) -> None:
    """What the vault says goes to somebody outside, by a release."""
    await cast.posts("vault", to_call("message", channel=FAKE, recipient="ann", text=cast.words(step)))
    await cast.answers("vault", "message")


async def _allow_always_above(cast: Cast, step: Step) -> None:
    await cast.posts("vault", to_call("burn", page=cast.words(step)))
    await cast.answers("vault", "burn", Verdict.ALWAYS)


async def _fail_above(cast: Cast, step: Step) -> None:
    await cast.posts("vault", f"!fail {cast.words(step)}")


async def _deliver_above(cast: Cast, step: Step) -> None:
    """A session with a place that must not hear it: what it says there is kept back."""
    name = f"outward{step.number}-"
    await cast.opens(name, SECRET)
    place = DeliveryContext(channel="fake", to="x")
    await cast.app.services.inbox.post(
        OWNER, cast.target(name), text_content(cast.words(step)), envelope=Envelope(place=place)
    )


async def _message_above(cast: Cast, step: Step) -> None:
    for recipient in ("ann", "owner", "nobody"):
        await cast.posts("vault", to_call("message", channel=FAKE, recipient=recipient, text=cast.words(step)))
        await cast.world.settles()


async def _mail_above(cast: Cast, step: Step) -> None:
    await cast.rings("safe", f"s{cast.plan.seed}", cast.words(step), f"s{cast.plan.seed}-{step.number}")


async def _set_task_above(cast: Cast, step: Step) -> None:
    words = cast.words(step)
    await cast.calls("vault", "tasks", action="new", prompt=words, every="365 days")


async def _say_to_group(cast: Cast, step: Step) -> None:
    """Nobody answers it, so that the group's session does not rise."""
    target = cast.app.services.sessions.target(cast.group)
    envelope = Envelope(classification=SECRET, mentioned=False)
    await cast.app.services.inbox.post(OWNER, target, text_content(cast.words(step)), envelope=envelope)


async def _keep_file_above(cast: Cast, step: Step) -> None:
    words = cast.words(step)
    await cast.calls("vault", "files", action="write", path=f"{words.split()[0]}.txt", text=words)
    await cast.posts("vault", to_call("files", action="search", query=words.split()[0]))


async def _fetch_above(cast: Cast, step: Step) -> None:
    """The words may not leave, so no name is looked up and nothing is sent."""
    await cast.posts("vault", to_call("fetch_page", urls=[f"http://pages.example/{cast.words(step).split()[0]}"]))


HIDDEN_ACTS: Mapping[str, Act] = {
    "open a session above": _open_above,
    "say something above": _say_above,
    "append above": _append_above,
    "say much above": _say_much_above,
    "a silent word above in a group": _say_to_group,
    "name a session above": _label_above,
    "reset a session above": _reset_above,
    "remember above": _remember_above,
    "fork a session above": _fork_above,
    "delete a session above": _delete_above,
    "spawn above": _spawn_above,
    "send down from above": _send_down,
    "ask for approval above": _ask_above,
    "trust what was read above": _trust_above,
    "release words above": _release_above,
    "allow always above": _allow_always_above,
    "fail above": _fail_above,
    "deliver from above": _deliver_above,
    "message from above": _message_above,
    "mail from a classified webhook": _mail_above,
    "set a task above": _set_task_above,
    "keep a file above": _keep_file_above,
    "fetch a page above": _fetch_above,
}
"""Acts that one world may do alone: they touch nothing that an observer knows."""


# Acts of both worlds on what observers know, with words above them that differ.


async def _read_books(cast: Cast, step: Step) -> None:
    await cast.posts("risen", to_call("books", page=await cast.turns_page(step)))


async def _ask_after_rumours(cast: Cast, step: Step) -> None:
    """A known session asks after it has read something above, and the owner trusts that."""
    page = await cast.turns_page(step)
    await cast.posts("risen", f"{to_call('rumours', page=page)}\n{to_call('burn', page='one')}")
    await cast.answers("risen", "burn", trusts=True)


async def _tear_books(cast: Cast, step: Step) -> None:
    await cast.posts("risen", to_call("torn_books", page=await cast.turns_page(step)))


async def _say_to_room(cast: Cast, step: Step) -> None:
    await cast.posts("room", cast.words(step), SECRET)


async def _fail_in_room(cast: Cast, step: Step) -> None:
    await cast.posts("room", f"!fail {cast.words(step)}", SECRET)


async def _stream_in_room(cast: Cast, step: Step) -> None:
    await cast.posts("room", f"!stream 3\n!say {cast.words(step)}", SECRET)


async def _child_reads(cast: Cast, step: Step) -> None:
    task = to_call("books", page=await cast.turns_page(step))
    told = await cast.calls("desk", "sessions_spawn", task=task, label=f"child{step.number}")
    cast.world.children[cast.key("desk")] = told["runId"]


async def _accept_from_child(cast: Cast, step: Step) -> None:
    """A session of its own rises to what its child has read; nobody sees it from then on."""
    name = f"taker{step.number}-"
    await cast.opens(name, None)
    told = await cast.calls(name, "sessions_spawn", task=to_call("books", page=await cast.turns_page(step)))
    await cast.world.settles()
    await cast.posts(name, to_call("sessions_wait", runIds=[told["runId"]], accept=True))


async def _child_fails(cast: Cast, step: Step) -> None:
    page = await cast.turns_page(step)
    task = "\n".join([to_call("books", page=page), to_call("torn_books", page=page)])
    told = await cast.calls("desk", "sessions_spawn", task=task, label=f"child{step.number}")
    cast.world.children[cast.key("desk")] = told["runId"]


async def _send_and_rise(cast: Cast, step: Step) -> None:
    calls = [to_call("rests", session=cast.key("desk")), to_call("books", page=await cast.turns_page(step))]
    arguments = {"sessionKey": cast.key("risen"), "message": "\n".join(calls), "timeoutSeconds": 0}
    await cast.posts("desk", to_call("sessions_send", **arguments))


async def _rise_above_child(cast: Cast, step: Step) -> None:
    """The child may go on sending to a requester that it no longer sees, and that one world no longer has."""
    name = f"boss{step.number}-"
    await cast.opens(name, None)
    told = await cast.calls(name, "sessions_spawn", task="!say ready", label=f"kid{step.number}", mode="session")
    await cast.world.settles()
    await cast.posts(name, to_call("books", page=await cast.turns_page(step)))
    await cast.world.settles()
    cast.world.kids[cast.plan.seed] = told["childSessionKey"]
    if cast.world.side == "a":
        await cast.app.services.sessions.delete(OWNER, cast.target(name))


async def _peer_reads_books(cast: Cast, step: Step) -> None:
    page = await cast.turns_page(step)
    await cast.rings("door", f"p{cast.plan.seed}", to_call("books", page=page), f"b{cast.plan.seed}-{step.number}")


async def _approve_books(cast: Cast, step: Step) -> None:
    """A call from outside that waits for approval, and is carried out. Its outcome is above the caller."""
    page, key = await cast.turns_page(step), f"k{cast.plan.seed}-{step.number}"
    asked = await cast.asks_outside("desk", "burn", {"page": page}, key)
    approval = ApprovalId(json.loads(asked.partition(" ")[2])["approvalId"])
    approvals = cast.app.services.approvals
    await approvals.resolve(OWNER, approval, Verdict.ONCE)
    with anyio.fail_after(SECONDS):
        while (await approvals.get(OWNER, approval)).is_due:
            await anyio.sleep(0.005)
    cast.world.approved[cast.plan.seed] = key, page


async def _task_reads_books(cast: Cast, step: Step) -> None:
    """Its result waits in the chat that it is for."""
    prompt = to_call("books", page=await cast.turns_page(step))
    made = await cast.calls("desk", "tasks", action="new", prompt=prompt, every="365 days")
    await cast.app.services.tasks.run(OWNER, TaskId(made["task"]["taskId"]))


async def _keep_what_the_books_say(cast: Cast, step: Step) -> None:
    """What its workspace was made of rises with it."""
    keep = to_call("files", action="write", path="kept.txt", text=cast.words(step))
    await cast.posts("risen", f"{to_call('books', page=await cast.turns_page(step))}\n{keep}")


SHARED_ACTS: Mapping[str, Act] = {
    "a known session reads the books": _read_books,
    "a known session is trusted with what it read": _ask_after_rumours,
    "a known session's tool fails with the books": _tear_books,
    "a word above in a participant's room": _say_to_room,
    "a failure above in a participant's room": _fail_in_room,
    "a streamed word above in a participant's room": _stream_in_room,
    "a child reads the books": _child_reads,
    "a session accepts what its child has read": _accept_from_child,
    "a child fails with the books": _child_fails,
    "a target reads the books for its sender": _send_and_rise,
    "a requester rises above its child, and one world deletes it": _rise_above_child,
    "a stranger's chat reads the books": _peer_reads_books,
    "an approved call reads the books": _approve_books,
    "a task reads the books for a known chat": _task_reads_books,
    "a known session keeps what the books say": _keep_what_the_books_say,
}
"""They raise what observers know in both worlds alike: *that* it rises is an exception, see §12.13 of the contract."""


# Acts of both worlds that everybody may know.


async def _say_to_peer(cast: Cast, step: Step) -> None:
    await cast.posts("peer", cast.plan.said(step))


async def _say_at_length(cast: Cast, step: Step) -> None:
    """Two messages that a ranking search would order by the average length of all messages."""
    for text in ("harbour harbour lantern copper willow granite saffron orchid", "harbour"):
        await cast.app.services.inbox.append(OWNER, cast.target("peer"), text_content(text))


async def _talk_in_room(cast: Cast, step: Step) -> None:
    body = {"text": cast.plan.said(step)}
    path = f"/sessions/{cast.key('room')}/messages?wait={SECONDS}"
    await cast.world.door.ask("POST", path, token=cast.world.ann, body=body)


async def _spawn_known(cast: Cast, step: Step) -> None:
    await cast.calls("desk", "sessions_spawn", task=f"!say {cast.plan.said(step)}", label=f"open{step.number}")


async def _send_known(cast: Cast, step: Step) -> None:
    message = f"{to_call('rests', session=cast.key('desk'))}\n!say {cast.plan.said(step)}"
    arguments = {"sessionKey": cast.key("peer"), "message": message, "timeoutSeconds": 0}
    await cast.posts("desk", to_call("sessions_send", **arguments))


async def _talk_in_group(cast: Cast, step: Step) -> None:
    target = cast.app.services.sessions.target(cast.group)
    await cast.app.services.inbox.append(OWNER, target, text_content(cast.plan.said(step)))


PUBLIC_ACTS: Mapping[str, Act] = {
    "speak to a known session": _say_to_peer,
    "say something at length": _say_at_length,
    "talk in the room": _talk_in_room,
    "spawn a known child": _spawn_known,
    "send to a known session": _send_known,
    "talk in a known group": _talk_in_group,
}


# Questions.

Question = Callable[[Cast, int], Awaitable[str]]

_TOOL_QUESTIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "list": ("sessions_list", {}),
    "list of tasks": ("tasks", {"action": "list"}),
    "list of files": ("files", {"action": "list"}),
    "search in files": ("files", {"action": "search", "query": "{canary}"}),
    "list with messages": ("sessions_list", {"messageLimit": 3, "includeInactive": True}),
    "list by label": ("sessions_list", {"label": "vault{n}"}),
    "list by search": ("sessions_list", {"search": "peer{n}", "limit": 200}),
    "list by secret search": ("sessions_list", {"search": "{canary}"}),
    "history of a known session": ("sessions_history", {"sessionKey": "agent:main:cli:peer{n}", "includeTools": True}),
    "history of its own": ("sessions_history", {"sessionKey": "current", "includeTools": True}),
    "history of a session above": ("sessions_history", {"sessionKey": "agent:main:cli:vault{n}"}),
    "history of a risen session": ("sessions_history", {"sessionKey": "agent:main:cli:risen{n}"}),
    "history of a group": ("sessions_history", {"sessionKey": "agent:main:fake:group:g{n}"}),
    "status of a group": ("session_status", {"sessionKey": "agent:main:fake:group:g{n}"}),
    "history of the room": ("sessions_history", {"sessionKey": "agent:main:cli:room{n}"}),
    "history of a session that one world has": ("sessions_history", {"sessionKey": "agent:main:cli:above0-{n}"}),
    "search for public words": ("sessions_search", {"query": "harbour"}),
    "search for secret words": ("sessions_search", {"query": "{canary}"}),
    "status of a known session": ("session_status", {"sessionKey": "agent:main:cli:peer{n}"}),
    "status of its own": ("session_status", {}),
    "summary of its own": ("summarize", {}),
    "status of a session above": ("session_status", {"sessionKey": "agent:main:cli:vault{n}"}),
    "status of a risen session": ("session_status", {"sessionKey": "agent:main:cli:risen{n}"}),
    "send to a session above": (
        "sessions_send",
        {"sessionKey": "agent:main:cli:vault{n}", "message": "hello", "timeoutSeconds": 0},
    ),
    "send to a session that one world has": (
        "sessions_send",
        {"sessionKey": "agent:main:cli:above0-{n}", "message": "hello", "timeoutSeconds": 0},
    ),
    "send by a secret label": ("sessions_send", {"label": "{canary}", "message": "hello", "timeoutSeconds": 0}),
    "own children": ("subagents", {"action": "list"}),
    "wait for a child": ("sessions_wait", {"runIds": ["{child}"], "mode": "all", "timeoutSeconds": 0}),
    "agents": ("agents_list", {}),
    "message to a person": ("message", {"channel": FAKE, "recipient": "ann", "text": "hello"}),
    "message to the owner": ("message", {"channel": FAKE, "recipient": "owner", "text": "hello"}),
    "message to nobody": ("message", {"channel": FAKE, "recipient": "{canary}", "text": "hello"}),
    "list of a minute": ("sessions_list", {"activeMinutes": 1}),
}
_HTTP_QUESTIONS: Mapping[str, str] = {
    "sessions": "/sessions",
    "sessions by label": "/sessions?label=room{n}",
    "sessions by the label of one above": "/sessions?label=vault{n}",
    "sessions by a secret label": "/sessions?label={canary}",
    "own room": "/sessions/agent:main:cli:room{n}",
    "history": "/sessions/agent:main:cli:room{n}/history?includeTools=1",
    "transcript": "/sessions/agent:main:cli:room{n}/transcript",
    "tree": "/sessions/agent:main:cli:room{n}/tree",
    "trees": "/tree",
    "work": "/who",
    "a part of the work": "/who?limit=1",
    "runs": "/runs?session=agent:main:cli:room{n}",
    "all runs": "/runs?limit=20",
    "runs that failed": "/runs?status=error&status=timeout&status=cancelled",
    "runs that ended well": "/runs?status=ok&limit=20",
    "runs at work": "/runs?status=queued&status=running&status=awaiting_approval",
    "approvals that wait": "/approvals?status=pending",
    "approvals of any state": "/approvals?limit=20",
    "what is allowed always": "/standing-approvals",
    "what is trusted": "/trusted-content",
    "what is trusted of a session above": "/trusted-content?session=agent:main:cli:vault{n}",
    "tools that were reviewed": "/tool-reviews",
    "skills": "/skills",
    "deliveries that were held back": "/deliveries?status=suppressed",
    "texts that were sent": "/deliveries?limit=20",
    "tasks": "/tasks",
    "tasks of a session": "/tasks?session=agent:main:cli:room{n}",
    "page of tasks": "/page/tasks",
    "search": "/search?q=harbour",
    "secret search": "/search?q={canary}",
    "another's session": "/sessions/agent:main:cli:vault{n}",
    "another's history": "/sessions/agent:main:cli:vault{n}/history",
    "another's run": "/runs/{child}",
    "page": "/page?session=agent:main:cli:room{n}",
    "page of sessions": "/page/sessions",
    "page of entries": "/page/entries?session=agent:main:cli:room{n}&after=0",
    "page of home": "/page/home",
    "notes": "/memory",
    "page of memory": "/page/memory",
}


_KID_QUESTIONS: Mapping[str, tuple[str, dict[str, Any]]] = {
    "send to its requester": ("sessions_send", {"sessionKey": "parent", "message": "hello", "timeoutSeconds": 0}),
    "send to its requester and wait": ("sessions_send", {"sessionKey": "parent", "message": "hello"}),
}


def _tool_question(way: str, tool: str, arguments: Mapping[str, Any], by: str = "desk") -> Question:
    async def ask(cast: Cast, number: int) -> str:
        return await cast.asks_tool(by, way, tool, number, arguments)

    return ask


def _paged(way: str) -> Question:
    async def ask(cast: Cast, number: int) -> str:
        return await cast.asks_page("desk", way, "sessions_list", number, {"limit": 2})

    return ask


def _http_question(path: str) -> Question:
    async def ask(cast: Cast, number: int) -> str:
        return await cast.asks_http(path)

    return ask


async def _late_events(cast: Cast, number: int) -> str:
    """The whole log for somebody who comes late, while another follows already."""
    address = f"/sessions/{cast.key('room')}"
    bell = f"the late bell rings {cast.plan.seed}-{number}"
    door, token = cast.world.door, cast.world.ann
    async with door.follow(f"{address}/history?follow=1", token=token) as early:
        await cast.app.services.inbox.append(OWNER, cast.target("room"), text_content(bell))
        await early.until(bell)
        async with door.follow(f"{address}/events?after=0", token=token) as late:
            await late.until(bell)
            return cast.heard(late.text)


async def _outcome(cast: Cast, number: int) -> str:
    """The same call again, with the key of the first."""
    key, page = cast.world.approved.get(cast.plan.seed, (f"k{cast.plan.seed}", "1-1"))
    return await cast.asks_outside("desk", "burn", {"page": page}, key)


async def _http_pages(cast: Cast, number: int) -> str:
    return await cast.asks_http_pages("/sessions?limit=1")


def _peer_question(text: str) -> Question:
    async def ask(cast: Cast, number: int) -> str:
        return await cast.asks_peer(number, text)

    return ask


WAYS = ("outside", "run", "mcp")
QUESTIONS: Mapping[str, Question] = {
    **{
        f"agent, {way}: {name}": _tool_question(way, tool, arguments)
        for way in WAYS
        for name, (tool, arguments) in _TOOL_QUESTIONS.items()
        if way == "outside" or name != "search for public words"  # its order would stand in the log of the session
        if way != "run" or tool != "message"  # when it is delivered, beside the run, would stand there too
    },
    **{
        f"child, {way}: {name}": _tool_question(way, tool, arguments, "KID")
        for way in ("outside", "run")
        for name, (tool, arguments) in _KID_QUESTIONS.items()
    },
    **{f"agent, {way}: list by pages": _paged(way) for way in ("outside", "run")},
    "agent, outside: outcome of an earlier call": _outcome,
    **{f"participant: {name}": _http_question(path) for name, path in _HTTP_QUESTIONS.items()},
    "participant: sessions by pages": _http_pages,
    "participant: late events": _late_events,
    "stranger: hello": _peer_question("hello"),
    "stranger: list": _peer_question(to_call("sessions_list")),
    "stranger: own history": _peer_question(to_call("sessions_history", sessionKey="current", includeTools=True)),
    "stranger: search": _peer_question(f"{to_call('indexes')}\n{to_call('sessions_search', query='harbour')}"),
    "stranger: books": _peer_question(to_call("books", page="1-1")),
}
WATCHERS: Mapping[str, str] = {
    "participant: events": "/sessions/agent:main:cli:room{n}/events?after=0",
    "participant: live history": "/sessions/agent:main:cli:room{n}/history?follow=1&includeTools=1",
}
