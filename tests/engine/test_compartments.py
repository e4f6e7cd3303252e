"""Compartments: named by owners, for good."""

import pytest

from antiphon.app import App
from antiphon.domain.actor import OWNER, Principal, PrincipalKind
from antiphon.domain.classification import MAX_COMPARTMENTS, Classification, Level
from antiphon.domain.errors import Conflict, Denied, Invalid
from antiphon.domain.event import EventType
from tests.claims import requirement
from tests.conftest import OpenHome
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
