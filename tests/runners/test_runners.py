"""An agent's runs are carried out by a function of the program. Contract: foreign_agents 1."""

import asyncio
import sqlite3
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

import antiphon
from antiphon.agents.runners.attempt import MAX_STATE_BYTES, MAX_STEP_BYTES
from antiphon.agents.runners.finding import find_runner, find_runners
from antiphon.config.config import Config
from antiphon.domain.errors import Invalid
from tests.claims import requirement

pytestmark = pytest.mark.anyio

Runner = Callable[[antiphon.Turn], Any]


async def ask(home: Path, runner: Runner, *texts: str, config: Config | None = None, **settings: Any) -> list[str]:
    """The replies of an agent with that runner, in one session."""
    agent = antiphon.Agent("support", runner=runner, **settings)
    async with antiphon.open(home, config=config or Config(), agents=[agent]) as app:
        session = await app.sessions.open("chat", agent_id="support")
        return [_told(await (await session.post(text)).wait()) for text in texts]


def _told(run: antiphon.Run) -> str:
    return f"{run.code}: {run.error}" if run.code else run.reply or ""


def _noted(notes: list[Any], note: object, result: object) -> object:
    notes.append(note)
    return result


async def decide(app: antiphon.Antiphon, verdict: Any, **settings: Any) -> None:
    """Decides the one request that comes."""
    async for approval in app.approvals.follow():
        if approval.state is antiphon.ApprovalState.PENDING:
            await app.approvals.decide(approval.id, verdict, **settings)
            return


class TestForms:
    """A runner returns its reply or yields pieces, as a coroutine or in a thread."""

    async def test_each_form_of_function_answers(self, home: Path) -> None:
        async def returning(turn: antiphon.Turn) -> str:
            return f"heard {turn.text}"

        async def yielding(turn: antiphon.Turn) -> AsyncGenerator[str]:
            yield "heard "
            yield turn.text

        def plain(turn: antiphon.Turn) -> str:
            assert threading.current_thread() is not threading.main_thread()
            return f"heard {turn.text}"

        def generator(turn: antiphon.Turn) -> Generator[str]:
            yield "heard "
            yield turn.text

        def both(turn: antiphon.Turn) -> Generator[str, None, str]:
            yield "thinking …"
            return f"heard {turn.text}"

        class Called:
            async def __call__(self, turn: antiphon.Turn) -> str:
                return f"heard {turn.text}"

        forms: list[Runner] = [returning, yielding, plain, generator, both, Called(), lambda turn: returning(turn)]
        for number, runner in enumerate(forms):
            assert await ask(home / str(number), runner, "this") == ["heard this"]

    async def test_pieces_are_shown_as_they_come(self, home: Path) -> None:
        async def yielding(turn: antiphon.Turn) -> AsyncGenerator[str]:
            yield "one "
            yield "two"

        async with antiphon.open(home, agents=[antiphon.Agent("support", runner=yielding)]) as app:
            run = await (await app.sessions.open("chat", agent_id="support")).post("go")
            assert "".join([piece.text async for piece in run.stream()]) == "one two"

    async def test_an_answer_that_is_no_text_or_nothing_is_an_error(self, home: Path) -> None:
        async def nothing(turn: antiphon.Turn) -> None: ...

        async def raw(turn: antiphon.Turn) -> AsyncGenerator[Any]:
            yield b"bytes"

        async def number(turn: antiphon.Turn) -> Any:
            return 7

        async def broken(turn: antiphon.Turn) -> str:
            raise ValueError("s3cret of the program")

        async def leaving(turn: antiphon.Turn) -> str:
            raise SystemExit(3)

        async def giving_up(turn: antiphon.Turn) -> str:
            raise asyncio.CancelledError

        found = [(await ask(home / each.__name__, each, "go"))[0] for each in (nothing, raw, number, broken, leaving)]
        assert [each.split(":")[0] for each in found] == [
            *("empty_answer", "runner_answer", "runner_answer", "runner_failed", "runner_failed")
        ]
        assert "ValueError" in found[3] and "s3cret" not in found[3]
        assert (await ask(home / "up", giving_up, "go"))[0].startswith("runner_failed")


