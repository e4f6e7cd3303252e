"""When somebody was last seen at an account, to the hour, for as little as that is worth."""

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.domain.person import Identity
from antiphon.policy.chats import ChannelAccess
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.chats.lobby import ACCOUNT, CHANNEL, Lobby, lobby
from tests.engine.stage import START, ManualClock

pytestmark = pytest.mark.anyio


async def seen(scene: Lobby, sender: str = "42") -> Mapping[Identity, datetime]:
    known = await scene.app.services.people.get(OWNER, str(await scene.person_of(sender)))
    (listed,) = [
        each
        for each in await scene.app.services.people.list(OWNER, after=None, limit=50)
        if each.person == known.person
    ]
    assert {each: listed.seen_at.get(each) for each in listed.identities} == known.seen_at
    return known.seen_at


@requirement("access:3")
async def test_an_account_is_seen_to_the_hour_in_chats_and_groups(open_home: OpenHome) -> None:
    clock = ManualClock()
    account = Identity(channel=CHANNEL, account=ACCOUNT, platform_id="42")

    async def hears_after(minutes: int, **more: Any) -> timedelta:
        clock.pass_time(timedelta(minutes=minutes))
        await scene.hears("42", "hello", **more)
        return (await seen(scene))[account] - START

    async with lobby(open_home, Parts(clock=clock), access=ChannelAccess.PUBLIC) as scene:
        assert await hears_after(0) == timedelta(0)
        assert await hears_after(59) == timedelta(0)
        assert await hears_after(1) == timedelta(hours=1)
        assert await hears_after(60, group="-100") == timedelta(hours=2)
        clock.step(timedelta(hours=-5))
        assert await hears_after(0) == timedelta(hours=-3), "a clock that was set back keeps nobody in the future"


@requirement("access:3")
async def test_what_is_not_proven_to_be_somebodys_does_not_show_them(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with lobby(open_home, Parts(clock=clock), access=ChannelAccess.PUBLIC) as scene:
        await scene.hears("42", "hello")
        before = await seen(scene)
        clock.pass_time(timedelta(hours=2))
        await scene.hears("42", "hello", is_proven=False)
        assert await seen(scene) == before
