"""Antiphon inside a Python program: reading live, and what goes wrong told as it is."""

import gc
from collections.abc import Generator
from contextlib import aclosing
from datetime import timedelta
from pathlib import Path
from typing import Any

import anyio
import pytest

import antiphon
from antiphon.testing import Reply, fake_provider
from tests.claims import requirement
from tests.postgres import fresh_database
from tests.waiting import SECONDS

pytestmark = [pytest.mark.anyio, requirement("cli:1")]


def now(city: str) -> str:
    """The weather in a city."""
    return f"Sunny in {city}"


async def said(run: antiphon.RunHandle) -> list[str]:
    """The text of each step, as the pieces of a stream make it."""
    texts: dict[int, str] = {}
    async for piece in run.stream():
        texts[piece.step] = piece.text if piece.is_restart else texts.get(piece.step, "") + piece.text
    return [text for text in texts.values() if text]


@pytest.mark.parametrize(
    "error", [ValueError("mine"), antiphon.NotFound("gone"), SystemExit(3), ExceptionGroup("mine", [ValueError("x")])]
)
async def test_an_exception_of_the_block_is_raised_as_itself(home: Path, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught:
        async with antiphon.open(home) as app:
            await app.sessions.open("one")
            raise error
    assert caught.value is error
    async with antiphon.open(home) as app:
        with pytest.raises(antiphon.NotFound):
            await app.sessions.get("nobody")
    with pytest.raises(antiphon.NotFound):
        async with antiphon.open(home) as app:
            await app.run("run_none").wait()


async def test_a_block_that_is_cancelled_ends_quietly(home: Path) -> None:
    with anyio.CancelScope() as scope:
        async with antiphon.open(home):
            scope.cancel()
            await anyio.sleep_forever()
    assert scope.cancelled_caught
    async with antiphon.open(home) as app:
        assert await app.sessions.list() == []


async def test_pieces_of_a_reply_make_its_text_while_it_is_written_and_later(home: Path) -> None:
    pieces = [f"word{number} " for number in range(200)]
    async with fake_provider([Reply(text=pieces)]) as provider:
        settings: dict[str, Any] = {
            "providers": {"fake": {"base_url": provider.base_url, "api_key": "k"}},
            "agents": {"defaults": {"model": "fake:model"}},
        }
        async with antiphon.open(home, config=antiphon.Config.model_validate(settings)) as app:
            session = await app.sessions.open("one")
            run = await session.post("hello")
            live = await said(run)
            reply = (await run.wait(SECONDS)).reply
            assert live == [reply] and reply == "".join(pieces)
            assert await said(run) == live == await said(app.run(run.id))


async def test_each_step_of_a_run_is_told_apart(home: Path) -> None:
    async with antiphon.open(home, tools=[antiphon.tool(now, effects=["reads"])]) as app:
        session = await app.sessions.open("one")
        run = await session.post('!call now {"city": "Rome"}\n!say done')
        assert (await said(run))[-1] == (await run.wait(timedelta(seconds=SECONDS))).reply == "done"
        events = await session.history(include_tools=True)
        messages = [event.message for event in events if event.message is not None]
        assert {message.role.value for message in messages} == {"user", "assistant", "toolResult"}
        assert "Sunny in Rome" in [message.text for message in messages]


async def test_a_log_is_followed_from_anywhere_and_left_at_any_time(home: Path) -> None:
    async with antiphon.open(home) as app:
        session = await app.sessions.open("one")
        first = await session.append("first")
        seen: list[str] = []
        async with anyio.create_task_group() as tasks:

            async def write() -> None:
                for text in ("second", "third"):
                    await session.append(text)

            async with aclosing(session.follow(after=first - 1)) as events:
                async for event in events:
                    if not seen:
                        tasks.start_soon(write)
                    seen += [] if event.message is None else [event.message.text]
                    if seen[-1:] == ["third"]:
                        break
        assert seen == ["first", "second", "third"]
        with pytest.raises(antiphon.Conflict) as wrong:
            await anext(session.follow(after=1000))
        assert wrong.value.code == "seq_out_of_range"


async def test_a_stream_that_is_left_half_read_costs_nothing_and_stops_nothing(home: Path) -> None:
    async with antiphon.open(home) as app:
        session = await app.sessions.open("one")
        run = await session.post("a reply of several words")
        async for _ in run.stream():
            break
        assert (await run.wait()).status is antiphon.RunStatus.OK
        gc.collect()
        with anyio.fail_after(SECONDS):
            while app.app.services.hub.readers:
                await anyio.lowlevel.checkpoint()
        events = session.follow(after=0)
        await anext(events)
    with pytest.raises(antiphon.Conflict, match=r"is closed.*inside the block"):
        async for _ in events:
            pass


async def test_a_call_after_the_block_says_that_it_has_ended(home: Path) -> None:
    async with antiphon.open(home) as app:
        session = await app.sessions.open("one")
        run = await session.post("hello")
        await run.wait()
    calls: list[Any] = [
        lambda: session.post("more"),
        lambda: session.history(),
        lambda: run.wait(),
        lambda: anext(run.stream()),
        lambda: anext(session.follow()),
        lambda: app.sessions.list(),
        lambda: app.search("hello"),
        lambda: app.tools.call("session_status", session=session),
    ]
    for call in calls:
        with pytest.raises(antiphon.Conflict) as caught:
            await call()
        assert caught.value.code == "closed" and "inside the block" in caught.value.message


async def test_a_home_that_is_open_in_this_program_is_not_opened_again(home: Path) -> None:
    async with antiphon.open(home) as app:
        with pytest.raises(antiphon.Conflict) as caught:
            async with antiphon.open(home):
                raise AssertionError("opened twice")
        assert caught.value.code == "home_open" and "share" in caught.value.message
        assert (await (await (await app.sessions.open("one")).post("hello")).wait()).reply
    async with antiphon.open(home):
        pass


@pytest.fixture
def server() -> Generator[str]:
    with fresh_database() as url:
        yield url


async def test_a_home_with_a_database_of_its_own_and_one_with_a_server_are_open_together(
    home: Path, server: str
) -> None:
    shared = antiphon.Config.model_validate({"database": {"url": server}})
    async with antiphon.open(home, config=shared), antiphon.open(home) as own:
        assert await own.sessions.list() == []
    async with antiphon.open(home):
        async with antiphon.open(home, config=shared):
            pass
        with pytest.raises(antiphon.Conflict) as caught:
            async with antiphon.open(home):
                raise AssertionError("opened twice")
        assert caught.value.code == "home_open"


async def test_a_timeout_is_seconds_or_a_timedelta(home: Path) -> None:
    async with antiphon.open(home) as app:
        run = await (await app.sessions.open("one")).post("!sleep 60")
        for timeout in (0, 0.01, timedelta(milliseconds=1)):
            with pytest.raises(TimeoutError, match="continues"):
                await run.wait(timeout)
        for wrong in (-1, float("nan"), timedelta(seconds=-1)):
            with pytest.raises(antiphon.Invalid, match="seconds"):
                await run.wait(wrong)
        await run.cancel()


async def test_a_function_without_types_is_refused_with_a_sentence(home: Path) -> None:
    untyped: Any = eval("lambda city: city")  # a function as an untyped program writes it
    untyped.__name__ = "untyped"
    with pytest.raises(antiphon.Invalid, match=r"'city' of 'untyped'. Write its type, such as `city: str`."):
        async with antiphon.open(home, tools=[untyped]):
            raise AssertionError("opened")


async def test_a_program_changes_searches_forks_and_pages(home: Path) -> None:
    async with antiphon.open(home) as app:
        session = await app.sessions.open("one")
        assert (await session.change(label="Die MÜLLERIN", thinking_level="low")).label == "Die MÜLLERIN"
        for wrong in ({"labl": "x"}, {"model": "nobody:none"}, {"label": "a\nb"}):
            with pytest.raises(antiphon.Invalid):
                await session.change(**wrong)  # type: ignore[arg-type]
        run = await session.post("the needle")
        await run.wait()
        with anyio.fail_after(SECONDS):
            while await app.app.services.search.lag():
                await anyio.lowlevel.checkpoint()
        found = await app.search("needle", limit=1)
        assert found.next is not None and found.hits[0].session_key.value == session.key
        older = await app.search("needle", limit=1, before=found.next)
        assert older.hits[0].seq < found.hits[0].seq
        assert [each.key.value for each in (await app.search_names("müllerin")).sessions] == [session.key]
        copy = await session.fork()
        assert next(event.message.text for event in await copy.history() if event.message) == "the needle"
        newest, *_ = await app.sessions.list(limit=1)
        (other,) = await app.sessions.list(limit=1, after=newest)
        assert {newest.key.value, other.key.value} == {session.key, copy.key}
        assert [each.id for each in await app.runs.list(session=session.key)] == [run.id]
        assert (await session.tree()).members and (await app.sessions.trees()).members
        assert (await app.who()).total == 0 and await app.deliveries.list() == []
        assert (await session.cancel()).run_id is None
