import json
import subprocess
from collections.abc import Generator
from pathlib import Path

import pytest

from antiphon.testing.ports import free_port
from tests.claims import requirement
from tests.cli.program import COMMAND, antiphon, antiphon_json, environment, on_terminal, serving
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS


@pytest.fixture(scope="module", autouse=True)
def asking_nobody(tmp_path_factory: pytest.TempPathFactory) -> Generator[subprocess.Popen[str]]:
    """A message to a provider that is not there, begun early because it is tried again for a quarter of a minute."""
    variables = {
        "ANTIPHON_HOME": str(tmp_path_factory.mktemp("unreachable")),
        "ANTIPHON_MODEL": "near:any",
        "ANTIPHON_PROVIDERS__NEAR__BASE_URL": f"http://127.0.0.1:{free_port()}/v1",
    }
    with ending(
        subprocess.Popen(
            [*COMMAND, "chat", "-m", "hello"],
            env=environment(variables),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    ) as process:
        yield process
        process.kill()


@requirement("cli:1", "first_start:2")
def test_a_conversation_streams_obeys_commands_and_stays(home: Path) -> None:
    with on_terminal("chat", home=home) as terminal:
        terminal.expect("main, model offline")
        terminal.say("hello\n")
        terminal.expect("echo: hello")
        terminal.say("!call session_status {}\n")
        terminal.expect("→ session_status {}")
        terminal.expect("← session_status: ")
        terminal.say("!fail the model is tired\n")
        terminal.expect("the model is tired\r\n")
        terminal.say("/help\n")
        terminal.expect("/history [n]")
        terminal.say("/status\n")
        terminal.expect("agent:main:main")
        terminal.say("/nonsense\n")
        terminal.expect("Command is unknown: '/nonsense'")
        terminal.say("first \\\nsecond\n")
        terminal.expect("echo: first")
        terminal.expect("second")
        terminal.say("/history 2\n")
        terminal.expect("> first")
        terminal.say("/new\n")
        terminal.expect("starts again")
        terminal.say("after\n")
        terminal.expect("echo: after")
        terminal.say("\x04")
        assert terminal.wait() == 0
        assert "Connection to the gateway" not in terminal.seen
    history = antiphon_json("sessions", "history", "main", home=home)
    assert [message["content"][0]["text"] for message in history["messages"]] == ["after", "echo: after"]


@requirement("cli:1", "runs:5")
def test_ctrl_c_cancels_the_turn_and_twice_at_the_prompt_leaves(home: Path) -> None:
    with serving(home):
        with on_terminal("chat", home=home) as terminal:
            terminal.say("!sleep 60\n")
            terminal.expect("Ctrl-C cancels)")
            terminal.type("\x03")
            terminal.expect("(the run was cancelled)")
            terminal.say("still here\n")
            terminal.expect("echo: still here")
            terminal.say("a")
            terminal.expect("a")
            terminal.type_at_rest("\x03")
            terminal.expect("(press Ctrl-C again to leave)")
            terminal.say("a")
            terminal.expect("a")
            terminal.type_at_rest("\x03")
            assert terminal.wait() == 0
        runs = antiphon_json("runs", "list", home=home)["runs"]
    assert [run["status"] for run in runs] == ["ok", "cancelled"]


@requirement("cli:1")
def test_what_others_write_appears_at_the_prompt(home: Path) -> None:
    with serving(home), on_terminal("chat", "work", "--new", home=home) as terminal:
        terminal.say("half a li")
        terminal.expect("half a li")
        done = antiphon("chat", "work", "-m", "from elsewhere\x1b[2J", home=home)
        assert done.stdout == "echo: from elsewhere\N{REPLACEMENT CHARACTER}[2J\n"
        terminal.expect("> from elsewhere\N{REPLACEMENT CHARACTER}[2J")
        terminal.expect("echo: from elsewhere")
        terminal.expect("> half a li")
        terminal.type("ne\n")
        terminal.expect("echo: half a line")
        terminal.say("/quit\n")
        assert terminal.wait() == 0


@requirement("cli:1")
def test_one_message_prints_the_reply_only_and_tells_the_outcome_by_its_code(home: Path) -> None:
    with serving(home):
        done = antiphon("chat", "-m", "hello", home=home)
        assert (done.returncode, done.stdout, done.stderr) == (0, "echo: hello\n", "")
        piped = antiphon("chat", home=home, stdin="two\nlines\n")
        assert (piped.returncode, piped.stdout) == (0, "echo: two\nlines\n")
        for options in ([], ["-m", "-"]):
            for given in ("two\r\nlines\r\n", "\ufefftwo\nlines\n\n"):
                asked = antiphon("chat", *options, "--json", home=home, stdin=given)
                assert json.loads(asked.stdout)["reply"] == "echo: two\nlines"
        blank = antiphon("chat", home=home, stdin="\u200b\r\n")
        assert blank.returncode == 2 and "Message is empty" in blank.stderr
        failed = antiphon("chat", "-m", "!fail no luck", home=home)
        assert (failed.returncode, failed.stdout, failed.stderr) == (1, "", "no luck\n")
        late = antiphon("chat", "-m", "!sleep 30", "--timeout", "0.2", home=home)
        assert late.returncode == 5 and "It continues" in late.stderr
        antiphon_json("runs", "cancel", antiphon_json("runs", "list", home=home)["runs"][0]["runId"], home=home)
        empty = antiphon("chat", "-m", " ", home=home)
        assert empty.returncode == 2 and "Message is empty" in empty.stderr
        shown = antiphon_json("chat", "-m", "hello", home=home)
        assert (shown["status"], shown["reply"], shown["sessionKey"]) == ("ok", "echo: hello", "agent:main:main")
        assert {"messageId", "runId", "seq", "triggered"} <= shown.keys()


@requirement("cli:1")
def test_one_message_on_a_terminal_streams_its_reply_once(home: Path) -> None:
    with serving(home), on_terminal("chat", "-m", "!stream 5", home=home) as terminal:
        assert terminal.wait() == 0
    assert terminal.seen.split() == ["1", "2", "3", "4", "5"]


@requirement("cli:1")
def test_an_unknown_session_is_told_with_what_to_do(home: Path) -> None:
    with serving(home):
        done = antiphon("chat", "nowhere", "-m", "x", home=home)
        assert done.returncode == 3
        assert "Session not found: 'nowhere'" in done.stderr and "--new" in done.stderr
        malformed = antiphon("chat", "agent:main:UPPER", "-m", "x", home=home)
        assert malformed.returncode == 2 and "Session key" in malformed.stderr
        other = antiphon("chat", "--agent", "nobody", "-m", "x", home=home)
        assert other.returncode in (2, 3) and "nobody" in other.stderr


@requirement("cli:1")
@pytest.mark.parametrize("arguments", [["chat", "--json"], ["sessions", "show", "nope", "--json"]])
def test_errors_are_json_for_programs(home: Path, arguments: list[str]) -> None:
    done = antiphon(*arguments, home=home)
    error = json.loads(done.stdout)["error"]
    assert done.returncode in (2, 3) and set(error) == {"code", "message"}


@requirement("cli:1")
def test_a_key_that_is_missing_or_malformed_is_told_with_the_remedy(home: Path) -> None:
    missing = antiphon("chat", "-m", "hello", home=home, env={"ANTIPHON_MODEL": "openai:gpt-5"})
    assert missing.returncode == 1
    assert "Key missing" in missing.stderr and "OPENAI_API_KEY" in missing.stderr
    variables = {"ANTIPHON_MODEL": "openai:gpt-5", "OPENAI_API_KEY": "planted-\N{EURO SIGN}"}
    malformed = antiphon("chat", "-m", "hello", home=home, env=variables)
    assert malformed.returncode == 1
    assert "Key malformed" in malformed.stderr and "planted" not in malformed.stderr


@requirement("cli:1")
def test_a_provider_that_cannot_be_reached_is_told_with_the_remedy(asking_nobody: subprocess.Popen[str]) -> None:
    stdout, stderr = asking_nobody.communicate(timeout=PROCESS_SECONDS)
    assert (asking_nobody.returncode, stdout) == (1, "")
    assert "Connection to provider 'near' failed" in stderr and "base_url" in stderr
