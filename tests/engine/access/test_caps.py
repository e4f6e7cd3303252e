"""What persons below owner may use in a day and send in a minute: each, and all guests together."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.errors import Conflict, Limited
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.run import Run, RunStatus
from antiphon.domain.session import NOWHERE, DeliveryContext
from antiphon.engine.sessions.inbox import Envelope
from antiphon.store.deliveries import DeliveryFilter
from antiphon.testing import Reply, fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import ManualClock, config, open_with_provider, read_log, texts, wait_end
from tests.people import guest

pytestmark = pytest.mark.anyio

EVE, BOB, CAT = guest("eve"), guest("bob"), guest("cat")
PLACE = DeliveryContext(channel="test", to="42")


@asynccontextmanager
async def counting(open_home: OpenHome, clock: ManualClock, **settings: Any) -> AsyncGenerator[App]:
    """A model of which each answer costs 15 tokens."""
    async with (
        fake_provider([Reply(text="yes")] * 20) as fake,
        open_with_provider(open_home, fake, Parts(clock=clock), **settings) as app,
    ):
        yield app


async def say(app: App, who: Principal, text: str = "hello", place: DeliveryContext = NOWHERE) -> Run:
    """A message in a chat of their own, and the end of its run."""
    target = app.services.sessions.target(f"agent:main:test:direct:{who.name}")
    await app.services.sessions.open(who, target, place=place)
    posted = await app.services.inbox.post(who, target, text_content(text), envelope=Envelope(place=place))
    return await wait_end(app, posted.run_id)


async def invite(app: App, name: str, role: PersonRole = PersonRole.USER) -> Principal:
    return (await app.services.people.invite(OWNER, name, role)).person.principal


@requirement("runs:6")
async def test_each_guest_and_all_guests_together_have_a_cap_and_others_go_on(open_home: OpenHome) -> None:
    clock = ManualClock()
    settings = {"limits__guest": {"tokens": 30}, "limits__guests": {"tokens": 45}}
    async with counting(open_home, clock, **settings) as app:
        said: list[tuple[Principal, str | None]] = [(EVE, None), (EVE, None), (EVE, "person_cap"), (BOB, None)]
        ann = await invite(app, "Ann")
        others = [(CAT, "guests_cap"), (BOB, "guests_cap"), *[(who, None) for who in (ann, OWNER, ann, OWNER)]]
        for who, code in (*said, *others):
            run = await say(app, who)
            assert (run.code, run.status) == (code, RunStatus.OK if code is None else RunStatus.ERROR), who
        last = await say(app, EVE, "stored all the same")
        assert last.error is not None and "30 tokens a day" in last.error and "limits.guest" in last.error
        assert "stored all the same" in texts(await read_log(app, "agent:main:test:direct:eve"))
        clock.pass_time(timedelta(days=1))
        assert (await say(app, EVE)).code is None


@requirement("runs:6", "access:1")
async def test_the_cap_is_that_of_the_present_role(open_home: OpenHome) -> None:
    settings = {"limits__guest": {"tokens": 20}, "limits__user": {"tokens": 40}}
    async with counting(open_home, ManualClock(), **settings) as app:
        ann, people = await invite(app, "Ann"), app.services.people
        assert [(await say(app, ann)).code for _ in range(2)] == [None, None]
        for role, code in ((PersonRole.GUEST, "person_cap"), (PersonRole.USER, None), (PersonRole.USER, "person_cap")):
            await people.change_role(OWNER, "ann", role)
            assert (await say(app, ann)).code == code
        await people.change_role(OWNER, "ann", PersonRole.OWNER)
        assert (await say(app, ann)).code is None


@requirement("runs:6", "access:3")
async def test_merged_persons_share_a_cap(open_home: OpenHome) -> None:
    async with counting(open_home, ManualClock(), limits__user={"tokens": 30}) as app:
        ann, ben = await invite(app, "Ann"), await invite(app, "Ben")
        for who in (ann, ben):
            assert (await say(app, who)).code is None
        await app.services.people.merge(OWNER, "ben", "ann")
        for who in (ann, ben):
            assert (await say(app, who)).code == "person_cap"


@requirement("runs:6")
async def test_of_a_cap_a_person_is_told_once_a_day_in_their_chat(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with counting(open_home, clock, limits__guest={"tokens": 0}) as app:
        for day in (1, 2):
            for who in (EVE, EVE, BOB):
                assert (await say(app, who, place=PLACE)).code == "person_cap"
            told = [delivery.text for delivery in await app.services.deliveries.list(OWNER, DeliveryFilter(), limit=9)]
            assert len(told) == 2 * day and all("share for today" in text for text in told)
            clock.pass_time(timedelta(days=1))


@requirement("access:4")
async def test_messages_beyond_so_many_in_a_minute_are_refused_and_not_stored(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with open_home(config(access__messages_per_minute=3), Parts(clock=clock)) as app:
        for number in range(3):
            await say(app, EVE, f"text {number}")
            clock.pass_time(timedelta(seconds=10))
        before = await read_log(app, "agent:main:test:direct:eve")
        with pytest.raises(Limited) as refused:
            await say(app, EVE, "one more")
        assert (refused.value.code, refused.value.retry_after_seconds) == ("too_many_messages", 30)
        target = app.services.sessions.target("agent:main:test:direct:eve")
        with pytest.raises(Limited):
            await app.services.inbox.append(EVE, target, text_content("one more"))
        after = await read_log(app, "agent:main:test:direct:eve")
        assert texts(after) == texts(before)
        assert (await say(app, BOB)).status is RunStatus.OK
        for number in range(5):
            assert (await say(app, OWNER, f"mine {number}")).status is RunStatus.OK
        clock.step(timedelta(days=-1))
        assert (await say(app, EVE)).status is RunStatus.OK


@requirement("access:4")
async def test_a_repeated_message_counts_once(open_home: OpenHome) -> None:
    async with open_home(config(access__messages_per_minute=1), Parts(clock=ManualClock())) as app:
        await say(app, EVE, "hello")
        target = app.services.sessions.target("agent:main:test:direct:bob")
        await app.services.sessions.open(BOB, target, place=NOWHERE)
        posted = [await app.services.inbox.post(BOB, target, text_content("same"), message_id="m") for _ in range(3)]
        assert len({each.seq for each in posted}) == 1
        with pytest.raises(Conflict):
            await app.services.inbox.post(BOB, target, text_content("other"), message_id="m")
