"""B9 and B10: a send with its reply, one policy decision, and lists within a tree."""

import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import anyio
from msgspec.structs import replace

from antiphon.agents.toolset import ToolContext
from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.ids import AgentId, SessionId, SessionRow
from antiphon.domain.keys import parse_key
from antiphon.domain.message import AssistantMessage, JsonObject, JsonValue, text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.run import Outcome, RunStatus
from antiphon.domain.session import Session, SessionStatus, Source
from antiphon.engine.access.caller import Caller
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.runner import RunEnding
from antiphon.engine.sessions.sessions import OpenSession, open_session
from antiphon.engine.views.views import Views
from antiphon.policy.acts import Act
from antiphon.policy.reach import Reach, decide, reach_of_session
from antiphon.policy.send import SendAction, SendFacts, SendPolicy, SendRule, decide_send
from antiphon.policy.standing import Standing
from antiphon.policy.visibility import AgentToAgent, Visibility, VisibilityRules
from antiphon.policy.written.fields import Hook
from antiphon.policy.written.reading import read_rules
from antiphon.tools.sessions_history import sessions_history
from antiphon.tools.sessions_list import sessions_list
from bench.labels import config_of
from bench.measure import Row, micros, p50, p99
from bench.runs import TIMEOUT

RUNS = 45
SENDS = 10
"""In each run of the asker: what a run sends belongs to one chain, whose tokens each send adds up."""
WARM_UP = 5
"""Runs that do not count."""
DECISIONS = 20_000
SESSIONS = 10_000


class SendingRunner:
    """Answers as `ConstantRunner` does, but for the asker, which times what it is given."""

    def __init__(self) -> None:
        self.work: Callable[[RunContext], Awaitable[None]] | None = None

    async def run(self, context: RunContext) -> RunEnding:
        if context.run.session_key.endswith("asker"):
            assert self.work is not None
            await self.work(context)
        message = AssistantMessage(message_id=context.ids.new("msg"), content=text_content("ok"), saw=context.last_seq)
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply="ok"), message=message)


@asynccontextmanager
async def sending(
    home: Path, times: dict[str, list[float]] | None = None
) -> AsyncGenerator[Callable[[], Awaitable[None]]]:
    """An act of which a run sends `SENDS` times and waits for each reply; with `times`, posts alternate with sends."""
    runner = SendingRunner()
    settings: JsonObject = {
        "tools": {"sessions": {"visibility": "agent"}},
        "session": {"agentToAgent": {"maxPingPongTurns": 0}},
    }
    async with open_app(home, config_of(settings), Parts(runner=runner)) as app:
        asker, expert = await _open(app, "asker"), await _open(app, "expert")
        target = app.services.sessions.target(str(expert.key))
        tool = app.tools.find("sessions_send")
        assert tool is not None

        async def work(context: RunContext) -> None:
            for number in range(SENDS):
                caller = Caller(
                    session=asker.row,
                    agent_id=asker.agent_id,
                    principal=OWNER,
                    call_id=f"{context.run.id}-{number}",
                    run=context,
                )
                start = time.perf_counter()
                output = await tool.call(ToolContext(caller), {"sessionKey": str(expert.key), "message": "hello"})
                middle = time.perf_counter()
                assert not output.is_error, output.text
                if times is None:
                    continue
                posted = await app.services.inbox.post(OWNER, target, text_content("hello"))
                assert posted.run_id is not None
                await app.services.waits.wait(posted.run_id, TIMEOUT)
                times["send"].append(middle - start)
                times["post"].append(time.perf_counter() - middle)

        runner.work = work
        own = app.services.sessions.target(str(asker.key))

        async def act() -> None:
            posted = await app.services.inbox.post(OWNER, own, text_content("go"))
            assert posted.run_id is not None
            run = await app.services.waits.wait(posted.run_id, TIMEOUT)
            assert run is not None and run.status is RunStatus.OK, run

        yield act


