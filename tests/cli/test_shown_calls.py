"""Names of calls, which programs choose, as people see them where calls are told."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final

import pytest

from antiphon.cli.rendering.output import calls_of
from antiphon.cli.rendering.rows import approval_lines, brief_result
from antiphon.domain.event import Event
from antiphon.domain.ids import SessionId, SessionRow
from antiphon.domain.message import JsonObject
from antiphon.gateway.page.entries import entry_of
from tests.claims import requirement
from tests.domain.test_exact import is_unseen

NAME: Final = "book\x1b[2K\rdeny\u202eall\nnext"
DECIDED: Final[JsonObject] = {"approvalId": "a", "state": "decided", "calls": [{"tool": NAME, "decision": "once"}]}


def on_the_page() -> str:
    at = datetime(2026, 1, 1, tzinfo=UTC)
    event = Event(SessionRow(1), 1, SessionId("s"), "approval_resolved", at, "person:owner", data=DECIDED)
    entry = entry_of(event, lambda _: None)
    assert entry is not None
    return entry.text


PLACES: Final[dict[str, Callable[[], list[str]]]] = {
    "asked": lambda: approval_lines({"type": "approval_requested", "data": DECIDED})[:1],
    "decided": lambda: approval_lines({"type": "approval_resolved", "data": DECIDED}),
    "decided, on the page": lambda: [on_the_page()],
    "called": lambda: calls_of({"content": [{"type": "toolCall", "name": NAME, "arguments": {}}]}),
    "done": lambda: [brief_result({"toolName": NAME, "content": [{"type": "text", "text": "ok"}]})],
}


@requirement("approvals:1")
@pytest.mark.parametrize("place", PLACES)
def test_nothing_in_the_name_of_a_call_is_invisible(place: str) -> None:
    [line] = PLACES[place]()
    assert not any(map(is_unseen, line)) and "book" in line and "next" in line, repr(line)
