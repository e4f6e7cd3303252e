"""A large fork is made in pages: other units are stored between them, and nobody sees it before it is whole."""

from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar, TypeVarTuple

import anyio
import pytest
from msgspec.structs import replace

from antiphon.building import App
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import PUBLIC
from antiphon.domain.errors import AntiphonError, Conflict, Denied, NotFound, Unavailable
from antiphon.domain.event import Event, EventType, NewEvent
from antiphon.domain.ids import MessageId, ProcessId, SessionId, SessionRow
from antiphon.domain.message import Provenance, ProvenanceKind, UserMessage, text_content
from antiphon.domain.person import PersonRole, person_of
from antiphon.domain.session import Session
from antiphon.engine.sessions import forks
from antiphon.engine.sessions.forks import PAGE_BYTES, Forks, ForkSession, fork_session
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.store import events as log
from antiphon.store import sessions as rows
from antiphon.store.database import Database, Named, Query, Row, SqlValue, Transaction
from antiphon.store.events import Addition
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import (
    ask,
    config,
    find_session,
    open_session,
    post,
    read_log,
    texts,
    until_indexed,
    wait_end,
)
from tests.waiting import SECONDS

pytestmark = pytest.mark.anyio

R = TypeVar("R")
Ts = TypeVarTuple("Ts")
MESSAGES = 12
MESSAGE_BYTES = 300_000
MOST_MOMENTS = 40
SHARE = 20_000_000
LATE = "said while it was copied"


class Death(Exception):
    """Stands for the end of the process: nothing is done after it."""


class WatchedDatabase:
    """Calls `before` with the name of each unit, and notes how many bytes each one writes."""

    def __init__(self, database: Database, before: Callable[[str], Awaitable[None]]) -> None:
        self._database = database
        self._before = before
        self.written: list[tuple[str, int]] = []

    @property
    def failure(self) -> Unavailable | None:
        return self._database.failure

    @property
    def trouble(self) -> Unavailable | None:
        return self._database.trouble

    async def run(
        self,
        unit: Callable[[Transaction, *Ts], Coroutine[Any, Any, R]],
        *arguments: *Ts,
        sessions: Sequence[Named] = (),
    ) -> R:
        await self._before(unit.__name__)

        async def weighed(tx: Transaction) -> tuple[R, int]:
            weighing = _Weighing(tx)
            return await unit(weighing, *arguments), weighing.size

        result, size = await self._database.run(weighed, sessions=sessions)
        self.written.append((unit.__name__, size))
        return result

    async def read(self, query: Callable[[Query, *Ts], Coroutine[Any, Any, R]], *arguments: *Ts) -> R:
        return await self._database.read(query, *arguments)

    async def close(self) -> None:
        await self._database.close()


