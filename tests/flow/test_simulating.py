"""`simulate_tool_call` says of a call what becomes of it: drawn calls are simulated, and then made."""

import json
import random
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import anyio
import pytest

from antiphon.agents.toolset import DeclaredFunction, tool
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import ApprovalState, Verdict
from antiphon.domain.classification import NO_COMPARTMENTS, Classification, Integrity, Level, from_wire
from antiphon.domain.message import JsonObject, ToolResult
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.policy.written.fields import Action, Hook
from antiphon.store.approvals import ApprovalFilter
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.approvals.test_approvals import S, decide, pending
from tests.engine.stage import ManualClock, ask, config, open_session, post, read_log, wait_end
from tests.flow.test_written_hooks import Mail, mail, rule
from tests.policy.test_written_rules import rules_of
from tests.unchanged import nothing_stored
from tests.waiting import SECONDS

ASKED = "A person would be asked first."
"""No more than the call itself would tell."""
pytestmark = [pytest.mark.anyio, requirement("simulate:1", "flow:9")]

SIMULATE = "simulate_tool_call"


class DrawnTool(NamedTuple):
    effects: tuple[str, ...]
    classification: Mapping[str, Any] | None = None
    clearance: Mapping[str, Any] | None = None


TOOLS: dict[str, DrawnTool] = {
    "look": DrawnTool(("reads",)),
    "note": DrawnTool(("writes",)),
    "mail": DrawnTool(("leaves",), clearance={"level": "INTERNAL"}),
    "wipe": DrawnTool(("deletes",), clearance={"level": "RESTRICTED"}),
    "page": DrawnTool(("reads",), {"level": "PUBLIC", "integrity": "untrusted"}),
    "vault": DrawnTool(("reads",), {"level": "CONFIDENTIAL"}),
    "post": DrawnTool(("leaves", "reads"), {"level": "PUBLIC", "integrity": "untrusted"}, {"level": "CONFIDENTIAL"}),
}
WORDS = ("a secret word", "secret", "hello", "password=hunter2hunter2", "to eve")
HELD = (Classification(Level.PUBLIC), Classification(Level.INTERNAL), Classification(Level.CONFIDENTIAL))


class Drawn(NamedTuple):
    """A call, the rules in force and what the session holds."""

    rules: list[dict[str, Any]]
    tool: str
    arguments: JsonObject
    taint: Classification
    has_read: bool
    """Whether the run has read a page before."""


def draw(chance: random.Random) -> Drawn:
    rules = [_draw_rule(chance, f"r{index}") for index in range(chance.choice((0, 1, 1, 2, 4)))]
    name = chance.choice(sorted(TOOLS))
    arguments: JsonObject = {"to": chance.choice(("bo", "eve")), "text": chance.choice(WORDS)}
    return Drawn(rules, name, arguments, chance.choice(HELD), chance.random() < 0.3)


def _draw_rule(chance: random.Random, id: str) -> dict[str, Any]:
    conditions = (
        ("tool", "eq", chance.choice(sorted(TOOLS))),
        ("tool", "in", chance.sample(sorted(TOOLS), 3)),
        ("effects", "contains", chance.choice(("leaves", "reads"))),
        ("level", chance.choice(("ge", "lt")), "INTERNAL"),
        ("integrity", "eq", chance.choice(("trusted", "untrusted"))),
        ("sink.level", "le", "INTERNAL"),
        ("person", "eq", "person:owner"),
        ("arguments.to", "eq", "eve"),
        ("arguments.cc", "ne", "eve"),
    )
    when = [("tool", "ne", SIMULATE), *chance.sample(conditions, chance.choice((0, 1, 1, 2)))]
    if chance.random() < 0.4:
        when.append(("arguments.text", chance.choice(("contains", "like")), chance.choice(("secret", "*hello*"))))
    action = chance.choice(("ALLOW", "REDACT", "REDACT", "APPROVE", "BLOCK"))
    return rule(id, *when, hook=Hook.PRE_TOOL_CALL, action=action, message=f"Because of {id}.")


