"""Readers of a log: what each costs is bounded, however many there are, however long it is. Contract: gateway 1."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager

import anyio
import pytest
from anyio.streams.memory import MemoryObjectReceiveStream
from msgspec.structs import replace

from antiphon.building import App
from antiphon.clock import SystemClock
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.delay import Delta
from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import RunId, SessionRow
from antiphon.domain.message import text_content
from antiphon.domain.session import Session
from antiphon.feed.follow import MAX_PENDING_LENGTH, DecideAnew, LogLost, LogSlice, Permit, ReaderEnded, View
from antiphon.gateway.sse import message_view
from antiphon.policy.reach import Grant
from antiphon.policy.system import system_grant
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio


class CountingClock(SystemClock):
    """Counts how often it is asked for the time: a reader asks once each time that it is woken."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def monotonic(self) -> float:
        self.asked += 1
        return super().monotonic()


@requirement("gateway:1")
async def test_a_crowd_that_subscribes_is_not_woken_for_each_newcomer(open_home: OpenHome) -> None:
    crowd = 200
    async with open_home() as app, anyio.create_task_group() as tasks:
        services = app.services
        opened = await services.sessions.open(OWNER, services.sessions.target("api:crowd"))
        session = opened.session
        clock = services.hub.clock = CountingClock()

        async def follow(*, task_status: anyio.abc.TaskStatus[None]) -> None:
            view = message_view(services.names, include_tools=False)
            async with services.hub.follow(
                Permit(system_grant(session.row)), session.last_seq, view, on_stall=lambda: None
            ) as reader:
                task_status.started()
                await reader.next()

        with anyio.fail_after(SECONDS):
            for _ in range(crowd):
                await tasks.start(follow)
                await services.history.read_logs({session.row: 0})  # a hop: what was marked was read meanwhile
        assert clock.asked < 10 * crowd
        tasks.cancel_scope.cancel()


KIBIBYTE = 1024


async def append_all(app: App, name: str, texts: Sequence[str]) -> Session:
    """The session, with a message of each text."""
    target = app.services.sessions.target(name)
    await app.services.sessions.open(OWNER, target)
    async with anyio.create_task_group() as tasks:
        for text in texts:
            tasks.start_soon(app.services.inbox.append, OWNER, target, text_content(text))
    return (await app.services.sessions.get(OWNER, target)).session


async def frames_of(app: App, session: Session) -> list[bytes]:
    """All frames that a reader is given who begins at the beginning."""
    frames: list[bytes] = []
    view = message_view(app.services.names, include_tools=False)
    with anyio.fail_after(SECONDS):
        async with app.services.hub.follow(Permit(system_grant(session.row)), 0, view, on_stall=lambda: None) as reader:
            while reader.cursor < session.last_seq:
                frames.append(await reader.next())
    return frames


@requirement("gateway:1")
async def test_a_reader_is_given_no_more_at_once_than_it_can_take(open_home: OpenHome) -> None:
    size, count = 20 * KIBIBYTE, 100
    async with open_home() as app, anyio.create_task_group() as tasks:
        session = await append_all(app, "api:long", [f"{number} ".ljust(size, "x") for number in range(count)])
        view = message_view(app.services.names, include_tools=False)
        # Somebody who never reads keeps the session followed, so that the others find a tail in memory.
        await tasks.start(keep_following, app, session, view)
        first = await frames_of(app, session)
        late = await frames_of(app, session)
        assert b"".join(first) == b"".join(late)
        assert b"".join(late).count(b"event: message") == count
        assert max(map(len, (*first, *late))) < 2 * 256 * KIBIBYTE + 2 * size
        tasks.cancel_scope.cancel()


async def keep_following(app: App, session: Session, view: View, *, task_status: anyio.abc.TaskStatus[None]) -> None:
    async with app.services.hub.follow(Permit(system_grant(session.row)), 0, view, on_stall=lambda: None):
        task_status.started()
        await anyio.sleep_forever()


@requirement("gateway:1")
async def test_one_look_at_a_log_reads_so_many_events_and_bytes_and_no_more(open_home: OpenHome) -> None:
    async with open_home() as app:
        many = await append_all(app, "api:many", [str(number) for number in range(600)])
        large = await append_all(app, "api:large", ["x" * 100 * KIBIBYTE] * 5)
        slices = await app.services.history.read_logs({many.row: 0, large.row: 0})
        assert [event.seq for event in slices[many.row].events] == list(range(1, 501))
        assert [event.seq for event in slices[large.row].events] == [1, 2, 3, 4]
        assert slices[many.row].last_seq == 601


class Line:
    """A connection that notes what is written to it."""

    def __init__(self) -> None:
        self.is_writable = True
        self.is_torn = False
        self.frames: list[bytes] = []
        self.came = anyio.Event()

    def write(self, frames: bytes) -> None:
        if self.is_torn:
            raise RuntimeError("torn")
        self.frames.append(frames)
        self.came.set()

    async def holds(self, text: bytes) -> None:
        with anyio.fail_after(SECONDS):
            while not any(text in frame for frame in self.frames):
                self.came = anyio.Event()
                await self.came.wait()


