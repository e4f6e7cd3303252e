"""Rules hold where an entry or a text goes by other ways: cut answers, forks, parked runs, waiting clients."""

import asyncio
import json
import threading
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from antiphon.agents.model import Completion, ModelError, ModelErrorKind, Prompt, TextDelta
from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.approval import Verdict
from antiphon.domain.message import Role, TextPart, ToolCallPart, Usage, text_content
from antiphon.domain.run import RunStatus
from antiphon.engine import policy_checks
from antiphon.policy.written.fields import Action, Facts, Hook
from tests.channels.fake_channel import FakeChannel
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.engine.approvals.test_approvals import S, pending, results
from tests.engine.deliveries.test_deliveries import open_chat, quiet, say
from tests.engine.stage import ask, config, open_session, read_log, wait_end
from tests.flow.test_written_hooks import Mail, rule
from tests.gateway.served import serve
from tests.waiting import SECONDS

pytestmark = [pytest.mark.anyio, requirement("flow:9")]

OTHER = "agent:other:main"
KEPT_OUT = rule("iban", ("text", "contains", "DE89"), hook=Hook.PRE_CONTEXT_INJECTION, action="REDACT")


class Breaking:
    """A model that notes what prompts hold. It stops after the first words, or looks and yields, if it is told to."""

    name = "breaking"
    context_tokens = 32_000
    is_counted = False

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def stream(self, prompt: Prompt) -> AsyncGenerator[TextDelta | Completion]:
        self.prompts.append(" ".join(str(getattr(entry, "content", entry)) for entry in prompt.entries))
        if prompt.raw_text.endswith("break"):
            yield TextDelta("Once")
            raise ModelError(ModelErrorKind.CUT, "The stream ended early.")
        if prompt.raw_text.endswith("yield"):
            child = part("2", "sessions_spawn", task="say something")
            calls = (part("1", "look", what="it"), child, part("3", "sessions_yield"))
            yield Completion(content=calls, usage=Usage(), model=self.name)
            return
        yield Completion(content=(TextPart(text="yes"),), usage=Usage(), model=self.name)


def part(id: str, name: str, **arguments: str) -> ToolCallPart:
    return ToolCallPart(call_id=id, name=name, arguments=json.dumps(arguments))


async def test_an_answer_that_was_cut_leaves_its_entries_to_be_decided(open_home: OpenHome) -> None:
    model = Breaking()
    settings = config(flow__rules=[KEPT_OUT], agents__defaults__model="breaking")
    async with open_home(settings, Parts(models={"breaking": model})) as app:
        await open_session(app, S)
        assert (await ask(app, S, "DE89 break")).status is RunStatus.ERROR
        assert (await ask(app, S, "and now")).reply == "yes"
    assert len(model.prompts) > 1 and not any("DE89" in each for each in model.prompts)


async def test_results_that_no_prompt_has_held_are_decided_in_the_next_run(open_home: OpenHome) -> None:
    model = Breaking()
    secrets = rule("secret", ("text", "contains", "hunter2"), hook=Hook.PRE_CONTEXT_INJECTION)
    settings = config(flow__rules=[secrets], agents__defaults__model="breaking")
    async with open_home(settings, msgspec.structs.replace(Mail().parts(), models={"breaking": model})) as app:
        await open_session(app, S)
        ended = await ask(app, S, "yield")
        assert ended.status is RunStatus.OK, ended.error
        await ask(app, S, "hello")
        await ask(app, S, "again")
    later = [each for each in model.prompts[1:] if "yield" in each]
    assert len(later) > 1 and all("[blocked: secret]" in each and "hunter2" not in each for each in later)


async def test_a_message_that_was_written_in_the_name_of_the_agent_is_decided(open_home: OpenHome) -> None:
    model = Breaking()
    settings = config(flow__rules=[KEPT_OUT], agents__defaults__model="breaking")
    async with open_home(settings, Parts(models={"breaking": model})) as app:
        await open_session(app, S)
        target = app.services.sessions.target(S)
        await app.services.inbox.append(OWNER, target, text_content("DE89"), role=Role.ASSISTANT)
        await ask(app, S, "hello")
        await ask(app, S, "again")
    assert len(model.prompts) == 2 and not any("DE89" in each for each in model.prompts)


