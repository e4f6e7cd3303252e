"""`antiphon demo`: what it shows is what the logs of a real gateway hold."""

import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from antiphon.cli.demo.tally import tally_of
from antiphon.domain.message import JsonObject
from tests.claims import requirement
from tests.cli.program import COMMAND, SOURCES, antiphon_json, environment, on_terminal
from tests.waiting import PROCESS_SECONDS

pytestmark = requirement("cli:1")
TOLD = "The trio is free from eight to ten."


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Where temporary homes are made."""
    directory = tmp_path / "places"
    directory.mkdir()
    return directory


def play(*options: str, place: Path, env: Mapping[str, str] | None = None) -> str:
    """What the demo wrote, which must have gone well in time."""
    variables = {"TMPDIR": str(place), "ANTIPHON_HOME": str(place / "mine"), "ANTIPHON_PORT": "1", **(env or {})}
    done = subprocess.run(
        [*COMMAND, "demo", "--fast", *options],
        env=environment(variables),
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def facts_of(output: str, name: str) -> list[Any]:
    return [fact[name] for fact in map(json.loads, output.splitlines()) if name in fact]


def copied_scripts(sources: Path) -> Path:
    """The scripts of a copy of the program, which is made there."""
    shutil.copytree(SOURCES, sources, ignore=shutil.ignore_patterns("__pycache__"))
    return sources / "antiphon" / "cli" / "demo" / "scripts"


@requirement("runs:8", "send:8", "spawn:7", "spawn:8")
def test_the_story_survives_a_kill_and_nothing_is_lost_or_comes_twice(place: Path) -> None:
    output = play("--json", place=place)
    first, second = facts_of(output, "gateway_started")
    (killed,) = facts_of(output, "killed")
    (tally,) = facts_of(output, "tally")
    assert killed["pid"] == first["pid"] != second["pid"]
    assert first["url"] == second["url"], "who followed it goes on"
    assert [count["what"] for count in tally["counts"]] == ["messages", "turns", "tool calls", "sub-agents"]
    assert [(count["begun"], count["ended"]) for count in tally["counts"]] == [(4, 4), (7, 7), (7, 7), (2, 2)]
    assert all(count["lost"] == count["twice"] == 0 for count in tally["counts"]) and tally["gaps"] == 0
    events = facts_of(output, "event")
    assert [event["seq"] for event in events] == list(range(1, len(events) + 1)), "each event was shown once"
    resumed = [event for event in events if event["type"] == "run_started" and event["data"]["attempt"] == 2]
    assert len(resumed) == 1 and tally["takenUp"] >= 1
    assert facts_of(output, "refusals") == [
        {"exists": {"agent:payroll:main": True, "agent:nobody:main": False}, "areAlike": True}
    ]
    assert list(place.iterdir()) == [], "nothing is left, and the usual home was not touched"


def test_its_lines_come_from_the_log(tmp_path: Path, place: Path) -> None:
    scripts = copied_scripts(sources := tmp_path / "sources")
    script = scripts / "musician.json"
    other = "The drummer is free from nine."
    script.write_text(script.read_text("utf-8").replace(TOLD, other), "utf-8")
    output = play("--keep", place=place, env={"PYTHONPATH": str(sources)})
    assert f"musician  {other}" in output and TOLD not in output
    (kept,) = place.iterdir()
    assert f"The home is kept: {kept}\n" in output
    page = antiphon_json("sessions", "history", "agent:host:main", home=kept)
    for message in page["messages"]:
        for part in message["content"]:
            text = part.get("text", "")
            assert text in output or "report" in message, "what the log holds was shown"
    assert "Nothing was lost, nothing came twice." in output


def test_on_a_terminal_it_is_drawn_within_its_width(place: Path) -> None:
    with on_terminal("demo", "--fast", home=place / "mine", env={"TMPDIR": str(place), "COLUMNS": "80"}) as terminal:
        terminal.expect("kill -9")
        terminal.expect("is dead")
        terminal.expect("continues from its log")
        terminal.expect("all results have arrived")
        terminal.expect("── the process died here ──")
        assert terminal.wait() == 0
    shown = re.sub(r"\x1b\[[\d;]*m", "", terminal.seen)
    assert max(map(len, shown.splitlines())) <= 80
    assert "└─ Music (musician)" in shown and "What next" in shown
    assert list(place.iterdir()) == []


def test_a_gateway_that_cannot_start_says_why(tmp_path: Path, place: Path) -> None:
    (copied_scripts(sources := tmp_path / "sources") / "antiphon.toml").write_text("[agents]\nnonsense = 1\n", "utf-8")
    done = subprocess.run(
        [*COMMAND, "demo", "--json"],
        env=environment({"TMPDIR": str(place), "PYTHONPATH": str(sources)}),
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )
    error = json.loads(done.stdout.splitlines()[-1])["error"]
    assert done.returncode == 4 and error["code"] == "invalid_config" and "nonsense" in error["message"]
    assert list(place.iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_ending_it_in_the_middle_leaves_nothing(place: Path, number: signal.Signals, code: int) -> None:
    with on_terminal("demo", home=place / "mine", env={"TMPDIR": str(place)}) as terminal:
        terminal.expect("gateway")
        terminal.expect("process ")
        (pid,) = map(int, re.findall(r"\d+(?=\x1b| )", terminal.expect("on http")))
        terminal.expect("← accepted")
        if number is signal.SIGINT:
            terminal.type("\x03")
        else:
            terminal.process.send_signal(number)
        assert terminal.wait() == code
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert list(place.iterdir()) == []


LOG: list[JsonObject] = [
    {"type": "user_message", "runId": "r1", "message": {"messageId": "m1", "content": []}},
    {"type": "run_started", "runId": "r1", "data": {"attempt": 1}},
    {
        "type": "assistant_message",
        "runId": "r1",
        "message": {"content": [{"type": "toolCall", "id": "call_1", "name": "sessions_spawn", "arguments": {}}]},
    },
    {
        "type": "tool_result",
        "runId": "r1",
        "message": {
            "toolCallId": "call_1",
            "toolName": "sessions_spawn",
            "content": [{"type": "text", "text": '{"status": "accepted", "runId": "r2"}'}],
        },
    },
    {"type": "run_finished", "runId": "r1", "data": {"status": "ok"}},
    {
        "type": "user_message",
        "message": {"content": [], "provenance": {}, "report": {"id": "r2", "stage": "record"}},
    },
]
CHILD: list[JsonObject] = [
    {"type": "run_started", "runId": "r2", "data": {"attempt": 1}},
    {"type": "run_started", "runId": "r2", "data": {"attempt": 2}},
    {"type": "run_finished", "runId": "r2", "data": {"status": "ok"}},
]


def numbered(log: list[JsonObject]) -> list[JsonObject]:
    return [{**event, "seq": number} for number, event in enumerate(log, 1)]


def wrong_in(log: list[JsonObject], runs: list[str] | None = None) -> list[str]:
    tally = tally_of({"host": numbered(log), "child": numbered(CHILD)}, runs or ["r1", "r2"], ["m1"])
    assert tally.taken_up == 1
    assert tally.is_whole == all(count.lost == count.twice == 0 for count in tally.counts)
    return [f"{count.what} {count.lost} {count.twice}" for count in tally.counts if count.lost or count.twice]


def test_what_is_lost_or_comes_twice_is_counted() -> None:
    assert wrong_in(LOG) == []
    without = [wrong_in([event for event in LOG if event is not gone]) for gone in LOG]
    assert without[0] == ["messages 1 0"]
    assert without[3] == ["tool calls 1 0", "sub-agents 0 1"]
    assert without[4] == ["turns 1 0"] and without[5] == ["sub-agents 1 0"]
    assert wrong_in([*LOG, LOG[0]]) == ["messages 0 1"]
    assert wrong_in([*LOG[:4], *LOG[3:]]) == ["tool calls 0 1"]
    assert wrong_in([*LOG, LOG[4]]) == ["turns 0 1"]
    assert wrong_in([*LOG, LOG[5]]) == ["sub-agents 0 1"]
    assert wrong_in(LOG, ["r1", "r2", "r3"]) == ["turns 1 0"]


def test_a_gap_in_a_log_is_counted() -> None:
    log = numbered(LOG)
    assert tally_of({"host": [*log[:1], *log[2:]]}, [], []).gaps == len(log) - 2