class TestCalls:
    @requirement("foreign_agents:1")
    async def test_calls_and_steps_are_recorded_and_answer_a_later_attempt(self, home: Path) -> None:
        begun: list[str] = []

        async def answer(turn: antiphon.Turn) -> str:
            first = await turn.step("number", lambda: _noted(begun, "step", 7))
            found = await turn.call("sessions_list")
            own = await turn.call("book", {"seat": 3}, run=lambda arguments: begun.append(f"book {arguments['seat']}"))
            said = await turn.ask("May I?", choices=["red", "blue"])
            return f"{first} {'sessions' in found.text} {own.is_error} {said.choice} {said.note}"

        async with antiphon.open(home, agents=[antiphon.Agent("support", runner=answer)]) as app:
            session = await app.sessions.open("chat", agent_id="support")
            run = await session.post("go")
            await decide(app, antiphon.Verdict.ONCE, note="Blue, please")
            assert _told(await run.wait()) == "7 True False blue Blue, please"
            assert begun == ["step", "book 3"]
            calls = [
                event.message.tool
                for event in await session.history(include_tools=True)
                if isinstance(event.message, antiphon.ToolResult)
            ]
            assert calls == ["sessions_list", "book", "ask_person"]

    async def test_a_no_is_an_answer(self, home: Path) -> None:
        async def answer(turn: antiphon.Turn) -> str:
            said = await turn.ask("May I?")
            return f"{said.is_yes} {'later' in (said.note or '')}"

        async with antiphon.open(home, agents=[antiphon.Agent("support", runner=answer)]) as app:
            run = await (await app.sessions.open("chat", agent_id="support")).post("go")
            await decide(app, antiphon.Verdict.DENY, note="later")
            assert _told(await run.wait()) == "False True"

    async def test_a_call_that_needs_a_yes_never_returns_whatever_the_framework_catches(self, home: Path) -> None:
        caught: list[str] = []

        async def answer(turn: antiphon.Turn) -> str:
            try:
                reply = await turn.call("drop", {}, run=lambda _: "dropped", effects=["deletes"])
            except BaseException as error:  # as frameworks do around their tools
                caught.append(type(error).__name__)
                raise
            return reply.text

        async with antiphon.open(home, agents=[antiphon.Agent("support", runner=answer)]) as app:
            run = await (await app.sessions.open("chat", agent_id="support")).post("go")
            await decide(app, antiphon.Verdict.ONCE)
            assert _told(await run.wait()) == "dropped" and caught == ["CancelledError"]

    async def test_one_key_for_two_calls_ends_the_run(self, home: Path) -> None:
        async def answer(turn: antiphon.Turn) -> str:
            await turn.call("sessions_list", key="k")
            await turn.call("session_status", key="k")
            return "never"

        assert (await ask(home, answer, "go"))[0].startswith("runner_diverged")

    async def test_equal_calls_are_told_apart_by_their_count(self, home: Path) -> None:
        seats: list[int] = []

        async def answer(turn: antiphon.Turn) -> str:
            replies = [await turn.call("next", {}, run=lambda _: _noted(seats, 1, len(seats) + 1)) for _ in range(3)]
            return " ".join(reply.text for reply in replies)

        assert await ask(home, answer, "go") == ["1 2 3"]

    async def test_a_tool_that_the_session_lacks_and_a_failing_function_are_error_replies(self, home: Path) -> None:
        async def answer(turn: antiphon.Turn) -> str:
            missing = await turn.call("nothing_like_it")
            failing = await turn.call("book", {}, run=lambda _: 1 / 0)
            return f"{missing.is_error} {failing.is_error} {'ZeroDivisionError' in failing.text}"

        assert await ask(home, answer, "go") == ["True True True"]

    async def test_the_limit_of_calls_ends_the_run(self, home: Path) -> None:
        async def answer(turn: antiphon.Turn) -> str:
            for _ in range(9):
                await turn.call("sessions_list")
            return "never"

        found = await ask(home, answer, "go", limits={"tool_calls": 2})
        assert found[0].startswith("limit_tool_calls")

    async def test_a_plain_function_calls_from_its_thread(self, home: Path) -> None:
        def answer(turn: antiphon.Turn) -> str:
            return f"{turn.step_sync('n', lambda: 2)} {turn.call_sync('sessions_list').is_error}"

        assert await ask(home, answer, "go") == ["2 False"]

    async def test_calls_of_one_step_are_answered_in_their_order(self, home: Path) -> None:
        async def answer(turn: antiphon.Turn) -> str:
            replies = await turn.calls(
                [antiphon.PlannedCall(name=name, arguments={}) for name in ("session_status", "sessions_list")]
            )
            return f"{'status' in replies[0].text} {'sessions' in replies[1].text}"

        assert await ask(home, answer, "go") == ["True True"]