async def test_a_fork_shows_prompts_no_more_than_its_source(open_home: OpenHome) -> None:
    model = Breaking()
    settings = config(flow__rules=[KEPT_OUT], agents__defaults__model="breaking")
    async with open_home(settings, Parts(models={"breaking": model})) as app:
        await open_session(app, S)
        await ask(app, S, "first")
        await ask(app, S, "DE89")
        fork = await app.services.forks.fork(OWNER, app.services.sessions.target(S), None)
        await ask(app, str(fork.key), "hello")
    assert "first" in model.prompts[-1] and "[redacted: iban]" in model.prompts[-1]
    assert [each for each in model.prompts if "DE89" in each] == []


@pytest.mark.parametrize("field", ["arguments.sessionKey", "target.agent"])
async def test_another_name_of_an_argument_changes_nothing(open_home: OpenHome, field: str) -> None:
    wanted, hook = (OTHER, Hook.PRE_TOOL_CALL) if field != "target.agent" else ("other", Hook.AGENT_INVOCATION)
    settings = config(flow__rules=[rule("alone", (field, "eq", wanted), hook=hook)], agents__list=[{"id": "other"}])
    async with open_home(settings) as app:
        await open_session(app, S)
        for name in ("sessionKey", "session_id"):
            await ask(app, S, to_call("sessions_send", **{name: OTHER, "message": "hello", "timeoutSeconds": 0}))
        refused = [json.loads(text) for text in results(await read_log(app, S))]
        assert [each.get("rules") for each in refused] == [["alone"], ["alone"]]


async def test_words_under_another_name_are_taken_out(open_home: OpenHome) -> None:
    rules = [rule("iban", ("arguments.message", "contains", "DE89"), hook=Hook.PRE_TOOL_CALL, action="REDACT")]
    async with open_home(config(flow__rules=rules, tools__sessions__visibility="all")) as app:
        await open_session(app, S)
        await open_session(app, "cli:other")
        await ask(app, S, to_call("sessions_send", sessionKey="cli:other", content="DE89", timeoutSeconds=0))
        heard = [str(each.message.content) for each in await read_log(app, "cli:other") if each.message is not None]
        assert heard, results(await read_log(app, S))
        assert not any("DE89" in each for each in heard)


async def test_what_a_rule_matched_across_two_texts_is_taken_out_of_both(open_home: OpenHome) -> None:
    model = Breaking()
    rules = [rule("iban", ("text", "like", "*DE89*3000*"), hook=Hook.PRE_CONTEXT_INJECTION, action="REDACT")]
    settings = config(flow__rules=rules, agents__defaults__model="breaking")
    async with open_home(settings, Parts(models={"breaking": model})) as app:
        await open_session(app, S)
        content = (TextPart(text="to DE89 and"), TextPart(text="3000, please"))
        posted = await app.services.inbox.post(OWNER, app.services.sessions.target(S), content)
        await wait_end(app, posted.run_id)
    (prompt,) = model.prompts
    assert "DE89" not in prompt and "3000" not in prompt and "please" in prompt


@requirement("flow:7")
async def test_a_program_that_waits_gets_what_rules_let_go(open_home: OpenHome) -> None:
    rules = [
        rule("iban", ("text", "contains", "DE89"), hook=Hook.PRE_OUTPUT, action="REDACT"),
        rule("never", ("sink.channel", "eq", "api"), ("text", "contains", "secret"), hook=Hook.PRE_OUTPUT),
    ]
    async with serve(open_home, {"flow": {"rules": rules}}) as served:
        await served.open("api:chat")
        assert (await served.post("api:chat", "DE89"))["reply"] == "echo: [redacted: iban]"
        kept = await served.post("api:chat", "a secret")
        assert "reply" not in kept and (kept["status"], kept["suppressed"]) == ("ok", "rule")


