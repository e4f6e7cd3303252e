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
