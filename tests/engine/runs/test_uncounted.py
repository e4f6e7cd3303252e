"""Tokens that a provider does not count are estimated, for costs and for every cap."""

import pytest

from antiphon.building import Parts
from antiphon.domain.actor import OWNER
from antiphon.testing import Answering, Reply, fake_provider
from antiphon.testing.rude import RUDE
from antiphon.wire import costs as costs_wire
from antiphon.wire import runs as runs_wire
from tests.claims import requirement
from tests.conftest import OpenHome
from tests.engine.access.test_caps import CAT, EVE, say
from tests.engine.stage import ManualClock, open_with_provider

pytestmark = pytest.mark.anyio

UNCOUNTED = {"no usage": RUDE["no usage"], "zeros": Reply(text="hello", input_tokens=0, output_tokens=0)}


@requirement("runs:6")
@pytest.mark.parametrize("answer", UNCOUNTED.values(), ids=UNCOUNTED)
async def test_costs_and_caps_count_what_the_provider_does_not(open_home: OpenHome, answer: Answering) -> None:
    async with (
        fake_provider([answer] * 20) as fake,
        open_with_provider(open_home, fake, Parts(clock=ManualClock()), limits__guest={"tokens": 1_000}) as app,
    ):
        codes = [(await say(app, EVE, "a word " * 100)).code for _ in range(12)]
        assert codes.index("person_cap") in (1, 2, 3, 4) and codes[-1] == "person_cap"
        run = await say(app, CAT)
        assert run.usage.total_tokens == run.usage.estimated_tokens > 0
        report = await app.services.costs.read(OWNER, days=1)
        assert report.total.total_tokens == report.total.estimated_tokens > 0
        assert costs_wire.costs(report).total.estimated is True
        usage = runs_wire.run(run).usage
        assert usage is not None and usage.estimated is True


async def test_what_a_provider_counts_is_not_called_estimated(open_home: OpenHome) -> None:
    async with fake_provider([Reply(text="hello")]) as fake, open_with_provider(open_home, fake) as app:
        run = await say(app, EVE)
        assert (run.usage.total_tokens, run.usage.estimated_tokens) == (15, 0)
        usage = runs_wire.run(run).usage
        assert usage is not None and usage.estimated is None
