"""A chat with one session: what is written is posted, what happens in the session is shown."""

import time
from threading import Condition, Thread

from antiphon.cli.client import Client, ServerEvent, session_path
from antiphon.cli.output import calls_of, text_of
from antiphon.cli.rows import author_of, brief_result, failure_text
from antiphon.cli.screen import Screen
from antiphon.domain.errors import AntiphonError
from antiphon.domain.message import JsonObject

QUIET_SECONDS = 1.0
"""After this long without anything to see, the time is shown."""


class Conversation:
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

    def start(self) -> None:
        Thread(target=self._follow, name="antiphon-follow", daemon=True).start()

    def say(self, text: str, message_id: str) -> None:
        """Posts a message and returns when its turn has ended. Ctrl-C cancels the turn, twice leaves it alone."""
        self._own.add(message_id)
        posted = self._client.post(session_path(self.key, "/messages"), {"text": text, "messageId": message_id})
        run_id = posted.get("runId")
        if run_id is None:
            self._screen.line("(stored; it starts no turn)", "dim")
            return
        try:
            self._wait(str(run_id), "working")
        except KeyboardInterrupt:
            self._cancel(str(run_id))

    def cancel(self) -> None:
        """Cancels the session's running turn, whoever began it."""
        answer = self._client.post(session_path(self.key, "/cancel"))
        self._screen.line("Cancelled." if answer.get("cancelled") else "Nothing is running.", "dim")

    def _cancel(self, run_id: str) -> None:
        self._screen.end_draft()
        try:
            self._client.post(f"/runs/{run_id}/cancel")
            self._wait(run_id, "cancelling")
        except KeyboardInterrupt:
            self._screen.line("(left alone; it may still be ending)", "yellow")

    def _wait(self, run_id: str, what: str) -> None:
        began = time.monotonic()
        while True:
            with self._changed:
                if self._failure is not None:
                    raise self._failure
                if run_id in self._ended or self._changed.wait_for(lambda: run_id in self._ended, QUIET_SECONDS):
                    del self._ended[run_id]
                    return
            seconds = int(time.monotonic() - began)
            self._screen.status(
                f"… {what}, {seconds} s (Ctrl-C {'cancels' if what == 'working' else 'again leaves it'})"
            )

    def _follow(self) -> None:
        """The thread's root: what ends it is told to whoever waits."""
        try:
            for event in self._client.follow(session_path(self.key, "/events"), after=self._after):
                with self._screen.lock:
                    self._draw(event)
        except AntiphonError as error:
            with self._changed:
                self._failure = error
                self._changed.notify_all()

    def _draw(self, event: ServerEvent) -> None:
        data, message = event.data, event.data.get("message")
        assert isinstance(data, dict)
        match event.name:
            case "delta":
                self._draw_delta(data)
            case "user_message" if isinstance(message, dict):
                if message.get("messageId") not in self._own:
                    self._screen.line(f"> {text_of(message)}{author_of(message)}", "cyan")
            case "assistant_message" if isinstance(message, dict):
                self._screen.settle(text_of(message))
                for call in calls_of(message):
                    self._screen.line(f"  → {call}", "dim")
            case "tool_result" if isinstance(message, dict):
                self._screen.line(brief_result(message), "dim red" if message.get("isError") else "dim")
            case "session_started":
                self._screen.line("(the session begins anew)", "dim")
            case "run_finished":
                self._draw_end(data)
            case "reset":
                self._screen.line("(the log was lost or begins anew; /history shows what there is)", "yellow")
            case _:
                pass

    def _draw_delta(self, data: JsonObject) -> None:
        if data.get("restart"):
            self._screen.take_back()
        else:
            self._screen.piece(str(data.get("text", "")))

    def _draw_end(self, event: JsonObject) -> None:
        outcome = event.get("data")
        assert isinstance(outcome, dict)
        match outcome.get("status"):
            case "ok":
                pass
            case "cancelled":
                self._screen.line(f"({str(outcome.get('error') or 'Cancelled.').rstrip('.').lower()})", "yellow")
            case _:
                self._screen.line(failure_text(outcome), "red")
        with self._changed:
            self._ended[str(event.get("runId"))] = outcome
            self._changed.notify_all()