@asynccontextmanager
async def on_line(
    app: App, session: Session, decide_anew: DecideAnew | None = None
) -> AsyncGenerator[tuple[Line, MemoryObjectReceiveStream[bytes]]]:
    """A reader that is at the end of the log, its connection, and what its task is given."""
    line, grant = Line(), system_grant(session.row)
    send, receive = anyio.create_memory_object_stream[bytes](10)
    view = message_view(app.services.names, include_tools=False)

    async def read(*, task_status: anyio.abc.TaskStatus[None]) -> None:
        following = app.services.hub.follow(
            Permit(grant, decide_anew), session.last_seq, view, on_stall=lambda: None, outlet=line
        )
        async with following as reader:
            task_status.started()
            while True:
                await send.send(await reader.next())

    async with anyio.create_task_group() as tasks, send, receive:
        await tasks.start(read)
        await anyio.wait_all_tasks_blocked()
        yield line, receive
        tasks.cancel_scope.cancel()


@requirement("gateway:1", "gateway:5")
async def test_what_is_new_goes_to_the_connection_while_the_task_of_its_reader_sleeps(open_home: OpenHome) -> None:
    async with open_home() as app:
        session = await append_all(app, "api:one", ["before"])
        async with on_line(app, session) as (line, given):
            for text in ("first", "second", "third"):
                await append_all(app, "api:one", [text])
                await line.holds(text.encode())
            assert b"".join(line.frames).count(b"event: message") == 3
            with pytest.raises(anyio.WouldBlock):
                given.receive_nowait()


@requirement("gateway:5")
async def test_a_connection_that_is_full_gets_nothing_more_and_its_task_gets_the_rest(open_home: OpenHome) -> None:
    async with open_home() as app:
        session = await append_all(app, "api:one", ["before"])
        async with on_line(app, session) as (line, given):
            line.is_writable = False
            await append_all(app, "api:one", ["first"])
            with anyio.fail_after(SECONDS):
                assert b"first" in await given.receive()
            assert line.frames == []


@requirement("gateway:5")
async def test_large_news_goes_through_the_task_which_sends_it_in_pieces(open_home: OpenHome) -> None:
    async with open_home() as app:
        session = await append_all(app, "api:one", ["before"])
        async with on_line(app, session) as (line, given):
            await append_all(app, "api:one", ["x" * 100 * KIBIBYTE])
            with anyio.fail_after(SECONDS):
                assert len(await given.receive()) > 100 * KIBIBYTE
            assert line.frames == []


@requirement("gateway:5", "access:5")
async def test_once_rights_have_changed_a_connection_gets_nothing_before_it_is_decided_anew(
    open_home: OpenHome,
) -> None:
    lines: list[Line] = []

    async def refuse() -> None:
        return None

    async with open_home() as app:
        session = await append_all(app, "api:one", ["before"])
        with pytest.RaisesGroup(ReaderEnded):
            async with on_line(app, session, refuse) as (line, _):
                lines.append(line)
                app.services.hub.rights_changed += 1
                await append_all(app, "api:one", ["secret"])
                with anyio.fail_after(SECONDS):
                    await anyio.sleep_forever()
    assert [line.frames for line in lines] == [[]]


@requirement("gateway:5")
async def test_a_connection_that_fails_ends_its_own_reader_and_no_other(open_home: OpenHome) -> None:
    async with open_home() as app:
        session = await append_all(app, "api:one", ["before"])
        async with on_line(app, session) as (line, _):
            with pytest.RaisesGroup(RuntimeError):
                async with on_line(app, session) as (torn, _):
                    torn.is_torn = True
                    await append_all(app, "api:one", ["first"])
                    with anyio.fail_after(SECONDS):
                        await anyio.sleep_forever()
            await append_all(app, "api:one", ["second"])
            await line.holds(b"second")


@requirement("access:2", "gateway:5")
async def test_a_reader_that_ends_while_it_reads_the_log_gets_nothing_more(open_home: OpenHome) -> None:
    async with open_home() as app, anyio.create_task_group() as tasks:
        session = await append_all(app, "api:one", ["x" * 600 * KIBIBYTE] * 3)
        hub = app.services.hub
        view = message_view(app.services.names, include_tools=False)
        await tasks.start(keep_following, app, session, view)
        await frames_of(app, session)  # the tail begins above the first message from now on
        read_logs = hub.read_logs

        async def read(cursors: Mapping[SessionRow, int]) -> Mapping[SessionRow, LogSlice]:
            found = await read_logs(cursors)
            if cursors.get(session.row) == 0:
                reader.end("revoked")
            return found

        hub.read_logs = read
        async with hub.follow(Permit(system_grant(session.row)), 0, view, on_stall=lambda: None) as reader:
            with anyio.fail_after(SECONDS), pytest.raises(ReaderEnded):
                await reader.next()
        tasks.cancel_scope.cancel()


