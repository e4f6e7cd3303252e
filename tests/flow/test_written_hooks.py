"""Rules and checks at every hook, in real runs: they fire, block, ask, take out, hang and fail."""

import json
from typing import Any

import anyio
import pytest

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import REPLY, Verdict
from antiphon.domain.delivery import DeliveryStatus
from antiphon.domain.errors import Denied
from antiphon.domain.event import EventType
from antiphon.domain.ids import RunId
from antiphon.domain.message import ToolResult
from antiphon.domain.run import RunStatus
from antiphon.domain.transcript import Step, Summary, Transcript
from antiphon.engine.policy_checks import RUN_AT, CodeCheck, approve, block, check, redact
from antiphon.engine.rules_in_force import RulesInForce
from antiphon.policy.written.fields import Action, Facts, Hook
from antiphon.store.deliveries import DeliveryFilter
from tests.channels.fake_channel import NAME, FakeChannel, LiveFakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, to_send, to_spawn
from tests.engine.approvals.test_approvals import S, decide, pending, results
from tests.engine.deliveries.test_deliveries import open_chat, quiet, say
from tests.engine.exchanges.test_exchanges import RECORD
from tests.engine.stage import ask, config, facts, find_session, open_session, post, read_log, wait_end
from tests.story import telling

pytestmark = [pytest.mark.anyio, requirement("flow:9")]


def rule(id: str, *when: tuple[str, str, object], hook: Hook, action: str = "BLOCK", **more: object) -> dict[str, Any]:
    conditions = [{"field": field, "op": op, "value": value} for field, op, value in when]
    return {"id": id, "hook": hook.value, "when": conditions, "action": action, **more}


class Mail:
    """A tool that notes what it sends, and one that reads."""

    def __init__(self) -> None:
        self.sent: list[str] = []

    async def mail(self, to: str, text: str) -> str:
        """Sends a mail."""
        self.sent.append(f"{to}: {text}")
        return f"mailed to {to}, number DE89 3704"

    async def look(self, what: str) -> str:
        """Looks something up."""
        return f"found {what}, password=hunter2hunter2"

    def parts(self, *checks: CodeCheck, **more: Any) -> Parts:
        tools = (tool(self.mail, effects=["leaves"], routes=["to"]), tool(self.look, effects=["reads"]))
        return Parts(tools=tools, checks=checks, **more)


def mail(to: str = "bo", text: str = "hi") -> str:
    return to_call("mail", to=to, text=text)


async def refusals(app: App) -> list[Any]:
    return [json.loads(text) for text in results(await read_log(app, S))]


async def test_a_rule_blocks_a_call_and_the_log_says_which(open_home: OpenHome) -> None:
    world = Mail()
    told = "Mail goes to colleagues only."
    rules = [rule("outside", ("arguments.to", "like", "*@evil.example"), hook=Hook.PRE_TOOL_CALL, message=told)]
    async with open_home(config(flow__rules=rules), world.parts()) as app:
        await open_session(app, S)
        await ask(app, S, f"{mail('x@EVIL.example')}\n{mail('bo')}\n!say done")
        first, second = await read_results(app)
        assert json.loads(first.text) == {
            "status": "forbidden",
            "code": "rule",
            "rules": ["outside"],
            "error": f"{told} The call did not run.",
        }
        assert not second.is_error and world.sent == ["bo: hi"]
        (decided,) = [each for each in facts(await read_log(app, S), EventType.TOOL_RESULT) if each]
        rules_hash = app.services.rules.written.now.hash
        assert decided == {"decided": {"action": "BLOCK", "rules": ["outside"], "set": rules_hash}}


async def read_results(app: App) -> list[ToolResult]:
    return [event.message for event in await read_log(app, S) if isinstance(event.message, ToolResult)]


