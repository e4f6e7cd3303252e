from datetime import timedelta

import pytest

from antiphon.building import Parts
from antiphon.config.sources import load_config
from antiphon.domain.actor import OWNER
from antiphon.domain.errors import Conflict
from antiphon.engine.access.reach import Rights
from antiphon.engine.sessions.deletion import delete_session
from antiphon.engine.sessions.sessions import SessionFilter
from antiphon.engine.sessions.upkeep import Upkeep
from antiphon.store import arrivals
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock
from tests.story import telling

pytestmark = pytest.mark.anyio

KEPT = timedelta(days=30)


@requirement("sessions:8")
async def test_events_past_the_retention_go_and_cursors_into_them_are_refused(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        app, services, old = story.app, story.app.services, await story.opens("old")
        for text in ("one", "two"):
            await old.answers(text)
        clock.pass_time(KEPT + timedelta(days=1))
        await old.answers("three")
        session = await old.session()
        upkeep = Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=KEPT)
        assert await upkeep.prune() == 9
        assert await old.texts() == ["three", "echo: three"]
        page = await services.history.page(OWNER, old.target, limit=10)
        assert page.session.first_seq == 10 and page.last_seq == session.last_seq
        with pytest.raises(Conflict, match="pruned"):
            await services.history.page(OWNER, old.target, limit=10, before=3)
        with pytest.raises(Conflict):
            await services.forks.fork(OWNER, old.target, 3)
        assert await upkeep.prune() == 0
        await old.answers("four")
        assert (await old.texts())[-1] == "echo: four"


@requirement("sessions:2")
async def test_sessions_that_nobody_used_are_hidden_until_they_are(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        app, quiet = story.app, await story.opens("quiet")
        clock.pass_time(timedelta(days=8))
        busy = await story.opens("busy")
        upkeep = Upkeep(app.database, app.workspaces, clock, stale_after=timedelta(days=7), retention=None)
        assert await upkeep.hide_stale() == 1
        sessions = app.services.sessions
        listed = [str(row.key) for row in (await sessions.list(OWNER, SessionFilter(), limit=10)).sessions]
        assert listed == [busy.key]
        everything = await sessions.list(OWNER, SessionFilter(include_inactive=True), limit=10)
        assert len(everything.sessions) == 2
        await quiet.answers("hello")
        assert await upkeep.hide_stale() == 0
        assert len((await sessions.list(OWNER, SessionFilter(), limit=10)).sessions) == 2


@requirement("config:1")
def test_retention_is_configured_in_days() -> None:
    assert load_config(None, environment={"ANTIPHON_SESSION__RETENTION_DAYS": "30"}).rules().retention == KEPT


@requirement("sessions:7")
async def test_what_a_deletion_left_behind_in_a_crash_goes_with_the_next_start(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        app, going = story.app, await story.opens("going")
        living, doomed = await (await story.opens("living")).session(), await going.session()
        kept, left = (app.workspaces.of(each.agent_id, each.row, each.created_at).open() for each in (living, doomed))
        (left / "file").touch()
        await app.database.run(delete_session, Rights(OWNER, app.services.rules), going.target)
    others = [kept.parent / name for name in ("notes", f"{doomed.row}-1", "999999-1", f"{left.name}.old")]
    for path in others:
        path.mkdir()
    (link := kept.parent / "1-2").symlink_to(kept)

    async def is_left() -> bool:
        return left.exists()

    async with telling(open_home) as story:
        await story.sees(is_left, lambda is_left: not is_left)
    assert all(path.exists() for path in (kept, *others, link))


@requirement("channels:1")
async def test_what_came_in_long_ago_is_forgotten(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with telling(open_home, Parts(clock=clock)) as story:
        app = story.app
        old, new = (arrivals.ArrivalName("webhook", "door", name) for name in ("old", "new"))
        command = arrivals.ArrivalRow(arrivals.ArrivalOutcome.COMMAND, None)
        await app.database.run(arrivals.store, old, command, clock.now_ms())
        clock.pass_time(timedelta(days=7, seconds=1))
        await app.database.run(arrivals.store, new, command, clock.now_ms())
        await Upkeep(app.database, app.workspaces, clock, stale_after=None, retention=None).forget_arrivals()
        assert await app.database.read(arrivals.find, old) is None
        assert await app.database.read(arrivals.find, new) == command
