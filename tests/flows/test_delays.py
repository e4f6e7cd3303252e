"""Why a turn waits for its provider, who sees it, and what bounds a provider that hangs or never ends."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from threading import Event as ThreadEvent
from typing import Any

import anyio
import pytest

from antiphon.agents.asking import RetryPolicy
from antiphon.agents.provider import import_provider
from antiphon.domain.delay import SILENT, Delay, DelayOver
from antiphon.domain.ids import RunId
from antiphon.domain.run import Run, RunStatus
from antiphon.feed.follow import Permit, View
from antiphon.policy.system import system_grant
from antiphon.testing import RATE_LIMITED, Answering, Call, Ending, Failure, FakeRequest, Reply, Script
from tests.conftest import OpenHome
from tests.engine.stage import post, wait_end
from tests.flows.test_provider_turns import CHAT, Stage, staged
from tests.story import Story
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

WATCHFUL = RetryPolicy(first_delay_seconds=0.01, silence_seconds=0.05)
HOUR = Failure(status=429, message="Slow down.", code="rate_limit_exceeded", headers={"Retry-After": "3600"})


@pytest.fixture(autouse=True, scope="module")
def loaded() -> None:
    import_provider("fake:fake-model")


class Follower:
    """What a reader of the session sees besides its events."""

    def __init__(self) -> None:
        self.seen: list[str | None | Delay | DelayOver] = []
        self._changed = anyio.Event()

    def add(self, piece: str | None | Delay | DelayOver) -> bytes:
        self.seen.append(piece)
        self._changed.set()
        return b"."

    async def until(self, is_so: Callable[[list[Any]], object]) -> None:
        with anyio.fail_after(SECONDS):
            while not is_so(self.seen):
                self._changed = anyio.Event()
                await self._changed.wait()

    @property
    def delays(self) -> list[Delay]:
        return [piece for piece in self.seen if isinstance(piece, Delay)]


@asynccontextmanager
async def following(stage: Stage) -> AsyncGenerator[Follower]:
    follower, hub = Follower(), stage.app.services.hub
    view = View(
        encode=lambda event: b"",
        encode_delta=lambda run, text: follower.add(text),
        encode_delay=lambda run, delay: follower.add(delay),
        encode_reset=lambda reason: b"",
        keep_alive=b"",
    )
    session = await stage.session()
    async with (
        hub.follow(Permit(system_grant(session.row)), session.last_seq, view, on_stall=lambda: None) as reader,
        anyio.create_task_group() as tasks,
    ):

        async def read() -> None:
            while True:
                await reader.next()

        tasks.start_soon(read)
        yield follower
        tasks.cancel_scope.cancel()


async def begin(stage: Stage) -> RunId:
    posted = await post(stage.app, CHAT, "hi")
    assert posted.run_id is not None
    return posted.run_id


async def end(stage: Stage, run_id: RunId) -> Run:
    return await wait_end(stage.app, run_id)


def delays(open_home: OpenHome, script: Script, **more: Any) -> Any:
    return staged(open_home, script, retry=WATCHFUL, **more)


async def test_a_rate_limit_stands_in_the_feed_and_in_the_run_until_it_is_over(open_home: OpenHome) -> None:
    async with delays(open_home, [RATE_LIMITED, Reply(text="done")]) as stage, following(stage) as follower:
        run_id = await begin(stage)
        await follower.until(lambda seen: any(isinstance(piece, Delay) and piece.until for piece in seen))
        run = await Story(stage.app).sees(
            lambda: Story(stage.app).run(run_id), lambda run: run.delay and run.delay.until
        )
        assert run.delay is not None and run.delay.until is not None
        assert run.delay in follower.delays
        assert (run.delay.code, run.delay.attempt, run.delay.attempts) == ("model_rate_limited", 2, 4)
        assert (run.delay.until - run.delay.since).total_seconds() == 7
        assert "'fake'" in run.delay.text and "7 s" in run.delay.text and "attempt 2 of 4" in run.delay.text
        await stage.app.services.runs.cancel(run.principal, run_id)
        ended = await end(stage, run_id)
        assert (ended.status, ended.delay) == (RunStatus.CANCELLED, None)
        assert len(stage.fake.requests) == 1


async def test_a_run_that_goes_on_after_a_delay_says_so(open_home: OpenHome) -> None:
    now = Failure(status=429, message="Slow down.", headers={"Retry-After": "0"})
    async with delays(open_home, [now, Reply(text="done")]) as stage, following(stage) as follower:
        ended = await end(stage, await begin(stage))
        await follower.until(lambda seen: "done" in seen)
        shown = [type(piece) for piece in follower.seen if isinstance(piece, Delay | DelayOver)]
        assert shown[0] is Delay and shown[-1] is DelayOver
        assert (ended.status, ended.reply, ended.delay) == (RunStatus.OK, "done", None)


async def test_a_provider_that_asks_for_an_hour_ends_the_run_at_once(open_home: OpenHome) -> None:
    async with delays(open_home, [HOUR, Reply(text="never")]) as stage:
        ended = await end(stage, await begin(stage))
        assert (ended.status, ended.code) == (RunStatus.ERROR, "model_rate_limited")
        assert ended.error is not None and "'fake'" in ended.error and "Try again after 2" in ended.error
        assert ended.error.endswith(" UTC.")
        assert len(stage.fake.requests) == 1


@pytest.mark.parametrize("seconds", ["99999999999999", "Fri, 31 Dec 9999 23:59:59 GMT"])
async def test_a_provider_that_asks_for_more_time_than_calendars_have_is_reported_as_itself(
    open_home: OpenHome, seconds: str
) -> None:
    failure = Failure(status=429, message="Slow down.", code="rate_limit_exceeded", headers={"Retry-After": seconds})
    async with delays(open_home, [failure]) as stage:
        ended = await end(stage, await begin(stage))
        assert (ended.status, ended.code) == (RunStatus.ERROR, "model_rate_limited")
        assert ended.error is not None and ended.error.endswith(" UTC.")


async def test_a_pause_that_the_settings_allow_is_waited_for(open_home: OpenHome) -> None:
    provider = {"longest_retry_after_seconds": 3600}
    async with delays(open_home, [HOUR], provider=provider) as stage, following(stage) as follower:
        run_id = await begin(stage)
        await follower.until(lambda seen: any(isinstance(piece, Delay) and "60 min" in piece.text for piece in seen))
        await stage.app.services.runs.cancel((await Story(stage.app).run(run_id)).principal, run_id)
        assert (await end(stage, run_id)).status is RunStatus.CANCELLED


async def test_silence_is_shown_until_the_provider_speaks(open_home: OpenHome) -> None:
    speak = ThreadEvent()

    def script(request: FakeRequest) -> Answering:
        assert speak.wait(SECONDS)
        return Reply(text="at last")

    async with delays(open_home, script) as stage, following(stage) as follower:
        run_id = await begin(stage)
        await follower.until(lambda seen: any(isinstance(piece, Delay) for piece in seen))
        run = await Story(stage.app).sees(lambda: Story(stage.app).run(run_id), lambda run: run.delay)
        assert run.delay is not None
        assert (run.delay.code, run.delay.until, run.delay.attempt) == (SILENT, None, 1)
        assert "'fake'" in run.delay.text
        speak.set()
        ended = await end(stage, run_id)
        assert (ended.reply, ended.delay) == ("at last", None)
        await follower.until(lambda seen: "at last" in seen)
        assert any(isinstance(piece, DelayOver) for piece in follower.seen)


async def test_silence_in_the_middle_of_an_answer_is_shown_again(open_home: OpenHome) -> None:
    speak = ThreadEvent()

    def script(request: FakeRequest) -> Answering:
        assert speak.wait(SECONDS)
        return Reply(text="so far", ending=Ending.STALL)

    async with delays(open_home, script) as stage, following(stage) as follower:
        run_id = await begin(stage)
        await follower.until(lambda seen: any(isinstance(piece, Delay) for piece in seen))
        speak.set()
        await follower.until(lambda seen: sum(isinstance(piece, Delay) for piece in seen) == 2)
        assert any(isinstance(piece, DelayOver) for piece in follower.seen)
        await stage.app.services.runs.cancel((await Story(stage.app).run(run_id)).principal, run_id)
        await end(stage, run_id)


@pytest.mark.parametrize("reply", [Reply(ending=Ending.HANG), Reply(ending=Ending.STALL, events=0)], ids=str)
async def test_a_provider_that_hangs_is_given_up_once(open_home: OpenHome, reply: Reply) -> None:
    async with delays(open_home, [reply], provider={"first_byte_seconds": 0.5}) as stage:
        ended = await end(stage, await begin(stage))
        assert (ended.status, ended.code, len(stage.fake.requests)) == (RunStatus.ERROR, "model_stalled", 1)
        assert ended.error is not None and "providers.fake.first_byte_seconds" in ended.error
        await stage.fake.until(lambda: stage.fake.requests[0].left)


async def test_a_gap_in_a_stream_is_shown_and_the_provider_is_asked_again(open_home: OpenHome) -> None:
    script = [Reply(text=["half", " more"], ending=Ending.STALL, events=2), Reply(text="whole")]
    async with delays(open_home, script, stall_seconds=0.5) as stage, following(stage) as follower:
        ended = await end(stage, await begin(stage))
        assert ended.reply == "whole"
        await follower.until(lambda seen: "whole" in seen)
        codes = [delay.code for delay in follower.delays]
        assert SILENT in codes[: codes.index("model_stalled")]


async def test_an_answer_that_never_ends_is_stopped_at_the_runs_tokens(open_home: OpenHome) -> None:
    endless = Reply(text=["word " * 20] * 2, ending=Ending.ENDLESS, events=3)
    async with delays(open_home, [endless], limits={"run": {"tokens": 500}}) as stage:
        ended = await end(stage, await begin(stage))
        assert (ended.status, ended.code) == (RunStatus.ERROR, "limit_tokens")
        assert ended.error is not None and "500 tokens" in ended.error
        assert ended.reply is not None and 1_900 < len(ended.reply) < 3_000
        assert 500 <= ended.usage.output_tokens < 1_000
        await stage.fake.until(lambda: stage.fake.requests[0].left)
        assert (await stage.replies()) == [ended.reply]


@pytest.mark.parametrize("kind", ["thinking", "calls"])
async def test_what_is_not_seen_of_an_answer_counts_too(open_home: OpenHome, kind: str) -> None:
    many = ["x" * 400] * 20
    reply = Reply(thinking=many, text="never") if kind == "thinking" else Reply(calls=[Call(name="f", arguments=many)])
    async with delays(open_home, [reply], limits={"daily": {"tokens": 1000}}) as stage:
        ended = await end(stage, await begin(stage))
        assert (ended.status, ended.code) == (RunStatus.ERROR, "daily_cap")
        assert ended.usage.output_tokens >= 1000


async def test_a_stream_of_single_bytes_is_shown_as_silence_and_ends_with_the_runs_time(open_home: OpenHome) -> None:
    drip = Reply(text=["a", "b"], ending=Ending.DRIP, events=2)
    limits = {"run": {"time_seconds": 4}}
    async with delays(open_home, [drip], stall_seconds=20, limits=limits) as stage, following(stage) as follower:
        ended = await end(stage, await begin(stage))
        assert (ended.status, ended.code, ended.reply, ended.delay) == (RunStatus.TIMEOUT, "run_timeout", "a", None)
        assert SILENT in [delay.code for delay in follower.delays]
