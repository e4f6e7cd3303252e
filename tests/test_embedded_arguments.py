"""Arguments of the library that no database can hold: every member refuses them by name."""

import inspect
from collections.abc import Callable, Mapping
from contextlib import aclosing
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import anyio
import pytest

import antiphon
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.embedded.arguments import JUDGED_BY_TOOLS
from tests.claims import requirement
from tests.waiting import SECONDS

pytestmark = [pytest.mark.anyio, requirement("cli:1")]

HALF = "half \ud83d"
CLASSES = (
    antiphon.Antiphon,
    antiphon.SessionHandles,
    antiphon.SessionHandle,
    antiphon.RunHandles,
    antiphon.RunHandle,
    antiphon.DeliveryHandles,
    antiphon.TaskHandles,
    antiphon.Tools,
)


def parameters(method: Callable[..., Any]) -> Mapping[str, object]:
    """The parameters of a method with what is known of their types; a group of named ones counts as each of them."""
    found = {name: each.annotation for name, each in inspect.signature(method).parameters.items() if name != "self"}
    if "changes" in found:
        return dict.fromkeys(antiphon.SessionChanges.__annotations__)
    if found.pop("fields", None) is not None:
        found |= dict.fromkeys(antiphon.TaskFields.__annotations__)
    return found


MEMBERS = [
    (kind, name, parameter, annotation)
    for kind in CLASSES
    for name, method in inspect.getmembers(kind, inspect.isfunction)
    if not name.startswith("_")
    for parameter, annotation in parameters(method).items()
    if parameter != JUDGED_BY_TOOLS
]


class Library:
    """An open home, and valid arguments for each call on it."""

    def __init__(self, app: antiphon.Antiphon, session: antiphon.SessionHandle, run: antiphon.RunHandle) -> None:
        self._objects = (app, app.sessions, session, app.runs, run, app.deliveries, app.tasks, app.tools)
        self._needed = {
            "text": "hello",
            "name": "session_status",
            "session": session.key,
            "run_id": run.id,
            "delivery_id": "dlv_none",
            "query": "word",
            "task_id": "task-none",
        }

    async def call(self, kind: type, member: str, /, **arguments: object) -> None:
        """Calls the member with these arguments, and others as it needs them; reads one item of a stream."""
        (holder,) = (each for each in self._objects if type(each) is kind)
        method = getattr(holder, member)
        needed = {
            each.name: self._needed[each.name]
            for each in inspect.signature(method).parameters.values()
            if each.default is each.empty and each.kind is not each.VAR_KEYWORD
        }
        made = method(**{**needed, **arguments})
        if inspect.isasyncgen(made):
            async with aclosing(made):
                with anyio.move_on_after(0):
                    await anext(made, None)
        elif inspect.isawaitable(made):
            await made


@pytest.fixture
def config(database_section: DatabaseSection) -> Config:
    return Config(database=database_section)


def test_every_member_with_parameters_is_here() -> None:
    assert len(MEMBERS) > 60 and {kind for kind, *_ in MEMBERS} == set(CLASSES)


async def test_no_member_takes_what_no_database_holds(home: Path, config: Config) -> None:
    async with antiphon.open(home, config=config) as app:
        session = await app.sessions.open("one")
        run = await session.post("hello")
        await run.wait()
        library = Library(app, session, run)
        before = (await session.status()).last_seq
        for kind, name, parameter, _ in MEMBERS:
            for value in (HALF, (HALF,), {"a": [HALF]}, {HALF: 1}, {"a": 2**64}, 2**63, -(2**63) - 1, [-(2**63) - 1]):
                with pytest.raises(antiphon.Invalid) as caught:
                    await library.call(kind, name, **{parameter: value})
                caught.value.message.encode()
                assert f"'{parameter}" in caught.value.message, (kind, name, parameter, value)
        assert (await session.status()).last_seq == before


async def test_numbers_of_any_size_have_an_answer(home: Path, config: Config) -> None:
    async with antiphon.open(home, config=config) as app:
        session = await app.sessions.open("one")
        run = await session.post("hello")
        await run.wait()
        library = Library(app, session, run)
        for kind, name, parameter, annotation in MEMBERS:
            for value in (2**63 - 1, 0, -1, -(2**63)) if "int" in str(annotation) else ():
                try:
                    with anyio.fail_after(SECONDS):
                        await library.call(kind, name, **{parameter: value})
                except antiphon.AntiphonError as error:
                    assert error.message, (kind, name, parameter, value)
        assert [found.key.value for found in await app.sessions.list(active=timedelta.max)] == [session.key]


async def test_parts_and_times_are_checked_within(home: Path, config: Config) -> None:
    async with antiphon.open(home, config=config) as app:
        session = await app.sessions.open("one", metadata={"id": 2**63 + 1, "text": "a\0b"})
        assert (await session.status()).metadata == {"id": 2**63 + 1, "text": "a\0b"}
        for part in (antiphon.TextPart(text=HALF), antiphon.TextPart(text="x", provider={"sign": HALF})):
            with pytest.raises(antiphon.Invalid, match=r"'text\.0\.(text|provider\.sign)' holds half"):
                await session.append((part,))
        endless: dict[str, Any] = {}
        endless["self"] = endless
        with pytest.raises(antiphon.Invalid, match="'metadata' holds more than"):
            await app.sessions.open("one", metadata=endless)
        for moment in (
            datetime(2026, 1, 1),
            datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
            datetime.min.replace(tzinfo=UTC),
        ):
            with pytest.raises(antiphon.Invalid, match="'occurred_at' is not a moment"):
                await session.append("then", occurred_at=moment)
        assert await session.history() == []
        await session.append("then", occurred_at=datetime(1850, 1, 1, tzinfo=UTC))
        assert [event.message.text for event in await session.history() if event.message] == ["then"]


def repeat(text: str, times: int = 1) -> str:
    """The text, repeated."""
    return text * times


@pytest.mark.parametrize("name", ["sessions_history", "repeat"])
@pytest.mark.parametrize("value", [HALF, 2**63, 2**70, -(2**70)])
async def test_a_tool_says_itself_what_is_wrong_with_its_arguments(
    home: Path, config: Config, name: str, value: Any
) -> None:
    async with antiphon.open(home, config=config, tools=[antiphon.tool(repeat, effects=["reads"])]) as app:
        session = await app.sessions.open("one")
        arguments = {"sessions_history": {"sessionKey": value}, "repeat": {"text": value}}[name]
        answer = await app.tools.call(name, arguments, session=session)
        assert answer["status"] == "error" or (name, value) == ("repeat", HALF)