async def sends(directory: Path) -> list[Row]:
    """B9, the two alternating."""
    times: dict[str, list[float]] = {"send": [], "post": []}
    async with sending(directory / "home", times) as act:
        for number in range(RUNS + WARM_UP):
            if number == WARM_UP:
                for samples in times.values():
                    samples.clear()
            await act()
    ratio = p50(times["send"]) / p50(times["post"])
    return [
        Row(
            id="B9",
            what="the sessions_send tool call with its reply, p50",
            measured=f"{micros(p50(times['send']))}, p99 {micros(p99(times['send']))} ({ratio:.2f} ×)",
            reference=f"post and wait on the same target: {micros(p50(times['post']))}",
            target="≤ 1.3 ×",
            is_met=ratio <= 1.3,
            figures={"ratio": ratio, "send_s": p50(times["send"]), "post_s": p50(times["post"])},
        )
    ]


async def decisions(directory: Path) -> list[Row]:
    """B10: visibility, flow, send policy and written rules for one call, on facts that were read before."""
    rules = VisibilityRules(agent_to_agent=AgentToAgent(enabled=True, allow=("ops-*", "main", "team-*-prod")))
    policy = SendPolicy(rules=tuple(SendRule(action=SendAction.DENY, key_prefix=f"cron:{n}") for n in range(10)))
    caller, target = _session(1, "main"), _session(2, "team-x-prod", (SessionRow(1),))
    facts = SendFacts(key="agent:main:cli:work", channel="unknown", chat_type="direct", override=None)
    standing = Standing(principal=OWNER, role=PersonRole.OWNER)
    samples: list[float] = []
    for _ in range(DECISIONS):
        start = time.perf_counter()
        reach = reach_of_session(caller, standing, Act.SEND, rules, is_sandboxed=False, subagent_tools=())
        assert isinstance(reach, Reach)
        decide(reach, target, incarnation=target.id, taint=target.taint, is_participant=False)
        decide_send(policy, facts)
        samples.append(time.perf_counter() - start)
    return [
        Row(
            id="B10",
            what="the policy and flow decision for one tool call, p50",
            measured=f"{p50(samples) * 1e6:.1f} µs",
            reference="–",
            target="≤ 20 µs",
            is_met=p50(samples) <= 20e-6,
            figures={"p50_s": p50(samples)},
        ),
        *map(_decision_by_rules, TARGETS_BY_RULES),
    ]


TARGETS_BY_RULES = {12: 10e-6, 100: 25e-6, 1_000: 25e-6}
"""Seconds, by the number of written rules."""
NAMING_A_TOOL = 9
"""Of ten rules."""


def _decision_by_rules(count: int) -> Row:
    """One decision before a call by so many written rules; those that name a tool name different ones."""
    rules = read_rules([_rule(index) for index in range(count)], lambda place: ".".join(place))
    facts: dict[str, object] = {
        "agent": "main",
        "session.kind": "main",
        "person": str(OWNER),
        "role": "owner",
        "level": "INTERNAL",
        "compartments": frozenset[str](),
        "integrity": "trusted",
        "hour": 12,
        "weekday": "monday",
        "tool": "mail__send_7",
        "effects": frozenset({"leaves"}),
        "arguments": {"to": "bo@example.org", "text": "Nothing of that stands in these words. " * 4},
        "sink.level": "INTERNAL",
    }
    samples: list[float] = []
    for _ in range(DECISIONS):
        start = time.perf_counter()
        rules.decide(Hook.PRE_TOOL_CALL, facts)
        samples.append(time.perf_counter() - start)
    target, found = TARGETS_BY_RULES[count], p50(samples)
    return Row(
        id="B10",
        what=f"a decision by {count:,} written rules, p50",
        measured=f"{found * 1e6:.1f} µs",
        reference="–",
        target=f"≤ {target * 1e6:.0f} µs",
        is_met=found <= target,
        figures={"p50_s": found},
    )


