"""The story of a demo, act by act. Each act continues when the log shows that it can."""

import json
import shlex
import signal
import time
from collections.abc import Iterator
from pathlib import Path

from rich.text import Text

from antiphon.cli.connection.client import Client, ServerEvent, session_path
from antiphon.cli.demo.gateway import DemoGateway
from antiphon.cli.demo.home import demo_home
from antiphon.cli.demo.tally import tally_of
from antiphon.cli.demo.viewer import DemoViewer, command_lines, log_lines, speaker_of, tally_lines
from antiphon.cli.exits import CommandFailed, ExitCode, TimedOut
from antiphon.cli.program import command_line
from antiphon.cli.rendering.output import aligned, console, styled
from antiphon.cli.rendering.rows import rows_of
from antiphon.cli.rendering.trees import tree_lines
from antiphon.domain.message import JsonObject

HOST, CURATOR, PAYROLL, NOBODY = (f"agent:{name}:main" for name in ("host", "curator", "payroll", "nobody"))
REQUEST = "Plan the museum's anniversary evening: 40 guests, Saturday."
LEFT = {PAYROLL: "Pay the trio, and tell them.", CURATOR: "Where are the keys of the courtyard?"}
"""What the owner still asks for in a home that is kept: one waits for a yes, and one fails."""
LIMIT_SECONDS = 120.0
"""For the whole story."""
LINES_OF_LOG = 4
"""Before the kill, and after it."""


def tell(*, is_fast: bool, is_kept: bool, as_json: bool) -> None:
    """Tells the story; ends with `CommandFailed` if the logs show that something was lost or came twice."""
    viewer = DemoViewer(is_slow=console().is_terminal and not is_fast and not as_json, as_json=as_json)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _leave)
    with demo_home(is_fast=is_fast, is_kept=is_kept) as home:
        with DemoGateway(home) as gateway:
            is_whole = _Story(viewer, gateway, home).tell(is_kept=is_kept)
        _tell_what_next(viewer, home if is_kept else None)
    if not is_whole:
        raise CommandFailed(ExitCode.FAILED)


def _leave(number: int, frame: object) -> None:
    raise SystemExit(128 + number)


class _Story:
    def __init__(self, viewer: DemoViewer, gateway: DemoGateway, home: Path) -> None:
        self._viewer = viewer
        self._gateway = gateway
        self._home = home
        self._deadline = time.monotonic() + LIMIT_SECONDS
        self._killed_after = 0

    def tell(self, *, is_kept: bool) -> bool:
        """Whether everything came, once."""
        viewer = self._viewer
        viewer.heading("Antiphon, in less than a minute")
        viewer.note(
            "Five agents with scripted models, so nothing leaves this machine. Everything else is real: a gateway in "
            "its own process, its database, and its log. These lines come from that log."
        )
        client = self._start()
        viewer.pause(3)
        for key in (HOST, CURATOR, PAYROLL):
            client.post("/sessions", {"key": key})
        viewer.heading("1  The owner asks; the host delegates, and tries what policy denies")
        posted = client.post(session_path(HOST, "/messages"), {"text": REQUEST})
        events = client.follow(session_path(HOST, "/events"), after=0)
        self._show(client, events, until="sessions_send")
        self._follow_until_begun(client, CURATOR)
        self._kill(client)
        self._start_again()
        self._show_to_the_end(client, events)
        is_whole = self._show_what_is_left(client, str(posted["messageId"]))
        if is_kept:
            self._leave_something_open(client)
        return is_whole

    def _leave_something_open(self, client: Client) -> None:
        """Returns when one request waits for a yes and another has failed."""
        for key, text in LEFT.items():
            posted = client.post(session_path(key, "/messages"), {"text": text})
            events = client.follow(session_path(key, "/events"), after=int(str(posted["seq"])))
            next(event for event in self._in_time(events) if event.name in ("approval_requested", "run_finished"))

    def _start(self) -> Client:
        client = self._gateway.start()
        place: JsonObject = {"pid": self._gateway.pid, "url": client.url, "home": str(self._home)}
        self._viewer.fact("gateway_started", place, lambda: [_gateway_line(place)])
        return client

    def _show(self, client: Client, events: Iterator[ServerEvent], until: str) -> None:
        """Shows the host's log up to its call of that tool."""
        for event in self._in_time(events):
            self._viewer.event(event.data, HOST)
            data = event.data.get("data")
            if event.name == "tool_result" and NOBODY in json.dumps(event.data):
                self._tell_of_refusals(client)
            if event.name == "tool_call" and isinstance(data, dict) and data["tool"] == until:
                self._killed_after = event.id or 0
                return

    def _tell_of_refusals(self, client: Client) -> None:
        """Compares the answers about a session that exists and a session that does not."""
        keys = {str(row["key"]) for row in rows_of(client.get("/sessions", limit=100), "sessions")}
        told = {key: self._answer_about(client, key) for key in (PAYROLL, NOBODY)}
        are_alike = told[PAYROLL].replace(PAYROLL, "") == told[NOBODY].replace(NOBODY, "")
        fact: JsonObject = {"exists": {key: key in keys for key in told}, "areAlike": are_alike}
        word = "the same" if are_alike else "NOT the same"
        self._viewer.fact("refusals", fact, list)
        self._viewer.note(
            f"{', '.join(key for key in told if key in keys)} exists, "
            f"{', '.join(key for key in told if key not in keys)} does not. But for the name, the answers are {word}."
        )

    def _answer_about(self, client: Client, key: str) -> str:
        for event in read_log(client, HOST):
            message = event.get("message")
            if event["type"] == "tool_result" and isinstance(message, dict) and f"'{key}'" in str(message["content"]):
                return str(message["content"])
        return ""

    def _follow_until_begun(self, client: Client, key: str) -> None:
        """Returns when that session is at work."""
        for event in self._in_time(client.follow(session_path(key, "/events"), after=0)):
            if event.name == "run_started":
                return

    def _kill(self, client: Client) -> None:
        viewer = self._viewer
        viewer.heading("2  kill -9, in the middle of it")
        viewer.pause(1.5)
        work = client.get("/who")
        pid = self._gateway.pid
        self._gateway.kill()
        rows = rows_of(work, "sessions")
        viewer.fact("killed", {"pid": pid, "unfinished": work["sessions"]}, lambda: _killed_lines(pid, rows))
        viewer.pause(3)

    def _start_again(self) -> None:
        self._viewer.heading("3  The same home, a new process")
        self._start().close()

    def _show_to_the_end(self, client: Client, events: Iterator[ServerEvent]) -> None:
        """Shows the host's log from where it was left, until nobody is at work."""
        for event in self._in_time(events):
            self._viewer.event(event.data, HOST)
            if event.name in ("run_finished", "user_message") and client.get("/who")["total"] == 0:
                break
        self._viewer.pause(2.5)

    def _show_what_is_left(self, client: Client, message_id: str) -> bool:
        viewer = self._viewer
        tree = client.get("/tree")
        viewer.heading("4  The tree of sessions now")
        viewer.fact("tree", tree, lambda: tree_lines(tree))
        viewer.pause(3)
        logs = {str(row["key"]): read_log(client, str(row["key"])) for row in rows_of(tree, "sessions")}
        before, after = self._killed_after - LINES_OF_LOG, self._killed_after + LINES_OF_LOG
        viewer.heading("5  The host's log, where the process died")
        part = logs[HOST][max(0, before) : after]
        viewer.fact("log", {"events": [*part]}, lambda: log_lines(part, self._killed_after))
        viewer.pause(3)
        runs = [str(run["runId"]) for run in rows_of(client.get("/runs", limit=200), "runs")]
        tally = tally_of(logs, runs, [message_id])
        viewer.heading(f"6  Counted in the logs of {tally.sessions} sessions, {tally.events} events")
        viewer.fact("tally", tally.as_json(), lambda: tally_lines(tally))
        viewer.note(
            f"{tally.taken_up} turns died with the process and were resumed. "
            + ("Nothing was lost, nothing came twice." if tally.is_whole else "SOMETHING WAS LOST OR CAME TWICE.")
        )
        viewer.pause(2)
        return tally.is_whole

    def _in_time(self, events: Iterator[ServerEvent]) -> Iterator[ServerEvent]:
        """Those that the log holds, without what streams meanwhile. Raises `TimedOut`."""
        for event in events:
            if time.monotonic() > self._deadline:
                raise TimedOut(f"Story has not ended within {LIMIT_SECONDS:g} s")
            if event.id is not None:
                yield event


