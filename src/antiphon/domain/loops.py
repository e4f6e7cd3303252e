"""Two programs that answer each other: told from people by their haste. Contract: channels 1."""

from collections.abc import Sequence
from typing import NamedTuple


class AnsweredTurn(NamedTuple):
    """When a message came, and when it was answered; in milliseconds since 1970."""

    asked_ms: int
    answered_ms: int


def is_loop(turns: Sequence[AnsweredTurn], now_ms: int, *, most: int, hasty_ms: int) -> bool:
    """Whether a message that comes now is the next of a loop.

    `turns` are the newest of its sender, newest first. In a loop at least `most` of them follow one another, each so
    soon after the newest answer before it that nobody can have read that. What was written before any answer, as
    several messages at once are, answers none.
    """
    following = now_ms
    for count, turn in enumerate(turns, start=1):
        read = next((each.answered_ms for each in turns[count - 1 :] if each.answered_ms <= following), None)
        if read is None or following - read > hasty_ms:
            return False
        if count == most:
            return True
        following = turn.asked_ms
    return False
