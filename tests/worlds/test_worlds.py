"""Noninterference: what is above an observer changes nothing that the observer sees. Contract: flow 13.

Here are 250 pairs of worlds; `make prove` takes ten thousand.
"""

import pytest

from tests.claims import requirement
from tests.worlds.open_routes import OPEN
from tests.worlds.pairs import confirmed, draw, prove
from tests.worlds.plans import Plan, Step
from tests.worlds.world import HIDDEN_ACTS, PUBLIC_ACTS, QUESTIONS, SHARED_ACTS, WATCHERS

PAIRS = 250


@requirement("flow:13", "flow:3")
@pytest.mark.parametrize("part", range(5))
def test_observers_cannot_tell_the_worlds_apart(part: int) -> None:
    share = PAIRS // 5
    found = prove(range(part * share, part * share + share), without=OPEN)
    assert not found, "\n\n".join(map(str, found))


@requirement("flow:13")
@pytest.mark.parametrize("secret", sorted({*HIDDEN_ACTS, *SHARED_ACTS} - OPEN.keys()))
def test_no_question_tells_of_this_act(secret: str) -> None:
    """Every question and stream, after this act alone: in one world only, if it may be."""
    only = "a" if secret in HIDDEN_ACTS else None
    questions = tuple(name for name in QUESTIONS if name not in OPEN)
    watchers = tuple(name for name in WATCHERS if name not in OPEN)
    found = confirmed([Plan(7, around(Step(secret, 0, only)), questions, watchers)])
    assert not found, "\n\n".join(map(str, found))


@pytest.mark.parametrize("name", sorted(OPEN))
def test_what_is_still_open_differs(name: str) -> None:
    """Once it does not, it comes off the list."""
    differs = any(confirmed([plan_about(name, seed)]) for seed in range(3))
    assert differs, f"{name!r} is no longer open"


@requirement("list:5", "flow:13")
def test_no_list_counts_the_rows_of_hidden_sessions() -> None:
    """Neither cursors nor the elements of the page do: here a session was opened before, in one world."""
    questions = tuple(name for name in QUESTIONS if "page" in name or "list" in name)
    plans = [Plan(1, (Step("open a session above", 0, "a"),), (), ()), Plan(2, (), questions, ())]
    assert not (found := confirmed(plans)), "\n\n".join(map(str, found))


@requirement("flow:3", "flow:13")
def test_who_comes_late_sees_no_more() -> None:
    """The log is read for a late follower while another follows the newest events."""
    steps = (Step("talk in the room", 1), Step("a word above in a participant's room", 0))
    assert not (found := confirmed([Plan(7, steps, ("participant: late events",), ())])), "\n\n".join(map(str, found))


def around(step: Step) -> tuple[Step, ...]:
    """The act between public ones."""
    return (Step("talk in the room", 1), Step("say something at length", 2), step, Step("speak to a known session", 3))


def plan_about(name: str, seed: int) -> Plan:
    """A plan in which what is named is done or asked, among all that is not open."""
    others = set(OPEN) - {name}
    drawn = draw(seed, without=others)
    if name in HIDDEN_ACTS or name in SHARED_ACTS:
        only = "a" if name in HIDDEN_ACTS else None
        questions = tuple(each for each in QUESTIONS if each not in others)
        watchers = tuple(each for each in WATCHERS if each not in others)
        return Plan(seed, around(Step(name, 0, only)), questions, watchers)
    if name in PUBLIC_ACTS:
        steps = (Step("a silent word above in a group", 0, "a"), Step(name, 1))
        return Plan(seed, steps, tuple(each for each in QUESTIONS if each not in others), ())
    is_asked = name in QUESTIONS
    return Plan(seed, drawn.steps, (name,) if is_asked else (), () if is_asked else (name,))


def test_the_same_seed_draws_the_same_plan() -> None:
    assert draw(4711) == draw(4711) != draw(4712)
