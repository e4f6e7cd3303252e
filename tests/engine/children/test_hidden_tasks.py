"""What a session gave its children while it held more: its next incarnation and lower readers do not learn it."""

import json

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import Parts
from antiphon.domain.classification import PUBLIC, Level
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call, to_spawn
from tests.engine.runs.test_classified_runs import BOOKS, PARTS
from tests.story import telling

pytestmark = pytest.mark.anyio

CANARY = "canary-51c0"


def vault() -> str:
    """Reads the vault."""
    return "the vault"


HIGHER = Parts(
    tools=[
        *PARTS.tools,
        tool(vault, name="vault", effects=["reads"], classification={"level": "RESTRICTED"}),
    ]
)


@requirement("flow:3", "sessions:6", "spawn:8")
async def test_after_a_reset_a_session_does_not_read_what_it_gave_its_children(open_home: OpenHome) -> None:
    async with telling(open_home, PARTS) as story:
        boss = await story.opens("boss")
        await boss.answers(BOOKS, to_spawn(f"!say {CANARY}", label=f"label {CANARY}", mode="session"))
        await story.settles()
        assert CANARY in json.dumps(await boss.lists_children())
        await story.resets(boss)
        assert (await boss.session()).taint == PUBLIC
        (child,) = await boss.lists_children()
        assert CANARY not in json.dumps(child) and child["withheld"] is True
        missing = await boss.calls("subagents", action="list", target="label nobody")
        hidden = await boss.calls("subagents", action="list", target=f"label {CANARY}")
        assert hidden["code"] == missing["code"] == "not_found"
        assert len(await boss.lists_children(target=child["sessionKey"])) == 1


@requirement("flow:2", "flow:6", "spawn:7")
async def test_a_notice_that_a_result_waits_is_as_classified_as_the_name_in_it(open_home: OpenHome) -> None:
    async with telling(open_home, HIGHER) as story:
        boss = await story.opens("boss")
        await boss.answers(BOOKS, to_spawn(to_call("vault"), label=f"label {CANARY}"))
        await story.settles()
        (record,) = await boss.records()
        assert "may not read" in record.result
        taint = (await boss.session()).taint
        assert taint.level is Level.CONFIDENTIAL
        named = [event for event in await boss.log() if CANARY in str(event.message)]
        asked, *others = (event.classification.level for event in named)
        assert asked is Level.PUBLIC and len(others) >= 2  # the person's words, the call, and the notice
        assert set(others) == {Level.CONFIDENTIAL}
        assert (await boss.session()).preview_made_of.level is Level.CONFIDENTIAL