class World:
    """The drawn tools, which note what they are called with."""

    def __init__(self) -> None:
        self.made: list[tuple[str, JsonObject]] = []

    def parts(self, **more: Any) -> Parts:
        return Parts(tools=tuple(map(self._tool, TOOLS)), **more)

    def _tool(self, name: str) -> DeclaredFunction:
        async def act(to: str, text: str) -> str:
            """Acts."""
            self.made.append((name, {"to": to, "text": text}))
            return f"{name} done"

        drawn = TOOLS[name]
        return tool(
            act, name=name, effects=drawn.effects, classification=drawn.classification, clearance=drawn.clearance
        )


def use(app: App, rules: list[dict[str, Any]]) -> None:
    app.services.rules.written.replace(rules_of(*rules), NO_COMPARTMENTS)


async def open_tainted(app: App, name: str, taint: Classification) -> None:
    target = app.services.sessions.target(name)
    await app.services.sessions.open(OWNER, target, attributes=SessionAttributes(taint=taint))


async def simulate_outside(app: App, name: str, tool_name: str, arguments: JsonObject) -> Any:
    target = app.services.sessions.target(name)
    asked: JsonObject = {"tool_name": tool_name, "args": arguments}
    return await app.tool_calls.call(OWNER, target, SIMULATE, asked)


def without_what_goes(drawn: Drawn, facts: Mapping[str, object]) -> JsonObject:
    return rules_of(*drawn.rules).decide(Hook.PRE_TOOL_CALL, facts).redact_arguments(drawn.arguments)


def facts_of(drawn: Drawn, made_of: Classification) -> dict[str, object]:
    """What rules know of the drawn call, written down once more."""
    of = TOOLS[drawn.tool]
    sink = of.clearance or (None if of.effects == ("reads",) else of.classification or {"level": "PUBLIC"})
    return {
        "tool": drawn.tool,
        "effects": frozenset(of.effects),
        "arguments": drawn.arguments,
        "level": made_of.level.name,
        "integrity": "trusted" if made_of.integrity is Integrity.TRUSTED else "untrusted",
        "sink.level": "RESTRICTED" if sink is None else sink["level"],
        "person": "person:owner",
    }


def expected(drawn: Drawn, made_of: Classification, *, untrusted: str) -> tuple[str, str | None, list[str]]:
    """Decision, code and rules, by going through everything one by one."""
    facts = facts_of(drawn, made_of)
    if made_of.level > Level[str(facts["sink.level"])]:
        return "BLOCK", "write_down", []
    matching = [each for each in drawn.rules if rules_of(each).decide(Hook.PRE_TOOL_CALL, facts).action]
    actions = {each["action"] for each in matching}
    if "BLOCK" in actions:
        return "BLOCK", "rule", sorted(each["id"] for each in matching if each["action"] == "BLOCK")
    steered = facts["integrity"] == "untrusted" and {"leaves", "deletes"} & set(TOOLS[drawn.tool].effects)
    if steered and untrusted == "block":
        return "BLOCK", "untrusted_context", []
    if steered or "deletes" in TOOLS[drawn.tool].effects or "APPROVE" in actions:
        return "APPROVE", None, []
    return ("REDACT" if "REDACT" in actions else "ALLOW"), None, []


