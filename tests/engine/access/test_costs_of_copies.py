"""What copies and metadata cost their maker, and what of an agent's day is left to owners."""

from typing import Any

import pytest

from antiphon.building import App
from antiphon.config.config import Config
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.agent import DailyLimits
from antiphon.domain.errors import Denied, Invalid
from antiphon.domain.message import JsonObject, text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.session import NOWHERE
from antiphon.engine.sessions.inbox import Envelope
from antiphon.engine.sessions.metadata import MAX_BYTES, MAX_DEPTH, MAX_NAMES, refuse_metadata
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.policy.caps import without_reserve
from antiphon.store.database import Query
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.stage import config, wait_end

pytestmark = pytest.mark.anyio

SHARE = 200_000


async def invite(app: App) -> Principal:
    return (await app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal


async def count(app: App, statement: str) -> int:
    async def read(query: Query) -> int:
        row = await query.fetch_one(statement)
        assert row is not None
        return int(row[0] or 0)

    return await app.database.read(read)


@requirement("access:4", "sessions:8")
async def test_forks_count_for_who_made_them_and_are_refused_before_a_row_is_written(open_home: OpenHome) -> None:
    settings = config(limits__guest={"stored_bytes": SHARE}, access__roles={"user": {"agents": ["main"]}})
    async with open_home(settings) as app:
        services, ann = app.services, await invite(app)
        target = services.sessions.target("agent:main:test:direct:ann")
        await services.sessions.open(ann, target, place=NOWHERE)
        posted = await services.inbox.post(ann, target, text_content("x" * 60_000), envelope=Envelope(place=NOWHERE))
        await wait_end(app, posted.run_id)
        forks = 0
        with pytest.raises(Denied) as refused:
            for _ in range(30):
                await services.forks.fork(ann, target, None)
                forks += 1
        assert refused.value.code == "guest_bytes" and 0 < forks < 4
        events, sessions = "SELECT COUNT(*) FROM events", "SELECT COUNT(*) FROM sessions"
        before = (await count(app, events), await count(app, sessions))
        with pytest.raises(Denied):
            await services.forks.fork(ann, target, None)
        assert (await count(app, events), await count(app, sessions)) == before
        assert await count(app, "SELECT SUM(LENGTH(payload)) FROM events") < 2 * SHARE


def nested(depth: int) -> dict[str, Any]:
    found: dict[str, Any] = {"a": 1}
    for _ in range(depth - 1):
        found = {"a": found}
    return found


@requirement("sessions:3")
@pytest.mark.parametrize(
    ("most", "more"),
    [
        ({"a": "x" * (MAX_BYTES - 8)}, {"a": "x" * (MAX_BYTES - 7)}),
        ({str(n): n for n in range(MAX_NAMES)}, {str(n): n for n in range(MAX_NAMES + 1)}),
        (nested(MAX_DEPTH), nested(MAX_DEPTH + 1)),
        ({"a": [[[[1]]]]}, {"a": [[[[[1]]]]]}),
        ({}, nested(900)),
    ],
    ids=["bytes", "names", "depth", "lists", "very deep"],
)
async def test_metadata_is_bounded(open_home: OpenHome, most: dict[str, Any], more: dict[str, Any]) -> None:
    async with open_home() as app:
        sessions = app.services.sessions
        await sessions.open(OWNER, sessions.target("api:most"), attributes=SessionAttributes(metadata=most))
        with pytest.raises(Invalid):
            await sessions.open(OWNER, sessions.target("api:more"), attributes=SessionAttributes(metadata=more))
        assert await count(app, "SELECT COUNT(*) FROM sessions WHERE key LIKE '%api:more'") == 0


@requirement("sessions:3")
async def test_metadata_does_not_grow_by_opening_again_and_counts_for_who_writes_it(open_home: OpenHome) -> None:
    async with open_home(config(limits__guest={"stored_bytes": SHARE})) as app:
        sessions, ann = app.services.sessions, await invite(app)

        async def put(key: str, name: str) -> None:
            attributes = SessionAttributes(metadata={name: "x" * 30_000})
            await sessions.open(ann, sessions.target(key), attributes=attributes, place=NOWHERE)

        await put("agent:main:test:direct:one", "a")
        await put("agent:main:test:direct:one", "b")
        with pytest.raises(Invalid):
            await put("agent:main:test:direct:one", "c")
        with pytest.raises(Denied) as refused:
            for number in range(9):
                await put(f"agent:main:test:direct:other{number}", "a")
        assert refused.value.code == "guest_bytes"
        stored = await count(app, "SELECT SUM(stored_bytes) FROM participants")
        assert 150_000 < stored <= SHARE


def test_what_is_stored_already_may_stay() -> None:
    large: JsonObject = {"a": "x" * (2 * MAX_BYTES)}
    refuse_metadata(large, {})
    refuse_metadata(large, large)
    with pytest.raises(Invalid):
        refuse_metadata(large, {"b": 1})


@requirement("runs:6")
def test_guests_have_half_of_a_day_unless_a_setting_says_more_and_owners_a_reserve() -> None:
    caps = Config.model_validate({"limits": {"daily": {"tokens": 1001, "usd": 4.0}}}).limits.person_caps()
    assert caps.guests == DailyLimits(tokens=501, usd=2.0)
    caps = Config.model_validate({"limits": {"guests": {"tokens": 7}}}).limits.person_caps()
    assert caps.guests == DailyLimits(tokens=7, usd=10.0)
    caps = Config.model_validate({"limits": {"daily": {"tokens": None, "usd": None}}}).limits.person_caps()
    assert caps.guests == DailyLimits(tokens=None, usd=None)
    assert without_reserve(DailyLimits(tokens=1000, usd=None)) == DailyLimits(tokens=900, usd=None)
    assert without_reserve(DailyLimits(tokens=0, usd=None)) == DailyLimits(tokens=0, usd=None)
