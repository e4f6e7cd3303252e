"""Opening, resetting, deleting and forking sessions."""

from collections import Counter
from datetime import UTC, datetime, timedelta

import anyio
import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.classification import PUBLIC, Classification, Level
from antiphon.domain.errors import AntiphonError, Conflict, NotFound
from antiphon.domain.event import Event, EventType
from antiphon.domain.ids import RunId
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import Session, SessionStatus, SessionSummary, SessionType, Source
from antiphon.domain.transcript import Input, Step, Transcript
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.policy.system import SYSTEM_REACH
from antiphon.store import incarnations
from antiphon.store import runs as ledger
from antiphon.store.database import Query
from antiphon.store.sessions import SessionFilter
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.parley import key_of, open_peer
from tests.engine.stage import (
    HeldRunner,
    ManualClock,
    ask,
    config,
    facts,
    find_run,
    find_session,
    open_session,
    post,
    read_log,
    texts,
    wait_end,
)
from tests.logs import whole_log
from tests.story import settings

pytestmark = pytest.mark.anyio


async def reset(app: App, name: str) -> Session:
    return await app.services.resets.reset(OWNER, app.services.sessions.target(name))


async def delete(app: App, name: str) -> None:
    await app.services.sessions.delete(OWNER, app.services.sessions.target(name))


@requirement("sessions:3", "keys:7")
async def test_reopening_keeps_the_source_merges_metadata_and_starts_nothing_anew(open_home: OpenHome) -> None:
    async with open_home() as app:
        sessions = app.services.sessions
        target = sessions.target("cli:work")
        named = SessionAttributes(label="one", metadata={"a": 1, "b": 1})
        first = await sessions.open(OWNER, target, source=Source(kind="cli"), attributes=named)
        assert first.is_new and str(first.session.key) == "agent:main:cli:work"
        more = SessionAttributes(metadata={"b": 2, "c": 2})
        again = await sessions.open(OWNER, target, source=Source(kind="api"), attributes=more)
        assert not again.is_new
        assert again.session.source.kind == "cli"
        assert again.session.metadata == {"a": 1, "b": 2, "c": 2}
        assert (again.session.label, again.session.id) == ("one", first.session.id)
        by_key = await sessions.open(OWNER, sessions.target("agent:main:cli:work"))
        assert by_key.session.row == first.session.row
        assert [event.type for event in await read_log(app, "cli:work")] == ["session_started", "session_changed"]


@requirement("sessions:2", "sessions:3")
async def test_an_inactive_session_is_hidden_until_it_is_opened_again(open_home: OpenHome) -> None:
    async with open_home() as app:
        sessions = app.services.sessions
        await open_session(app, "api:old")
        await sessions.patch(OWNER, sessions.target("api:old"), {"status": SessionStatus.INACTIVE.value})
        shown = await sessions.list(OWNER, SessionFilter(), limit=10)
        assert shown.sessions == []
        await open_session(app, "api:old")
        assert (await find_session(app, "api:old")).status is SessionStatus.IDLE
        shown = await sessions.list(OWNER, SessionFilter(), limit=10)
        assert [str(session.key) for session in shown.sessions] == ["agent:main:api:old"]


