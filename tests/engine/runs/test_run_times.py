"""How long a run may take: the default of all runs, and what takes its place."""

from datetime import timedelta
from typing import Any

import pytest

from antiphon.domain.run import Run
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ask, config, find_run, open_session
from tests.story import telling

pytestmark = pytest.mark.anyio


def time_of(run: Run) -> timedelta | None:
    assert run.started_at is not None
    return None if run.deadline is None else run.deadline - run.started_at


@requirement("runs:6")
@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 1_800),
        ({"limits__run": {"time_seconds": 60}}, 60),
        ({"limits__run": {"time_seconds": 0}}, None),
        ({"agents__list": [{"id": "main", "limits": {"time_seconds": 7_200}}]}, 7_200),
        ({"agents__list": [{"id": "main", "limits": {"time_seconds": 0}}]}, None),
        ({"agents__list": [{"id": "main", "limits": {"tokens": 9_000}}]}, 1_800),
    ],
)
async def test_a_run_has_half_an_hour_unless_settings_say_otherwise(
    open_home: OpenHome, settings: dict[str, Any], seconds: float | None
) -> None:
    async with open_home(config(**settings)) as app:
        await open_session(app, "api:a")
        run = await find_run(app, (await ask(app, "api:a", "hi")).id)
        assert time_of(run) == (None if seconds is None else timedelta(seconds=seconds))


@requirement("runs:6", "spawn:3")
async def test_the_limit_that_a_spawn_names_takes_the_place_of_the_default(open_home: OpenHome) -> None:
    async with telling(open_home) as story:
        boss = await story.opens("boss")
        found: list[timedelta | None] = []
        for arguments in ({}, {"runTimeoutSeconds": 5}, {"runTimeoutSeconds": 7_200}, {"runTimeoutSeconds": 0}):
            child = await boss.spawns("!say x", **arguments)
            await story.settles()
            found.append(time_of(await story.run(child.run_id)))
    assert found == [timedelta(seconds=1_800), timedelta(seconds=5), timedelta(seconds=7_200), None]
