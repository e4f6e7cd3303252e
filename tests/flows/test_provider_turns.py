"""Whole turns with a model behind HTTP: what a provider does, and what becomes of it in the log."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import anyio
import pytest

from antiphon.agents.asking import RetryPolicy
from antiphon.agents.provider import import_provider
from antiphon.agents.toolset import tool
from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.configured import ToolFunction
from antiphon.domain.actor import OWNER
from antiphon.domain.event import Event
from antiphon.domain.ids import RunId
from antiphon.domain.message import AssistantMessage, ToolResult, UserMessage, text_of
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import Session
from antiphon.feed.follow import Permit, View
from antiphon.policy.system import system_grant
from antiphon.testing import (
    CONTEXT_TOO_LONG,
    SERVER_ERROR,
    Call,
    Ending,
    Failure,
    FakeProvider,
    FakeRequest,
    Reply,
    Script,
    fake_provider,
    run_fake_provider,
)
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ask, facts, find_session, open_session, post, read_log, wait_end
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS, SECONDS

pytestmark = pytest.mark.anyio

KEY = "sk-secret-0123456789"
QUICK = RetryPolicy(first_delay_seconds=0.01)
CHAT = "api:chat"
Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Stage:
    """A system whose agent asks a fake provider, with one open session."""

    app: App
    fake: FakeProvider

    async def ask(self, text: str = "hi") -> Run:
        return await ask(self.app, CHAT, text)

    async def log(self) -> list[Event]:
        return await read_log(self.app, CHAT)

    async def session(self) -> Session:
        return await find_session(self.app, CHAT)

    async def replies(self) -> list[str]:
        """The texts of the agent's messages, as they are stored."""
        bodies = [event.message for event in await self.log()]
        return [text_of(body.content) for body in bodies if isinstance(body, AssistantMessage)]

    async def results(self) -> list[ToolResult]:
        return [event.message for event in await self.log() if isinstance(event.message, ToolResult)]


def settings(fake: FakeProvider, *, model: str = "fake:fake-model", stall_seconds: float = 20, **more: Any) -> Config:
    provider = {"base_url": fake.base_url, "api_key": KEY, "stall_seconds": stall_seconds, **more.pop("provider", {})}
    agents = {"defaults": {"model": model, **more.pop("defaults", {})}}
    name = model.partition(":")[0]
    return Config.model_validate({"agents": agents, "providers": {name: provider}, **more})


@asynccontextmanager
async def staged(
    open_home: OpenHome,
    script: Script,
    *,
    tools: tuple[ToolFunction, ...] = (),
    retry: RetryPolicy = QUICK,
    **more: Any,
) -> AsyncGenerator[Stage]:
    async with (
        fake_provider(script, api_key=KEY) as fake,
        open_home(settings(fake, **more), Parts(retry=retry, tools=tools)) as app,
    ):
        await open_session(app, CHAT)
        yield Stage(app, fake)


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    """What the first run would have to wait for."""
    import_provider("fake:fake-model")
    import_provider("openai:gpt-4o")


class Watched:
    """What somebody who follows the session sees: pieces, restarts (None), and messages by number."""

    def __init__(self) -> None:
        self.seen: list[str | int | None] = []
        self.changed = anyio.Event()

    @property
    def shown(self) -> str:
        """The text of the running reply, as it stands on the screen."""
        pieces = self.seen
        if None in pieces:
            pieces = pieces[len(pieces) - pieces[::-1].index(None) :]
        return "".join(piece for piece in pieces if isinstance(piece, str))

    async def until_shown(self, text: str) -> None:
        with anyio.fail_after(SECONDS):
            while self.shown != text:
                self.changed = anyio.Event()
                await self.changed.wait()

    def add(self, seen: str | int | None) -> None:
        self.seen.append(seen)
        self.changed.set()


@asynccontextmanager
async def watching(stage: Stage) -> AsyncGenerator[Watched]:
    watched = Watched()

    def encode_delta(run_id: RunId, text: str | None) -> bytes:
        watched.add(text)
        return b""

    view = View(encode=lambda event: b"", encode_delta=encode_delta, encode_reset=lambda reason: b"", keep_alive=b"")
    session = await stage.session()
    hub = stage.app.services.hub
    async with (
        anyio.create_task_group() as tasks,
        hub.follow(
            Permit(system_grant(session.row)), session.last_seq, view, on_stall=tasks.cancel_scope.cancel
        ) as reader,
    ):
        tasks.start_soon(reader.next)
        yield watched
        tasks.cancel_scope.cancel()


