"""An account is admitted as a person who acts as another by now, or who is suspended."""

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole
from antiphon.domain.run import RunStatus
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import lobby
from tests.engine.stage import HeldRunner, wait_end

pytestmark = pytest.mark.anyio


@requirement("access:3", "access:1")
async def test_the_account_is_the_survivors_and_goes_with_them(open_home: OpenHome) -> None:
    async with lobby(open_home) as scene:
        people = scene.app.services.people
        anna = (await people.invite(OWNER, "Anna", PersonRole.USER)).person
        ben = (await people.invite(OWNER, "Ben", PersonRole.USER)).person
        await people.merge(OWNER, anna.id, ben.id)
        await scene.hears("42", "hello")
        admitted = await scene.pairings.approve(OWNER, await scene.code_of("42"), into=anna.id)
        assert admitted.person == ben.id
        known = await people.get(OWNER, ben.id)
        assert [each.platform_id for each in known.identities] == ["42"], (
            "it is the account of the one who acts with it"
        )


@requirement("access:3", "access:1")
async def test_the_account_is_told_nothing_that_is_for_owners_alone(open_home: OpenHome) -> None:
    """Anna was an owner before she was merged into Ben, who is none."""
    async with lobby(open_home) as scene:
        people = scene.app.services.people
        anna = (await people.invite(OWNER, "Anna", PersonRole.OWNER)).person
        ben = (await people.invite(OWNER, "Ben", PersonRole.USER)).person
        await people.merge(OWNER, anna.id, ben.id)
        await scene.hears("42", "hello")
        admitted = await scene.pairings.approve(OWNER, await scene.code_of("42"), into=anna.id)
        assert admitted.person == ben.id
        before = await scene.told("42")
        await scene.hears("43", "my secret first words", name="Stranger")
        assert await scene.told("42") == before, "only owners are asked who is admitted"


@requirement("access:3", "access:1")
async def test_what_the_guest_has_begun_ends_when_they_become_somebody_suspended(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with lobby(open_home, Parts(runner=runner)) as scene:
        people = scene.app.services.people
        anna = (await people.invite(OWNER, "Anna", PersonRole.USER)).person
        await people.suspend(OWNER, anna.id)
        await scene.hears("1", "hello all", group="-5")
        await scene.app.services.groups.allow(OWNER, "telegram", "default", "-5")
        posted = (await scene.hears("42", "work for me", group="-5")).posted
        assert posted is not None
        await runner.until_begun(1)
        await scene.hears("42", "hello")
        await scene.pairings.approve(OWNER, await scene.code_of("42"), into=anna.id)
        assert (await wait_end(scene.app, posted.run_id)).status is RunStatus.CANCELLED
