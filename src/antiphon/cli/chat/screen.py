"""The terminal of a chat: a transcript that grows, a reply that streams into it, a prompt below.

Two threads draw: what follows the session, and what reads the keyboard; each holds `lock` while it draws.
"""

from threading import RLock

from rich.cells import cell_len

from antiphon.cli.rendering.output import console, styled
from antiphon.domain.text import plain

try:
    from readline import get_line_buffer  # also gives the prompt its history and editing
except ImportError:

    def get_line_buffer() -> str:
        return ""


PROMPT = "> "
CONTINUED = "  "
ERASE_LINE = "\r\x1b[K"


class Screen:
    """Draws; knows nothing of sessions."""

    def __init__(self) -> None:
        self.lock = RLock()
        self._console = console()
        self._draft = ""
        self._is_prompting = False
        self._has_status = False

    @property
    def is_prompting(self) -> bool:
        """Whether the person may be writing; drafts are not shown then."""
        return self._is_prompting

    def line(self, text: str = "", style: str = "") -> None:
        """A line of the transcript, above the prompt if there is one."""
        with self.lock:
            self.end_draft()
            self._clear_last_line()
            self._console.print(styled(text, style), soft_wrap=True)
            self._draw_prompt()

    def piece(self, text: str) -> None:
        """A piece of a reply, as it streams."""
        with self.lock:
            if self._is_prompting or not text:
                return
            self._clear_last_line()
            shown = plain(text)
            self._draft += shown
            self._write(shown)

    def take_back(self) -> None:
        """What streamed does not count."""
        with self.lock:
            if not self._draft:
                return
            rows = self._draft_rows()
            if self._console.is_terminal and rows <= self._console.height:
                self._write("\r" + (f"\x1b[{rows - 1}A" if rows > 1 else "") + "\x1b[J")
            else:
                self._write("\n(taken back)\n")
            self._draft = ""

    def settle(self, text: str) -> None:
        """The reply as it is kept, in place of what streamed."""
        with self.lock:
            shown = plain(text)
            if self._draft and shown.startswith(self._draft):
                self._write(shown[len(self._draft) :] + "\n")
                self._draft = ""
                return
            self.take_back()
            if shown:
                self.line(shown)

    def end_draft(self) -> None:
        """Leaves what streamed as it is, on lines of its own."""
        with self.lock:
            if self._draft:
                self._draft = ""
                self._write("\n")

    def status(self, text: str) -> None:
        """A note on the last line until something else is drawn; not while a reply streams."""
        with self.lock:
            if self._draft or self._is_prompting or not self._console.is_terminal:
                return
            self._clear_last_line()
            self._console.print(styled(text[: self._console.width - 1], "dim"), end="", soft_wrap=True)
            self._console.file.flush()
            self._has_status = True

    def delay(self, text: str) -> None:
        """Why the reply takes long: below what streamed, else as the status."""
        with self.lock:
            if self._draft or not self._console.is_terminal:
                self.line(f"({text})", "yellow")
            else:
                self.status(f"… {text}")

    def ask(self) -> str:
        """What the person writes; a line that ends in a backslash goes on. Raises `EOFError`, `KeyboardInterrupt`."""
        with self.lock:
            self.end_draft()
            self._clear_last_line()
            self._is_prompting = True
        try:
            lines = [input(PROMPT)]
            while lines[-1].endswith("\\"):
                lines[-1] = lines[-1][:-1]
                lines.append(input(CONTINUED))
            return "\n".join(lines)
        finally:
            with self.lock:
                self._is_prompting = False

    def _clear_last_line(self) -> None:
        if (self._has_status or self._is_prompting) and self._console.is_terminal:
            self._write(ERASE_LINE)
        self._has_status = False

    def _draw_prompt(self) -> None:
        if self._is_prompting:
            self._write(PROMPT + get_line_buffer())

    def _draft_rows(self) -> int:
        width = max(1, self._console.width)
        return sum(max(1, -(-cell_len(line) // width)) for line in self._draft.split("\n"))

    def _write(self, text: str) -> None:
        self._console.file.write(text)
        self._console.file.flush()