async def test_what_is_taken_out_is_neither_sent_nor_asked_about_and_the_log_has_what_ran(open_home: OpenHome) -> None:
    world = Mail()
    rules = [
        rule("iban", ("arguments.text", "contains", "DE89"), hook=Hook.PRE_TOOL_CALL, action="REDACT"),
        rule("ask", ("tool", "eq", "mail"), hook=Hook.PRE_TOOL_CALL, action="APPROVE", message="Mail asks first."),
    ]
    async with open_home(config(flow__rules=rules), world.parts()) as app:
        await open_session(app, S)
        run_id = (await post(app, S, f"{mail(text='pay to DE89 now')}\n!say done")).run_id
        (request,) = await pending(app)
        shown = json.loads(request.calls[0].arguments)
        assert shown == {"to": "bo", "text": "pay to [redacted: iban] now"}
        assert request.calls[0].reason == "Mail asks first. (Rule ask.)"
        await decide(app, request)
        assert (await wait_end(app, run_id)).reply == "done"
        assert world.sent == ["bo: pay to [redacted: iban] now"]
        (begun,) = facts(await read_log(app, S), EventType.TOOL_CALL)
        assert json.loads(str(begun["arguments"])) == shown
        assert begun["decided"] == {"action": "APPROVE", "rules": ["ask"], "set": app.services.rules.written.now.hash}


async def test_what_is_allowed_always_does_not_answer_a_rule(open_home: OpenHome) -> None:
    world = Mail()
    rules = [rule("ask", ("tool", "eq", "mail"), hook=Hook.PRE_TOOL_CALL, action="APPROVE")]
    async with open_home(config(flow__rules=rules), world.parts()) as app:
        await open_session(app, S)
        for sent in (1, 2):
            run_id = (await post(app, S, f"{mail()}\n!say done")).run_id
            (request,) = await pending(app)
            await decide(app, request, Verdict.ALWAYS)
            assert (await wait_end(app, run_id)).reply == "done" and len(world.sent) == sent


async def test_a_result_is_held_back_or_told_without_secrets(open_home: OpenHome) -> None:
    world = Mail()
    rules = [
        rule("secrets", ("tool", "eq", "look"), hook=Hook.POST_TOOL_RESPONSE, action="REDACT"),
        rule("numbers", ("text", "contains", "de89"), hook=Hook.POST_TOOL_RESPONSE),
    ]
    async with open_home(config(flow__rules=rules), world.parts()) as app:
        await open_session(app, S)
        await ask(app, S, f"{to_call('look', what='it')}\n{mail()}\n!say done")
        looked, mailed = await read_results(app)
        assert looked.text == "found it, password=[redacted: secrets]"
        assert json.loads(mailed.text)["rules"] == ["numbers"] and "DE89" not in mailed.text
        assert "its result is withheld" in mailed.text and world.sent == ["bo: hi"]


async def test_a_call_from_outside_meets_the_same_rules(open_home: OpenHome) -> None:
    world = Mail()
    rules = [
        rule("never", ("arguments.to", "eq", "eve"), hook=Hook.PRE_TOOL_CALL),
        rule("iban", ("arguments.text", "contains", "DE89"), hook=Hook.PRE_TOOL_CALL, action="REDACT"),
        rule("ask", ("arguments.to", "eq", "boss"), hook=Hook.PRE_TOOL_CALL, action="APPROVE"),
        rule("result", ("text", "contains", "DE89"), hook=Hook.POST_TOOL_RESPONSE, action="REDACT"),
    ]
    async with open_home(config(flow__rules=rules), world.parts()) as app:
        await open_session(app, S)

        async def call(to: str, text: str = "hi") -> Any:
            target = app.services.sessions.target(S)
            arguments: Any = {"to": to, "text": text}
            return await app.tool_calls.call(OWNER, target, "mail", arguments, idempotency_key=f"{to} {text}")

        assert (await call("eve"))["rules"] == ["never"] and world.sent == []
        told = await call("bo", "DE89")
        assert told["result"] == "mailed to bo, number [redacted: result] 3704"
        assert world.sent == ["bo: [redacted: iban]"]
        assert (await call("boss", "DE89"))["status"] == "pending" and len(world.sent) == 1
        (request,) = await pending(app)
        assert json.loads(request.calls[0].arguments)["text"] == "[redacted: iban]"
        await decide(app, request)
        with anyio.fail_after(30):
            while (await call("boss", "DE89"))["status"] == "pending":
                await anyio.sleep(0.01)
        assert world.sent == ["bo: [redacted: iban]", "boss: [redacted: iban]"]


