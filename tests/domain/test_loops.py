"""Programs that answer each other, told from people by their haste."""

import pytest

from antiphon.domain.loops import AnsweredTurn, is_loop
from tests.claims import requirement

SECOND = 1_000


def turns(*pauses: float) -> list[AnsweredTurn]:
    """Answered turns, newest first, each of a second; before each that many seconds since the answer before it."""
    found, at = list[AnsweredTurn](), 0.0
    for pause in pauses:
        asked = at + pause * SECOND
        at = asked + SECOND
        found.append(AnsweredTurn(int(asked), int(at)))
    return found[::-1]


@requirement("channels:1")
@pytest.mark.parametrize(
    ("pauses", "now", "looping"),
    [
        ((100, 1, 1, 1, 1, 1), 1, True),
        ((100, 1, 1, 1, 1, 1), 9, False),
        ((100, 1, 1, 9, 1, 1), 1, False),
        ((1, 1, 1, 1, 1), 1, False),
        ((1,) * 20, 0.5, True),
        ((), 1, False),
    ],
    ids=["six quick turns", "somebody took their time now", "and before", "five", "many", "the first message"],
)
def test_a_loop_is_so_many_turns_in_which_nobody_can_have_read_the_answer(
    pauses: tuple[float, ...], now: float, looping: bool
) -> None:
    found = turns(*pauses)
    last = found[0].answered_ms if found else 0
    assert is_loop(found, int(last + now * SECOND), most=6, hasty_ms=5 * SECOND) is looping


@requirement("channels:1")
@pytest.mark.parametrize("pause", [1, 30])
def test_messages_that_were_written_before_any_answer_make_no_loop(pause: float) -> None:
    """As of a person who was offline, or who writes on while the agent works."""
    asked = [int(each * SECOND) for each in range(7)]
    burst = [AnsweredTurn(each, (20 + at) * SECOND) for at, each in enumerate(asked)][::-1]
    assert not is_loop(burst, burst[0].answered_ms + int(pause * SECOND), most=6, hasty_ms=60 * SECOND)


@requirement("channels:1")
def test_a_program_that_answers_each_answer_twice_is_in_a_loop() -> None:
    """Its second message waits for the turn of the first, so that it is answered after the next one was written."""
    pairs = [AnsweredTurn(at * SECOND, (at + 2) * SECOND) for at in range(12)]
    assert is_loop(pairs[::-1], 12 * SECOND, most=6, hasty_ms=SECOND)