@pytest.mark.parametrize("untrusted", ["approve", "block"])
async def test_what_is_foreseen_from_outside_is_what_everything_says_one_by_one(
    open_home: OpenHome, untrusted: str, *, is_proof: bool
) -> None:
    chance, world, clock = random.Random(untrusted), World(), ManualClock()
    seen: dict[tuple[str, str | None], int] = {}
    async with open_home(config(flow__untrusted=untrusted), world.parts(clock=clock)) as app:
        strange = [
            each.join(Classification(Level.PUBLIC, integrity=integrity))
            for each in HELD
            for integrity in (Integrity.TRUSTED, Integrity.UNTRUSTED)
        ]
        for index, taint in enumerate(strange):
            await open_tainted(app, f"api:{index}", taint)
        async with nothing_stored(app):
            for _ in range(5_000 if is_proof else 700):
                clock.pass_time(timedelta(seconds=1))
                drawn, index = draw(chance), chance.randrange(len(strange))
                use(app, drawn.rules)
                told = await simulate_outside(app, f"api:{index}", drawn.tool, drawn.arguments)
                made_of = strange[index]
                found = (told["decision"], told.get("code"), told["rules"])
                assert found == expected(drawn, made_of, untrusted=untrusted), (drawn, made_of, told)
                after = made_of
                if told["decision"] != "BLOCK" and (brings := TOOLS[drawn.tool].classification):
                    after = made_of.join(from_wire(brings, NO_COMPARTMENTS))
                assert (told["currentTaint"], told["resultingTaint"]) == (made_of.level.name, after.level.name)
                seen[found[:2]] = seen.get(found[:2], 0) + 1
        assert world.made == []
    codes = {"write_down", "rule", *(["untrusted_context"] if untrusted == "block" else [])}
    assert set(seen) == {("ALLOW", None), ("REDACT", None), ("APPROVE", None), *(("BLOCK", code) for code in codes)}


async def test_a_call_of_a_run_becomes_what_was_simulated_before(open_home: OpenHome, *, is_proof: bool) -> None:
    chance, world = random.Random(7), World()
    seen: dict[str, int] = {}
    async with open_home(None, world.parts()) as app:
        for number in range(300 if is_proof else 60):
            drawn = draw(chance)
            name = f"api:{number}"
            use(app, [])
            await open_tainted(app, name, drawn.taint)
            use(app, drawn.rules)
            lines = [to_call(SIMULATE, tool_name=drawn.tool, args=drawn.arguments)]
            lines += [to_call(drawn.tool, **drawn.arguments), "!say done"]
            if drawn.has_read:
                use(app, [])
                await ask(app, name, f"{to_call('page', to='x', text='y')}\n!say read")
                use(app, drawn.rules)
            world.made.clear()
            run_id = (await post(app, name, "\n".join(lines))).run_id
            assert run_id is not None
            reason = await answer_request(app, run_id)
            run = await wait_end(app, run_id)
            assert run.reply == "done"
            results = [
                event.message
                for event in await read_log(app, name)
                if isinstance(event.message, ToolResult) and event.run_id == run_id
            ]
            told, made = json.loads(results[0].text), results[1]
            seen[told["decision"]] = seen.get(told["decision"], 0) + 1
            match told["decision"]:
                case "BLOCK":
                    refused = json.loads(made.text)
                    assert world.made == [] and reason is None, (drawn, told)
                    assert (refused["code"], refused.get("rules", [])) == (told["code"], told["rules"])
                    assert refused["error"] == told["reason"]
                case "APPROVE":
                    assert reason is not None and told["reason"] == ASKED and world.made == [], (drawn, told)
                case decision:
                    assert reason is None, (drawn, told)
                    (made_call,) = world.made
                    made_of = drawn.taint
                    if drawn.has_read:
                        made_of = made_of.join(Classification(Level.PUBLIC, integrity=Integrity.UNTRUSTED))
                    left = without_what_goes(drawn, facts_of(drawn, made_of))
                    assert made_call == (drawn.tool, left), (drawn, told)
                    assert decision == "REDACT" or left == drawn.arguments
    assert set(seen) == {"ALLOW", "BLOCK", "APPROVE", "REDACT"}


async def answer_request(app: App, run_id: Any) -> str | None:
    """Denies what the run asks, if it asks; the reason that people were told."""
    with anyio.fail_after(SECONDS):
        while True:
            run = await app.services.runs.get(OWNER, run_id)
            if run.ended_at is not None:
                return None
            asked = await app.services.approvals.list(OWNER, ApprovalFilter(state=ApprovalState.PENDING), limit=5)
            for request in asked:
                await decide(app, request, Verdict.DENY)
                return request.calls[0].reason
            await anyio.sleep(0.005)


