"""Searching messages: the same on both backends, within what the caller sees, soon, and through restarts."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import anyio
import pytest
from msgspec.structs import replace

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.errors import Conflict, Denied, Invalid
from antiphon.domain.event import EventType, NewEvent
from antiphon.domain.ids import SessionRow
from antiphon.domain.message import AssistantMessage, TextPart, ThinkingPart, UserMessage, text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.session import Session
from antiphon.domain.words import query_words, words_of
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.engine.views import indexer as indexing
from antiphon.engine.views.indexer import Indexer
from antiphon.engine.views.search import Hit
from antiphon.feed.local import LocalNotifier
from antiphon.policy.acts import Act
from antiphon.policy.system import system_grant
from antiphon.store import events as log
from antiphon.store import incarnations
from antiphon.store import search as index
from antiphon.store import sessions as rows
from antiphon.store.database import Query, Transaction
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, ask, config, find_session, open_session, until_indexed
from tests.waiting import SECONDS

pytestmark = [pytest.mark.anyio, requirement("search:1")]

START = datetime(2026, 3, 1, tzinfo=UTC)
AGENT = {"tools__sessions__visibility": "agent"}


def caller_of(session: Session, principal: Principal = OWNER) -> Caller:
    return Caller(session=session.row, agent_id=session.agent_id, principal=principal, call_id="c", run=None)


async def search(app: App, session: Session, query: str, *, limit: int = 25) -> list[Hit]:
    """What is found of all that was stored before this call."""
    await Indexer(app.database, LocalNotifier()).catch_up()
    return (await app.services.search.messages(caller_of(session), query, limit=limit)).hits


def places(hits: Sequence[Hit]) -> list[tuple[str, int]]:
    return [(str(hit.session_key), hit.seq) for hit in hits]


async def store(
    app: App,
    session: Session,
    texts: Sequence[str],
    *,
    since: datetime = START,
    classification: Classification = PUBLIC,
) -> None:
    """Stores texts of one second each, as if they had been said then."""
    messages = [
        NewEvent(
            type=EventType.USER_MESSAGE,
            actor="owner",
            classification=classification,
            message=UserMessage(message_id=f"m{number}", content=text_content(text)),
            occurred_at=since + timedelta(seconds=number),
        )
        for number, text in enumerate(texts)
    ]
    await app.database.run(_append, session, tuple(messages))


async def _append(tx: Transaction, session: Session, messages: tuple[NewEvent, ...]) -> None:
    await log.append(tx, session.row, log.Addition(incarnation=session.id, events=messages, at_ms=1))


async def set_taint(app: App, session: Session, level: Level) -> None:
    await app.database.run(incarnations.set_taint, session.id, Classification(level))


async def test_messages_of_people_and_models_are_found_newest_first(open_home: OpenHome) -> None:
    async with open_home() as app:
        for text in ("write to Ana@example.org", "தமிழ் மொழி", "東京都に住む"):
            await ask(app, "main", text)
        main = await find_session(app, "main")
        hits = await search(app, main, "ana@EXAMPLE.org")
        assert [(hit.role, hit.snippet) for hit in hits] == [
            ("assistant", "echo: write to Ana@example.org"),
            ("user", "write to Ana@example.org"),
        ]
        assert hits[0].seq > hits[1].seq and hits[0].created_at >= hits[1].created_at
        assert len(await search(app, main, "மொழி தமிழ்")) == len(await search(app, main, "京")) == 2
        assert await search(app, main, "Ana மொழி") == []
        assert len(await search(app, main, "echo", limit=2)) == 2
        assert len((await app.services.search.messages(caller_of(main), "echo", limit=1)).hits) == 1


async def test_results_of_tools_calls_and_thoughts_are_not_searched(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        await ask(app, "main", '!call session_status {"sessionKey": "current"}\n!say spoken')
        thought = AssistantMessage(message_id="t", content=(ThinkingPart(text="pondered"), TextPart(text="uttered")))
        event = NewEvent(type=EventType.ASSISTANT_MESSAGE, actor="agent", classification=PUBLIC, message=thought)
        await app.database.run(_append, main, (event,))
        assert len(await search(app, main, "uttered")) == 1
        assert len(await search(app, main, "spoken")) == 2
        assert await search(app, main, "pondered") == []
        assert await search(app, main, "contextTokens") == []  # stands in the tool's result


async def test_operators_are_words_like_others(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        await store(app, main, ["red and blue", "red blue", "not near red", "re", 'a "quoted" col:umn'])
        assert places(await search(app, main, "red AND blue")) == [("agent:main:main", 2)]
        assert places(await search(app, main, "NOT red")) == [("agent:main:main", 4)]
        assert places(await search(app, main, "re*")) == [("agent:main:main", 5)]
        assert len(await search(app, main, '"red" -blue')) == 2
        assert len(await search(app, main, "col:umn & quoted | a")) == 1
        for query in ("red OR", "NEAR(red blue)", "red'", "\\red", "(red", "_1 red", "red\0blue", "words:red"):
            assert len((await app.services.search.messages(caller_of(main), query, limit=10)).hits) <= 3


async def test_a_query_that_cannot_find_anything_is_refused(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        for query in ("", "*", "x" * 1001, " ".join(map(str, range(33)))):
            with pytest.raises(Invalid) as refused:
                await app.services.search.messages(caller_of(main), query, limit=10)
            assert refused.value.code == "invalid_query"


async def test_as_many_words_as_may_be_are_searched(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        text = "".join(chr(0x4E00 + number) for number in range(1_000))
        await store(app, main, [text, text[1:]])
        assert places(await search(app, main, text)) == [("agent:main:main", 2)]
        assert len(await search(app, main, " ".join(text[:32]))) == 1


@pytest.mark.parametrize("visibility", ["self", "tree", "agent", "all"])
async def test_what_the_caller_does_not_see_is_filtered_before_the_limit(open_home: OpenHome, visibility: str) -> None:
    settings = config(
        tools__sessions__visibility=visibility,
        tools__agentToAgent__enabled=True,
        agents__list=[{"id": "main"}, {"id": "other"}],
    )
    async with open_home(settings) as app:
        main = await open_session(app, "main")
        child, cousin, other = [
            await open_session(app, name) for name in ("api:child", "api:cousin", "agent:other:main")
        ]
        await app.database.run(rows.set_parent, child.row, main.row)
        for at, session in enumerate((main, child, cousin, other)):  # what is hidden is newer
            await store(app, session, ["needle"] * 300, since=START + timedelta(hours=at))
        seen = {"self": [main], "tree": [main, child], "agent": [main, child, cousin]}.get(
            visibility, [main, child, cousin, other]
        )
        hits = await search(app, main, "needle", limit=7)
        assert {str(hit.session_key) for hit in hits} == {str(seen[-1].key)} and len(hits) == 7
        assert await _all_hits(app, main, "needle") == {str(session.key) for session in seen}
        await store(app, main, ["needle"] * 3, since=START + timedelta(days=1))
        keys = [str(hit.session_key) for hit in await search(app, main, "needle", limit=7)]
        assert keys == [str(main.key)] * 3 + [str(seen[-1].key)] * 4


async def _all_hits(app: App, session: Session, word: str) -> set[str]:
    """The keys of all sessions in which the word is found, however deep."""

    async def read(query: Query) -> set[str]:
        reach = await find_reach(query, Rights(caller_of(session), app.services.rules), Act.READ)
        found, _ = await index.find_messages(query, reach, word, before=2**63 - 1, depth=5_000, limit=5_000)
        return {str(message.key) for message in found}

    return await app.database.read(read)


async def test_a_guest_searches_the_session_alone_that_it_writes_in(open_home: OpenHome) -> None:
    guest = Principal(PrincipalKind.PERSON, "g")
    async with open_home(config(**AGENT)) as app:
        main, shared, closed = [await open_session(app, name) for name in ("main", "api:shared", "api:closed")]
        await app.database.run(rows.add_participant, shared.row, str(guest))
        for session in (main, shared, closed):
            await store(app, session, ["needle"])
        await until_indexed(app)
        hits = (await app.services.search.messages(caller_of(main, guest), "needle", limit=10)).hits
        assert {str(hit.session_key) for hit in hits} == {str(main.key)}


async def test_reading_that_is_switched_off_is_searching_that_is(open_home: OpenHome) -> None:
    off = config(agents__list=[{"id": "main", "tools": {"sessions": {"read": False}}}])
    async with open_home(off) as app:
        with pytest.raises(Denied) as refused:
            await search(app, await open_session(app, "main"), "needle")
        assert refused.value.code == "act_off"


async def test_data_above_the_caller_is_not_found_whatever_carries_it(open_home: OpenHome) -> None:
    secret = Classification(Level.CONFIDENTIAL)
    boxed = Classification(Level.PUBLIC, compartments=4)
    async with open_home(config(**AGENT)) as app:
        main, high, reset, low = [
            await open_session(app, name) for name in ("main", "api:high", "api:reset", "api:low")
        ]
        await store(app, high, ["needle"])
        await set_taint(app, high, Level.CONFIDENTIAL)
        await store(app, reset, ["needle"])
        await set_taint(app, reset, Level.CONFIDENTIAL)
        await app.services.resets.reset(OWNER, app.services.sessions.target("api:reset"))
        await store(app, await find_session(app, "api:reset"), ["needle again"])
        await store(app, low, ["needle", "other"])
        await store(app, low, ["needle"], classification=secret)
        await store(app, low, ["needle"], classification=boxed)
        shown = [("agent:main:api:low", 2), ("agent:main:api:reset", 4)]
        assert sorted(places(await search(app, main, "needle"))) == shown
        await set_taint(app, main, Level.CONFIDENTIAL)
        assert len(await search(app, main, "needle")) == 5
        await app.database.run(incarnations.set_taint, main.id, secret.join(boxed))
        assert len(await search(app, main, "needle")) == 6


async def test_messages_of_ended_incarnations_are_found(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        await store(app, main, ["needle before"])
        await app.services.resets.reset(OWNER, app.services.sessions.target("main"))
        renewed = await find_session(app, "main")
        await store(app, renewed, ["needle after"], since=START + timedelta(days=1))
        assert [hit.snippet for hit in await search(app, renewed, "needle")] == ["needle after", "needle before"]


async def test_what_was_deleted_or_pruned_is_gone_at_once_and_leaves_the_index(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with open_home(config(**AGENT), Parts(clock=clock)) as app:
        main, gone = await open_session(app, "main"), await open_session(app, "api:gone")
        for session in (main, gone):
            await store(app, session, ["needle"] * 300)
        assert len(await search(app, main, "needle")) == 25
        await app.services.sessions.delete(OWNER, app.services.sessions.target("api:gone"))
        hits = (await app.services.search.messages(caller_of(main), "needle", limit=25)).hits
        assert {str(hit.session_key) for hit in hits} == {str(main.key)}
        gone = await open_session(app, "api:gone")
        assert "agent:main:api:gone" not in dict(places(await search(app, main, "needle")))
        await store(app, gone, ["needle anew"], since=START + timedelta(days=2))
        assert places(await search(app, main, "needle anew")) == [(str(gone.key), gone.last_seq + 1)]
        clock.pass_time(timedelta(days=300))
        assert (
            await Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=timedelta(days=200)).prune()
            > 300
        )
        left = places((await app.services.search.messages(caller_of(main), "needle", limit=25)).hits)
        assert left == [(str(gone.key), gone.last_seq + 1), (str(main.key), 301)]  # the newest of a log stays
        await Indexer(app.database, LocalNotifier()).catch_up()
        assert await app.database.read(_count_rows) == (2, 2)


async def _count_rows(query: Query) -> tuple[int, int]:
    messages = await query.fetch_one("SELECT COUNT(*) FROM indexed_messages")
    words = await query.fetch_one("SELECT COUNT(*) FROM message_words")
    assert messages is not None and words is not None
    return messages[0], words[0]


async def test_a_new_message_is_found_soon_and_nobody_waits_for_it(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        for number in range(20):
            await app.services.inbox.append(OWNER, app.services.sessions.target("main"), text_content(f"new{number}"))
        with anyio.fail_after(SECONDS):
            while not (await app.services.search.messages(caller_of(main), "new19", limit=10)).hits:
                await anyio.lowlevel.checkpoint()
        assert await app.services.search.lag() == 0


@pytest.mark.parametrize("database_section", ["postgres"], indirect=True)  # no other process writes into a file
async def test_a_wake_that_is_lost_is_made_up_for(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        with anyio.fail_after(SECONDS):  # so that no wake is under way
            while await app.database.read(index.list_backlog, 10):
                await anyio.lowlevel.checkpoint()
        await app.database.run(
            _append_silently,
            main,
            NewEvent(
                type=EventType.USER_MESSAGE,
                actor="owner",
                classification=PUBLIC,
                message=UserMessage(message_id="q", content=text_content("quiet")),
            ),
        )
        with anyio.fail_after(SECONDS):
            while not (await app.services.search.messages(caller_of(main), "quiet", limit=10)).hits:
                await anyio.lowlevel.checkpoint()


async def _append_silently(tx: Transaction, session: Session, event: NewEvent) -> None:
    """As another process does whose notification is lost."""

    class Silent:
        now_ms, now, request_id, new_id, random_hex = tx.now_ms, tx.now, tx.request_id, tx.new_id, tx.random_hex
        fetch_one, fetch_all, execute, change = tx.fetch_one, tx.fetch_all, tx.execute, tx.change
        dispatch, interrupt, attempt, keep, hold = tx.dispatch, tx.interrupt, tx.attempt, tx.keep, tx.hold
        process, fetch_held = tx.process, tx.fetch_held

        def wake(self, session: SessionRow) -> None:
            return

    await log.append(Silent(), session.row, log.Addition(incarnation=session.id, events=[event], at_ms=2**40))


@pytest.mark.parametrize(("bound", "value"), [("MESSAGES_AT_ONCE", 8), ("BYTES_AT_ONCE", 1_000)])
async def test_a_restart_goes_on_where_indexing_was(
    open_home: OpenHome, monkeypatch: pytest.MonkeyPatch, bound: str, value: int
) -> None:
    monkeypatch.setattr(indexing, bound, value)
    async with open_home() as app:
        main, other = await open_session(app, "main"), await open_session(app, "api:other")
        for session in (main, other):
            await store(app, session, [f"needle n{number}" for number in range(100)])
    async with open_home(config(**AGENT)) as app:  # whatever was left is found again, none of it twice
        main = await find_session(app, "main")
        await until_indexed(app)
        assert await app.database.read(_count_rows) == (200, 200)
        for number in (0, 57, 99):
            assert len(await search(app, main, f"n{number}")) == 2


async def test_a_unit_takes_no_further_message_after_its_bytes(open_home: OpenHome) -> None:
    async with open_home(config(**AGENT)) as app:
        session = await open_session(app, "api:large")
        await until_indexed(app)
        large = [f"needle n{number} {'word ' * 4_000}" for number in range(5)]
        await store(app, session, large)

        async def read(query: Query, limit: int, max_bytes: int) -> index.Unindexed:
            (state,) = await index.find_states(query, [session.row])
            state, grant = state._replace(indexed_seq=0), system_grant(session.row)
            return await index.read_unindexed(query, grant, state, limit=limit, max_bytes=max_bytes)

        few = await app.database.read(read, 32, 30_000)
        assert (len(few.events), few.is_whole) == (2, False)
        some = await app.database.read(read, 4, 1_000_000)
        assert (len(some.events), some.is_whole) == (4, False)
        whole = await app.database.read(read, 32, 1_000_000)
        assert (len(whole.events), whole.is_whole) == (5, True)
        await until_indexed(app)
        assert [len(await search(app, session, f"n{number}")) for number in range(5)] == [1] * 5


async def test_many_that_index_at_once_make_no_row_twice(open_home: OpenHome) -> None:
    async with open_home(config(**AGENT)) as app:
        sessions = [await open_session(app, f"api:s{number}") for number in range(5)]
        for session in sessions:
            await store(app, session, [f"needle n{number}" for number in range(200)])
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(Indexer(app.database, LocalNotifier()).catch_up)
        await until_indexed(app)
        assert await app.database.read(_count_rows) == (1_000, 1_000)
        assert len(await search(app, sessions[0], "n199")) == 5


async def test_messages_of_one_moment_that_are_indexed_at_once_get_ids_of_their_own(open_home: OpenHome) -> None:
    async with open_home(config(**AGENT)) as app:
        sessions = [await open_session(app, f"api:s{number}") for number in range(6)]
        await until_indexed(app)
        async with anyio.create_task_group() as tasks:
            for session in sessions:
                messages = tuple(
                    index.IndexedMessage(
                        session=session.row,
                        seq=seq,
                        incarnation=session.id,
                        created_at_ms=1,
                        classification=PUBLIC,
                        words=["needle"],
                    )
                    for seq in range(100, 150)
                )
                state = await _end_of_index(app, session)
                tasks.start_soon(app.database.run, indexing.put_in, (indexing.IndexStep(state, messages, 150),))
        assert await app.database.read(_count_rows) == (300, 300)


async def _end_of_index(app: App, session: Session) -> index.LogState:
    async def read(query: Query) -> index.LogState | None:
        row = await query.fetch_one(
            "SELECT session, 1, 150, first_seq, indexed_seq FROM indexed_logs WHERE session = ? AND indexed_seq > 0",
            (session.row,),
        )
        return None if row is None else index.LogState(*row)

    with anyio.fail_after(SECONDS):
        while (state := await app.database.read(read)) is None:
            await anyio.lowlevel.checkpoint()
    return state


async def test_messages_and_how_far_they_are_indexed_change_together(open_home: OpenHome) -> None:
    async def fails_late(tx: Transaction, steps: tuple[indexing.IndexStep, ...]) -> None:
        await indexing.put_in(tx, steps)
        raise Conflict("Unit fails: after all of its statements.")

    async with open_home() as app:
        main = await open_session(app, "main")
        await store(app, main, ["needle"])
        await until_indexed(app)
        message = index.IndexedMessage(
            session=main.row,
            seq=2,
            incarnation=main.id,
            created_at_ms=1,
            classification=PUBLIC,
            words=["late"],
        )
        state = index.LogState(main.row, 1, 3, 1, 2)
        steps = (indexing.IndexStep(state, (replace(message, seq=3),), 3),)
        with pytest.raises(Conflict):
            await app.database.run(fails_late, steps)
        assert await app.database.read(_count_rows) == (1, 1)
        assert (await app.services.search.messages(caller_of(main), "late", limit=10)).hits == []
        await app.database.run(indexing.put_in, steps)
        await app.database.run(indexing.put_in, steps)  # somebody else's, of the same state
        assert await app.database.read(_count_rows) == (2, 2)


async def test_messages_of_one_moment_are_all_kept(open_home: OpenHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index, "ID_STEP", 4)
    monkeypatch.setattr(index, "ID_BITS", 2)
    async with open_home(config(**AGENT), Parts(clock=ManualClock())) as app:
        main, other = await open_session(app, "main"), await open_session(app, "api:other")
        for session in (main, other):
            for number in range(30):
                await store(app, session, [f"needle n{number}"])
        assert len(await search(app, main, "n29")) == 2
        hits = [hit for hit in await search(app, main, "needle") if hit.session_key == main.key]
        assert [hit.seq for hit in hits] == sorted((hit.seq for hit in hits), reverse=True)


async def test_times_at_the_ends_of_the_calendar_are_searched(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        for moment in (datetime(9999, 12, 31, 23, 59, tzinfo=UTC), datetime(1, 1, 2, tzinfo=UTC), START):
            await store(app, main, ["needle"], since=moment)
        assert [hit.created_at.year for hit in await search(app, main, "needle")] == [9999, 2026, 1]


VOCABULARY = ["red", "Blue", "நீலம்", "red-blue", "東京都", "京", "ana@x.org", "AND", "naïve", "42", "😀", "ﬁ", "é"]


async def test_both_databases_find_exactly_what_has_all_words(open_home: OpenHome) -> None:
    """Each backend is held to one model; so they find the same."""
    async with open_home() as app:
        session = await open_session(app, "main")
        corpus: list[str] = []

        async def check(texts: list[str], queries: list[str]) -> None:
            await store(app, session, texts, since=START + timedelta(hours=len(corpus)))
            corpus.extend(texts)
            await Indexer(app.database, LocalNotifier()).catch_up()
            for query in queries:
                if not words_of(query):
                    continue
                wanted = set(query_words(query))
                model = [at for at, text in enumerate(corpus) if wanted <= set(words_of(text))]
                hits = (await app.services.search.messages(caller_of(session), query, limit=25)).hits
                assert [hit.seq - 2 for hit in hits] == model[::-1][:25]

        examples = [
            ([" ".join(VOCABULARY[i:j]) for i in range(5) for j in range(i, len(VOCABULARY), 3)], VOCABULARY),
            (["x" * 200, "x" * 64, "x" * 63, "é" * 40, "ab\0cd"], ["x" * 100, "é" * 33, "ab cd"]),
            (
                ["\u0bcd", "\U0001e900\U0001e901", "\ue000\ue001", "ꟊꟊ", "𞤀"],
                ["\U0001e900\U0001e901", "\ue000\ue001", "ꟊꟊ"],
            ),
        ]
        for texts, queries in examples:
            await check(texts, queries)


async def test_the_tool_answers_an_object_with_redacted_snippets(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        await store(app, main, ["fill " * 100 + "password=hunter2secret needle " + "fill " * 100])
        await until_indexed(app)
        done = await ask(app, "main", '!call sessions_search {"query": "Needle", "limit": 3}')
        answer = json.loads(done.reply or "")
        told = answer["results"][-1]
        assert answer["count"] == len(answer["results"]) <= 2  # the question may be found, too
        assert set(told) == {"sessionKey", "seq", "role", "createdAt", "snippet"}
        assert (told["sessionKey"], told["seq"], told["role"]) == ("agent:main:main", 2, "user")
        assert told["createdAt"] == int(START.timestamp() * 1000)
        assert "needle" in told["snippet"] and "hunter2" not in told["snippet"] and len(told["snippet"]) <= 300
        refused = json.loads((await ask(app, "main", '!call sessions_search {"query": "*"}')).reply or "")
        assert (refused["status"], refused["code"]) == ("error", "invalid_query")


async def test_nobody_finds_out_a_secret_by_searching_for_it(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        await store(app, main, ["password=hunter2secret needle"])
        assert len(await search(app, main, "needle")) == 1
        assert await search(app, main, "hunter2secret") == []


async def test_what_was_indexed_by_older_rules_is_indexed_again(open_home: OpenHome) -> None:
    async with open_home() as app:
        main = await open_session(app, "main")
        await store(app, main, ["the needle and PGPASSWORD=hunter22"])
        await until_indexed(app)
        await app.database.run(_index_as_before)
        assert await app.services.search.lag() == 1
        assert await search(app, main, "hunter22") == []
        assert len(await search(app, main, "needle")) == 1
        assert await app.services.search.lag() == 0


async def _index_as_before(tx: Transaction) -> None:
    """As a version did that took the password for none."""
    row = await tx.fetch_one("SELECT id, session FROM indexed_messages")
    assert row is not None
    await tx.execute("DELETE FROM message_words WHERE rowid = ?", (row[0],))
    words = f"{index.session_word(row[1])} needle hunter22"
    await tx.execute("INSERT INTO message_words (rowid, words) VALUES (?, ?)", (row[0], words))
    await tx.execute("UPDATE indexed_logs SET reading = 1")


async def test_a_person_in_few_sessions_asks_the_index_for_these_alone(open_home: OpenHome) -> None:
    """Otherwise a word that others use often costs reading all their messages."""
    async with open_home() as app:
        people = app.services.people
        eve = (await people.invite(OWNER, "Eve", PersonRole.USER)).person.principal
        sessions = [await open_session(app, f"api:n{number}") for number in range(index.NARROW + 1)]

        async def narrow(query: Query) -> set[SessionRow] | None:
            reach = await find_reach(query, Rights(eve, app.services.rules), Act.READ)
            found = await index.find_narrow(query, reach)
            return None if found is None else set(found)

        for number, session in enumerate(sessions):
            expected = {each.row for each in sessions[:number]}
            assert await app.database.read(narrow) == expected
            await app.database.run(rows.add_participant, session.row, str(eve))
        assert await app.database.read(narrow) is None
        for session in (sessions[0], await open_session(app, "api:closed")):
            await store(app, session, ["needle"])
        await until_indexed(app)
        hits = (await app.services.search.messages(eve, "needle", limit=10)).hits
        assert [str(hit.session_key) for hit in hits] == [str(sessions[0].key)]
