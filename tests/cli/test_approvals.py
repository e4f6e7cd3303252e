"""Calls that wait for a yes, at the command line: a command on the host, which asks unless it is told otherwise."""

import subprocess
import time
from pathlib import Path
from typing import Any

from tests.claims import requirement
from tests.cli.program import COMMAND, antiphon, antiphon_json, environment, serving
from tests.directives import to_call
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS

pytestmark = requirement("cli:1", "approvals:1", "approvals:3")


def until_asked(home: Path) -> dict[str, Any]:
    deadline = time.monotonic() + PROCESS_SECONDS
    while time.monotonic() < deadline:
        if found := antiphon_json("approvals", "list", home=home)["approvals"]:
            return found[0]
    raise AssertionError("Nothing asked for approval")


def test_a_command_on_the_host_waits_until_it_is_approved_or_denied(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text('[tools.run_command]\nmode = "host"\n', "utf-8")
    with serving(home):
        assert "Nothing waits for approval." in antiphon("approvals", "list", home=home).stdout
        for word, text in (("approve", "exitCode"), ("deny", "approval_denied")):
            call = to_call("run_command", command=f"echo {word}")
            posted = antiphon_json("sessions", "send", "main", call, home=home)
            asked = until_asked(home)
            assert asked["runId"] == posted["runId"]
            assert f"echo {word}" in antiphon("approvals", "list", home=home).stdout
            shown = antiphon("approvals", "show", asked["approvalId"], home=home).stdout
            assert (
                "Asked by  owner" in " ".join(shown.split("   "))
                and f"echo {word}" in shown
                and "It may delete something." in shown
            )
            decided = antiphon_json("approvals", word, asked["approvalId"], "--note", "well", home=home)
            assert (decided["status"], decided["note"]) == ("decided", "well")
            run = antiphon_json("runs", "show", posted["runId"], "--wait", "60", home=home)
            assert run["status"] == "ok" and text in run["reply"]
            again = antiphon("approvals", word, asked["approvalId"], home=home)
            assert again.returncode != 0 and "already decided" in again.stderr


def test_one_message_in_a_pipe_says_that_its_call_waits_for_approval(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text('[tools.run_command]\nmode = "host"\n', "utf-8")
    with serving(home):
        command = [*COMMAND, "chat", "-m", to_call("run_command", command="echo hello")]
        variables, pipe = environment({"ANTIPHON_HOME": str(home)}), subprocess.PIPE
        with ending(
            subprocess.Popen(command, env=variables, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)
        ) as process:
            assert process.stderr is not None and process.stdout is not None
            said = process.stderr.readline()
            assert said.startswith("A call waits for approval") and "approvals list" in said
            antiphon("approvals", "approve", until_asked(home)["approvalId"], home=home)
            assert process.wait(PROCESS_SECONDS) == 0
            assert "hello" in process.stdout.read() and process.stderr.read() == ""


def test_what_is_allowed_always_is_shown_and_revoked(home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "antiphon.toml").write_text('[tools.run_command]\nmode = "host"\n', "utf-8")
    with serving(home):
        assert "Nothing is allowed always." in antiphon("approvals", "standing", home=home).stdout
        run = antiphon_json("sessions", "send", "main", to_call("run_command", command="sleep 60"), home=home)
        asked = until_asked(home)
        assert "(1 to approve)" in antiphon("who", home=home).stdout
        wrong = antiphon("approvals", "approve", asked["approvalId"], "--field", "command", home=home)
        assert wrong.returncode != 0 and "--always" in wrong.stderr
        wrong = antiphon("approvals", "approve", asked["approvalId"], "--always", "--any", home=home)
        assert wrong.returncode != 0 and "cannot be allowed always" in wrong.stderr
        decided = antiphon_json("approvals", "approve", asked["approvalId"], "--always", home=home)
        assert decided["calls"][0]["decision"] == "always"
        shown = antiphon("approvals", "standing", home=home).stdout
        assert "sleep 60" in shown and "until" in shown
        (standing,) = antiphon_json("approvals", "standing", home=home)["standingApprovals"]
        assert "sleep 60" in antiphon("approvals", "revoke", standing["standingId"], home=home).stdout
        assert antiphon_json("approvals", "standing", home=home)["standingApprovals"] == []
        antiphon("runs", "cancel", run["runId"], home=home)


@requirement("flow:10")
def test_what_was_read_is_shown_trusted_listed_and_revoked(home: Path) -> None:
    """The output of a command on the host, which the settings do not trust."""
    home.mkdir(mode=0o700)
    settings = '[tools.run_command]\nmode = "host"\nclassification = {level = "PUBLIC", integrity = "untrusted"}\n'
    (home / "antiphon.toml").write_text(settings, "utf-8")
    with serving(home):
        for number in (1, 2):
            call = to_call("run_command", command=f"echo {number}")
            posted = antiphon_json("sessions", "send", "main", call, home=home)
            asked = until_asked(home)
            if number == 1:
                wrong = antiphon("approvals", "approve", asked["approvalId"], "--trust", home=home)
                assert wrong.returncode != 0 and "nothing that can be trusted" in wrong.stderr
                assert "It now wants to" not in antiphon("approvals", "show", asked["approvalId"], home=home).stdout
                antiphon("approvals", "approve", asked["approvalId"], home=home)
            else:
                shown = antiphon("approvals", "show", asked["approvalId"], home=home).stdout
                assert "A result of run_command was read. It now wants to:" in shown
                assert "a result of run_command: {" in shown
                antiphon("approvals", "approve", asked["approvalId"], "--trust", home=home)
            assert antiphon_json("runs", "show", posted["runId"], "--wait", "60", home=home)["status"] == "ok"
        (trusted,) = antiphon_json("policy", "trust", "list", "--session", "main", home=home)["trustedContent"]
        assert trusted["tool"] == "run_command" and trusted["sessionKey"] == "agent:main:main"
        listed = antiphon("policy", "trust", "list", home=home).stdout
        assert trusted["sha256"][:12] in listed and "a result of run_command" in listed
        assert antiphon("policy", "trust", "revoke", "main", "0" * 12, home=home).returncode != 0
        revoked = antiphon("policy", "trust", "revoke", "main", trusted["sha256"][:12], home=home).stdout
        assert revoked.startswith("Not trusted any more: a result of run_command")
        assert "Nothing that was read is trusted." in antiphon("policy", "trust", "list", home=home).stdout
