"""Compartments: named by owners, for good."""

import pytest

from antiphon.agents.toolset import tool
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import MAX_COMPARTMENTS, Classification, Level
from antiphon.domain.errors import Conflict, Denied, Invalid
from antiphon.domain.event import EventType
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import to_call
from tests.story import Story, settings, telling

pytestmark = pytest.mark.anyio

GUEST = Principal(PrincipalKind.PERSON, "webhook:x")


async def names_in(app: App) -> tuple[str, ...]:
    return (await app.services.compartments.list(OWNER)).names


@requirement("flow:1")
async def test_compartments_keep_their_order_over_a_restart(open_home: OpenHome) -> None:
    async with open_home() as app:
        assert await names_in(app) == ()
        for name in ("finance", "health"):
            await app.services.compartments.create(OWNER, name)
    async with open_home() as app:
        assert await names_in(app) == ("finance", "health")
        with pytest.raises(Conflict) as taken:
            await app.services.compartments.create(OWNER, "finance")
        assert taken.value.code == "compartment_exists"
        with pytest.raises(Invalid):
            await app.services.compartments.create(OWNER, "Finance")


@requirement("flow:1")
async def test_the_sixty_third_compartment_is_refused(open_home: OpenHome) -> None:
    async with open_home() as app:
        for number in range(MAX_COMPARTMENTS):
            await app.services.compartments.create(OWNER, f"c{number}")
        with pytest.raises(Conflict) as refused:
            await app.services.compartments.create(OWNER, "one-more")
        assert refused.value.code == "too_many_compartments"
        assert len(await names_in(app)) == MAX_COMPARTMENTS


@requirement("flow:1", "access:4")
async def test_only_owners_name_compartments(open_home: OpenHome) -> None:
    async with open_home() as app:
        with pytest.raises(Denied):
            await app.services.compartments.create(GUEST, "finance")
        with pytest.raises(Denied):
            await app.services.compartments.list(GUEST)
        assert await names_in(app) == ()


@requirement("flow:1", "flow:2")
async def test_a_setting_names_a_compartment_and_the_session_takes_it(open_home: OpenHome) -> None:
    async with open_home() as app:
        await app.services.compartments.create(OWNER, "health")
        await app.services.compartments.create(OWNER, "finance")
        story = Story(app)
        await (await story.opens("desk")).answers("hello")
    agents = [{"id": "main", "classification": {"level": "INTERNAL", "compartments": ["finance"]}}]
    async with telling(open_home, agents__list=agents) as story:
        desk = story.session("desk")
        await desk.answers("hello")
        assert (await desk.session()).taint == Classification(Level.INTERNAL, 0b10)
        (raised,) = [event for event in await desk.log() if event.type == EventType.TAINT_RAISED]
        assert raised.data["to"] == {"level": "INTERNAL", "compartments": ["finance"], "integrity": "trusted"}


@requirement("flow:1")
async def test_a_home_with_an_unknown_compartment_in_its_settings_does_not_open(open_home: OpenHome) -> None:
    agents = [{"id": "main", "classification": {"level": "INTERNAL", "compartments": ["finance"]}}]
    with pytest.raises(Invalid, match=r"classification\.compartments") as refused:
        async with open_home(settings(agents__list=agents)):
            pass
    assert refused.value.code == "invalid_config"


@requirement("flow:1", "flow:2")
async def test_a_setting_puts_what_a_function_brings_into_a_compartment(
    open_home: OpenHome, caplog: pytest.LogCaptureFixture
) -> None:
    def look_up(word: str) -> str:
        """Looks up a word."""
        return f"found {word}"

    functions = {
        name: {"classification": {"level": "PUBLIC", "compartments": ["finance"]}} for name in ("look_up", "elsewhere")
    }
    parts = Parts(tools=[tool(look_up, effects=["reads"])])
    with pytest.raises(Invalid, match=r"tools\.functions\.look_up\.classification\.compartments"):
        async with open_home(settings(tools__functions=functions), parts):
            pass
    async with open_home() as app:
        await app.services.compartments.create(OWNER, "finance")
    async with telling(open_home, parts, tools__functions=functions) as story:
        desk = await story.opens("desk")
        await desk.answers(to_call("look_up", word="x"))
        assert (await desk.session()).taint == Classification(Level.PUBLIC, 1)
    ineffective = [getattr(each, "setting", None) for each in caplog.records]
    assert any("tools.functions.elsewhere names no function of this program" in str(each) for each in ineffective)