async def test_who_is_asked_to_release_words_sees_them_without_what_is_taken_out(open_home: OpenHome) -> None:
    channel = FakeChannel()
    rules = [
        rule("iban", ("text", "contains", "DE89"), hook=Hook.PRE_OUTPUT, action="REDACT"),
        rule("ask", ("text", "contains", "number"), hook=Hook.PRE_OUTPUT, action="APPROVE"),
    ]
    async with open_home(config(flow__rules=rules), Parts(channels=[channel])) as app:
        await open_chat(app)
        await say(app, "my number DE89")
        (request,) = await pending(app)
        await quiet(app)
        assert channel.taken == []
        await app.services.approvals.resolve(OWNER, request.id, Verdict.ONCE)
        await quiet(app)
        assert [each.text for each in channel.taken] == ["my number [redacted: iban]"]


@pytest.mark.parametrize("kind", ["exit", "exit in a thread", "cancel", "words", "action"])
async def test_a_check_that_ends_in_any_way_blocks(kind: str) -> None:
    async def ends(facts: Facts) -> Any:
        if kind == "exit":
            raise SystemExit
        if kind == "cancel":
            raise asyncio.CancelledError
        return policy_checks.redact(5) if kind == "words" else policy_checks.Verdict("ALLOW")  # type: ignore[arg-type]

    def exits(facts: Facts) -> Any:
        raise SystemExit

    asked = policy_checks.check(exits if "thread" in kind else ends, at="PRE_OUTPUT", id="dlp")
    assert (await policy_checks.ask_checks([asked], {"text": "5"})).action is Action.BLOCK


async def test_a_check_changes_neither_the_call_nor_what_others_see() -> None:
    seen: list[Any] = []

    async def change(facts: Facts) -> Any:
        arguments: Any = facts["arguments"]
        seen.append(arguments["to"]["name"])
        arguments["to"]["name"] = "eve"

    checks = [policy_checks.check(change, at="PRE_TOOL_CALL", id=str(number)) for number in range(2)]
    arguments = {"to": {"name": "bo"}}
    await policy_checks.ask_checks(checks, {"arguments": arguments})
    assert seen == ["bo", "bo"] and arguments == {"to": {"name": "bo"}}


async def test_a_check_that_hangs_takes_a_few_threads_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy_checks, "MOST_SECONDS", 0.05)
    release, begun = threading.Event(), list[int]()

    def hang(facts: Facts) -> Any:
        begun.append(1)
        release.wait()

    try:
        for _ in range(policy_checks.MOST_THREADS + 3):
            hanging = policy_checks.check(hang, at="PRE_OUTPUT", id="hanging")
            assert (await policy_checks.ask_checks([hanging], {"text": ""})).action is Action.BLOCK
        assert len(begun) == policy_checks.MOST_THREADS
    finally:
        release.set()


async def test_a_summary_shows_the_provider_no_entry_before_rules_have_decided(open_home: OpenHome) -> None:
    model = Breaking()
    settings = config(flow__rules=[KEPT_OUT], agents__defaults__model="breaking")
    async with open_home(settings, Parts(models={"breaking": model})) as app:
        await open_session(app, S)
        target = app.services.sessions.target(S)
        await ask(app, S, "hello")
        await app.services.inbox.append(OWNER, target, text_content("my number is DE89"))
        await app.tool_calls.call(OWNER, target, "summarize", {})
        await app.services.checkpoints.ask(OWNER, target, timedelta(seconds=SECONDS))
    assert len(model.prompts) > 2 and not any("DE89" in each for each in model.prompts)


async def test_a_simulated_call_names_no_rule_that_only_asks(open_home: OpenHome) -> None:
    rules = [rule("ask-boss", ("tool", "eq", "mail"), hook=Hook.PRE_TOOL_CALL, action="APPROVE", message="Boss looks.")]
    simulated = to_call("simulate_tool_call", tool_name="mail", args={"to": "bo", "text": "hi"})
    async with open_home(config(flow__rules=rules), Mail().parts()) as app:
        await open_session(app, S)
        await ask(app, S, f"{simulated}\n!say done")
        from_outside = await app.tool_calls.call(
            OWNER,
            app.services.sessions.target(S),
            "simulate_tool_call",
            {"tool_name": "mail", "args": {"to": "bo", "text": "hi"}},
        )
        for told in (from_outside, json.loads(results(await read_log(app, S))[0])):
            assert told["decision"] == "APPROVE" and told["rules"] == []
            assert "ask-boss" not in str(told) and "Boss" not in str(told)
