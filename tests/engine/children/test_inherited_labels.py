"""Who inherits a child that holds more than itself does not learn the label that the deleted session gave it."""

import pytest

from antiphon.domain.classification import Level
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_spawn, wait_at
from tests.engine.runs.test_classified_runs import PARTS
from tests.story import NESTED, telling

pytestmark = pytest.mark.anyio


@requirement("flow:6", "flow:13")
async def test_an_heir_does_not_learn_a_label_that_was_made_of_more_than_it_holds(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS, **NESTED) as story:
        boss = await story.opens("boss")
        leaf = {"task": wait_at("leaf", "leaf words"), "label": "codename", "model": "offline"}
        model = story.script(
            [
                {"calls": [{"name": "books", "arguments": {"year": 2026}}]},
                {"calls": [{"name": "sessions_spawn", "arguments": leaf}]},
                {"calls": [{"name": "sessions_yield"}]},
            ]
        )
        posted = await boss.hears(to_spawn("go", label="mid", model=model), wait_at("end"), "!say spawned")
        await story.comes_to("leaf")
        (mid,) = await boss.children()
        await mid.parks()
        (child,) = await mid.children()
        assert (await child.session()).base.level is Level.CONFIDENTIAL
        await story.deletes(mid)
        story.opens_gate("leaf")
        await story.until(lambda runs: any(run.session_key == child.key and run.is_over for run in runs))
        story.opens_gate("end")
        await story.end_of(posted)
        await story.settles()
        assert (await boss.session()).taint.level is Level.PUBLIC
        assert [text for text in await boss.texts() if "codename" in text] == []
