"""What a call of a session tool would do with words, found before it begins. Contract: flow 4, 5, 7.

The unit that carries a call out repeats the read that foresees it, so what was asked about is what is decided.
"""

from typing import NamedTuple, TypeAlias

from antiphon.domain.classification import PUBLIC, Classification
from antiphon.domain.session import DeliveryContext, Session
from antiphon.policy.decision import Decision

Sink: TypeAlias = DeliveryContext | Session
"""Who would get the words: a place outside, or a session."""


class ForeseenCall(NamedTuple):
    sink: Sink | None
    """None for a session that the call makes, or that its caller does not see."""
    decision: Decision
    """Whether the words may go there now."""
    text: str | None = None
    """The exact words, if an owner may let them go where they may not."""
    made_of: Classification = PUBLIC
    """What the words were made of."""
    files: str = ""
    """The files that go with them: their names, bytes and hashes, a line each."""