class TestLaterAttempts:
    async def test_a_message_that_joins_begins_a_new_pass_and_is_heard(self, home: Path) -> None:
        heard: list[str] = []
        is_in = asyncio.Event()
        go_on = asyncio.Event()

        async def answer(turn: antiphon.Turn) -> str:
            messages = await turn.messages()
            heard.append(" | ".join(str(each["content"]) for each in messages if each["role"] == "user"))
            is_in.set()
            await turn.call("sessions_list")
            await go_on.wait()
            return f"heard {len(heard)}"

        async with antiphon.open(home, agents=[antiphon.Agent("support", runner=answer)]) as app:
            session = await app.sessions.open("chat", agent_id="support")
            run = await session.post("first")
            await is_in.wait()
            joined = await session.post("second", queue_mode=antiphon.QueueMode.STEER)
            go_on.set()
            assert joined.id == run.id and _told(await run.wait()) == "heard 2"
            assert "first" in heard[0] and "second" not in heard[0] and "second" in heard[1]

    async def test_work_that_outlives_its_turn_can_do_nothing_for_it(self, home: Path) -> None:
        outcome: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        is_over = asyncio.Event()

        async def linger(turn: antiphon.Turn) -> None:
            await is_over.wait()
            try:
                turn.say("more")
            except antiphon.TurnClosed as error:
                outcome.set_result(str(error))
            else:
                outcome.set_result("said more")

        tasks: list[asyncio.Task[None]] = []

        async def answer(turn: antiphon.Turn) -> str:
            tasks.append(asyncio.create_task(linger(turn)))
            return "done"

        assert await ask(home, answer, "go") == ["done"]
        is_over.set()
        assert "over" in await outcome

    async def test_a_cancelled_run_ends_its_runner(self, home: Path) -> None:
        is_in, is_ended = asyncio.Event(), asyncio.Event()

        async def answer(turn: antiphon.Turn) -> str:
            is_in.set()
            try:
                await asyncio.Event().wait()
            finally:
                is_ended.set()
            return "never"

        async with antiphon.open(home, agents=[antiphon.Agent("support", runner=answer)]) as app:
            run = await (await app.sessions.open("chat", agent_id="support")).post("go")
            await is_in.wait()
            await run.cancel()
            assert (await run.wait()).status is antiphon.RunStatus.CANCELLED and is_ended.is_set()


