"""A chat with one session: what is written is posted, what happens in the session is shown."""

import signal
import time
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Condition, Thread
from types import FrameType

from antiphon.cli.chat.screen import Screen
from antiphon.cli.connection.client import Client, ServerEvent, session_path
from antiphon.cli.rendering.output import calls_of, text_of
from antiphon.cli.rendering.rows import approval_lines, author_of, brief_result, told_text
from antiphon.domain.errors import AntiphonError
from antiphon.domain.message import JsonObject, JsonValue

QUIET_SECONDS = 1
"""After this long without anything to see, the time is shown."""
MOMENT_SECONDS = 0.2


@dataclass(slots=True)
class Interrupts:
    """How often Ctrl-C was pressed."""

    count: int = 0


@contextmanager
def counting_interrupts() -> Generator[Interrupts]:
    """Counts Ctrl-C instead of raising, which in the middle of a lock or a request would leave either broken."""
    interrupts = Interrupts()

    def count(number: int, frame: FrameType | None) -> None:
        interrupts.count += 1

    previous = signal.signal(signal.SIGINT, count)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, previous)


class TerminalConversation:
    """Posts, waits and cancels; a thread follows the session and draws what it brings."""

    def __init__(self, client: Client, screen: Screen, key: str, last_seq: int) -> None:
        self.key = key
        self._client = client
        self._screen = screen
        self._after = last_seq
        self._ended: dict[str, JsonObject] = {}
        self._own: set[str] = set()
        self._changed = Condition()
        self._failure: AntiphonError | None = None
        self._delay = ""
        self._is_left = False

    def start(self) -> None:
        Thread(target=self._follow, name="antiphon-follow", daemon=True).start()

    def leave(self) -> None:
        """From now on nothing is drawn: the gateway of this command may stop with it."""
        self._is_left = True

    def say(self, text: str, message_id: str) -> None:
        """Posts a message and returns when its turn has ended. Ctrl-C cancels the turn, twice leaves it alone."""
        self._own.add(message_id)
        with counting_interrupts() as interrupts:
            posted = self._client.post_message(self.key, {"text": text, "messageId": message_id})
            if run_id := posted.get("runId"):
                self._wait(str(run_id), interrupts)
            else:
                self._screen.line("(stored; no turn starts)", "dim")

    def cancel(self) -> None:
        """Cancels the session's running turn, whoever began it."""
        answer = self._client.post(session_path(self.key, "/cancel"))
        self._screen.line("Cancelled." if answer.get("cancelled") else "Nothing is running.", "dim")

    def _wait(self, run_id: str, interrupts: Interrupts) -> None:
        began, is_cancelled = time.monotonic(), False
        while not self._has_ended(run_id):
            if interrupts.count and not is_cancelled:
                self._screen.end_draft()
                self._client.post(f"/runs/{run_id}/cancel")
                is_cancelled = True
            elif interrupts.count > 1:
                self._screen.line("(left alone; it may still be ending)", "yellow")
                return
            if (seconds := int(time.monotonic() - began)) >= QUIET_SECONDS:
                what = "cancelling" if is_cancelled else self._delay.rstrip(".") or "working"
                self._screen.status(f"… {what}, {seconds} s (Ctrl-C {'leaves it' if is_cancelled else 'cancels'})")

    def _has_ended(self, run_id: str) -> bool:
        """Whether the run has ended, which is waited for a moment. Raises what ended the following."""
        with self._changed:
            self._changed.wait_for(lambda: run_id in self._ended or self._failure is not None, MOMENT_SECONDS)
            if self._failure is not None:
                raise self._failure
            return self._ended.pop(run_id, None) is not None

    def _follow(self) -> None:
        """The thread's root: what ends it is told to whoever waits."""
        try:
            path = session_path(self.key, "/events")
            for event in self._client.follow(path, after=self._after, tell=self._tell):
                if self._is_left:
                    return
                with self._screen.lock:
                    self._draw(event)
        except AntiphonError as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _tell(self, text: str) -> None:
        if not self._is_left:
            self._screen.line(f"({text})", "yellow")

    def _draw(self, event: ServerEvent) -> None:
        data, message = event.data, event.data.get("message")
        assert isinstance(data, dict)
        match event.name:
            case "delta":
                self._draw_delta(data)
            case "delay":
                self._draw_delay(data.get("delay"))
            case "user_message" if isinstance(message, dict):
                if message.get("messageId") not in self._own:
                    self._screen.line(f"> {text_of(message)}{author_of(message)}", "cyan")
            case "assistant_message" if isinstance(message, dict):
                self._screen.settle(text_of(message))
                for call in calls_of(message):
                    self._screen.line(f"  → {call}", "dim")
            case "tool_result" if isinstance(message, dict):
                self._screen.line(brief_result(message), "dim red" if message.get("isError") else "dim")
            case "approval_requested" | "approval_resolved":
                self._draw_approval(event.name, data)
            case "session_started":
                self._screen.line("(the session starts again)", "dim")
            case "run_finished":
                self._draw_end(data)
            case "reset":
                self._screen.line("(the log was lost or starts again; /history shows its messages)", "yellow")
            case _:
                pass

    def _draw_delta(self, data: JsonObject) -> None:
        if data.get("restart"):
            self._screen.take_back()
        else:
            self._screen.piece(str(data.get("text", "")))

    def _draw_delay(self, delay: JsonValue) -> None:
        self._delay = str(delay["text"]) if isinstance(delay, dict) else ""
        if self._delay:
            self._screen.delay(self._delay)

    def _draw_approval(self, name: str, event: JsonObject) -> None:
        """A call that waits gives the prompt back: other messages are answered meanwhile."""
        for line in approval_lines(event):
            self._screen.line(line, "yellow")
        if name == "approval_requested":
            with self._changed:
                self._ended[str(event.get("runId"))] = event
                self._changed.notify_all()

    def _draw_end(self, event: JsonObject) -> None:
        outcome = event.get("data")
        assert isinstance(outcome, dict)
        match outcome.get("status"):
            case "ok" if outcome.get("isParked"):
                self._screen.line("(continues by itself)", "dim")
            case "ok":
                pass
            case "cancelled":
                self._screen.line(f"({str(outcome.get('error') or 'Cancelled.').rstrip('.').lower()})", "yellow")
            case _:
                self._screen.line(told_text(outcome, self._client.reads_details), "red")
        with self._changed:
            self._ended[str(event.get("runId"))] = outcome
            self._changed.notify_all()
