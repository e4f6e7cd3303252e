"""Who is at work: one line a busy session, whatever it was asked and whomever it waits for."""

from collections.abc import AsyncGenerator

import pytest

from antiphon.app import App
from antiphon.domain.actor import OWNER
from antiphon.domain.message import ImagePart, TextPart
from antiphon.store.activities import LONGEST_PAYLOAD
from tests.conftest import OpenHome
from tests.engine.family import spawn_directive
from tests.engine.parley import is_running, key_of, open_peer, send_directive, settings, target_of, until_work
from tests.engine.stage import ask, post

pytestmark = pytest.mark.anyio


@pytest.fixture
async def app(open_home: OpenHome) -> AsyncGenerator[App]:
    async with open_home(settings(gateway__drain_seconds=0)) as app:
        yield app


async def test_nobody_is_at_work_when_all_runs_have_ended(app: App) -> None:
    await open_peer(app, "a")
    await ask(app, key_of("a"), "hello")
    work = await app.services.activities.now(OWNER, limit=10)
    assert (list(work.activities), work.total) == ([], 0)
    (process,) = work.processes.values()
    assert process.agents == ("main",) and process.role == "all"


async def test_a_busy_session_has_one_line_with_its_request_and_process(app: App) -> None:
    await open_peer(app, "a", label="A")
    await open_peer(app, "b")
    running = await post(app, key_of("a"), "!sleep 60")
    await post(app, key_of("a"), "the second")
    await post(app, key_of("a"), "the third")
    work = await until_work(app, is_running("a"))
    (activity,) = work.activities
    assert (activity.run, activity.label, activity.unfinished) == (running.run_id, "A", 3)
    assert work.requests == {running.run_id: "!sleep 60"}
    assert activity.process in work.processes
    assert activity.started_at is not None and activity.since == activity.started_at
    await post(app, key_of("b"), "!sleep 60")
    work = await until_work(app, is_running("b"))
    assert [each.session_key for each in work.activities] == [key_of("a"), key_of("b")]
    few = await app.services.activities.now(OWNER, limit=1)
    assert ([each.session_key for each in few.activities], few.total) == ([key_of("a")], 2)


async def test_a_session_that_waits_names_the_one_whose_run_it_waits_for(app: App) -> None:
    await open_peer(app, "asker")
    expert = await open_peer(app, "expert", label="The expert")
    await post(app, key_of("asker"), send_directive("!sleep 60", sessionKey=str(expert.key), timeoutSeconds=60))
    work = await until_work(app, lambda work: any(each.waits_for for each in work.activities))
    asker = next(each for each in work.activities if each.session_key == key_of("asker"))
    assert asker.waits_for == ((str(expert.key), "The expert"),)
    assert asker.waits_until is not None
    other = next(each for each in work.activities if each.session_key == str(expert.key))
    assert other.waits_for == ()


async def test_of_a_request_that_is_large_the_preview_is_told(app: App) -> None:
    session = await open_peer(app, "a")
    picture = ImagePart(mime_type="image/png", data="A" * LONGEST_PAYLOAD)
    posted = await app.services.inbox.post(
        OWNER, target_of(app, session), (TextPart(text="!sleep 60"), picture), message_id="large"
    )
    work = await until_work(app, is_running("a"))
    assert posted.run_id not in work.requests
    assert work.activities[0].preview == "!sleep 60"


async def test_a_session_that_yielded_waits_for_its_children(app: App) -> None:
    await open_peer(app, "asker")
    calls = [spawn_directive(f"!sleep 6{number}", label=f"Part {number}") for number in range(2)]
    await post(app, key_of("asker"), "\n".join([*calls, "!call sessions_yield {}"]))
    work = await until_work(app, lambda work: any(each.is_parked for each in work.activities))
    (asker,) = [each for each in work.activities if each.session_key == key_of("asker")]
    assert asker.is_parked and [awaited.label for awaited in asker.waits_for] == ["Part 0", "Part 1"]
