"""What needs a person, who is at work, and what was done: one snapshot, within the person's rights."""

from collections.abc import AsyncGenerator
from typing import cast

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole, person_principal
from antiphon.domain.run import RunStatus
from antiphon.engine.overview import Overview, Overviews
from antiphon.store.database import Database
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.counted import CountedDatabase
from tests.engine.stage import ask, post
from tests.people import guest
from tests.story import Story

pytestmark = pytest.mark.anyio


@pytest.fixture
async def story(open_home: OpenHome) -> AsyncGenerator[Story]:
    async with open_home() as app:
        yield Story(app)


async def overview(story: Story) -> Overview:
    return await story.app.services.overviews.read(OWNER)


@requirement("runs:1")
async def test_who_is_at_work_and_what_was_done(story: Story) -> None:
    rests, works = await story.opens("rests"), await story.opens("works")
    await ask(story.app, str(rests.key), "hello")
    posted = await post(story.app, str(works.key), "!sleep 60")
    assert posted.run_id is not None
    await story.until_running(posted.run_id)
    found = await overview(story)
    assert [(str(each.session.key), each.run.principal) for each in found.working] == [(works.key, OWNER)]
    assert found.working_count == 1
    assert [(str(each.session.key), each.run.status) for each in found.done] == [(rests.key, RunStatus.OK)]
    assert found.needs.count == 0


@requirement("access:1")
async def test_a_person_finds_only_what_is_theirs(story: Story) -> None:
    mine, other = await story.opens("mine"), await story.opens("other")
    for each in (mine, other):
        await ask(story.app, str(each.key), "hello")
    people = story.app.services.people
    eve = person_principal((await people.invite(OWNER, "Eve", PersonRole.USER, frozenset())).person.id)
    await mine.admits(eve)
    found = await story.app.services.overviews.read(eve)
    assert [str(each.session.key) for each in found.done] == [mine.key]
    assert (list(found.working), found.working_count, found.needs.count) == ([], 0, 0)
    found = await story.app.services.overviews.read(guest("nobody"))
    assert (list(found.working), list(found.done), found.needs.count) == ([], [], 0)


async def test_the_number_of_statements_does_not_grow_with_the_sessions(story: Story) -> None:
    counted = CountedDatabase(story.app.database)
    overviews = Overviews(cast(Database, counted), story.app.services.rules, story.app.services.clock)

    async def count() -> int:
        counted.statements = 0
        await overviews.read(OWNER)
        return counted.statements

    for name in ("first", "second"):
        await ask(story.app, str((await story.opens(name)).key), "hello")
    before = await count()
    for number in range(20):
        await ask(story.app, str((await story.opens(f"n{number}")).key), "hello")
    assert await count() == before
