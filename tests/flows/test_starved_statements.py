"""A disk that is full at one statement, whichever that is: nothing is lost, nothing is done twice, and it passes."""

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import TypeVar

import anyio
import pytest

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Unavailable
from antiphon.domain.event import Event
from antiphon.domain.message import AssistantMessage, ToolResult, UserMessage, text_content, text_of
from antiphon.domain.run import RunStatus
from antiphon.engine.ledger.run_log import OUTCOME_UNKNOWN
from antiphon.store.database import SqlValue
from antiphon.store.sqlite import Cursor, SqliteConnection, connect_sqlite
from tests.claims import requirement
from tests.directives import to_call, to_send, to_spawn
from tests.story import LONGEST_STORY_SECONDS, Character, Story, settings

pytestmark = pytest.mark.anyio

T = TypeVar("T")

AT_ONCE = 8
SPARSE = 11
"""Every so manieth statement is tried in the short form."""
OF_EACH_KIND = 4
"""So many more of each kind are tried, because a few kinds are rare."""
UNDOING = ("ROLLBACK", "PRAGMA")
"""Statements that need no room."""


class Disk:
    """Has no room for one statement, of all connections together; the next ones work again."""

    def __init__(self, full_at: int) -> None:
        self.kinds: list[str] = []
        """The first words of the statements since the story began, in their order."""
        self.failed: str | None = None
        self._full_at = full_at
        self._is_watched = False
        self._lock = Lock()

    def connect(self, path: Path) -> SqliteConnection:
        return _Connection(connect_sqlite(path), self)

    def watch(self) -> None:
        self._is_watched = True

    def check(self, statement: str) -> None:
        if not self._is_watched or statement.startswith(UNDOING):
            return
        with self._lock:
            self.kinds.append(statement.split()[0])
            if len(self.kinds) != self._full_at:
                return
        self.failed = statement
        error = sqlite3.OperationalError("database or disk is full")
        error.sqlite_errorcode = sqlite3.SQLITE_FULL
        raise error


class _Connection:
    def __init__(self, connection: SqliteConnection, disk: Disk) -> None:
        self._connection = connection
        self._disk = disk

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def execute(self, statement: str, parameters: Sequence[SqlValue] = (), /) -> Cursor:
        self._disk.check(statement)
        return self._connection.execute(statement, parameters)

    def close(self) -> None:
        self._connection.close()


async def insist(call: Callable[[], Awaitable[T]]) -> T:
    """What a client does that is told the disk is full: it asks again, with the same message id."""
    while True:
        try:
            return await call()
        except Unavailable as error:
            assert error.code == "disk_full" and "Free some space" in error.message
            await anyio.sleep(0.02)


async def tell(home: Path, disk: Disk) -> None:
    """A turn with an effect, a message to another session and a child; then another turn."""
    noted: list[str] = []

    async def note(text: str) -> str:
        """Writes the text down."""
        noted.append(text)
        return "noted"

    async with open_app(home, settings(), Parts(tools=[note], connect=disk.connect)) as app:
        story = Story(app)
        desk, peer = await story.opens("desk"), await story.opens("peer")
        lines = (
            to_call("note", text="tea"),
            to_send("a word", label="peer", timeoutSeconds=0),
            to_spawn("!say grown up", label="child"),
            "!say done",
        )
        disk.watch()
        with anyio.fail_after(LONGEST_STORY_SECONDS):
            first = await insist(lambda: post(app, desk, "one", *lines))
            again = await insist(lambda: post(app, desk, "one", *lines))
            assert first == again
            await insist(story.settles)
            await insist(lambda: post(app, desk, "two", "!say more"))
            await insist(story.settles)
            runs, log, heard = await insist(story.runs), await insist(desk.log), await insist(peer.log)
        assert app.database.failure is None and app.database.trouble is None
    assert {run.status for run in runs} == {RunStatus.OK}
    for events in (log, heard):
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
    said = texts(log, AssistantMessage)
    assert said.count("done") == said.count("more") == 1
    results = {
        event.message.tool: text_of(event.message.content) for event in log if isinstance(event.message, ToolResult)
    }
    assert results.keys() == {"note", "sessions_send", "sessions_spawn"}
    # A tool that found no room has done nothing, and its model is told so.
    assert noted == ["tea"] or (noted == [] and results["note"] == OUTCOME_UNKNOWN)
    sent = [text for text in texts(heard, UserMessage) if "a word" in text]
    assert len(sent) == ("disk_full" not in results["sessions_send"])
    told = [text for text in texts(log, UserMessage) if "grown up" in text and "!call" not in text]
    assert len(told) == ("disk_full" not in results["sessions_spawn"])


async def post(app: App, character: Character, message_id: str, *lines: str) -> str | None:
    content = text_content("\n".join(lines))
    return (await app.services.inbox.post(OWNER, character.target, content, message_id=message_id)).run_id


def texts(events: Sequence[Event], kind: type[UserMessage | AssistantMessage | ToolResult]) -> list[str]:
    return [text_of(event.message.content) for event in events if isinstance(event.message, kind)]


@requirement("runs:8", "sessions:4")
async def test_a_disk_that_is_full_at_one_statement_loses_nothing_and_repeats_nothing(
    tmp_path: Path, *, is_soak: bool
) -> None:
    undisturbed = Disk(0)
    await tell(tmp_path / "0", undisturbed)
    step = 1 if is_soak else SPARSE
    failed: list[str] = []
    tried = numbers_of(undisturbed.kinds, step)
    numbers = iter(tried)

    async def tell_some() -> None:
        for number in numbers:
            disk = Disk(number)
            try:
                await tell(tmp_path / str(number), disk)
            except BaseException as error:
                error.add_note(f"full at statement {number}: {disk.failed}")
                raise
            if disk.failed is not None:
                failed.append(disk.failed)

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(tell_some)
    print(f"full at {len(failed)} statements of {len(undisturbed.kinds)}")
    kinds = {statement.split()[0] for statement in failed}
    assert len(failed) > 0.6 * len(tried)  # stories told at once may take fewer statements
    assert {"INSERT", "UPDATE", "SELECT"} <= kinds and kinds & {"BEGIN", "COMMIT"}


def numbers_of(kinds: Sequence[str], step: int) -> Sequence[int]:
    """Every so manieth statement from 1 on, and a few of each kind, in their order."""
    numbers = set(range(1, len(kinds) + 1, step))
    for kind in set(kinds):
        of_kind = [number for number, each in enumerate(kinds, 1) if each == kind]
        numbers.update(of_kind[:: max(1, len(of_kind) // OF_EACH_KIND)][:OF_EACH_KIND])
    return sorted(numbers)
