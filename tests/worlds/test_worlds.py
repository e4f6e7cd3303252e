"""Noninterference: what is above an observer changes nothing that the observer sees. Contract: flow 13.

Here are 250 pairs of worlds on SQLite and some of the same on PostgreSQL; `make prove` takes ten thousand on each.
"""

import json
from functools import partial

import pytest

from tests.claims import requirement
from tests.worlds.pairs import DatabaseKind, confirmed, draw, prove
from tests.worlds.plans import Plan, Step
from tests.worlds.world import HIDDEN_ACTS, HITS_A_PAGE, QUESTIONS, SHARED_ACTS, WATCHERS, ordered_by_time

PAIRS = 250
EVERY_ON_POSTGRES = 13
"""Of the pairs, each one of so many is lived through on PostgreSQL too, which takes longer."""


@requirement("flow:13", "flow:3")
@pytest.mark.parametrize("part", range(5))
def test_observers_cannot_tell_the_worlds_apart(part: int) -> None:
    share = PAIRS // 5
    found = prove(range(part * share, part * share + share))
    assert not found, "\n\n".join(map(str, found))


@requirement("flow:13", "flow:3")
def test_observers_cannot_tell_the_worlds_apart_on_postgres() -> None:
    found = prove(range(0, PAIRS, EVERY_ON_POSTGRES), DatabaseKind.POSTGRES)
    assert not found, "\n\n".join(map(str, found))


@requirement("flow:13")
@pytest.mark.parametrize("secret", sorted({*HIDDEN_ACTS, *SHARED_ACTS}))
def test_no_question_tells_of_this_act(secret: str) -> None:
    """Every question and stream, after this act alone: in one world only, if it may be."""
    only = "a" if secret in HIDDEN_ACTS else None
    found = confirmed([Plan(7, around(Step(secret, 0, only)), tuple(QUESTIONS), tuple(WATCHERS))])
    assert not found, "\n\n".join(map(str, found))


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
    return (
        *(Step("talk in the room", 1), Step("talk in a known group", 2), Step("say something at length", 3), step),
        *(Step("talk in a known group", 4), Step("speak to a known session", 5)),
    )


def test_the_same_seed_draws_the_same_plan() -> None:
    assert draw(4711) == draw(4711) != draw(4712)


@pytest.mark.parametrize("is_inside", [False, True])
def test_the_oldest_moment_of_a_full_page_is_left_out_also_if_a_hit_shows_a_list(is_inside: bool) -> None:
    """The list is one of hits, whole or within the result of a tool."""
    encoded = partial(json.dumps, separators=(",", ":"))

    def page(last: str) -> str:
        times = [9, 8, 8, *range(7, 1, -1), 1]
        names = [f"s{number}" for number in range(HITS_A_PAGE - 1)] + [last]
        within = encoded({"results": [{"sessionKey": "a", "seq": 1}, {"sessionKey": "b", "seq": 2}]})
        hits = [
            {"sessionKey": name, "createdAt": time, "snippet": within} for name, time in zip(names, times, strict=True)
        ]
        text = encoded({"count": len(hits), "results": hits})
        return encoded({"text": text}) if is_inside else text

    assert ordered_by_time(page("one")) == ordered_by_time(page("other"))
    assert "s8" in ordered_by_time(page("one")) and "s9" not in ordered_by_time(page("one"))