@pytest.mark.parametrize("kind", ["block", "raise", "hang", "nonsense", "approve", "redact", "thread"])
async def test_a_check_decides_and_one_that_fails_blocks(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr("antiphon.engine.policy_checks.MOST_SECONDS", 0.2)
    world = Mail()
    seen: list[Any] = []

    async def look(facts: Facts) -> Any:
        seen.append((facts["tool"], facts["arguments"], facts["person"]))
        if kind == "raise":
            raise RuntimeError("boom")
        if kind == "hang":
            await anyio.sleep_forever()
        return {
            "block": block("Not today."),
            "nonsense": "yes",
            "approve": approve("Look first."),
            "redact": redact("hi", ""),
        }[kind]

    def in_thread(facts: Facts) -> Any:
        return block("From a thread.")

    checks = [check(in_thread if kind == "thread" else look, at="PRE_TOOL_CALL", id="dlp")]
    async with open_home(None, world.parts(*checks)) as app:
        await open_session(app, S)
        run_id = (await post(app, S, f"{mail()}\n!say done")).run_id
        if kind == "approve":
            (request,) = await pending(app)
            assert request.calls[0].reason == "Look first. (Rule dlp.)"
            await decide(app, request)
        assert (await wait_end(app, run_id)).reply == "done"
        (result,) = await read_results(app)
        if kind in ("approve", "redact"):
            assert world.sent == ["bo: [redacted: dlp]" if kind == "redact" else "bo: hi"]
            return
        assert world.sent == [] and json.loads(result.text)["rules"] == ["dlp"]
        if kind != "thread":
            assert seen[0] == ("mail", {"to": "bo", "text": "hi"}, "person:owner")


async def test_a_check_that_asks_where_nobody_can_be_asked_blocks(open_home: OpenHome) -> None:
    world = Mail()

    def ask_about(facts: Facts) -> Any:
        return approve("Look first.")

    async with open_home(None, world.parts(check(ask_about, at="POST_TOOL_RESPONSE", id="dlp"))) as app:
        await open_session(app, S)
        await ask(app, S, f"{mail()}\n!say done")
        (refused,) = await refusals(app)
        assert refused["rules"] == ["dlp"] and "its result is withheld" in refused["error"] and len(world.sent) == 1


# ---- what enters prompts


async def test_what_a_prompt_must_not_hold_stays_out_of_every_prompt(open_home: OpenHome) -> None:
    world = Mail()
    rules = [
        rule("iban", ("text", "contains", "DE89"), hook=Hook.PRE_CONTEXT_INJECTION, action="REDACT"),
        rule("secret", ("source", "eq", "tool"), ("text", "contains", "hunter2"), hook=Hook.PRE_CONTEXT_INJECTION),
    ]
    async with open_home(config(flow__rules=rules), world.parts()) as app:
        await open_session(app, S)
        first = await ask(app, S, "my number is DE89 and that is it")
        assert first.reply == "echo: my number is [redacted: iban] and that is it"
        await ask(app, S, f"{to_call('look', what='it')}\n!say done")
        events = await read_log(app, S)
        steps = [each.message for each in events if each.type == EventType.ASSISTANT_MESSAGE]
        decided = [one for step in steps for one in getattr(step, "decided", ())]
        assert [(each.action, each.rules, each.call) for each in decided] == [
            ("REDACT", ("iban",), None),
            ("BLOCK", ("secret",), 0),
        ]
        # Readers of the log see what was said; prompts of later runs do not, also once the rules are gone.
        assert any("DE89" in each for each in [str(event.message) for event in events])
        prompts = await shown_to_model(app)
        assert "DE89" not in prompts and "hunter2" not in prompts and "[blocked: secret]" in prompts


async def shown_to_model(app: App) -> str:
    """The entries as prompts show them, folded anew, without any rules in force."""
    fold = Transcript()
    fold.add(await read_log(app, S))
    entries = fold.prompt_for(RunId("none"))
    steps = [entry for entry in entries if isinstance(entry, Step)]
    results = [str(result.content) for step in steps for result in step.results if isinstance(result, ToolResult)]
    return " ".join([*results, *[str(entry.message.content) for entry in entries if not isinstance(entry, Summary)]])


async def test_a_check_of_prompts_is_asked_once_for_each_entry(open_home: OpenHome) -> None:
    seen: list[str] = []

    def note(facts: Facts) -> Any:
        seen.append(str(facts["text"]))

    async with open_home(None, Mail().parts(check(note, at="PRE_CONTEXT_INJECTION"))) as app:
        await open_session(app, S)
        for text in ("one", "two", "three"):
            await ask(app, S, text)
    assert seen == ["one", "two", "three"]


# ---- what leaves


async def test_a_reply_is_held_back_and_the_chat_hears_why(open_home: OpenHome) -> None:
    channel = FakeChannel()
    told = "No numbers in this chat."
    rules = [rule("numbers", ("text", "contains", "DE89"), hook=Hook.PRE_OUTPUT, message=told)]
    async with open_home(config(flow__rules=rules), Parts(channels=[channel])) as app:
        await open_chat(app)
        await say(app, "DE89")
        await quiet(app)
        assert [each.text for each in channel.taken] == [told]
        (suppressed,) = facts(await read_log(app, "main"), EventType.DELIVERY_SUPPRESSED)
        assert suppressed["code"] == "rule" and suppressed["decided"]["rules"] == ["numbers"]  # type: ignore[index]
        (kept,) = await app.services.deliveries.list(
            OWNER, DeliveryFilter(statuses=frozenset({DeliveryStatus.SUPPRESSED})), limit=5
        )
        assert kept.code == "rule" and told in (kept.error or "")


async def test_a_reply_goes_without_what_is_taken_out_and_the_log_has_what_went(open_home: OpenHome) -> None:
    channel = LiveFakeChannel()
    rules = [rule("iban", ("text", "contains", "DE89"), hook=Hook.PRE_OUTPUT, action="REDACT")]
    async with open_home(config(flow__rules=rules), Parts(channels=[channel])) as app:
        await open_chat(app)
        await say(app, "to DE89 please")
        await quiet(app)
        (sent,) = channel.taken
        (redacted,) = facts(await read_log(app, "main"), EventType.DELIVERY_REDACTED)
        assert sent.text == redacted["text"] and "[redacted: iban]" in sent.text and "DE89" not in sent.text
        assert channel.drafts == [] and channel.typed == 0  # nothing is shown before it was looked at


async def test_a_reply_waits_for_a_release_and_goes_once(open_home: OpenHome) -> None:
    channel = FakeChannel()
    rules = [rule("numbers", ("text", "contains", "DE89"), hook=Hook.PRE_OUTPUT, action="APPROVE")]
    async with open_home(config(flow__rules=rules), Parts(channels=[channel])) as app:
        await open_chat(app)
        await say(app, "DE89")
        (request,) = await pending(app)
        await quiet(app)
        assert request.calls[0].tool == REPLY and channel.taken == []
        await app.services.approvals.resolve(OWNER, request.id, Verdict.ONCE)
        await quiet(app)
        assert [each.text for each in channel.taken] == ["DE89"]


@pytest.mark.parametrize("kind", ["block", "redact", "raise", "approve"])
async def test_a_check_of_texts_decides_between_claim_and_sending(open_home: OpenHome, kind: str) -> None:
    channel = FakeChannel()

    async def look(facts: Facts) -> Any:
        assert facts["sink.channel"] == NAME and facts["sink.recipient"] == "room"
        if kind == "raise":
            raise RuntimeError
        return {"block": block("No."), "redact": redact("secret"), "approve": approve("Look.")}[kind]

    async with open_home(None, Parts(channels=[channel], checks=[check(look, at="PRE_OUTPUT", id="dlp")])) as app:
        await open_chat(app)
        await say(app, "a secret word")
        if kind == "approve":
            (request,) = await pending(app)
            await app.services.approvals.resolve(OWNER, request.id, Verdict.ONCE)
        await quiet(app)
        texts = [each.text for each in channel.taken]
        if kind == "block":
            assert texts == ["No."]
        elif kind == "raise":
            assert len(texts) == 1 and "secret" not in texts[0]
        else:
            assert texts == ["a [redacted: dlp] word" if kind == "redact" else "a secret word"]


# ---- other sessions


@pytest.mark.parametrize(
    ("act", "call"), [("send", to_send("hello", sessionKey="cli:other")), ("spawn", to_spawn("!say child"))]
)
async def test_sends_and_spawns_are_blocked_by_the_agent_that_they_reach(
    open_home: OpenHome, act: str, call: str
) -> None:
    rules = [rule("alone", ("act", "eq", act), ("target.agent", "eq", "main"), hook=Hook.AGENT_INVOCATION)]
    async with open_home(config(flow__rules=rules)) as app:
        await open_session(app, S)
        await open_session(app, "cli:other")
        await ask(app, S, f"{call}\n!say done")
        (refused,) = await refusals(app)
        assert refused["code"] == "rule" and refused["rules"] == ["alone"]
        assert not [each for each in await read_log(app, "cli:other") if each.message is not None]


async def test_an_exchange_takes_no_further_turn_that_rules_block(open_home: OpenHome) -> None:
    rules = [rule("no-turns", ("act", "eq", "turn"), ("target.agent", "eq", "main"), hook=Hook.AGENT_INVOCATION)]
    async with telling(open_home, flow__rules=rules) as story:
        asker = await story.opens("asker")
        await story.opens("expert")
        await asker.sends_in_a_run("!say later", label="expert", timeoutSeconds=0)
        await story.settles()
        assert await asker.exchanged() == [(RECORD, 0, "later")]  # without the rule: a first turn


async def test_a_rule_keeps_a_session_as_it_is(open_home: OpenHome) -> None:
    rules = [
        rule(
            "keep", ("by", "eq", "person:owner"), ("cause", "eq", "reset"), hook=Hook.SESSION_RESET, message="Keep it."
        )
    ]
    async with open_home(config(flow__rules=rules)) as app:
        before = await open_session(app, S)
        with pytest.raises(Denied) as refused:
            await app.services.resets.reset(OWNER, app.services.sessions.target(S))
        assert refused.value.code == "rule" and refused.value.message == "Keep it. (Rule keep.)"
        assert (await find_session(app, S)).id == before.id


async def test_without_rules_no_facts_are_gathered(open_home: OpenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise AssertionError("facts were gathered")

    for place in ("agents.call_rules", "agents.context_rules", "engine.sessions.resets", "engine.exchanges.turns"):
        monkeypatch.setattr(f"antiphon.{place}.facts_of", fail)
    async with open_home(None, Mail().parts()) as app:
        await open_session(app, S)
        assert (await ask(app, S, f"{mail()}\n!say done")).status is RunStatus.OK
        await app.services.resets.reset(OWNER, app.services.sessions.target(S))


@pytest.mark.parametrize("hook", RUN_AT)
async def test_a_check_that_hangs_blocks_at_every_hook(monkeypatch: pytest.MonkeyPatch, hook: Hook) -> None:
    monkeypatch.setattr("antiphon.engine.policy_checks.MOST_SECONDS", 0.05)

    async def hang(_: Facts) -> Any:
        await anyio.sleep_forever()

    written = RulesInForce()
    written.use([check(hang, at=hook.value, id="stuck")])
    said = await written.ask(hook, {"text": "words", "arguments": {}})
    assert (said.action, said.rules) == (Action.BLOCK, ("stuck",))
