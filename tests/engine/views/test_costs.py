"""What runs used, by day, agent, person and model, and the caps of the present day."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest

from antiphon.agents.provider import ProviderModel, import_provider
from antiphon.building import App, Parts
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import Classification, Level
from antiphon.domain.errors import Denied
from antiphon.domain.message import text_content
from antiphon.domain.person import PersonRole
from antiphon.domain.run import Run
from antiphon.domain.session import NOWHERE
from antiphon.engine.sessions.sessions import SessionAttributes
from antiphon.engine.views.costs import CostReport, NamedSums
from antiphon.testing import Reply, fake_provider
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.directives import wait_at
from tests.engine.stage import ManualClock, config, wait_end
from tests.people import guest
from tests.story import telling

pytestmark = pytest.mark.anyio

PRICED, UNPRICED = "openai:gpt-4o", "fake:model"
COST = 10 * 2.5 + 5 * 10
"""Of one answer, which takes 10 tokens in and 5 out."""


@asynccontextmanager
async def spending(open_home: OpenHome, clock: ManualClock, **settings: Any) -> AsyncGenerator[App]:
    """The agent `main` has a model with a price, the agent `cheap` one without."""
    async with fake_provider([Reply(text="yes", input_tokens=10, output_tokens=5)] * 40) as fake:
        for model in (PRICED, UNPRICED):
            import_provider(model)
        provider = {"base_url": fake.base_url, "api_key": "none"}
        agents = [{"id": "main", "model": PRICED}, {"id": "cheap", "name": "Cheap", "model": UNPRICED}]
        named = {"providers__fake": provider, "providers__openai": provider, "agents__list": agents}
        async with open_home(config(**named, **settings), Parts(clock=clock)) as app:
            yield app
            for model in (PRICED, UNPRICED):
                opened = app.models.open(model)
                assert isinstance(opened, ProviderModel)
                await opened.aclose()


async def say(app: App, who: Principal, *, agent: str = "main", taint: Classification | None = None) -> Run:
    name = who.name if taint is None else f"{who.name}-above"
    sessions, target = app.services.sessions, app.services.sessions.target(f"agent:{agent}:test:direct:{name}")
    if taint is not None:
        await sessions.open(OWNER, target, attributes=SessionAttributes(taint=taint))
    await sessions.open(who, target, place=NOWHERE)
    posted = await app.services.inbox.post(who, target, text_content("hello"))
    return await wait_end(app, posted.run_id)


async def read(app: App, who: Principal = OWNER, *, days: int = 3) -> CostReport:
    return await app.services.costs.read(who, days=days)


def shown(sums: "list[NamedSums] | tuple[NamedSums, ...]") -> list[tuple[str, int, int | None, int]]:
    return [(each.id, each.spent.runs, each.spent.cost_microusd, each.spent.unpriced_tokens) for each in sums]


@requirement("runs:6")
async def test_costs_are_summed_by_day_agent_person_and_model(open_home: OpenHome) -> None:
    clock = ManualClock()
    async with spending(open_home, clock) as app:
        ann = (await app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
        first = await say(app, OWNER)
        assert first.model == PRICED
        clock.pass_time(timedelta(days=1))
        await say(app, ann)
        await say(app, ann)
        await say(app, OWNER, agent="cheap")
        report = await read(app)
        assert [(each.day - report.first).days for each in report.days] == [0, 1, 2]
        assert [(each.spent.runs, each.spent.cost_microusd) for each in report.days] == [
            (0, None),
            (1, COST),
            (3, 2 * COST),
        ]
        assert shown(list(report.agents)) == [("main", 3, 3 * COST, 0), ("cheap", 1, None, 15)]
        assert shown(list(report.people)) == [(str(ann), 2, 2 * COST, 0), (str(OWNER), 2, COST, 15)]
        assert shown(list(report.models)) == [(PRICED, 3, 3 * COST, 0), (UNPRICED, 1, None, 15)]
        assert (report.agents[1].name, report.people[0].name) == ("Cheap", "Ann")
        total = report.total
        assert (total.runs, total.input_tokens, total.output_tokens, total.cost_microusd) == (4, 40, 20, 3 * COST)
        assert (await read(app, days=1)).total.runs == 3
        only = await app.services.costs.read(OWNER, days=3, agent_id=first.agent_id)
        assert (only.total.runs, [line.agent_id for line in only.caps]) == (3, ["main"])


@requirement("runs:6", "access:1")
async def test_owners_see_all_costs_and_others_those_of_their_sessions(open_home: OpenHome) -> None:
    async with spending(open_home, ManualClock(), limits__user={"tokens": 15}) as app:
        ann = (await app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
        for who in (OWNER, ann, guest("eve")):
            await say(app, who)
        assert (await read(app)).total.runs == 3
        theirs = await read(app, ann)
        assert shown(list(theirs.people)) == [(str(ann), 1, COST, 0)]
        ((cap,),) = (theirs.caps,)
        assert (cap.cap.setting, cap.spent.tokens, cap.is_reached) == ("limits.user", 15, True)
        with pytest.raises(Denied):
            await read(app, guest("eve"))


@requirement("runs:6")
async def test_the_caps_of_today_are_shown_with_what_counts_against_them(open_home: OpenHome) -> None:
    clock = ManualClock()
    settings = {"limits__daily": {"tokens": 30, "usd": 20}}
    async with spending(open_home, clock, **settings) as app:
        for _ in range(2):
            await say(app, OWNER)
        total, main, cheap = (await read(app)).caps
        assert (total.agent_id, total.cap.limits.tokens, total.spent.tokens, total.is_reached) == (None, 60, 30, False)
        assert (main.agent_id, main.spent.tokens, main.spent.microusd, main.is_reached) == ("main", 30, 2 * COST, True)
        assert (cheap.agent_id, cheap.spent.tokens, cheap.is_reached) == ("cheap", 0, False)
        clock.pass_time(timedelta(days=1))
        assert [line.spent.tokens for line in (await read(app)).caps] == [0, 0, 0]


@requirement("flow:4")
async def test_what_is_above_the_reader_does_not_count(open_home: OpenHome) -> None:
    async with spending(open_home, ManualClock()) as app:
        ann = (await app.services.people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
        await say(app, ann)
        before = await read(app, ann)
        await say(app, ann, taint=Classification(Level.RESTRICTED))
        assert (await read(app, ann)) == before
        assert (await read(app)).total.runs == 2


@requirement("access:3")
async def test_what_was_used_before_a_merge_counts_for_the_person_who_remains(open_home: OpenHome) -> None:
    async with spending(open_home, ManualClock()) as app:
        people = app.services.people
        ann = (await people.invite(OWNER, "Ann", PersonRole.USER)).person.principal
        ben = (await people.invite(OWNER, "Ben", PersonRole.USER)).person.principal
        for who in (ann, ben):
            await say(app, who)
        await people.merge(OWNER, "ben", "ann")
        assert [(each.id, each.spent.runs) for each in (await read(app)).people] == [(str(ann), 2)]


async def test_a_run_that_has_not_ended_counts_today(open_home: OpenHome) -> None:
    async with telling(open_home, gateway__drain_seconds=0) as story:
        a = await story.opens("a")
        run_id = await a.hears(wait_at("held"))
        await story.comes_to("held")
        report = await read(story.app, days=1)
        assert (report.total.runs, [each.id for each in report.models]) == (1, ["offline"])
        assert report.total.unpriced_tokens == report.total.total_tokens > 0
        story.opens_gate("held")
        await story.end_of(run_id)
        assert (await read(story.app, days=1)).total.runs == 1