def add(a: int, b: int) -> int:
    """Adds."""
    return a + b


@requirement("first_start:3", "runs:2")
async def test_streamed_text_becomes_one_message_and_the_reply_of_the_run(open_home: OpenHome) -> None:
    async with staged(open_home, [Reply(text=["Hel", "lo"]), Reply(text="Again")]) as stage:
        async with watching(stage) as watched:
            run = await stage.ask("hi")
            # The end of the run takes the place of pieces that have not come by then.
            assert "Hello".startswith(watched.shown)
        second = await stage.ask("and?")
        assert [run.reply, second.reply] == await stage.replies() == ["Hello", "Again"]
        assert (run.status, run.error, run.code) == (RunStatus.OK, None, None)
        assert [(message["role"], message["content"]) for message in stage.fake.requests[1].messages[1:]] == [
            ("user", "hi"),
            ("assistant", "Hello"),
            ("user", "and?"),
        ]


@requirement("first_start:3", "events:3")
async def test_calls_that_come_in_fragments_are_run_and_answered_in_the_next_step(open_home: OpenHome) -> None:
    calls = [
        Call(name="add", arguments=list('{"a": 1, "b": 2}')),
        Call(name="add", arguments=['{"a"', ': 3, "b": 4}']),
        Call(name="gone", arguments="{}"),
    ]
    script = [Reply(text="Let me see.", calls=calls, packet_bytes=11), Reply(text="3 and 7")]
    async with staged(open_home, script, tools=(add,)) as stage:
        run = await stage.ask("add")
        assert (run.status, run.reply) == (RunStatus.OK, "3 and 7")
        one, two, gone = await stage.results()
        assert [text_of(result.content) for result in (one, two)] == ["3", "7"]
        assert gone.is_error and json.loads(text_of(gone.content))["code"] == "unknown_tool"
        told = stage.fake.requests[1].messages[-3:]
        assert [message["content"] for message in told[:2]] == ["3", "7"]
        asked = stage.fake.requests[1].messages[-4]["tool_calls"]
        assert isinstance(asked, list)
        assert len({json.dumps(message["tool_call_id"]) for message in told}) == len(asked) == 3


@requirement("runs:6")
@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ('{"a": 1, ', "invalid_arguments"),
        ("[1]", "invalid_arguments"),
        ('{"a": "x", "b": 2}', "invalid_arguments"),
        ('{"a": 1, "b": 2, "c": 3}', "invalid_arguments"),
        ('{"a": NaN, "b": 1}', "invalid_arguments"),
        ("[" * 100_000, "invalid_arguments"),
    ],
    ids=["cut", "list", "wrong type", "unknown name", "not a number", "deep"],
)
async def test_arguments_that_do_not_fit_are_told_to_the_model_and_the_run_goes_on(
    open_home: OpenHome, arguments: str, code: str
) -> None:
    script = [Reply(calls=[Call(name="add", arguments=arguments)]), Reply(text="sorry")]
    async with staged(open_home, script, tools=(add,)) as stage:
        run = await stage.ask()
        (result,) = await stage.results()
        assert (run.status, run.reply, result.is_error) == (RunStatus.OK, "sorry", True)
        assert json.loads(text_of(result.content))["code"] == code
        assert stage.fake.requests[1].messages[-1]["content"] == text_of(result.content)


async def test_a_tool_that_answers_what_no_text_can_hold_does_not_end_the_run(open_home: OpenHome) -> None:
    def broken() -> str:
        """Answers half of a surrogate pair."""
        return "\ud800 and \x00"

    script = [Reply(calls=[Call(name="broken")]), Reply(text="fine")]
    async with staged(open_home, script, tools=(broken,)) as stage:
        run = await stage.ask()
        assert (run.status, run.reply) == (RunStatus.OK, "fine")
        assert [text_of(result.content) for result in await stage.results()] == ["\ufffd and \x00"]