async def test_a_call_from_outside_becomes_what_was_simulated_before(open_home: OpenHome, *, is_proof: bool) -> None:
    chance, world, clock = random.Random(11), World(), ManualClock()
    async with open_home(None, world.parts(clock=clock)) as app:
        for number in range(300 if is_proof else 60):
            clock.pass_time(timedelta(seconds=1))
            drawn, name = draw(chance), f"api:{number}"
            use(app, [])
            await open_tainted(app, name, drawn.taint)
            use(app, drawn.rules)
            told = await simulate_outside(app, name, drawn.tool, drawn.arguments)
            world.made.clear()
            target = app.services.sessions.target(name)
            made = await app.tool_calls.call(OWNER, target, drawn.tool, drawn.arguments, idempotency_key=name)
            match told["decision"]:
                case "BLOCK":
                    assert (made["code"], made.get("rules", [])) == (told["code"], told["rules"]) and world.made == []
                case "APPROVE":
                    assert made["status"] == "pending" and world.made == [], (drawn, told)
                    (request,) = await pending(app)
                    assert request.calls[0].reason and told["reason"] == ASKED
                    await decide(app, request, Verdict.DENY)
                case _:
                    facts = facts_of(drawn, drawn.taint)
                    assert world.made == [(drawn.tool, without_what_goes(drawn, facts))], (drawn, told)


# ---- what it must not do


async def simulated_in_a_run(app: App, *calls: str) -> list[Any]:
    await ask(app, S, "\n".join([*calls, "!say done"]))
    texts = [event.message.text for event in await read_log(app, S) if isinstance(event.message, ToolResult)]
    return [json.loads(text) for text in texts][-len(calls) :]


async def test_it_tells_a_rule_only_where_the_refusal_would(open_home: OpenHome) -> None:
    world = Mail()
    rules = [
        rule("takes-out", ("arguments.text", "contains", "DE89"), hook=Hook.PRE_TOOL_CALL, action="REDACT"),
        rule("asks", ("arguments.to", "eq", "boss"), hook=Hook.PRE_TOOL_CALL, action="APPROVE"),
        rule("never", ("arguments.to", "eq", "eve"), hook=Hook.PRE_TOOL_CALL),
    ]
    async with open_home(config(flow__rules=rules), world.parts()) as app:
        await open_session(app, S)

        def to(person: str) -> str:
            return to_call(SIMULATE, tool_name="mail", args={"to": person, "text": "DE89"})

        told = await simulated_in_a_run(app, to("bo"), to("boss"), to("eve"))
        assert [(each["decision"], each["rules"]) for each in told] == [
            ("REDACT", []),
            ("APPROVE", []),
            ("BLOCK", ["never"]),
        ]
        assert not any("takes-out" in str(each) for each in told) and world.sent == []


async def test_a_tool_that_is_hidden_is_answered_as_one_that_does_not_exist(open_home: OpenHome) -> None:
    settings = config(agents__list=[{"id": "main", "tools": {"allow": ["mail", SIMULATE]}}])
    async with open_home(settings, Mail().parts()) as app:
        await open_session(app, S)
        hidden, missing = "look", "lock"
        inside = await simulated_in_a_run(
            app, *[to_call(SIMULATE, tool_name=name, args={"what": "x"}) for name in (hidden, missing)]
        )
        outside = [await simulate_outside(app, S, name, {"what": "x"}) for name in (hidden, missing)]
        for told in (inside, outside):
            one, other = [json.dumps(each).replace(hidden, "?").replace(missing, "?") for each in told]
            assert one == other and told[0]["decision"] == "BLOCK" and told[0]["code"] == "unknown_tool"


@pytest.mark.parametrize("is_inside", [True, False])
async def test_a_session_that_is_hidden_is_answered_as_one_that_does_not_exist(
    open_home: OpenHome, *, is_inside: bool
) -> None:
    async with open_home(None) as app:
        await open_session(app, S)
        await open_tainted(app, "api:secret", Classification(Level.RESTRICTED))
        told: list[str] = []
        for name in ("api:secret", "api:nobody"):
            arguments: JsonObject = {"sessionKey": f"agent:main:{name}", "message": "hello"}
            call = to_call(SIMULATE, tool_name="sessions_send", args=arguments)
            found = (
                (await simulated_in_a_run(app, call))[0]
                if is_inside
                else await simulate_outside(app, S, "sessions_send", arguments)
            )
            told.append(json.dumps(found).replace(name, "?"))
            target = app.services.sessions.target(S)
            made = await app.tool_calls.call(OWNER, target, "sessions_send", arguments)
            assert (found["decision"], found["code"], found["reason"]) == ("BLOCK", made["code"], made["error"])
        assert told[0] == told[1] and '"not_found"' in told[0]


