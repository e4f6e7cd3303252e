"""The ledger: order, exclusivity, waiting, cancelling, limits, crashes."""

import errno
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

import antiphon
from antiphon import ToolContext
from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import NotFound
from antiphon.domain.ids import AgentId, RunId, SessionRow
from antiphon.domain.queue_mode import QueueMode
from antiphon.domain.run import Outcome, RunStatus
from antiphon.engine.access.reach import Rights
from antiphon.engine.ledger.fence import Claimant, Fence, Fenced
from antiphon.engine.ledger.run_log import NOT_RUN, OUTCOME_UNKNOWN, Steps
from antiphon.engine.runs import cancel as runs
from antiphon.engine.runs import lifecycle
from antiphon.engine.runs.context import RunContext
from antiphon.engine.runs.ends import FinishRun
from antiphon.engine.runs.runner import ConstantRunner, RunEnding
from antiphon.store.database import Transaction
from antiphon.store.runs import RunFilter
from antiphon.testing import Call, Reply, fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import (
    HeldRunner,
    ManualClock,
    ask,
    config,
    facts,
    find_run,
    open_session,
    open_with_provider,
    post,
    read_log,
    texts,
    wait_end,
)
from tests.store.faulty_disk import FaultyDisk
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


@requirement("runs:1")
async def test_runs_of_a_session_go_in_order_and_never_overlap(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        posted: dict[str, list[str]] = {}
        for name in ("api:a", "api:b", "api:c"):
            await open_session(app, name)

        async def post_many(name: str, client: int) -> None:
            for number in range(10):
                each = await post(app, name, f"{client}-{number}")
                posted.setdefault(name, []).append(f"{each.seq:05} {each.run_id}")

        async with anyio.create_task_group() as tasks:
            for name in ("api:a", "api:b", "api:c"):
                for client in range(3):
                    tasks.start_soon(post_many, name, client)
            await runner.until_begun(3)
            assert runner.most_at_once == 3
            runner.release_all()
        for name, lines in posted.items():
            in_order = [RunId(line.split()[1]) for line in sorted(lines)]
            for run_id in in_order:
                assert (await wait_end(app, run_id)).status is RunStatus.OK
            events = await read_log(app, name)
            started = [event.run_id for event in events if event.type == "run_started"]
            assert started == in_order
            assert [event.seq for event in events] == list(range(1, len(events) + 1))
    assert not runner.overlapped


@requirement("runs:1")
async def test_no_more_runs_work_at_once_than_are_allowed(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(runs__max_concurrent=2), Parts(runner=runner)) as app:
        posted = [await post_to_new(app, f"api:s{number}") for number in range(5)]
        await runner.until_begun(2)
        runner.release(runner.begun[0])
        await runner.until_begun(3)
        runner.release_all()
        for run_id in posted:
            await wait_end(app, run_id)
    assert runner.most_at_once == 2


async def post_to_new(app: App, name: str, text: str = "hello") -> RunId:
    await open_session(app, name)
    run_id = (await post(app, name, text)).run_id
    assert run_id is not None
    return run_id


class Asker:
    """A tool that asks another session and waits for its answer."""

    def __init__(self) -> None:
        self.app: App | None = None

    async def consult(self, name: str, context: ToolContext) -> str:
        """Asks another session."""
        assert self.app is not None
        run_id = await post_to_new(self.app, name, "what do you say")
        ended = await context.wait(run_id, timedelta(seconds=SECONDS))
        return "nothing" if ended is None else f"they said {ended.reply}"


@requirement("runs:1")
async def test_a_run_that_waits_for_another_gives_its_place_to_it(open_home: OpenHome) -> None:
    asker = Asker()
    async with open_home(config(runs__max_concurrent=1), Parts(tools=[asker.consult])) as app:
        asker.app = app
        run = await ask(app, "main", '!call consult {"name": "api:other"}')
        assert (run.status, run.reply) == (RunStatus.OK, "they said echo: what do you say")
        assert (run.waiting_for, run.wait_until) == ((), None)


@requirement("runs:3")
async def test_a_wait_ends_at_once_for_a_run_that_has_ended_and_reads_the_ledger_after_a_restart(
    open_home: OpenHome,
) -> None:
    async with open_home() as app:
        run = await ask(app, "main", "hello")
        assert await app.services.waits.wait(run.id, timedelta(0)) == run
    async with open_home() as app:
        assert await app.services.waits.wait(run.id, timedelta(0)) == run
        with pytest.raises(NotFound):
            await app.services.waits.wait(RunId("run_none"), timedelta(seconds=SECONDS))
        with pytest.raises(NotFound):
            await find_run(app, RunId("run_none"))


@requirement("runs:3")
async def test_a_timeout_ends_the_wait_and_not_the_run(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        run_id = (await post(app, "main", "m-1")).run_id
        assert run_id is not None
        assert await app.services.waits.wait(run_id, timedelta(milliseconds=20)) is None
        runner.release_all()
        assert (await wait_end(app, run_id)).status is RunStatus.OK


@requirement("runs:3")
async def test_every_one_of_many_waits_is_told(open_home: OpenHome) -> None:
    async with open_home(parts=Parts(runner=ConstantRunner("yes"))) as app:
        for number in range(60):
            run_id = (await post(app, "main", f"m-{number}")).run_id
            for _ in range(number % 8):
                await anyio.lowlevel.checkpoint()
            assert (await wait_end(app, run_id)).reply == "yes"


@requirement("runs:5")
async def test_cancelling_keeps_the_partial_text_and_may_be_repeated(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        first = await post(app, "main", "m-1")
        after = await post(app, "main", "m-2")
        await runner.until_begun(1)
        assert first.run_id is not None
        for _ in range(3):
            await app.services.runs.cancel(OWNER, first.run_id)
        run = await wait_end(app, first.run_id)
        assert (run.status, run.code, run.reply) == (RunStatus.CANCELLED, "cancelled", "partial ")
        assert (await app.services.runs.cancel(OWNER, first.run_id)) == run
        runner.release_all()
        assert (await wait_end(app, after.run_id)).status is RunStatus.OK
        events = await read_log(app, "main")
        assert texts(events) == ["m-1", "m-2", "partial ", "answer to m-2"]
        assert [fact["status"] for fact in facts(events, "run_finished")] == ["cancelled", "ok"]


@requirement("runs:5")
async def test_a_run_that_is_cancelled_in_the_commit_that_claims_it_does_not_go_on(home: Path) -> None:
    may_write = threading.Event()

    async def hold_writer(_tx: Transaction) -> None:
        may_write.wait()

    runner = HeldRunner()
    async with open_app(home, Config(), Parts(runner=runner)) as app, anyio.create_task_group() as tasks:
        await open_session(app, "main")
        first, second = await post(app, "main", "one"), await post(app, "main", "two")
        await runner.until_begun(1)
        tasks.start_soon(app.database.run, hold_writer)
        await anyio.wait_all_tasks_blocked()
        runner.release(first.run_id)
        await anyio.wait_all_tasks_blocked()  # the end of the first, which claims the second, waits for the writer
        assert second.run_id is not None
        cancel = (runs.cancel_run, Rights(OWNER, app.services.rules), second.run_id)
        tasks.start_soon(app.database.run, *cancel)
        await anyio.wait_all_tasks_blocked()
        may_write.set()
        run = await wait_end(app, second.run_id)
        assert (run.status, run.code, run.attempt) == (RunStatus.CANCELLED, "cancelled", 1)


@requirement("runs:5")
async def test_a_queued_run_is_cancelled_at_once(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        first, second = await post(app, "main", "m-1"), await post(app, "main", "m-2")
        await runner.until_begun(1)
        assert second.run_id is not None
        cancelled = await app.services.runs.cancel(OWNER, second.run_id)
        assert (cancelled.status, cancelled.code) == (RunStatus.CANCELLED, "cancelled")
        runner.release_all()
        await wait_end(app, first.run_id)
        assert (await ask(app, "main", "m-3")).reply == "answer to m-3"
        assert len(runner.begun) == 2


@requirement("runs:5")
async def test_a_session_that_waits_for_a_slot_is_stopped_by_cancelling_its_next_run(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(runs={"max_concurrent": 1}), parts=Parts(runner=runner)) as app:
        for name in ("api:busy", "api:chat"):
            await open_session(app, name)
        first = await post(app, "api:busy", "m-1")
        await runner.until_begun(1)
        second, third = await post(app, "api:chat", "m-2"), await post(app, "api:chat", "m-3")
        cancelled = await app.services.runs.cancel_session(OWNER, app.services.sessions.target("api:chat"))
        assert (cancelled.run_id, cancelled.below) == (second.run_id, 0)
        runner.release_all()
        assert [(await wait_end(app, run.run_id)).status for run in (first, second, third)] == [
            RunStatus.OK,
            RunStatus.CANCELLED,
            RunStatus.OK,
        ]


@requirement("runs:6")
async def test_a_run_that_takes_too_long_times_out_with_what_it_had(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(limits__run={"time_seconds": 4}), Parts(runner=runner)) as app:
        run = await ask(app, "main", "m-1")
        assert (run.status, run.code, run.reply) == (RunStatus.TIMEOUT, "run_timeout", "partial ")


class StubbornRunner:
    """Does not stop when it is cancelled; when let go it writes as if nothing had happened."""

    def __init__(self) -> None:
        self.begun = anyio.Event()
        self.release = anyio.Event()
        self.fenced: list[bool] = []
        self.done = anyio.Event()

    async def run(self, context: RunContext) -> RunEnding:
        await context.read_log()
        if self.begun.is_set():
            return RunEnding(outcome=Outcome(status=RunStatus.OK, reply="the next run"))
        self.begun.set()
        with anyio.CancelScope(shield=True):
            await self.release.wait()
            try:
                await context.record([])
                self.fenced.append(False)
            except Fenced:
                self.fenced.append(True)
            self.done.set()
        return RunEnding(outcome=Outcome(status=RunStatus.OK, reply="too late"))


@requirement("runs:5")
async def test_work_that_does_not_stop_is_fenced_off_and_changes_nothing_later(open_home: OpenHome) -> None:
    runner = StubbornRunner()
    async with open_home(parts=Parts(runner=runner, unwind_seconds=0.05)) as app:
        first = await post(app, "main", "m-1")
        with anyio.fail_after(SECONDS):
            await runner.begun.wait()
        assert first.run_id is not None
        await app.services.runs.cancel(OWNER, first.run_id)
        cancelled = await wait_end(app, first.run_id)
        assert cancelled.status is RunStatus.CANCELLED
        assert (await ask(app, "main", "m-2")).reply == "the next run"
        before = await read_log(app, "main")
        runner.release.set()
        with anyio.fail_after(SECONDS):
            await runner.done.wait()
        assert runner.fenced == [True]
        assert (await ask(app, "main", "m-3")).status is RunStatus.OK
        assert await find_run(app, first.run_id) == cancelled
        assert (await read_log(app, "main"))[: len(before)] == before
        assert "too late" not in texts(await read_log(app, "main"))


@requirement("runs:8")
async def test_a_worker_with_an_old_fence_changes_nothing(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        posted = await post(app, "main", "m-1")
        await runner.until_begun(1)
        run = await find_run(app, posted.run_id)
        old = Fence(run.id, run.fence - 1)
        before = await read_log(app, "main")
        assert await app.database.run(lifecycle.record, old, Steps((), is_counted=True)) is None
        good = FinishRun(outcome=Outcome(status=RunStatus.OK))
        assert await app.database.run(lifecycle.finish_run, old, good) is None
        assert not await app.database.run(lifecycle.set_waiting, old, (run.id,), None)
        await app.database.run(lifecycle.hand_back, old)
        assert await find_run(app, run.id) == run
        assert await read_log(app, "main") == before
        runner.release_all()
        await wait_end(app, run.id)
        current = Fence(run.id, run.fence)
        bad = FinishRun(outcome=Outcome(status=RunStatus.ERROR))
        assert await app.database.run(lifecycle.finish_run, current, bad) is None


@requirement("runs:8")
async def test_after_three_crashed_attempts_a_run_ends(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        posted = await post(app, "main", "m-1")
        assert posted.run_id is not None
        await runner.until_begun(1)
        run = await find_run(app, posted.run_id)
        assert run.process is not None
        claimant = Claimant(process=run.process, time_limits={AgentId("main"): None})
        await app.database.run(crash_often, SessionRow(run.session), claimant)
        ended = await find_run(app, run.id)
        assert (ended.status, ended.code) == (RunStatus.ERROR, "crashed")
        runner.release_all()
        assert (await ask(app, "main", "m-2")).status is RunStatus.OK


async def crash_often(tx: Transaction, session: SessionRow, claimant: Claimant) -> None:
    """What three processes do that find the run unfinished; in one unit, or the living one would claim it as well."""
    for attempt in (2, 3):
        taken = await lifecycle.claim(tx, session, claimant)
        assert taken is not None and (taken.attempt, taken.fence) == (attempt, attempt)
    assert await lifecycle.claim(tx, session, claimant) is None


@requirement("runs:8")
async def test_an_orderly_stop_is_no_crashed_attempt_and_the_run_goes_on(open_home: OpenHome) -> None:
    run_id: RunId | None = None
    for _ in range(5):
        runner = HeldRunner()
        async with open_home(config(gateway__drain_seconds=0), Parts(runner=runner)) as app:
            posted = await post(app, "main", "m-1", message_id="m-1")
            await runner.until_begun(1)
            run_id = run_id or posted.run_id
            assert posted.run_id == run_id
    async with open_home() as app:
        run = await wait_end(app, run_id)
        assert (run.status, run.reply) == (RunStatus.OK, "echo: m-1")


def fail(text: str) -> str:
    """Always fails."""
    raise LookupError(text)


@requirement("runs:6")
async def test_fifteen_tool_failures_in_a_row_end_a_run(open_home: OpenHome) -> None:
    async with open_home(parts=Parts(tools=[fail])) as app:
        run = await ask(app, "main", "\n".join('!call fail {"text": "x"}' for _ in range(20)))
        assert (run.status, run.code) == (RunStatus.ERROR, "tool_failures")
        assert len([event for event in await read_log(app, "main") if event.type == "tool_result"]) == 15
        run = await ask(app, "main", "\n".join('!call fail {"text": "y"}' for _ in range(14)))
        assert run.status is RunStatus.OK


@requirement("runs:6")
@pytest.mark.parametrize(
    ("limit", "code"),
    [
        ({"model_calls": 3}, "limit_model_calls"),
        ({"tool_calls": 2}, "limit_tool_calls"),
        ({"tokens": 40}, "limit_tokens"),
    ],
)
async def test_a_run_ends_at_its_limits(open_home: OpenHome, limit: dict[str, int], code: str) -> None:
    async with open_home(config(limits__run=limit)) as app:
        run = await ask(app, "main", "\n".join("!call session_status" for _ in range(10)))
        assert (run.status, run.code) == (RunStatus.ERROR, code)
        called = [event for event in await read_log(app, "main") if event.type == "tool_call"]
        assert 0 < len(called) <= 3


@requirement("runs:6")
async def test_the_daily_cap_stops_the_next_step_and_the_day_after_begins_anew(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with fake_provider([Reply(text="first"), Reply(text="second"), Reply(text="third")]) as fake:
        cap = {"tokens": 30}
        async with open_with_provider(open_home, fake, Parts(clock=clock), limits__daily=cap) as app:
            assert (await ask(app, "main", "one")).reply == "first"
            assert (await ask(app, "main", "two")).reply == "second"
            run = await ask(app, "main", "three")
            assert (run.status, run.code) == (RunStatus.ERROR, "daily_cap")
            assert len(fake.requests) == 2
            assert "three" in texts(await read_log(app, "main"))
            clock.pass_time(timedelta(days=1))
            assert (await ask(app, "main", "four")).reply == "third"


@requirement("runs:6")
async def test_the_daily_cap_of_all_agents_together_is_twice_that_of_one(open_home: OpenHome) -> None:
    async with fake_provider([Reply(text="yes")] * 4) as fake:
        agents = [{"id": name} for name in ("a", "b", "c")]
        settings: dict[str, Any] = {"agents__list": agents, "limits__daily": {"tokens": 15}}
        async with open_with_provider(open_home, fake, Parts(clock=ManualClock()), **settings) as app:
            for name, code in (("a", None), ("a", "daily_cap"), ("b", None), ("c", "daily_cap")):
                run = await ask(app, f"agent:{name}:main", f"to {name} for {code}")
                assert run.code == code


@requirement("runs:6")
async def test_models_that_cost_nothing_are_not_counted(open_home: OpenHome) -> None:
    async with open_home(config(limits__daily={"tokens": 0})) as app:
        assert (await ask(app, "main", "hello")).reply == "echo: hello"


@requirement("runs:4", "runs:9")
async def test_a_message_steered_into_a_run_is_answered_by_its_next_step(open_home: OpenHome) -> None:
    held, release = anyio.Event(), anyio.Event()

    async def hold() -> str:
        """Waits."""
        held.set()
        await release.wait()
        return "held"

    script = [Reply(calls=[Call(name="hold")]), Reply(text="I saw both")]
    async with fake_provider(script) as fake:
        async with open_with_provider(open_home, fake, Parts(tools=[hold])) as app:
            first = await post(app, "main", "one")
            with anyio.fail_after(SECONDS):
                await held.wait()
            steered = await post(app, "main", "two", mode=QueueMode.STEER)
            queued = await post(app, "main", "three")
            assert queued.run_id != steered.run_id == first.run_id
            release.set()
            assert (await wait_end(app, first.run_id)).reply == "I saw both"
        shown = [message.get("content") for message in fake.requests[1].messages]
        assert shown[1] == "one" and shown[-3:] == ["held", "[The next message came before an answer.]", "two"]


@requirement("runs:8")
async def test_a_cancelled_run_leaves_no_call_open(open_home: OpenHome) -> None:
    held = anyio.Event()

    async def hold() -> str:
        """Waits for ever."""
        held.set()
        await anyio.sleep_forever()
        return "never"

    calls = [Call(name="hold"), Call(name="hold")]
    async with fake_provider([Reply(calls=calls), Reply(text="next")]) as fake:
        async with open_with_provider(open_home, fake, Parts(tools=[hold])) as app:
            first = await post(app, "main", "one")
            with anyio.fail_after(SECONDS):
                await held.wait()
            assert first.run_id is not None
            await app.services.runs.cancel(OWNER, first.run_id)
            await wait_end(app, first.run_id)
            assert texts(await read_log(app, "main"))[-2:] == [OUTCOME_UNKNOWN, NOT_RUN]
            assert (await ask(app, "main", "two")).reply == "next"
        assert len(fake.requests) == 2


@requirement("runs:8", "foreign_tools:1")
async def test_parallel_calls_are_called_again_when_a_full_disk_had_no_room_for_their_results(
    open_home: OpenHome,
) -> None:
    disk = FaultyDisk()
    called: list[int] = []

    async def look(number: int) -> str:
        """Fills the disk the first times, and makes room later."""
        called.append(number)
        disk.error = errno.ENOSPC if len(called) <= 2 else None
        return f"seen {number}"

    calls = [Call(name="look", arguments=f'{{"number": {number}}}') for number in (0, 1)]
    async with fake_provider([Reply(calls=calls), Reply(text="done")]) as fake:
        parts = Parts(tools=[antiphon.tool(look, effects=["reads"])], connect=disk.connect)
        async with open_with_provider(open_home, fake, parts) as app:
            run = await ask(app, "main", "one")
            assert (run.status, run.reply) == (RunStatus.OK, "done")
            # Which result finds room first is nobody's promise: each call is stored when it has one.
            asked, called_for, *results, last = texts(await read_log(app, "main"))
            assert (asked, called_for, sorted(results), last) == ("one", "", ["seen 0", "seen 1"], "done")


async def test_a_run_for_which_there_is_no_memory_ends_with_a_plain_word(open_home: OpenHome) -> None:
    class Greedy:
        async def run(self, context: RunContext) -> RunEnding:
            raise MemoryError

    async with open_home(parts=Parts(runner=Greedy())) as app:
        run = await ask(app, "main", "hello")
        assert (run.status, run.code) == (RunStatus.ERROR, "out_of_memory")
        assert "ran out of memory" in (run.error or "")


async def test_a_runner_that_raises_ends_its_run_with_an_error(open_home: OpenHome) -> None:
    class Broken:
        async def run(self, context: RunContext) -> RunEnding:
            raise LookupError("a bug")

    async with open_home(parts=Parts(runner=Broken())) as app:
        run = await ask(app, "main", "hello")
        assert (run.status, run.code) == (RunStatus.ERROR, "internal_error")
        assert (await ask(app, "main", "again")).code == "internal_error"


async def test_runs_are_listed_newest_first(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with open_home(parts=Parts(clock=clock)) as app:
        ids: list[RunId] = []
        for number in range(3):
            clock.pass_time(timedelta(seconds=1))
            ids.append((await ask(app, "main", f"m-{number}")).id)
        listed = await app.services.runs.list(OWNER, RunFilter(), limit=2)
        assert [run.id for run in listed] == ids[:0:-1]
        rest = await app.services.runs.list(OWNER, RunFilter(before=listed[-1].id), limit=2)
        assert [run.id for run in rest] == ids[:1]