async def test_an_emoji_that_a_provider_cuts_in_half_is_whole_in_the_log(open_home: OpenHome) -> None:
    script = [
        Reply(text=["a \ud83d", "\ude00"], calls=[Call(name="add", arguments='{"a": "\\ud83d", "b": 1}')]),
        Reply(text="\ud83d alone"),
    ]
    async with staged(open_home, script, tools=(add,)) as stage:
        run = await stage.ask()
        assert (run.status, run.reply) == (RunStatus.OK, "\ufffd alone")
        assert await stage.replies() == ["a 😀", "\ufffd alone"]


@requirement("runs:6")
@pytest.mark.parametrize(
    "first",
    [
        Failure(status=429, headers={"Retry-After": "0"}),
        Failure(status=500),
        Failure(status=503),
        Reply(text=["Hel", "lo"], ending=Ending.CUT, events=2),
        Reply(text=["Hel", "lo"], ending=Ending.TRUNCATED, events=3),
        Reply(text=["Hel", "lo"], ending=Ending.STALL, events=2),
    ],
    ids=["429", "500", "503", "cut", "truncated", "stall"],
)
async def test_what_passes_is_tried_again_and_leaves_no_trace_in_the_log(
    open_home: OpenHome, first: Reply | Failure
) -> None:
    script = [first, first, Reply(text=["Hel", "lo", "!"])]
    # The provider's own word goes before a delay that would last longer than the test.
    slow = isinstance(first, Failure) and first.status == 429
    retry = RetryPolicy(first_delay_seconds=3600 if slow else 0.01, max_delay_seconds=3600)
    stalls = isinstance(first, Reply) and first.ending is Ending.STALL
    async with staged(open_home, script, retry=retry, stall_seconds=3 if stalls else 20) as stage:
        async with watching(stage) as watched:
            run = await stage.ask()
            # The end of the run takes the place of pieces that have not come by then.
            assert "Hello!".startswith(watched.shown)
            assert watched.seen.count(None) <= (0 if isinstance(first, Failure) else 2)
        assert (run.status, run.reply) == (RunStatus.OK, "Hello!")
        assert await stage.replies() == ["Hello!"]
        assert len(stage.fake.requests) == 3
        assert run.usage.steps == 1


@requirement("runs:5", "runs:6")
async def test_a_provider_that_stays_broken_ends_the_run_with_the_text_it_gave(open_home: OpenHome) -> None:
    cut = Reply(text=["Hel", "lo"], ending=Ending.CUT, events=2)
    async with staged(open_home, lambda request: cut, retry=RetryPolicy(3, 0.01)) as stage:
        run = await stage.ask()
        assert (run.status, run.code, run.reply) == (RunStatus.ERROR, "model_stream_cut", "Hel")
        assert run.error and "cut short" in run.error and KEY not in run.error
        assert len(stage.fake.requests) == 3
        (event,) = [event for event in await stage.log() if isinstance(event.message, AssistantMessage)]
        assert isinstance(event.message, AssistantMessage) and event.message.partial
        assert await stage.replies() == ["Hel"]
        assert facts(await stage.log(), "run_finished") == [
            {"status": "error", "error": run.error, "code": "model_stream_cut", "cut": "stream"}
        ]
        assert (await stage.session()).status == "idle"


@requirement("runs:6")
async def test_a_provider_that_only_fails_is_asked_so_often_and_then_named(open_home: OpenHome) -> None:
    async with staged(open_home, lambda request: SERVER_ERROR) as stage:
        run = await stage.ask()
        assert (run.status, run.code, run.reply) == (RunStatus.ERROR, "model_server_error", "")
        assert run.error == "Error inside provider 'fake' (HTTP 500): The server had an error."
        assert len(stage.fake.requests) == QUICK.attempts
        assert await stage.replies() == []


@requirement("first_start:3")
async def test_a_refused_key_is_told_plainly_and_not_tried_again(open_home: OpenHome) -> None:
    async with fake_provider([], api_key="another") as fake, open_home(settings(fake), Parts(retry=QUICK)) as app:
        await open_session(app, CHAT)
        run = await ask(app, CHAT, "hi")
        assert (run.status, run.code) == (RunStatus.ERROR, "model_authentication")
        assert run.error is not None and "providers.fake.api_key" in run.error and KEY not in run.error
        assert len(fake.requests) == 1