class TestState:
    async def test_a_state_belongs_to_an_incarnation_and_goes_with_a_fork(self, home: Path) -> None:
        async def answer(turn: antiphon.Turn) -> str:
            before = turn.state or "0"
            await turn.save(str(int(before) + 1))
            return before

        async with antiphon.open(home, agents=[antiphon.Agent("support", runner=answer)]) as app:
            session = await app.sessions.open("chat", agent_id="support")
            assert [_told(await (await session.post("go")).wait()) for _ in range(3)] == ["0", "1", "2"]
            copy = await session.fork()
            assert _told(await (await copy.post("go")).wait()) == "3"
            await session.reset()
            assert _told(await (await session.post("go")).wait()) == "0"

    async def test_a_reset_leaves_nothing_of_a_state(self, home: Path) -> None:
        async def answer(turn: antiphon.Turn) -> str:
            await turn.save("kept")
            return "done"

        async with antiphon.open(home, agents=[antiphon.Agent("support", runner=answer)]) as app:
            session = await app.sessions.open("chat", agent_id="support")
            await (await session.post("go")).wait()
            await session.reset()
        with closing(sqlite3.connect(home / "antiphon.db")) as connection:
            assert connection.execute("SELECT COUNT(*) FROM runner_states").fetchone() == (0,)

    async def test_what_is_too_large_or_no_json_is_refused_before_it_costs_anything(self, home: Path) -> None:
        refused: list[str] = []

        async def answer(turn: antiphon.Turn) -> str:
            for work in (
                turn.save("x" * (MAX_STATE_BYTES + 1)),
                turn.step("large", lambda: "x" * MAX_STEP_BYTES),
                turn.step("odd", lambda: object()),
                turn.call("book", cast("Any", {"what": object()}), run=lambda _: "no"),
            ):
                try:
                    await work
                except antiphon.AntiphonError as error:
                    refused.append(error.code)
            return f"{turn.state}"

        assert await ask(home, answer, "go") == ["None"]
        assert refused == ["state_too_large", "step_too_large", "invalid_step", "invalid_arguments"]


class TestUsage:
    async def test_usage_counts_at_once_and_the_day_ends_at_its_cap(self, home: Path) -> None:
        reached: list[int] = []

        async def answer(turn: antiphon.Turn) -> str:
            for _ in range(5):
                reached.append(1)
                await turn.usage(model="openai:gpt-5", input=400, output=100, cost=0.5)
            return "never"

        found = await ask(home, answer, "go", daily={"tokens": 1000, "usd": 100})
        assert found[0].startswith("daily_cap") and len(reached) == 2

    @pytest.mark.parametrize(
        ("model", "cost", "counted"),
        [
            ("gpt-4o", None, 800 * 2.5 + 200 * 1.25 + 500 * 10),
            ("openai:gpt-4o", None, 800 * 2.5 + 200 * 1.25 + 500 * 10),
            ("gpt-4o", 0.5, 500_000),
            ("gpt-4o", 0, 0),
            ("ours:gpt-4o", None, None),
            ("a model of ours", None, None),
        ],
    )
    async def test_without_a_cost_the_table_of_prices_says_it(
        self, home: Path, model: str, cost: float | None, counted: float | None
    ) -> None:
        async def answer(turn: antiphon.Turn) -> str:
            await turn.usage(model=model, input=1000, output=500, cached=200, cost=cost)
            return "done"

        async with antiphon.open(home, agents=[antiphon.Agent("support", runner=answer)]) as app:
            run = await (await (await app.sessions.open("chat", agent_id="support")).post("go")).wait()
            assert (run.usage.total_tokens, run.usage.cost_microusd) == (1500, counted)

    async def test_a_turn_that_reports_none_is_estimated_and_marked(self, home: Path) -> None:
        async def answer(turn: antiphon.Turn) -> str:
            await turn.messages()
            return "word " * 40

        async with antiphon.open(home, agents=[antiphon.Agent("support", runner=answer)]) as app:
            run = await (await (await app.sessions.open("chat", agent_id="support")).post("go")).wait()
            assert run.usage.output_tokens == 50 and run.usage.estimated_tokens == run.usage.total_tokens > 50


class TestFlow:
    async def test_a_runner_with_less_clearance_than_the_context_is_never_called(self, home: Path) -> None:
        called: list[str] = []

        async def answer(turn: antiphon.Turn) -> str:
            called.append(turn.text)
            return "done"

        found = await ask(
            home,
            answer,
            "go",
            classification={"level": "CONFIDENTIAL"},
            runner_clearance={"level": "INTERNAL"},
        )
        assert found[0].startswith("runner_clearance") and not called

    async def test_a_function_of_the_program_gets_nothing_above_what_it_may_have(self, home: Path) -> None:
        booked: list[object] = []

        async def answer(turn: antiphon.Turn) -> str:
            return (await turn.call("book", {"what": "x"}, run=booked.append)).text

        found = await ask(home, answer, "go", classification={"level": "CONFIDENTIAL"})
        assert not booked and "forbidden" in found[0]