@requirement("flow:3")
async def test_a_piece_that_comes_while_a_reader_is_decided_anew_needs_its_new_clearance(open_home: OpenHome) -> None:
    async with open_home() as app:
        session = await append_all(app, "api:one", ["before"])
        hub = app.services.hub
        low = replace(system_grant(session.row), clearance=PUBLIC)
        secret = Delta(RunId("run_x"), session.last_seq, "secret", Classification(Level.CONFIDENTIAL))

        async def decide() -> Grant:
            hub.publish_delta(session.row, secret)
            return low

        async with on_line(app, session, decide) as (line, given):
            hub.rights_changed += 1
            await append_all(app, "api:one", ["after"])
            with anyio.fail_after(SECONDS):
                assert b"secret" not in await given.receive()
            await append_all(app, "api:one", ["later"])
            await line.holds(b"later")
            assert not any(b"secret" in frame for frame in line.frames)


BUSY = Unavailable("Store is busy.", code="store_busy")


@requirement("gateway:1", "gateway:5")
async def test_a_reader_goes_on_once_the_store_answers_again(open_home: OpenHome) -> None:
    failures = [BUSY, BUSY]

    async def decide() -> Grant:
        if failures:
            raise failures.pop()
        return system_grant(session.row)

    async with open_home() as app:
        session = await append_all(app, "api:one", ["before"])
        async with on_line(app, session, decide) as (line, given):
            app.services.hub.rights_changed += 1
            await append_all(app, "api:one", ["after"])
            with anyio.fail_after(SECONDS):
                assert b"after" in await given.receive()
            await append_all(app, "api:one", ["later"])
            await line.holds(b"later")


@requirement("gateway:1", "gateway:5")
async def test_a_reader_that_fell_behind_waits_for_a_store_that_does_not_answer(open_home: OpenHome) -> None:
    async with open_home() as app, anyio.create_task_group() as tasks:
        session = await append_all(app, "api:one", ["x" * 600 * KIBIBYTE] * 3)
        hub = app.services.hub
        view = message_view(app.services.names, include_tools=False)
        await tasks.start(keep_following, app, session, view)
        await frames_of(app, session)  # the tail begins above the first message from now on
        failures, read_logs = [BUSY], hub.read_logs

        async def read(cursors: Mapping[SessionRow, int]) -> Mapping[SessionRow, LogSlice]:
            if failures and set(cursors.values()) == {0}:
                raise failures.pop()
            return await read_logs(cursors)

        hub.read_logs = read
        assert b"".join(await frames_of(app, session)).count(b"event: message") == 3
        assert failures == []
        tasks.cancel_scope.cancel()


@requirement("gateway:1", "sessions:7", "gateway:5")
async def test_one_who_does_not_read_keeps_nobody_from_a_session_that_was_deleted_and_made_anew(
    open_home: OpenHome,
) -> None:
    async with open_home() as app, anyio.create_task_group() as tasks:
        session = await append_all(app, "api:one", ["before"])
        view = message_view(app.services.names, include_tools=False)
        await tasks.start(keep_following, app, session, view)
        async with app.services.hub.follow(
            Permit(system_grant(session.row)), session.last_seq, view, on_stall=lambda: None
        ) as reader:
            await app.services.sessions.delete(OWNER, app.services.sessions.target("api:one"))
            with anyio.fail_after(SECONDS), pytest.raises(LogLost):
                await reader.next()
        anew = await append_all(app, "api:one", ["after"])
        assert anew.row == session.row
        async with on_line(app, anew) as (line, _):
            await append_all(app, "api:one", ["later"])
            await line.holds(b"later")
        tasks.cancel_scope.cancel()


@requirement("gateway:1")
async def test_what_is_held_begins_again_with_the_response_and_is_bounded(open_home: OpenHome) -> None:
    async with open_home() as app:
        session = await append_all(app, "api:one", ["before"])
        hub, run = app.services.hub, RunId("run_x")
        held = hub.hold(session.row)
        for piece in ("x" * MAX_PENDING_LENGTH, "lost", None, "again"):
            hub.publish_delta(session.row, Delta(run, session.last_seq, piece, PUBLIC))

        def encode_delta(run: RunId, text: str | None) -> bytes:
            return b"(reset)" if text is None else text.encode()

        view = replace(message_view(app.services.names, include_tools=False), encode_delta=encode_delta)
        permit = Permit(system_grant(session.row), held=held)
        async with hub.follow(permit, session.last_seq, view, on_stall=lambda: None) as reader:
            with anyio.fail_after(SECONDS):
                assert await reader.next() == b"(reset)again"
        assert held.take() == []