def read_log(client: Client, key: str) -> list[JsonObject]:
    """All events of the session so far."""
    last = client.get(session_path(key))["lastSeq"]
    events: list[JsonObject] = []
    with client.stream("GET", session_path(key, "/events"), after=0) as stream:
        for event in stream:
            if event.id is not None:
                events.append(event.data)
                if event.id == last:
                    break
    return events


def _gateway_line(place: JsonObject) -> Text:
    return Text.assemble(
        styled("  gateway   ", "bold"),
        styled(f"process {place['pid']}", "bold green"),
        styled(f" on {place['url']}", "dim"),
    )


def _killed_lines(pid: int, rows: list[JsonObject]) -> list[Text]:
    lines = [styled(f"  ✗ process {pid} is dead. At work in it were:", "bold red")]
    cells: list[list[Text]] = []
    for row in rows:
        run = row["run"]
        assert isinstance(run, dict)
        waits_for = run.get("waitsFor")
        other = ", ".join(speaker_of(str(key)) for key in waits_for) if isinstance(waits_for, list) else ""
        state = f"waits for {other}" if other else str(run["status"])
        cells.append(
            [
                styled(f"  {speaker_of(str(row['key']))}", "bold"),
                styled(state, "cyan"),
                styled(str(row["request"]), "dim"),
            ]
        )
    return lines + (aligned(cells) if cells else [])


def _tell_what_next(viewer: DemoViewer, home: Path | None) -> None:
    viewer.heading("What next")
    if home is not None:
        viewer.note(f"The home is kept: {home}")
        viewer.note("In it one request waits for your yes and another has failed: its page shows them.")
        commands = {
            command_line("serve", home): "start a gateway on it; the link leads to its page",
            command_line("sessions tree", home): "",
            command_line(f"sessions history {HOST} --tools", home): "",
            f"rm -r {shlex.quote(str(home))}": "",
        }
        viewer.fact("kept", {"home": str(home)}, lambda: command_lines(commands))
        return
    commands = {
        command_line("serve"): "start your own gateway; it says how to set a real model",
        command_line("chat"): "talk with an agent",
        command_line("demo --keep"): "this demo again, and keep its home to look around",
        "docs/PATTERNS.md": "programs to paste: ask, hand over, delegate, join",
    }
    viewer.fact("next", {"commands": [*commands]}, lambda: command_lines(commands))
