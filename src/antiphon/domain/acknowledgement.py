"""A reaction to somebody's message, which says that it is being answered until the answer is there.

It is given once, and taken away a few times at most: nothing depends on it. Contract: channels 1.
"""

from enum import StrEnum

from msgspec import Struct

MOST_TAKINGS = 3
"""How often the platform is asked to take it away."""


class ReactionState(StrEnum):
    """Whether people see the reaction."""

    UNASKED = "unasked"
    """The platform was not asked for it yet."""
    PERHAPS = "perhaps"
    """The platform shows it, or no answer says that it does not."""
    NO = "no"
    """It was refused, or taken away."""


class ReactionStep(StrEnum):
    GIVE = "give"
    TAKE = "take"
    REST = "rest"
    """Nothing to do until the message is answered."""
    END = "end"
    """Nothing more to do for this message."""


class Acknowledgement(Struct, frozen=True, kw_only=True):
    """What became of the reaction to one message so far."""

    shown: ReactionState = ReactionState.UNASKED
    takings: int = 0
    """How often the platform was asked to take it away."""

    def next_step(self, *, is_answered: bool, is_allowed: bool) -> ReactionStep:
        """What to do now; `is_allowed` says whether people at the place may see that something is answered there."""
        match self.shown:
            case ReactionState.PERHAPS if is_allowed and not is_answered:
                return ReactionStep.REST
            case ReactionState.PERHAPS if self.takings < MOST_TAKINGS:
                return ReactionStep.TAKE
            case ReactionState.UNASKED if is_allowed and not is_answered:
                return ReactionStep.GIVE
            case _:
                return ReactionStep.END

    def after_giving(self, *, was_refused: bool) -> "Acknowledgement":
        return Acknowledgement(shown=ReactionState.NO if was_refused else ReactionState.PERHAPS)

    def after_taking(self, *, was_taken: bool) -> "Acknowledgement":
        return Acknowledgement(shown=ReactionState.NO if was_taken else ReactionState.PERHAPS, takings=self.takings + 1)
