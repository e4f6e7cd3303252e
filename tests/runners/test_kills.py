"""A plain function whose process is killed goes on, repeats no call and no step, and answers once."""

from collections import Counter
from collections.abc import Generator
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest

from tests.runners import functions_killed
from tests.runners.lives import Life, Lives, Point

DONE = Counter({"note it": 2, "wipe old": 1})
POINTS = {
    "before the call": Point(units=["begin_call"], is_before=True),
    "before a later call": Point(units=["begin_call", "begin_call"], is_before=True),
    "after the effect": Point(effect=1),
    "after a later effect": Point(effect=3),
    "after the record": Point(units=["begin_call", "record"]),
    "after a later record": Point(units=["begin_call", "begin_call", "record"]),
    "after the state": Point(units=["save_state"]),
    "after a later state": Point(units=["save_state", "save_state"]),
    "in the park": Point(units=["ask_approval"]),
    "after the decision": Point(units=["decide_approval"]),
}


@pytest.fixture(scope="module")
def lives() -> Generator[Lives]:
    served = Lives(functions_killed.__name__)
    try:
        yield served
    finally:
        served.close()


@pytest.mark.parametrize("point", POINTS)
def test_a_function_that_is_killed_twice_goes_on_and_repeats_nothing(
    home: Path, lives: Lives, point: str, is_soak: bool
) -> None:
    """At each pair of points; at half of them, which are a hundred kills, in the short form."""
    seconds = [*POINTS] if is_soak else [*POINTS][::2]
    for number, (first, second) in enumerate(product([point], seconds)):
        life = Life(home=str(home.with_name(f"home-{number}")), agent=f"{functions_killed.__name__}:working")
        assert lives.carry_out(replace(life, dies=POINTS[first])) == -9
        assert lives.carry_out(replace(life, dies=POINTS[second])) in {-9, 0}
        outcome = lives.carry_out_to_end(life)
        assert (outcome.status, outcome.reply) == ("ok", "Done: seen."), outcome.error
        assert Counter(outcome.effects) == DONE
        types = Counter(outcome.types)
        assert (types["user_message"], types["run_finished"], types["approval_requested"]) == (1, 1, 1)
        assert (types["tool_result"], types["step_finished"]) == (3, 1)
