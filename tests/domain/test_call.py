"""What a process does with a call from outside that it finds."""

import pytest

from antiphon.domain.call import OutsideCall, Taking, on_taken
from antiphon.domain.ids import ProcessId, SessionRow
from tests.claims import requirement

ONE = ProcessId("one")


@requirement("tools:1", "approvals:5", "runs:8")
@pytest.mark.parametrize(
    ("begun_by", "is_due", "is_left", "may_repeat", "taking"),
    [
        (None, False, True, True, Taking.LEAVE),  # it waits for a yes, or got none
        (ONE, False, True, True, Taking.LEAVE),  # it is over
        (None, True, True, False, Taking.BEGIN),
        (ONE, True, False, True, Taking.LEAVE),
        (ONE, True, True, True, Taking.BEGIN),
        (ONE, True, True, False, Taking.GIVE_UP),
    ],
)
def test_a_call_is_taken_once_or_given_up(
    begun_by: ProcessId | None, taking: Taking, *, is_due: bool, is_left: bool, may_repeat: bool
) -> None:
    call = OutsideCall(id="call_1", session=SessionRow(1), begun_by=begun_by, is_due=is_due)
    assert on_taken(call, is_left=is_left, may_repeat=may_repeat) is taking
