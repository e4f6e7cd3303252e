"""How often the units of a run wait for PostgreSQL. More waits are a loss that no other test sees."""

from contextlib import ExitStack

import pytest

from antiphon.building import Parts
from antiphon.engine.runs.runner import ConstantRunner
from bench.trips import Trips
from tests.conftest import OpenHome
from tests.engine.stage import post, wait_end

pytestmark = pytest.mark.anyio

AT_MOST = {"post_message": 4, "claim": 2, "finish_run": 3}
"""Trips of a unit: the locks with the first question; further questions; what is written, with COMMIT.

A message with an id costs one more: whether it came before.
"""
MOST_STATEMENTS = 30
"""Of the three units of a run together, with BEGIN and COMMIT."""
RUNS = 10


@pytest.mark.parametrize("database_section", ["postgres"], indirect=True)
async def test_a_no_op_run_waits_for_the_server_no_more_often_than_it_must(open_home: OpenHome) -> None:
    trips = Trips()
    with ExitStack() as stack:
        trips.watch(stack)
        async with open_home(parts=Parts(runner=ConstantRunner("ok"))) as app:
            for number in range(2):  # from then on the session's row is known
                await wait_end(app, (await post(app, "main", f"m-{number}")).run_id)
            trips.take()
            for number in range(2, 2 + RUNS):
                await wait_end(app, (await post(app, "main", f"m-{number}")).run_id)
    found = {name: round(trips.found[name]["trips"] / trips.found[name]["units"], 1) for name in AT_MOST}
    assert found == AT_MOST
    assert sum(trips.found[name]["statements"] for name in AT_MOST) <= MOST_STATEMENTS * RUNS