class TestMissingRunners:
    @requirement("foreign_agents:1")
    async def test_a_home_without_its_code_leaves_the_runs_queued_until_it_is_there_or_forgotten(
        self, home: Path
    ) -> None:
        async def answer(turn: antiphon.Turn) -> str:
            return "here again"

        agent = antiphon.Agent("support", runner=answer)
        async with antiphon.open(home, agents=[agent]) as app:
            await (await (await app.sessions.open("chat", agent_id="support")).post("go")).wait()
        async with antiphon.open(home) as app:
            session = await app.sessions.get("chat")
            waiting = await session.post("wait for me")
            main = await (await (await app.sessions.open("other")).post("hello")).wait()
            assert main.status is antiphon.RunStatus.OK
            assert (await waiting.status()).status is antiphon.RunStatus.QUEUED
            status = await app.tools.call("session_status", session=session)
            assert status["problem"] == "runner_missing"
        async with antiphon.open(home, agents=[agent]) as app:
            runs = await app.runs.list()
            run = next(each for each in runs if each.id == waiting.id)
            assert (await app.run(run.id).wait()).reply == "here again"

    async def test_a_run_that_was_begun_waits_for_its_code_too(self, home: Path) -> None:
        is_in = asyncio.Event()

        async def forever(turn: antiphon.Turn) -> str:
            await turn.step("first", lambda: "kept")
            is_in.set()
            await asyncio.Event().wait()
            return "never"

        async def answer(turn: antiphon.Turn) -> str:
            return f"{await turn.step('first', lambda: 'made anew')}"

        config = Config.model_validate({"gateway": {"drain_seconds": 0}})
        async with antiphon.open(home, config=config, agents=[antiphon.Agent("support", runner=forever)]) as app:
            run = await (await app.sessions.open("chat", agent_id="support")).post("go")
            await is_in.wait()
        async with antiphon.open(home, config=config) as app:
            await (await (await app.sessions.open("other")).post("hello")).wait()
            assert not (await app.run(run.id).status()).status.is_terminal
        async with antiphon.open(home, config=config, agents=[antiphon.Agent("support", runner=answer)]) as app:
            assert _told(await app.run(run.id).wait()) == "kept"

    async def test_an_import_that_fails_names_its_line_and_other_agents_run(
        self, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "shop_broken.py").write_text("import os\n\nraise RuntimeError('no key')\n")
        monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
        config = Config.model_validate(
            {"agents": {"list": [{"id": "main"}, {"id": "support", "runner": "shop_broken:answer"}]}}
        )
        (error,) = find_runners(config.agent_map().values(), {}).missing.values()
        assert "shop_broken.py, line 3" in error.message and error.code == "runner_missing"
        async with antiphon.open(home, config=config) as app:
            run = await (await app.sessions.open("chat", agent_id="support")).post("go")
            assert (await (await (await app.sessions.open("other")).post("hi")).wait()).status is antiphon.RunStatus.OK
            assert (await run.status()).status is antiphon.RunStatus.QUEUED

    async def test_names_of_runners_that_cannot_be_found_say_what_to_do(self) -> None:
        for name in ("nothing.here:answer", "json:nothing", "json:__name__", "no-such-entry-point"):
            with pytest.raises(Invalid) as raised:
                find_runner(name)
            assert raised.value.code == "runner_missing"

    async def test_two_packages_may_not_offer_one_name(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for package in ("one", "two"):
            info = tmp_path / f"{package}-1.0.dist-info"
            info.mkdir()
            (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
            (info / "entry_points.txt").write_text("[antiphon.runners]\nhelp-desk = json:dumps\n")
        monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
        with pytest.raises(Invalid, match="one, two") as raised:
            find_runner("help-desk")
        assert raised.value.code == "duplicate_runner"
