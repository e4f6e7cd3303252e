import io

import pytest
from rich.console import Console

from antiphon.cli.chat import screen as screen_module
from antiphon.cli.chat.screen import Screen
from tests.claims import requirement

pytestmark = requirement("cli:1")


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """What a terminal of ten columns is sent."""
    file = io.StringIO()
    terminal = Console(file=file, force_terminal=True, width=10, height=5, color_system=None, highlight=False)
    monkeypatch.setattr(screen_module, "console", lambda: terminal)
    return file


def test_a_reply_is_completed_by_what_is_kept_of_it(drawn: io.StringIO) -> None:
    screen = Screen()
    screen.piece("one ")
    screen.piece("two")
    screen.settle("one two three")
    assert drawn.getvalue() == "one two three\n"


def test_what_is_taken_back_is_erased_with_all_its_rows(drawn: io.StringIO) -> None:
    screen = Screen()
    screen.piece("0123456789abc\nx")
    screen.take_back()
    screen.piece("anew")
    screen.settle("anew")
    assert drawn.getvalue() == "0123456789abc\nx\r\x1b[2A\x1b[Janew\n"


def test_a_reply_that_differs_from_its_stream_replaces_it(drawn: io.StringIO) -> None:
    screen = Screen()
    screen.piece("wrong")
    screen.settle("right")
    assert drawn.getvalue() == "wrong\r\x1b[Jright\n"


def test_what_left_the_screen_is_said_to_be_taken_back(drawn: io.StringIO) -> None:
    screen = Screen()
    screen.piece("line\n" * 9)
    screen.take_back()
    assert drawn.getvalue().endswith("(taken back)\n")


def test_control_characters_do_not_reach_the_terminal(drawn: io.StringIO) -> None:
    screen = Screen()
    screen.piece("a\x1b]0;title\x07")
    screen.settle("a\x1b]0;title\x07b")
    screen.line("\x9b2J")
    assert not {"\x1b", "\x07", "\x9b"} & set(drawn.getvalue())