@requirement("sessions:6", "keys:6", "keys:7")
async def test_a_reset_ends_the_runs_and_begins_a_new_incarnation_at_once(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        old = await open_session(app, "api:s")
        running, queued = await post(app, "api:s", "m-1"), await post(app, "api:s", "m-2")
        await runner.until_begun(1)
        new = await reset(app, "api:s")
        assert new.id != old.id and new.id.startswith("api:") and new.row == old.row
        assert (new.message_count, new.preview, new.description, new.working_memory) == (0, None, None, "")
        assert ((await find_run(app, queued.run_id)).status, (await find_run(app, queued.run_id)).code) == (
            RunStatus.CANCELLED,
            "reset",
        )
        cut = await wait_end(app, running.run_id)
        assert (cut.status, cut.code, cut.session_id) == (RunStatus.CANCELLED, "reset", old.id)
        runner.release_all()
        assert (await ask(app, "api:s", "m-3")).session_id == new.id
        events = await read_log(app, "api:s")
        assert [event.seq for event in events] == list(range(1, len(events) + 1))
        assert facts(events, "session_started")[1]["previousSessionId"] == old.id


@requirement("sessions:6")
async def test_what_comes_late_for_the_old_incarnation_goes_to_the_old_one_alone(open_home: OpenHome) -> None:
    runner = HeldRunner(is_stubborn=True)
    async with open_home(parts=Parts(runner=runner)) as app:
        old = await open_session(app, "api:s")
        running = await post(app, "api:s", "m-1")
        await runner.until_begun(1)
        new = await reset(app, "api:s")
        runner.release_all()
        await wait_end(app, running.run_id)
        late = [event for event in await read_log(app, "api:s") if event.seq > new.last_seq]
        assert {event.session_id for event in late} == {old.id}
        after = await find_session(app, "api:s")
        assert (after.message_count, after.turn_count, after.preview) == (0, 0, None)
        page = await app.services.history.page(OWNER, app.services.sessions.target(old.id), limit=10)
        assert texts(page.events)[0] == "m-1"
        assert page.events[-1].seq > new.last_seq
        page = await app.services.history.page(OWNER, app.services.sessions.target(str(new.key)), limit=10)
        assert page.events == []


@requirement("sessions:6")
async def test_a_session_begins_anew_each_day_where_it_is_configured_to(open_home: OpenHome) -> None:
    clock = ManualClock(datetime(2026, 3, 4, 12, tzinfo=UTC))
    rule = {"mode": "daily", "at_hour": 4, "zone": "Europe/Berlin"}
    async with open_home(config(session__reset=rule), Parts(clock=clock)) as app:
        ids: list[str] = []
        # 04:00 in Berlin is 03:00 in UTC.
        for passed in (0, 14.9, 0.2, 10):
            clock.pass_time(timedelta(hours=passed))
            await ask(app, "main", f"m-{len(ids)}")
            ids.append((await find_session(app, "main")).id)
        assert ids[0] == ids[1] != ids[2] == ids[3]
        assert facts(await read_log(app, "main"), "session_started")[1]["reason"] == "daily"


@requirement("sessions:6")
async def test_a_session_begins_anew_after_idling_but_not_under_a_run(open_home: OpenHome) -> None:
    clock, runner = ManualClock(), HeldRunner()
    rule = {"mode": "idle", "idle_minutes": 30}
    async with open_home(config(session__reset=rule), Parts(clock=clock, runner=runner)) as app:
        first = await post(app, "main", "m-1")
        await runner.until_begun(1)
        clock.pass_time(timedelta(hours=5))
        second = await post(app, "main", "m-2")
        assert (await find_run(app, second.run_id)).session_id == (await find_run(app, first.run_id)).session_id
        runner.release_all()
        await wait_end(app, second.run_id)
        clock.pass_time(timedelta(minutes=29))
        third = await ask(app, "main", "m-3")
        clock.pass_time(timedelta(minutes=31))
        fourth = await ask(app, "main", "m-4")
        assert third.session_id == (await find_run(app, first.run_id)).session_id != fourth.session_id


@requirement("sessions:7")
async def test_a_quiet_session_is_deleted_and_its_numbers_go_on(open_home: OpenHome) -> None:
    async with open_home() as app:
        old = await open_session(app, "api:s")
        run = await ask(app, "api:s", "m-1")
        last_seq = (await find_session(app, "api:s")).last_seq
        await delete(app, "api:s")
        for missing in ("api:s", old.id):
            with pytest.raises(NotFound):
                await find_session(app, missing)
        with pytest.raises(NotFound):
            await find_run(app, run.id)
        assert await app.database.read(whole_log, old.row) == []
        new = await open_session(app, "api:s")
        assert new.row == old.row and new.incarnation_seq > last_seq
        assert (new.message_count, new.label, new.description) == (0, None, None)
        assert (await ask(app, "api:s", "m-1")).reply == "echo: m-1"


@requirement("sessions:7", "keys:7")
async def test_the_ids_of_a_deleted_session_are_free_again(open_home: OpenHome) -> None:
    async with open_home() as app:
        first = await open_session(app, "cli:work")
        second = await reset(app, "cli:work")
        await delete(app, "cli:work")
        again = await open_session(app, "cli:work")
        assert (again.id, again.row) == (first.id, first.row)
        for_second = await open_session(app, second.id)
        assert for_second.id == second.id and for_second.row != first.row


@requirement("sessions:7")
async def test_busy_sessions_groups_and_main_ones_are_not_deleted(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(parts=Parts(runner=runner)) as app:
        group = await open_session(app, "agent:main:telegram:group:-100", source=Source(type=SessionType.GROUP))
        await open_session(app, "main")
        await open_session(app, "api:busy")
        posted = await post(app, "api:busy", "m-1")
        await runner.until_begun(1)
        for name, code in ((str(group.key), "group_session"), ("main", "main_session"), ("api:busy", "session_busy")):
            with pytest.raises(Conflict) as raised:
                await delete(app, name)
            assert raised.value.code == code
        runner.release_all()
        await wait_end(app, posted.run_id)
        await delete(app, "api:busy")


@requirement("sessions:7")
async def test_a_delete_that_races_posts_leaves_no_event_without_a_session(open_home: OpenHome) -> None:
    async with open_home() as app:
        errors: list[str] = []

        async def act(what: str) -> None:
            try:
                await (delete(app, "api:s") if what == "delete" else post(app, "api:s", what))
            except AntiphonError as error:
                errors.append(error.code)

        for number in range(20):
            session = await open_session(app, "api:s")
            errors.clear()
            async with anyio.create_task_group() as tasks:
                for what in [*("a", "delete", "b")[number % 3 :], "c", "delete"]:
                    tasks.start_soon(act, f"{what}{number}" if what != "delete" else what)
            assert set(errors) <= {"not_found", "session_busy"}
            events = await app.database.read(whole_log, session.row)
            runs_left = await app.database.read(list_runs, session)
            if "not_found" in errors:
                assert events == []
            assert all(run.seq in {event.seq for event in events} for run in runs_left)
            for run in runs_left:
                await wait_end(app, run.id)
            if events:
                await delete(app, "api:s")


async def list_runs(query: Query, session: Session) -> list[Run]:
    return await ledger.list_page(query, SYSTEM_REACH, ledger.RunFilter(session=session.row), limit=100)


def prompt_shape(events: list[Event]) -> list[object]:
    """What a model would be shown of a log, in its order, without numbers."""
    transcript = Transcript()
    transcript.add(events)
    shape: list[object] = []
    for entry in transcript.prompt_for(RunId("run_next")):
        match entry:
            case Input():
                shape.append(entry.message.content)
            case Step():
                shape.append((entry.message.content, [getattr(result, "content", None) for result in entry.results]))
            case _:
                shape.append(entry)
    return shape


@requirement("sessions:8")
async def test_a_fork_shows_a_model_what_the_original_would(open_home: OpenHome) -> None:
    """Also where messages came in while others were being answered: log order is not model order."""
    texts_posted = ["one", "!call session_status\n!call session_status", "three", "four"]
    async with open_home() as app:
        await open_session(app, "api:s")
        posted = [await post(app, "api:s", text) for text in texts_posted]
        for each in posted:
            await wait_end(app, each.run_id)
        original = await read_log(app, "api:s")
        for end in range(2, len(original) + 1):
            forked = await app.services.forks.fork(OWNER, app.services.sessions.target("api:s"), end)
            copy = await read_log(app, str(forked.key))
            assert [event.seq for event in copy] == list(range(1, len(copy) + 1))
            kept = [event for event in original[:end] if event.message is not None]
            assert Counter(texts(kept)) <= Counter(texts(copy))
            assert forked.message_count == len(copy) - 1
            assert forked.metadata["forkedFrom"] == {"sessionKey": "agent:main:api:s", "sessionId": "api:s", "seq": end}
            assert (await ask(app, str(forked.key), "goes on")).reply == "echo: goes on"
            assert forked.taint == PUBLIC
            if end == len(original):
                assert prompt_shape(copy) == prompt_shape(original)


@requirement("sessions:8")
async def test_a_fork_outside_the_log_is_refused(open_home: OpenHome) -> None:
    async with open_home() as app:
        await ask(app, "main", "hello")
        last_seq = (await find_session(app, "main")).last_seq
        for seq in (0, last_seq + 1):
            with pytest.raises(Conflict) as raised:
                await app.services.forks.fork(OWNER, app.services.sessions.target("main"), seq)
            assert raised.value.code == "seq_out_of_range"


@requirement("sessions:8")
@pytest.mark.parametrize("is_older", [False, True], ids=["of now", "of what was before a reset"])
async def test_a_fork_is_as_classified_as_what_it_was_made_of(open_home: OpenHome, is_older: bool) -> None:
    secret = Classification(Level.CONFIDENTIAL)
    async with open_home(settings()) as app:
        session = await open_peer(app, "secret", taint=secret)
        await ask(app, key_of("secret"), "the secret is 42")
        if is_older:
            await reset(app, key_of("secret"))
        forked = await app.services.forks.fork(OWNER, app.services.sessions.target(session.id), None)
        assert forked.taint == secret and forked.clearance == session.clearance
        if is_older:
            return
        await app.database.run(incarnations.set_taint, session.id, session.base.join(Classification(Level.RESTRICTED)))
        risen = await app.services.forks.fork(OWNER, app.services.sessions.target(session.id), None)
        assert risen.taint == Classification(Level.RESTRICTED)


@requirement("sessions:8")
async def test_what_a_summary_covers_may_have_been_pruned_when_it_is_forked(open_home: OpenHome) -> None:
    clock, day = ManualClock(), timedelta(days=1)
    async with open_home(config(agents__defaults__context_tokens=2000), Parts(clock=clock)) as app:
        await open_session(app, "api:s")
        for number in range(14):
            await ask(app, "api:s", f"{number} " + "word " * 120)
            clock.pass_time(timedelta(hours=1))
        compacted = [event for event in await read_log(app, "api:s") if event.type == EventType.COMPACTED][-1]
        clock.pass_time(compacted.created_at - clock.now() + day - timedelta(seconds=1))
        await Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=day).prune()
        through = compacted.data["throughSeq"]
        assert isinstance(through, int)
        assert through < (await find_session(app, "api:s")).first_seq <= compacted.seq
        forked = await app.services.forks.fork(OWNER, app.services.sessions.target("api:s"), None)
        copy, original = await read_log(app, str(forked.key)), await read_log(app, "api:s")
        assert prompt_shape(copy) == prompt_shape(original)
        assert (await ask(app, str(forked.key), "goes on")).reply == "echo: goes on"


@requirement("sessions:8", "keys:6")
async def test_an_ended_incarnation_can_be_forked(open_home: OpenHome) -> None:
    async with open_home() as app:
        old = await open_session(app, "api:s")
        await ask(app, "api:s", "before")
        await reset(app, "api:s")
        await ask(app, "api:s", "after")
        forked = await app.services.forks.fork(OWNER, app.services.sessions.target(old.id), None)
        assert texts(await read_log(app, str(forked.key))) == ["before", "echo: before"]


@requirement("sessions:1")
async def test_lists_are_newest_first_and_page_without_loss(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with open_home(parts=Parts(clock=clock)) as app:
        for number in range(7):
            clock.pass_time(timedelta(seconds=number % 2))
            await open_session(app, f"api:s{number}")
        seen: list[SessionSummary] = []
        cursor = None
        while True:
            page = await app.services.sessions.list(OWNER, SessionFilter(), limit=3, after=cursor)
            seen += page.sessions
            if (cursor := page.next) is None:
                break
        assert len(seen) == 7 == len({session.row for session in seen})
        times = [session.updated_at for session in seen]
        assert times == sorted(times, reverse=True)