class _Weighing:
    """A transaction that adds up the texts that it is given to store."""

    def __init__(self, tx: Transaction) -> None:
        self._tx = tx
        self.size = 0
        self.wake, self.dispatch, self.interrupt = tx.wake, tx.dispatch, tx.interrupt
        self.attempt, self.keep, self.hold = tx.attempt, tx.keep, tx.hold
        self.now_ms, self.now, self.request_id = tx.now_ms, tx.now, tx.request_id
        self.process = tx.process
        self.new_id, self.random_hex = tx.new_id, tx.random_hex

    async def fetch_one(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        self._weigh(parameters)
        return await self._tx.fetch_one(statement, parameters)

    async def fetch_held(self, statement: str, parameters: Sequence[SqlValue] = ()) -> Row | None:
        return await self._tx.fetch_held(statement, parameters)

    async def fetch_all(self, statement: str, parameters: Sequence[SqlValue] = ()) -> list[Row]:
        return await self._tx.fetch_all(statement, parameters)

    async def execute(self, statement: str, parameters: Sequence[SqlValue] = ()) -> None:
        self._weigh(parameters)
        await self._tx.execute(statement, parameters)

    async def change(self, statement: str, parameters: Sequence[SqlValue] = ()) -> int:
        self._weigh(parameters)
        return await self._tx.change(statement, parameters)

    def _weigh(self, parameters: Sequence[SqlValue]) -> None:
        self.size += sum(len(value) for value in parameters if isinstance(value, str))


async def add_messages(tx: Transaction, session: SessionRow, incarnation: SessionId, given: Sequence[str]) -> None:
    external = Provenance(kind=ProvenanceKind.EXTERNAL)
    events = [
        NewEvent(
            EventType.USER_MESSAGE,
            str(OWNER),
            PUBLIC,
            None,
            UserMessage(message_id=MessageId(f"m{number}"), content=text_content(text), provenance=external),
        )
        for number, text in enumerate(given)
    ]
    addition = Addition(
        incarnation=incarnation, events=events, at_ms=1_800_000_000_000, add={"message_count": len(events)}
    )
    await log.append(tx, session, addition)


async def large(app: App, name: str, *, size: int = MESSAGE_BYTES) -> Session:
    """A session with several pages of messages, each with a word of its own."""
    session = await open_session(app, name)
    given = [f"needle n{number} " + "word " * (size // 5) for number in range(MESSAGES)]
    await app.database.run(add_messages, session.row, SessionId(session.id), given)
    return await find_session(app, name)


def in_pages(
    app: App, before: Callable[[str], Awaitable[None]], process: str = "proc_test"
) -> tuple[Forks, WatchedDatabase]:
    database = WatchedDatabase(app.database, before)
    services = app.services
    return Forks(database, services.rules, services.ids, process=ProcessId(process)), database


async def stored(app: App) -> dict[str, list[Row]]:
    """All that a fork adds to, but for tombstones."""
    statements = {
        "sessions": "SELECT * FROM sessions WHERE deleted_at IS NULL ORDER BY id",
        "incarnations": "SELECT * FROM incarnations ORDER BY id",
        "participants": "SELECT * FROM participants ORDER BY session, principal",
        "events": "SELECT session, seq FROM events ORDER BY session, seq",
        "copies": "SELECT * FROM copies_under_way",
    }

    async def read(query: Query) -> dict[str, list[Row]]:
        return {name: await query.fetch_all(statement) for name, statement in statements.items()}

    return await app.database.read(read)


async def invite(app: App) -> Principal:
    return (await app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal


def shape(events: list[Event]) -> list[Event]:
    """Without what differs between two copies."""
    return [replace(event, session=SessionRow(0), session_id=SessionId("")) for event in events if event.seq > 1]


async def nothing(name: str) -> None:
    return


@requirement("sessions:8")
async def test_a_fork_in_pages_is_what_one_unit_makes(open_home: OpenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "PAGE_BYTES", 1)
    async with open_home() as app:
        await open_session(app, "api:s")
        for each in [await post(app, "api:s", text) for text in ("one", "!call session_status", "three")]:
            await wait_end(app, each.run_id)
        target = app.services.sessions.target("api:s")
        pages, database = in_pages(app, nothing)
        paged: Session | None = None
        for end in range(2, (await find_session(app, "api:s")).last_seq + 1):
            paged = await pages.fork(OWNER, target, end)
            command = ForkSession(
                principal=OWNER,
                target=target,
                seq=end,
                new_segment=f"whole{end}",
                rules=app.services.rules,
            )
            whole = await app.database.run(fork_session, command)
            assert isinstance(whole, Session)
            assert shape(await read_log(app, str(paged.key))) == shape(await read_log(app, str(whole.key)))
            same = ("message_count", "last_seq", "first_seq", "preview", "description", "taint", "metadata", "source")
            assert [getattr(paged, name) for name in same] == [getattr(whole, name) for name in same]
            assert paged.id.startswith("fork:") and whole.id.startswith("fork:")
        assert {name for name, _ in database.written} == {"begin_fork", "store_page", "finish_fork"}
        assert paged is not None and (await ask(app, str(paged.key), "goes on")).reply == "echo: goes on"


@requirement("sessions:8")
async def test_others_write_between_the_pages_of_a_large_fork(open_home: OpenHome) -> None:
    async with open_home() as app:
        source = await large(app, "api:s")

        async def write(name: str) -> None:
            await app.database.run(add_messages, source.row, SessionId(source.id), [LATE])

        pages, database = in_pages(app, write)
        forked = await pages.fork(OWNER, app.services.sessions.target("api:s"), None)
        assert max(size for _, size in database.written) < PAGE_BYTES + 10_000
        assert [name for name, _ in database.written].count("store_page") >= 3
        said = texts(await read_log(app, str(forked.key)))
        assert len(said) == forked.message_count == MESSAGES and LATE not in said
        assert (await find_session(app, "api:s")).message_count > MESSAGES


@requirement("sessions:8", "access:4")
async def test_nobody_sees_a_fork_before_it_is_whole_and_it_counts_from_its_begin(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forks, "PAGE_BYTES", 10_000)
    settings = config(limits__guest={"stored_bytes": SHARE}, access__roles={"user": {"agents": ["main"]}})
    async with open_home(settings) as app:
        ann, source = await invite(app), await large(app, "api:s", size=3_000)
        await app.database.run(rows.add_participant, source.row, str(ann))
        await until_indexed(app)
        taken: list[rows.Taken] = []
        services = app.services

        async def look(name: str) -> None:
            taken.append(await app.database.read(rows.taken_by, str(ann)))
            for who in (OWNER, ann):
                listed = await services.sessions.list(who, SessionFilter(include_inactive=True), limit=10)
                assert [session.key for session in listed.sessions] == [source.key]
                hits = (await services.search.messages(who, "needle", limit=50)).hits
                assert len(hits) == MESSAGES and {hit.session_key for hit in hits} == {source.key}
            tree = await services.trees.counts(OWNER)
            assert tree == first and await services.search.lag() == 0
            (hidden,) = await app.database.read(hidden_keys) or [None]
            if hidden is not None:
                with pytest.raises(NotFound):
                    await services.sessions.get(OWNER, services.sessions.target(hidden))
                with pytest.raises(NotFound):
                    await services.history.page(OWNER, services.sessions.target(hidden), limit=5)

        first = await services.trees.counts(OWNER)
        pages, _ = in_pages(app, look)
        forked = await pages.fork(ann, services.sessions.target("api:s"), None)
        after = await app.database.read(rows.taken_by, str(ann))
        assert taken[0].sessions == 1 and set(taken[1:]) == {after} and after.sessions == 2
        assert after.stored_bytes > MESSAGES * 3_000
        await until_indexed(app)
        hits = (await services.search.messages(OWNER, "n7", limit=50)).hits
        assert {hit.session_key for hit in hits} == {source.key, forked.key}


async def hidden_keys(query: Query) -> list[str]:
    found = await query.fetch_all("SELECT s.key FROM sessions s JOIN copies_under_way c ON c.session = s.id")
    return [key for (key,) in found]


@requirement("sessions:8")
async def test_what_a_fork_leaves_behind_in_a_crash_goes_with_the_next_start(open_home: OpenHome) -> None:
    settings = config(limits__guest={"stored_bytes": SHARE}, access__roles={"user": {"agents": ["main"]}})
    async with open_home(settings) as app:
        ann, source = await invite(app), await large(app, "api:s")
        await app.database.run(rows.add_participant, source.row, str(ann))
        before = await stored(app)
    for moment in range(1, MOST_MOMENTS):
        left = moment

        async def die(name: str) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise Death

        async with open_home(settings) as app:
            pages, _ = in_pages(app, die)
            try:
                forked = await pages.fork(ann, app.services.sessions.target("api:s"), None)
            except Death:
                assert (await stored(app))["copies"], moment
            else:
                assert forked.message_count == MESSAGES and moment > 4
                return
        async with open_home(settings) as app:
            with anyio.fail_after(SECONDS):
                while (await stored(app))["copies"]:
                    await anyio.sleep(0.01)
            assert await stored(app) == before
    raise AssertionError("It never came to its end.")


async def _use_up(app: App, ann: Principal) -> None:
    session = await open_session(app, "api:other")
    await app.database.run(rows.add_participant, session.row, str(ann))
    await app.database.run(rows.add_stored_bytes, session.row, str(ann), SHARE - 100)


async def _leave(app: App, ann: Principal) -> None:
    session = await find_session(app, "api:s")

    async def leave(tx: Transaction) -> None:
        await tx.execute("DELETE FROM participants WHERE session = ? AND principal = ?", (session.row, str(ann)))

    await app.database.run(leave)


async def _suspend(app: App, ann: Principal) -> None:
    id = person_of(ann)
    assert id is not None
    await app.services.people.suspend(OWNER, id)


async def _delete(app: App, ann: Principal) -> None:
    await app.services.sessions.delete(OWNER, app.services.sessions.target("api:s"))


async def _reset(app: App, ann: Principal) -> None:
    await app.services.resets.reset(OWNER, app.services.sessions.target("api:s"))


Meanwhile = Callable[[App, Principal], Awaitable[None]]


@requirement("sessions:8", "access:4")
@pytest.mark.parametrize("at", ["store_page", "finish_fork"])
@pytest.mark.parametrize(
    ("meanwhile", "error"),
    [(_use_up, Denied), (_leave, NotFound), (_suspend, AntiphonError), (_delete, NotFound), (_reset, Conflict)],
    ids=["share", "no part", "suspended", "deleted", "reset"],
)
async def test_a_fork_that_is_refused_at_its_end_leaves_nothing(
    open_home: OpenHome, at: str, meanwhile: Meanwhile, error: type[Exception]
) -> None:
    settings = config(limits__guest={"stored_bytes": SHARE}, access__roles={"user": {"agents": ["main"]}})
    async with open_home(settings) as app:
        ann, source = await invite(app), await large(app, "api:s")
        await app.database.run(rows.add_participant, source.row, str(ann))
        later: list[dict[str, list[Row]]] = []

        async def act(name: str) -> None:
            if name == at and not later:
                later.append({})
                await meanwhile(app, ann)

        pages, database = in_pages(app, act)
        with pytest.raises(error):
            await pages.fork(ann, app.services.sessions.target(str(source.key)), source.last_seq)
        found = await stored(app)
        assert found["copies"] == [] and not [key for key in found["sessions"] if ":fork:" in str(key[1])]
        living = {row[0] for row in found["sessions"]}
        assert {row[0] for row in found["events"]} <= living and {row[0] for row in found["participants"]} <= living
        removed = [size for name, size in database.written if name == "remove_page"]
        assert len(removed) > 1, "in pages, too"


@requirement("sessions:8")
async def test_a_fork_is_made_anew_if_what_it_copies_changed(open_home: OpenHome) -> None:
    async with open_home() as app:
        source = await large(app, "api:s")

        async def prune(name: str) -> None:
            if name == "finish_fork" and (await find_session(app, "api:s")).first_seq == 1:
                await app.database.run(log.delete_below, source.row, 4)

        pages, database = in_pages(app, prune)
        forked = await pages.fork(OWNER, app.services.sessions.target("api:s"), None)
        said = texts(await read_log(app, str(forked.key)))
        assert len(said) == forked.message_count == MESSAGES - 2 and said[0].startswith("needle n2 ")
        assert [name for name, _ in database.written].count("begin_fork") == 2
        found = await stored(app)
        assert found["copies"] == [] and {row[0] for row in found["events"]} == {row[0] for row in found["sessions"]}


@requirement("sessions:8", "runs:8")
async def test_a_fork_that_another_process_gave_up_does_not_come_to_life(open_home: OpenHome) -> None:
    """Its process was slow, and taken for dead: of what it copied, a part is removed when it goes on."""
    async with open_home() as app:
        await large(app, "api:s")
        removed: list[str] = []

        async def die_later(name: str) -> None:
            if name in removed:
                raise Death
            removed.append(name)

        async def is_given_up(name: str) -> None:
            if name == "finish_fork" and not removed:
                with pytest.raises(Death):
                    await other.remove_left()

        pages, _ = in_pages(app, is_given_up)
        other, _ = in_pages(app, die_later, "proc_other")
        before = [each.key for each in (await app.services.sessions.list(OWNER, SessionFilter(), limit=10)).sessions]
        forked = await pages.fork(OWNER, app.services.sessions.target("api:s"), None)
        assert removed == ["remove_page"]
        assert len(texts(await read_log(app, str(forked.key)))) == MESSAGES
        after = [each.key for each in (await app.services.sessions.list(OWNER, SessionFilter(), limit=10)).sessions]
        assert set(after) == {*before, forked.key}
