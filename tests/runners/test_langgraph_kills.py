"""Graphs of LangGraph whose process is killed go on, repeat nothing and answer once. Contract: foreign_agents 1."""

import random
from collections import Counter
from collections.abc import Generator
from pathlib import Path

import pytest

from antiphon.testing import FakeProvider, run_fake_provider
from tests.runners import graphs
from tests.runners.lives import Life, Lives, Outcome, Point

DONE = Counter({"prepare left": 1, "prepare right": 1, "note it": 2, "wipe old": 1})
MODEL_CALLS = 4

NAMED = {
    "before the first call": Point(units=["begin_call"], is_before=True),
    "before a later call": Point(units=["begin_call", "begin_call", "begin_call"], is_before=True),
    "after the first effect": Point(effect=1),
    "after a later effect": Point(effect=4),
    "after the first record": Point(units=["begin_call", "record"]),
    "after a later record": Point(units=["begin_call", "begin_call", "begin_call", "record"]),
    "after the first state": Point(units=["save_state"]),
    "after the state of a call": Point(units=["begin_call", "begin_call", "begin_call", "record", "save_state"]),
    "in the park": Point(units=["ask_approval"]),
    "after the decision": Point(units=["ask_approval", "decide_approval"]),
}


@pytest.fixture(scope="module")
def lives() -> Generator[Lives]:
    served = Lives(graphs.__name__)
    try:
        yield served
    finally:
        served.close()


@pytest.fixture
def model() -> Generator[FakeProvider]:
    with run_fake_provider(graphs.script) as fake:
        yield fake


def life_at(home: Path, model: FakeProvider) -> Life:
    return Life(home=str(home), agent=f"{graphs.__name__}:looping", model_url=model.base_url)


def check(outcome: Outcome, model: FakeProvider) -> None:
    """All is done once. A call that was killed in its midst is not done again: the model is told that nobody knows."""
    assert outcome.status == "ok", outcome.error
    assert str(outcome.reply).startswith("Done: ")
    assert Counter(outcome.effects) <= DONE
    assert (DONE - Counter(outcome.effects)).total() <= 1
    types = Counter(outcome.types)
    assert (types["user_message"], types["run_finished"], types["approval_requested"]) == (1, 1, 1)
    assert types["tool_result"] == DONE.total()
    assert types["step_finished"] == MODEL_CALLS + 1


@pytest.mark.parametrize("point", NAMED)
def test_a_graph_that_is_killed_goes_on_and_repeats_nothing(
    home: Path, lives: Lives, model: FakeProvider, point: str
) -> None:
    life = life_at(home, model)
    assert lives.carry_out(_dying(life, NAMED[point])) == -9
    outcome = lives.carry_out_to_end(life)
    check(outcome, model)
    assert Counter(outcome.effects) == DONE
    assert len(model.requests) == MODEL_CALLS


def test_a_graph_that_is_killed_at_any_commit_goes_on(
    home: Path, lives: Lives, model: FakeProvider, is_soak: bool
) -> None:
    if not is_soak:
        pytest.skip("of the long form")
    dice, commit = random.Random(49), 4
    while True:
        life = life_at(home.with_name(f"home-{commit}"), model)
        model.requests.clear()
        is_before = dice.random() < 0.5
        code = lives.carry_out(_dying(life, Point(commit=commit, is_before=is_before)))
        check(lives.carry_out_to_end(life), model)
        assert len(model.requests) <= MODEL_CALLS + 1  # an answer that was not stored is asked for again
        if code == 0:
            return
        commit += 1


def _dying(life: Life, point: Point) -> Life:
    return Life(home=life.home, agent=life.agent, model_url=life.model_url, decides=True, dies=point)
