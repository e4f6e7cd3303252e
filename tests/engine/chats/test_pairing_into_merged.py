"""An account is admitted as a person who acts as another by now."""

import pytest

from antiphon.domain.actor import OWNER
from antiphon.domain.person import PersonRole
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import lobby

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
