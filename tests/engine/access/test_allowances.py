"""What each guest may take: sessions, bytes and runs that wait. The owner has no such bounds."""

from datetime import timedelta

import pytest

from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.errors import AntiphonError, Denied, Limited
from antiphon.domain.ids import RunId
from antiphon.domain.message import ImagePart, Part, text_content
from antiphon.domain.session import NOWHERE
from antiphon.engine.access.buckets import MAX_BUCKETS, Buckets
from antiphon.policy.shares import Rate, Rates
from antiphon.store.database import Query
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import HeldRunner, ManualClock, config, open_session, post, wait_end
from tests.people import guest

pytestmark = pytest.mark.anyio

EVE = guest("eve")
BOB = guest("bob")


async def join(app: App, who: Principal, chat: str) -> None:
    target = app.services.sessions.target(f"agent:main:test:direct:{chat}")
    await app.services.sessions.open(who, target, place=NOWHERE)


async def say(app: App, who: Principal, chat: str, *content: Part, message_id: str | None = None) -> RunId | None:
    target = app.services.sessions.target(f"agent:main:test:direct:{chat}")
    parts = content or text_content("hello")
    return (await app.services.inbox.post(who, target, parts, message_id=message_id)).run_id


@requirement("access:1")
async def test_a_guest_takes_part_in_so_many_sessions(open_home: OpenHome) -> None:
    async with open_home(config(limits__guest__sessions=2)) as app:
        for _ in range(2):
            await join(app, EVE, "one")
            await join(app, EVE, "two")
        await join(app, BOB, "three")
        for chat in ("three", "four"):  # another's, and a new one
            with pytest.raises(Denied) as refused:
                await join(app, EVE, chat)
            assert refused.value.code == "guest_sessions"
        found = await app.database.read(_keys)
        assert "agent:main:test:direct:four" not in found
        target = app.services.sessions.target("agent:main:test:direct:one")
        await app.services.sessions.delete(OWNER, target)
        await join(app, EVE, "four")
        for number in range(5):
            await open_session(app, f"cli:{number}")


@requirement("access:1")
async def test_a_guest_stores_so_many_bytes(open_home: OpenHome) -> None:
    async with open_home(config(limits__guest__stored_bytes=100)) as app:
        await join(app, EVE, "one")
        await join(app, EVE, "two")
        await say(app, EVE, "one", *text_content("é" * 20), message_id="m-1")
        await say(app, EVE, "two", ImagePart(mime_type="image/png", data="A" * 40))
        for content in (text_content("x" * 21), (ImagePart(mime_type="image/png", data="A" * 24),)):
            with pytest.raises(Denied) as refused:
                await say(app, EVE, "two", *content)
            assert refused.value.code == "guest_bytes"
            with pytest.raises(Denied):
                await app.services.inbox.append(
                    EVE, app.services.sessions.target("agent:main:test:direct:one"), content
                )
        await say(app, EVE, "one", *text_content("é" * 20), message_id="m-1")  # the same again
        await say(app, EVE, "one", *text_content("x" * 20))
        await post(app, "main", "x" * 1000)


@requirement("access:1", "runs:4")
async def test_a_guest_has_so_many_runs_waiting(open_home: OpenHome) -> None:
    runner = HeldRunner()
    async with open_home(config(limits__guest__queued_runs=2), Parts(runner=runner)) as app:
        await join(app, EVE, "one")
        await join(app, EVE, "two")
        await join(app, BOB, "three")
        runs = [await say(app, EVE, "one")]
        await runner.until_begun(1)
        runs += [await say(app, EVE, "one"), await say(app, EVE, "one")]
        for chat in ("one", "two"):
            with pytest.raises(Limited) as refused:
                await say(app, EVE, chat)
            assert (refused.value.code, refused.value.retry_after_seconds) == ("guest_runs", 5)
        runs.append(await say(app, BOB, "three"))
        runs += [(await post(app, "main", f"m{number}")).run_id for number in range(5)]
        runner.release_all()
        for run in runs:
            await wait_end(app, run)
        await wait_end(app, await say(app, EVE, "two"))


async def test_a_bucket_fills_with_time_and_forgets_who_asked_long_ago() -> None:
    clock = ManualClock()
    buckets = Buckets(Rates(guest=Rate(per_minute=30, burst=2), owner=Rate(per_minute=60, burst=1)), clock)
    buckets.take(EVE, is_favoured=False)
    buckets.take(EVE, is_favoured=False)
    assert wait_of(buckets, EVE) == 2
    clock.pass_time(timedelta(hours=1))
    buckets.take(EVE, is_favoured=False)
    buckets.take(EVE, is_favoured=False)
    assert wait_of(buckets, EVE) == 2
    buckets.take(BOB, is_favoured=False)
    buckets.take(OWNER, is_favoured=True)
    assert wait_of(buckets, OWNER) == 1
    for number in range(MAX_BUCKETS):
        buckets.take(guest(str(number)), is_favoured=False)
    buckets.take(EVE, is_favoured=False)  # forgotten


def wait_of(buckets: Buckets, who: Principal) -> int:
    with pytest.raises(AntiphonError) as refused:
        buckets.take(who, is_favoured=who == OWNER)
    assert isinstance(refused.value, Limited) and refused.value.code == "rate_limited"
    return refused.value.retry_after_seconds


async def _keys(query: Query) -> list[str]:
    return [row[0] for row in await query.fetch_all("SELECT key FROM sessions")]
