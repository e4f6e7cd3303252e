"""The reaction to a message that is answered: what follows in which state."""

import pytest

from antiphon.domain.acknowledgement import MOST_TAKINGS, Acknowledgement, ReactionState, ReactionStep
from tests.claims import requirement

GIVE, TAKE, REST, END = ReactionStep.GIVE, ReactionStep.TAKE, ReactionStep.REST, ReactionStep.END


@requirement("channels:1")
@pytest.mark.parametrize(
    ("shown", "is_allowed", "is_answered", "step"),
    [
        (ReactionState.UNASKED, True, False, GIVE),
        (ReactionState.UNASKED, True, True, END),
        (ReactionState.UNASKED, False, False, END),
        (ReactionState.UNASKED, False, True, END),
        (ReactionState.PERHAPS, True, False, REST),
        (ReactionState.PERHAPS, True, True, TAKE),
        (ReactionState.PERHAPS, False, False, TAKE),
        (ReactionState.PERHAPS, False, True, TAKE),
        (ReactionState.NO, True, False, END),
        (ReactionState.NO, True, True, END),
        (ReactionState.NO, False, False, END),
        (ReactionState.NO, False, True, END),
    ],
)
def test_it_is_given_once_and_taken_away_once_the_message_is_answered(
    shown: ReactionState, step: ReactionStep, *, is_allowed: bool, is_answered: bool
) -> None:
    state = Acknowledgement(shown=shown)
    assert state.next_step(is_answered=is_answered, is_allowed=is_allowed) is step


@requirement("channels:1")
def test_it_is_taken_away_even_if_nobody_knows_whether_it_was_given_and_not_again_and_again() -> None:
    state = Acknowledgement().after_giving(was_refused=False)
    for _ in range(MOST_TAKINGS):
        assert state.next_step(is_answered=True, is_allowed=True) is TAKE
        state = state.after_taking(was_taken=False)
    assert state.next_step(is_answered=True, is_allowed=True) is END
    assert Acknowledgement().after_giving(was_refused=True).next_step(is_answered=True, is_allowed=True) is END
