"""Several commands at the same time on one home that has no gateway of its own."""

import fcntl
import json
import signal
import subprocess
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.claims import requirement
from tests.cli.program import COMMAND, antiphon, antiphon_json, environment, on_terminal
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS, until

SHORT = {"ANTIPHON_GATEWAY__DRAIN_SECONDS": "0.1"}


@requirement("cli:1")
def test_the_first_commands_of_a_home_may_be_given_at_the_same_time(home: Path) -> None:
    texts = [f"from {number}" for number in range(3)]
    with ThreadPoolExecutor(len(texts)) as threads:
        running = [threads.submit(antiphon, "chat", "-m", text, home=home, env=SHORT) for text in texts]
        done = [each.result() for each in running]
    assert [said.stdout for said in done] == [f"echo: {text}\n" for text in texts], [said.stderr for said in done]
    assert not (home / "gateway.json").exists()


@requirement("cli:1")
def test_a_command_outlives_the_other_one_whose_gateway_it_used(home: Path) -> None:
    with on_terminal("chat", home=home, env=SHORT) as terminal, ThreadPoolExecutor(1) as threads:
        terminal.expect("> ")
        asked = ("chat", "cli:desk", "--new", "-m", "!sleep 7\n!say here I am")
        desk = threads.submit(antiphon, *asked, home=home, env=SHORT)
        until(lambda: antiphon_json("runs", "list", home=home, env=SHORT)["count"] == 1, seconds=PROCESS_SECONDS)
        terminal.type("/quit\n")
        assert terminal.wait() == 0
        said = desk.result()
    assert (said.returncode, said.stdout) == (0, "here I am\n"), said.stderr
    (run,) = antiphon_json("runs", "list", home=home)["runs"]
    assert run["status"] == "ok"


@requirement("cli:1")
def test_a_home_that_somebody_else_keeps_is_refused_after_a_while(home: Path) -> None:
    antiphon_json("sessions", "list", home=home)
    with open(home / "antiphon.db.lock", "w") as lock:  # noqa: PTH123 - the descriptor is what is needed
        fcntl.flock(lock, fcntl.LOCK_EX)
        said = antiphon("chat", "-m", "hello", home=home)
    assert (said.returncode, said.stdout) == (4, "")
    waiting, refusal = said.stderr.splitlines()
    assert waiting == "Another process uses the home and is starting or stopping; waiting for it."
    assert refusal.startswith("Error: Home is in use by another process")


@requirement("cli:1")
def test_a_chat_goes_on_when_the_command_ends_whose_gateway_it_used(home: Path) -> None:
    with on_terminal("chat", home=home, env=SHORT) as first:
        first.expect("> ")
        with on_terminal("chat", "cli:desk", "--new", home=home, env=SHORT) as second:
            second.say("one\n")
            second.expect("echo: one")
            first.type("/quit\n")
            assert first.wait() == 0
            second.say("two\n")
            second.expect("echo: two")
            second.say("/quit\n")
            assert second.wait() == 0
    transcript = antiphon("sessions", "history", "cli:desk", home=home).stdout
    assert transcript.count("echo: two") == 1


@requirement("cli:1")
def test_a_tool_that_waits_is_answered_when_the_command_ends_whose_gateway_it_used(home: Path) -> None:
    wide = {**SHORT, "ANTIPHON_TOOLS__SESSIONS__VISIBILITY": "agent"}
    with on_terminal("chat", home=home, env=wide) as first, ThreadPoolExecutor(1) as threads:
        first.expect("> ")
        antiphon("chat", "cli:kid", "--new", "-m", "hello", home=home, env=wide)
        given = {"sessionKey": "cli:kid", "message": "!sleep 7\n!say late", "timeoutSeconds": 60}
        asked = ("tool", "sessions_send", "--as", "main", json.dumps(given))
        answer = threads.submit(antiphon_json, *asked, home=home, env=wide)
        until(lambda: antiphon_json("runs", "list", home=home, env=wide)["count"] == 2, seconds=PROCESS_SECONDS)
        first.type("/quit\n")
        assert first.wait() == 0
        assert answer.result()["reply"] == "late"
    runs = antiphon_json("runs", "list", home=home)["runs"]
    assert len([run for run in runs if run["sessionKey"].endswith("kid")]) == 2, "it was asked once"


@requirement("cli:1")
@pytest.mark.parametrize("seconds", [0.0, 0.1, 0.2, 0.4, 0.8])
def test_ctrl_c_ends_a_command_that_begins_a_gateway_of_its_own(home: Path, seconds: float) -> None:
    """However far it has come."""
    antiphon("chat", "-m", "hello", home=home)
    lock = home / "antiphon.db.lock"
    lock.unlink()
    with on_terminal("sessions", "follow", "main", home=home, env=SHORT) as terminal:
        until(lock.exists)
        time.sleep(seconds)
        terminal.type("\x03")
        assert terminal.wait() == 130, terminal.seen
    assert "Traceback" not in terminal.seen


@requirement("cli:1")
def test_a_command_that_is_to_ignore_ctrl_c_does(home: Path) -> None:
    """As one does that a script began in the background."""
    command = ["sh", "-c", 'trap "" INT; exec "$@"', "sh", *COMMAND, "chat", "-m", "hello"]
    variables = environment({"ANTIPHON_HOME": str(home), **SHORT})
    with ending(subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True)) as process:
        until(home.exists)
        process.send_signal(signal.SIGINT)
        assert process.communicate(timeout=PROCESS_SECONDS)[0] == "echo: hello\n"
    assert process.returncode == 0
