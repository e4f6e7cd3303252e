"""A gateway without room on the disk, or without file descriptors: it says so, and recovers by itself."""

import http.client
import json
import resource
import shutil
from pathlib import Path
from typing import Any

import pytest

from antiphon.tools.sandbox.start import find_problem
from tests.cli.program import antiphon, antiphon_json, serving
from tests.directives import to_spawn
from tests.waiting import PROCESS_SECONDS, at_least, until

MAIN = "/sessions/agent:main:main/messages"
HISTORY = "/sessions/agent:main:main/history"
STARVED = at_least(30)
"""The gateway looks every few seconds."""


class Asking:
    """One connection that stays open, as a supervisor's may."""

    def __init__(self, url: str) -> None:
        self._connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=PROCESS_SECONDS)

    def ready(self) -> tuple[int, dict[str, Any]]:
        self._connection.request("GET", "/ready")
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read())

    def post(self, token: str, *lines: str) -> str:
        """How the run ended that answered the lines, which are one message to the main session."""
        path = f"{MAIN}?wait={PROCESS_SECONDS:.0f}"
        return self._ask(token, "POST", path, json.dumps({"text": "\n".join(lines)}))["status"]

    def texts(self, token: str) -> list[str]:
        """The messages of the main session, newest last."""
        return [str(message) for message in self._ask(token, "GET", HISTORY, None)["messages"]]

    def _ask(self, token: str, method: str, path: str, body: str | None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
        self._connection.request(method, path, body, headers)
        return json.loads(self._connection.getresponse().read())


@pytest.mark.parametrize("most", [64, 192])
def test_a_hard_limit_of_open_files_without_room_for_connections_refuses_the_start(home: Path, most: int) -> None:
    limited = ("sh", "-c", f'ulimit -n {most} && exec "$0" "$@"')
    refused = antiphon("serve", "--port", "0", home=home, prefix=limited)
    assert refused.returncode != 0
    assert f"Limit of open files is {most}" in refused.stderr
    assert "Raise the hard limit" in refused.stderr and "Traceback" not in refused.stderr


def test_a_gateway_without_descriptors_says_so_once_and_recovers_by_itself(home: Path, tmp_path: Path) -> None:
    log = tmp_path / "log"
    with serving(home, log=log) as gateway:
        asking, pid = Asking(gateway.url), gateway.process.pid
        assert asking.ready()[0] == 200
        _, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
        before, _ = resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))  # what is open stays open
        status, answer = asking.ready()
        assert (status, answer["error"]["code"]) == (503, "no_descriptors")
        # No statement needs a descriptor more than those that are open, so what is asked is stored and carried out.
        token = (home / "owner.token").read_text("utf-8").strip()
        assert asking.post(token, to_spawn("!say grown up"), "!say done") == "ok"
        until(lambda: any("grown up" in text and "!call" not in text for text in asking.texts(token)), seconds=STARVED)
        until(lambda: "Opening files failed" in log.read_text(), seconds=STARVED)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (before, hard))
        assert asking.ready()[0] == 200
        until(lambda: "Opening files works again" in log.read_text(), seconds=STARVED)
    assert log.read_text().count("Opening files failed") == 1


@pytest.mark.skipif(find_problem() is not None, reason="needs a file system of its own, of some kilobytes")
@pytest.mark.parametrize("is_used", [False, True])
def test_a_start_on_a_full_disk_is_not_ready_and_says_why(home: Path, tmp_path: Path, is_used: bool) -> None:
    small = tmp_path / "small"
    small.mkdir()
    fill = "cat /dev/zero > filling"
    if is_used:
        antiphon_json("sessions", "list", home=home)
        fill = f"cp -r {home} home; {fill}"
    bubblewrap = shutil.which("bwrap")
    assert bubblewrap is not None
    prefix = [bubblewrap, "--bind", "/", "/", "--dev-bind", "/dev", "/dev", "--proc", "/proc"]
    prefix += ["--size", str(1024 * 1024), "--tmpfs", str(small), "--die-with-parent"]
    prefix += ["sh", "-c", f'cd {small}; ({fill}) 2>/dev/null; exec "$@"', "sh"]
    done = antiphon("serve", "--port", "0", "--json", home=small / "home", prefix=prefix)
    assert done.returncode == 4, done.stdout + done.stderr
    (line,) = done.stdout.splitlines()
    error = json.loads(line)["error"]
    assert "url" not in json.loads(line)
    assert error["code"] == "disk_full" and "space" in error["message"], error
