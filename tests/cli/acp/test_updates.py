"""A session's events as updates: pieces of replies that are missed, lost and taken back."""

from typing import Any

from antiphon.cli.acp.updates import SessionUpdates, Update
from tests.claims import requirement
from tests.cli.acp.editors import said_in

pytestmark = requirement("foreign_agents:2")


class Shown:
    """What an editor was sent."""

    def __init__(self, *, head: int = 0, is_idle: bool = True) -> None:
        self.updates: list[Update] = []
        self.of = SessionUpdates()
        self.of.join(head, is_idle=is_idle)
        self._seq = head

    def pieces(self, *texts: str) -> None:
        for text in texts:
            self.updates += self.of.piece({"runId": "run_1", "text": text})

    def restart(self) -> None:
        self.updates += self.of.piece({"runId": "run_1", "text": "", "restart": True})

    def event(self, type: str, *, seq: int | None = None, **more: Any) -> None:
        self._seq = self._seq + 1 if seq is None else seq
        self.updates += self.of.event({"seq": self._seq, "type": type, "runId": "run_1", **more})

    def answer(self, text: str) -> None:
        content = [{"type": "text", "text": text}]
        self.event("assistant_message", message={"seq": self._seq + 1, "messageId": "m", "content": content})

    @property
    def text(self) -> str:
        return said_in([*self.updates])


def test_pieces_and_the_stored_reply_are_one_text() -> None:
    shown = Shown()
    shown.event("run_started")
    shown.pieces("one ", "two ")
    shown.answer("one two three")
    assert shown.text == "one two three"


def test_of_a_reply_whose_beginning_was_missed_nothing_shows_before_it_is_stored() -> None:
    shown = Shown(head=7, is_idle=False)
    shown.pieces("two ", "three")
    assert shown.text == ""
    shown.answer("one two three")
    assert shown.text == "one two three"
    shown.pieces("four")  # of the next step, which was seen from its beginning
    assert shown.text == "one two threefour"


def test_events_from_before_the_stream_began_do_not_promise_a_whole_reply() -> None:
    shown = Shown(head=7, is_idle=False)
    shown.event("run_started", seq=6)
    shown.pieces("two")
    assert shown.text == ""
    shown.event("run_started", seq=8)
    shown.pieces("one ")
    assert shown.text == "one "


def test_a_reply_that_begins_again_says_so() -> None:
    shown = Shown()
    shown.event("run_started")
    shown.pieces("wrong")
    shown.restart()
    shown.pieces("right")
    shown.answer("right")
    assert shown.text == "wrong\n\n(The answer begins again.)\n\nright"


def test_a_reply_of_which_pieces_were_lost_is_shown_whole() -> None:
    shown = Shown()
    shown.event("run_started")
    shown.pieces("one ", "three")
    shown.answer("one two three")
    assert shown.text == "one three\n\n(Once more, whole:)\n\none two three"


def test_what_controls_a_terminal_does_not_reach_the_editor() -> None:
    shown = Shown()
    shown.event("run_started")
    shown.pieces("\x1b[2Jgone")
    shown.answer("\x1b[2Jgone \x9bx")
    assert "\x1b" not in shown.text and "\x9b" not in shown.text
    assert shown.text == "�[2Jgone �x"