@requirement("first_start:3")
async def test_a_missing_key_is_told_plainly_and_nobody_is_asked(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    config = Config.model_validate({"agents": {"defaults": {"model": "openai:gpt-5"}}})
    async with open_home(config, Parts(retry=QUICK)) as app:
        await open_session(app, CHAT)
        run = await ask(app, CHAT, "hi")
        assert (run.status, run.code) == (RunStatus.ERROR, "model_key_missing")
        assert run.error is not None and "OPENAI_API_KEY" in run.error


@requirement("sessions:1", "runs:2")
async def test_tokens_and_cost_stand_on_run_and_session(open_home: OpenHome) -> None:
    steps = [
        Reply(calls=[Call(name="add", arguments='{"a": 1, "b": 1}')], input_tokens=1000, output_tokens=100),
        Reply(text="2", input_tokens=2000, output_tokens=200, cached_tokens=500),
        Reply(text="ok", input_tokens=3000, output_tokens=300),
    ]
    async with staged(open_home, steps, tools=(add,), model="openai:gpt-4o") as stage:
        first, second = await stage.ask("one"), await stage.ask("two")
        session = await stage.session()
    assert (first.usage.input_tokens, first.usage.output_tokens, first.usage.cached_tokens) == (3000, 300, 500)
    assert (first.usage.steps, second.usage.steps, session.usage.steps) == (2, 1, 3)
    assert first.usage.cost_microusd and second.usage.cost_microusd
    assert session.usage.cost_microusd == first.usage.cost_microusd + second.usage.cost_microusd
    assert (session.usage.total_tokens, session.context_tokens) == (6600, 3300)


@requirement("sessions:1")
async def test_an_unpriced_model_costs_nothing_that_is_known(open_home: OpenHome) -> None:
    async with staged(open_home, [Reply(text="ok")]) as stage:
        run = await stage.ask()
        assert (run.usage.total_tokens, run.usage.cost_microusd) == (15, None)
        assert (await stage.session()).usage.cost_microusd is None


@requirement("runs:6")
@pytest.mark.parametrize("by", ["tokens", "usd", "total"])
async def test_the_daily_cap_stops_before_the_next_step_and_posts_are_still_stored(
    open_home: OpenHome, by: str
) -> None:
    step = Reply(calls=[Call(name="add", arguments='{"a": 1, "b": 1}')], input_tokens=90_000, output_tokens=10_000)
    limits: Json = {
        "tokens": {"daily": {"tokens": 100_000}},
        "usd": {"daily": {"usd": 0.01}},
        "total": {"daily_total": {"tokens": 100_000}},
    }[by]
    async with staged(open_home, lambda request: step, tools=(add,), model="openai:gpt-4o", limits=limits) as stage:
        first, second = await stage.ask("one"), await stage.ask("two")
        assert [(run.status, run.code) for run in (first, second)] == [(RunStatus.ERROR, "daily_cap")] * 2
        assert first.error is not None and ("daily_total" if by == "total" else "limits.daily ") in first.error + " "
        assert len(stage.fake.requests) == 1
        assert [result.is_error for result in await stage.results()] == [False]
        said = [event.message for event in await stage.log() if isinstance(event.message, UserMessage)]
        assert [text_of(message.content) for message in said] == ["one", "two"]


@requirement("runs:9")
async def test_a_small_window_is_kept_by_summaries_of_the_provider(open_home: OpenHome) -> None:
    def answer(request: FakeRequest) -> Reply:
        system = json.dumps(request.messages[0]["content"])
        is_summary = "Summarise" in system
        return Reply(text="They spoke of x." if is_summary else "ok", input_tokens=len(json.dumps(request.body)) // 3)

    async with staged(open_home, answer, defaults={"context_tokens": 2000}) as stage:
        for number in range(8):
            assert (await stage.ask(f"{number} " + "x" * 1200)).status is RunStatus.OK
        compacted = facts(await stage.log(), "compacted")
        assert compacted and all(fact["summary"] == "They spoke of x." for fact in compacted)
        turns = [request for request in stage.fake.requests if "Summarise" not in json.dumps(request.messages[0])]
        assert max(len(json.dumps(request.messages)) // 3 for request in turns) < 2000
        assert "They spoke of x." in json.dumps(turns[-1].messages)
        said = [event.message for event in await stage.log() if isinstance(event.message, UserMessage)]
        assert len(said) == 8


@requirement("runs:9")
async def test_a_prompt_that_is_refused_as_too_long_is_shortened_and_asked_again(open_home: OpenHome) -> None:
    script = [Reply(text="one"), Reply(text="two"), CONTEXT_TOO_LONG, Reply(text="A summary."), Reply(text="three")]
    async with staged(open_home, script) as stage:
        assert [(await stage.ask("x" * 900)).reply for _ in range(1)] == ["one"]
        assert (await stage.ask("y" * 900)).reply == "two"
        run = await stage.ask("z")
        assert (run.status, run.reply) == (RunStatus.OK, "three")
        assert [fact["summary"] for fact in facts(await stage.log(), "compacted")] == ["A summary."]


@requirement("runs:9")
async def test_where_no_summary_can_be_had_the_oldest_turns_are_left_out_and_it_is_said(open_home: OpenHome) -> None:
    refused = Failure(status=400, message="no summaries")
    script = [Reply(text="one"), Reply(text="two"), CONTEXT_TOO_LONG, refused, Reply(text="three")]
    async with staged(open_home, script) as stage:
        await stage.ask("x" * 900)
        await stage.ask("y" * 900)
        assert (await stage.ask("z")).reply == "three"
        (fact,) = facts(await stage.log(), "compacted")
        assert fact["summary"] is None and "no summaries" in json.dumps(fact["error"])
        assert "were left out" in json.dumps(stage.fake.requests[-1].messages)


@requirement("runs:5")
async def test_cancelling_in_the_middle_of_a_stream_keeps_what_had_come(open_home: OpenHome) -> None:
    script = [Reply(text=["Hel", "lo"], ending=Ending.STALL, events=3), Reply(text="next")]
    async with staged(open_home, script) as stage:
        async with watching(stage) as watched:
            posted = await post(stage.app, CHAT, "hi")
            await watched.until_shown("Hello")
            assert posted.run_id is not None
            await stage.app.services.runs.cancel(OWNER, posted.run_id)
            run = await wait_end(stage.app, posted.run_id)
        assert (run.status, run.code, run.reply) == (RunStatus.CANCELLED, "cancelled", "Hello")
        assert await stage.replies() == ["Hello"]
        await stage.fake.until(lambda: stage.fake.requests[0].left)
        assert (await stage.session()).aborted_last_run
        assert (await stage.ask("more")).reply == "next"
        assert not (await stage.session()).aborted_last_run


@requirement("runs:5")
async def test_what_a_step_said_is_not_said_again_when_its_call_is_cancelled(open_home: OpenHome) -> None:
    reached = anyio.Event()

    async def hold() -> str:
        """Never answers."""
        reached.set()
        await anyio.sleep_forever()
        return ""

    async with staged(open_home, [Reply(text="Let me see.", calls=[Call(name="hold")])], tools=(hold,)) as stage:
        posted = await post(stage.app, CHAT, "hi")
        with anyio.fail_after(SECONDS):
            await reached.wait()
        assert posted.run_id is not None
        await stage.app.services.runs.cancel(OWNER, posted.run_id)
        run = await wait_end(stage.app, posted.run_id)
        assert (run.status, run.reply) == (RunStatus.CANCELLED, "")
        assert await stage.replies() == ["Let me see."]


@requirement("runs:6")
async def test_a_run_that_fails_in_its_second_step_ends_without_the_words_of_the_first(open_home: OpenHome) -> None:
    asked = Reply(text="Let me see.", calls=[Call(name="add", arguments='{"a": 1, "b": 2}')])
    async with staged(open_home, [asked, Failure(status=400)], tools=(add,)) as stage:
        run = await stage.ask()
        assert (run.status, run.reply) == (RunStatus.ERROR, "")
        assert await stage.replies() == ["Let me see."]


@requirement("runs:6")
async def test_a_run_that_takes_too_long_ends_in_timeout_with_what_had_come(open_home: OpenHome) -> None:
    script = [Reply(text=["Hel", "lo"], ending=Ending.STALL, events=3)]
    async with staged(open_home, script, limits={"run": {"time_seconds": 3}}) as stage:
        run = await stage.ask()
        assert (run.status, run.code, run.reply) == (RunStatus.TIMEOUT, "run_timeout", "Hello")


@requirement("runs:4")
async def test_a_steering_message_reaches_the_model_at_the_next_step(open_home: OpenHome) -> None:
    reached, released = anyio.Event(), anyio.Event()

    async def hold() -> str:
        """Waits for the test."""
        reached.set()
        await released.wait()
        return "held"

    async with staged(open_home, [Reply(calls=[Call(name="hold")]), Reply(text="both")], tools=(hold,)) as stage:
        posted = await post(stage.app, CHAT, "first")
        with anyio.fail_after(SECONDS):
            await reached.wait()
        joined = await post(stage.app, CHAT, "second", mode=QueueMode.STEER)
        assert joined.run_id == posted.run_id
        released.set()
        assert (await wait_end(stage.app, posted.run_id)).reply == "both"
        roles = [message["role"] for message in stage.fake.requests[1].messages[1:]]
        assert roles == ["user", "assistant", "tool", "assistant", "user"]  # no template takes a user after a tool


@requirement("runs:6")
async def test_fifteen_failures_in_a_row_end_the_run(open_home: OpenHome) -> None:
    def fail() -> str:
        """Fails."""
        raise ValueError("no")

    call = Reply(calls=[Call(name="fail")])
    async with staged(open_home, lambda request: call, tools=(tool(fail, effects=["reads"]),)) as stage:
        run = await stage.ask()
        assert (run.status, run.code) == (RunStatus.ERROR, "tool_failures")
        assert len(stage.fake.requests) == 15


LIFE = """
import sys, anyio
from datetime import timedelta
from pathlib import Path
from antiphon.building import Parts
from antiphon.app import open_app
from antiphon.config.sources import load_config
from tests.engine.stage import open_session, post
from tests.waiting import PROCESS_SECONDS, SECONDS

async def main():
    async with open_app(Path(sys.argv[1]), load_config(Path(sys.argv[2])), Parts()) as app:
        await open_session(app, "api:chat")
        posted = await post(app, "api:chat", "hi", message_id="m-1")
        print((await app.services.waits.wait(posted.run_id, timedelta(seconds=SECONDS))).reply)

anyio.run(main)
"""


@requirement("runs:8")
def test_a_process_killed_in_the_middle_of_a_stream_answers_once_after_its_restart(home: Path, tmp_path: Path) -> None:
    script = [Reply(text=["Hel", "lo"], ending=Ending.STALL, events=3), Reply(text=["Hel", "lo", "!"])]
    with run_fake_provider(script, api_key=KEY) as fake:
        file = tmp_path / "antiphon.toml"
        provider = f'[providers.fake]\nbase_url = "{fake.base_url}"\napi_key = "{KEY}"\n'
        file.write_text(f'[agents.defaults]\nmodel = "fake:m"\n{provider}', "utf-8")
        command = [sys.executable, "-c", LIFE, str(home), str(file)]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        with ending(subprocess.Popen(command, cwd=Path(__file__).parents[2], env=environment)) as process:
            fake.wait_for(lambda: len(fake.requests) == 1, timeout_seconds=PROCESS_SECONDS)
            os.kill(process.pid, signal.SIGKILL)
        fake.wait_for(lambda: fake.requests[0].left)
        done = subprocess.run(
            command,
            cwd=Path(__file__).parents[2],
            env=environment,
            capture_output=True,
            text=True,
            timeout=PROCESS_SECONDS,
            check=False,
        )
        assert done.stdout.strip() == "Hello!", done.stderr
        assert len(fake.requests) == 2
    texts = anyio.run(_stored_replies, home)
    assert texts == ["Hello!"]


async def _stored_replies(home: Path) -> list[str]:
    async with open_app(home, Config()) as app:
        events = await read_log(app, CHAT)
        assert [fact["attempt"] for fact in facts(events, "run_started")] == [1, 2]
        return [text_of(event.message.content) for event in events if isinstance(event.message, AssistantMessage)]