def _rule(index: int) -> JsonObject:
    """Nine in ten name a tool; the others look at arguments, effects, levels and times."""
    conditions: list[JsonValue] = [
        {"field": "arguments.text", "op": "contains", "value": f"secret {index}"},
        {"field": "effects", "op": "contains", "value": "deletes"},
        {"field": "level", "op": "ge", "value": "CONFIDENTIAL"},
        {"field": "hour", "op": "ge", "value": 13 + index // 40 % 11},
    ]
    when: list[JsonValue] = [conditions[index // 10 % len(conditions)]]
    if index % 10 < NAMING_A_TOOL:
        when = [
            {"field": "tool", "op": "eq", "value": f"mail__send_{index}"},
            {"field": "arguments.to", "op": "like", "value": "*@example.com"},
        ]
    return {"id": f"r{index}", "hook": Hook.PRE_TOOL_CALL.value, "action": "BLOCK", "when": when}


def _session(row: int, agent: str, ancestors: tuple[SessionRow, ...] = ()) -> Session:
    at = datetime.now(UTC)
    return Session(
        row=SessionRow(row),
        key=parse_key(f"agent:{agent}:cli:s{row}"),
        agent_id=AgentId(agent),
        id=SessionId(f"cli:s{row}"),
        source=Source(),
        status=SessionStatus.IDLE,
        last_seq=1,
        created_at=at,
        updated_at=at,
        first_seq=1,
        incarnation_seq=1,
        started_at=at,
        interacted_at=at,
        depth=len(ancestors),
        ancestors=ancestors,
    )


async def trees(directory: Path) -> list[Row]:
    """Lists and histories of a session with 10,000 children, under `tree` and under `all`, alternating."""
    samples: dict[str, dict[str, list[float]]] = {"tree": {}, "all": {}}
    async with open_app(directory / "home", Config()) as app:
        root = await _open(app, "root")
        await _spawn_many(app, root)
        caller = Caller(session=root.row, agent_id=root.agent_id, principal=OWNER, call_id="bench", run=None)
        read: JsonObject = {"sessionKey": _child(SESSIONS // 2)}
        for number in range(350):
            for name in samples:
                rules = replace(app.services.rules, visibility=_rules_of(name))
                views = Views(app.database, rules)
                for what, tool, arguments in (
                    ("list", sessions_list(views, rules, app.services.clock, app.services.cursors), JsonObject()),
                    ("history", sessions_history(views, app.services.cursors), read),
                ):
                    start = time.perf_counter()
                    output = await tool.call(ToolContext(caller), arguments)
                    if number >= 50:
                        samples[name].setdefault(what, []).append(time.perf_counter() - start)
                    assert not output.is_error, output.text
    figures = {name: {what: p50(times) for what, times in taken.items()} for name, taken in samples.items()}
    ratios = {name: figures["tree"][name] / figures["all"][name] for name in ("list", "history")}
    return [
        Row(
            id="B9t",
            what="sessions_list and sessions_history under `tree`, 10,000 children, p50",
            measured=f"{micros(figures['tree']['list'])}, {micros(figures['tree']['history'])}",
            reference=f"under `all`: {micros(figures['all']['list'])}, {micros(figures['all']['history'])} "
            f"({ratios['list']:.2f} ×, {ratios['history']:.2f} ×)",
            target="≤ 1.2 ×",
            is_met=max(ratios.values()) <= 1.2,
            figures=figures,
        )
    ]


def _child(number: int) -> str:
    return f"agent:main:subagent:n{number}"


async def _spawn_many(app: App, root: Session) -> None:
    limiter = anyio.Semaphore(64)

    async def make(number: int) -> None:
        async with limiter:
            child = await _open(app, _child(number), parent=root.row)
            await app.services.inbox.append(
                OWNER, app.services.sessions.target(str(child.key)), text_content(f"message {number}")
            )

    for start in range(0, SESSIONS, 2_000):
        async with anyio.create_task_group() as tasks:
            for number in range(start, start + 2_000):
                tasks.start_soon(make, number)


def _rules_of(visibility: str) -> VisibilityRules:
    return VisibilityRules(visibility=Visibility(visibility), agent_to_agent=AgentToAgent(enabled=True))


async def _open(app: App, name: str, parent: SessionRow | None = None) -> Session:
    services = app.services
    command = OpenSession(
        principal=OWNER,
        target=services.sessions.target(name if ":" in name else f"api:{name}"),
        agent_id=services.rules.default_agent,
        source=Source(),
        parent=parent,
    )
    return (await app.database.run(open_session, command, app.services.rules)).session
