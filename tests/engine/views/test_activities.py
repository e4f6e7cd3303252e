"""Who is at work: one line a busy session, whatever it was asked and whomever it waits for."""

from collections.abc import AsyncGenerator, Callable

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.message import ImagePart, TextPart
from antiphon.engine.views.activities import Work
from antiphon.store.activities import LONGEST_PAYLOAD
from tests.conftest import OpenHome
from tests.directives import YIELD, to_send, to_spawn
from tests.story import Character, Story, telling

pytestmark = pytest.mark.anyio


@pytest.fixture
async def story(open_home: OpenHome) -> AsyncGenerator[Story]:
    async with telling(open_home, gateway__drain_seconds=0) as story:
        yield story


def is_running(character: Character) -> Callable[[Work], bool]:
    """Whether the session has a run that was begun."""

    def holds(work: Work) -> bool:
        return any(each.session_key == character.key and each.started_at is not None for each in work.activities)

    return holds


async def test_nobody_is_at_work_when_all_runs_have_ended(story: Story) -> None:
    a = await story.opens("a")
    await a.answers("hello")
    work = await story.app.services.activities.now(OWNER, limit=10)
    assert (list(work.activities), work.total) == ([], 0)
    (process,) = work.processes.values()
    assert process.agents == ("main",) and process.role == "all"


async def test_a_busy_session_has_one_line_with_its_request_and_process(story: Story) -> None:
    a, b = await story.opens("a", label="A"), await story.opens("b")
    running = await a.hears("!sleep 60")
    await a.hears("the second")
    await a.hears("the third")
    work = await story.until_work(is_running(a))
    (activity,) = work.activities
    assert (activity.run, activity.label, activity.unfinished) == (running, "A", 3)
    assert work.requests == {running: "!sleep 60"}
    assert activity.process in work.processes
    assert activity.started_at is not None and activity.since == activity.started_at
    await b.hears("!sleep 60")
    work = await story.until_work(is_running(b))
    assert [each.session_key for each in work.activities] == [a.key, b.key]
    few = await story.app.services.activities.now(OWNER, limit=1)
    assert ([each.session_key for each in few.activities], few.total) == ([a.key], 2)


async def test_a_session_that_waits_names_the_one_whose_run_it_waits_for(story: Story) -> None:
    asker, expert = await story.opens("asker"), await story.opens("expert", label="The expert")
    await asker.hears(to_send("!sleep 60", sessionKey=expert.key, timeoutSeconds=60))
    work = await story.until_work(lambda work: any(each.waits_for for each in work.activities))
    waiting = next(each for each in work.activities if each.session_key == asker.key)
    assert waiting.waits_for == ((expert.key, "The expert"),)
    assert waiting.waits_until is not None
    other = next(each for each in work.activities if each.session_key == expert.key)
    assert other.waits_for == ()


async def test_of_a_request_that_is_large_the_preview_is_told(story: Story) -> None:
    a = await story.opens("a")
    picture = ImagePart(mime_type="image/png", data="A" * LONGEST_PAYLOAD)
    posted = await story.app.services.inbox.post(OWNER, a.target, (TextPart(text="!sleep 60"), picture))
    work = await story.until_work(is_running(a))
    assert posted.run_id not in work.requests
    assert work.activities[0].preview == "!sleep 60"


async def test_a_session_that_yielded_waits_for_its_children(story: Story) -> None:
    asker = await story.opens("asker")
    await asker.hears(*(to_spawn(f"!sleep 6{number}", label=f"Part {number}") for number in range(2)), YIELD)
    work = await story.until_work(lambda work: any(each.is_parked for each in work.activities))
    (waiting,) = [each for each in work.activities if each.session_key == asker.key]
    assert waiting.is_parked and [awaited.label for awaited in waiting.waits_for] == ["Part 0", "Part 1"]