async def test_the_61st_of_a_minute_is_refused_for_that_session_alone(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with open_home(None, Mail().parts(clock=clock)) as app:
        await open_session(app, S)
        await open_session(app, "api:other")
        call: JsonObject = {"to": "bo", "text": "hi"}
        for _ in range(60):
            assert (await simulate_outside(app, S, "mail", call))["decision"] == "ALLOW"
        refused = await simulate_outside(app, S, "mail", call)
        assert refused["code"] == "rate_limited" and "decision" not in refused
        assert (await simulated_in_a_run(app, to_call(SIMULATE, tool_name="mail", args=call)))[0][
            "code"
        ] == "rate_limited"
        assert (await simulate_outside(app, "api:other", "mail", call))["decision"] == "ALLOW"
        clock.pass_time(timedelta(seconds=1))
        assert (await simulate_outside(app, S, "mail", call))["decision"] == "ALLOW"


async def test_simulating_a_simulation_is_a_call_like_others_and_goes_no_deeper(open_home: OpenHome) -> None:
    rules = [
        rule("no-simulating", ("tool", "eq", SIMULATE), ("arguments.tool_name", "eq", "look"), hook=Hook.PRE_TOOL_CALL)
    ]
    async with open_home(config(flow__rules=rules), Mail().parts()) as app:
        await open_session(app, S)
        inner: JsonObject = {"tool_name": "mail", "args": {"to": "bo", "text": "hi"}}
        deep: JsonObject = inner
        for _ in range(50):
            deep = {"tool_name": SIMULATE, "args": deep}
        for arguments in (inner, deep):
            (inside,) = await simulated_in_a_run(app, to_call(SIMULATE, tool_name=SIMULATE, args=arguments))
            outside = await simulate_outside(app, S, SIMULATE, arguments)
            assert inside["decision"] == outside["decision"] == "ALLOW"
        told = await simulate_outside(app, S, SIMULATE, {"tool_name": "look", "args": {}})
        assert (told["decision"], told["rules"]) == ("BLOCK", ["no-simulating"])


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"args": {}}, "tool_name"),
        ({"tool_name": 7}, "tool_name"),
        ({"tool_name": ""}, "tool_name"),
        ({"tool_name": "x" * 201}, "tool_name"),
        ({"tool_name": "mail", "args": "to"}, "args"),
        ({"tool_name": "mail", "taint": "PUBLIC"}, "taint"),
    ],
)
async def test_arguments_that_are_wrong_are_refused_with_the_field(
    open_home: OpenHome, arguments: JsonObject, named: str
) -> None:
    async with open_home(None, Mail().parts()) as app:
        await open_session(app, S)
        target = app.services.sessions.target(S)
        outside = await app.tool_calls.call(OWNER, target, SIMULATE, arguments)
        (inside,) = await simulated_in_a_run(app, f"!call {SIMULATE} {json.dumps(arguments)}")
        for told in (inside, outside):
            assert named in str(told["error"]) and "decision" not in told


async def test_a_call_that_was_simulated_is_still_decided_when_it_is_made(open_home: OpenHome) -> None:
    world = Mail()
    async with open_home(None, world.parts()) as app:
        await open_session(app, S)
        assert (await simulate_outside(app, S, "mail", {"to": "bo", "text": "hi"}))["decision"] == "ALLOW"
        use(app, [rule("never", hook=Hook.PRE_TOOL_CALL)])
        await ask(app, S, f"{mail()}\n!say done")
        assert world.sent == []
        assert app.services.rules.written.now.decide(Hook.PRE_TOOL_CALL, {}).action is Action.BLOCK
