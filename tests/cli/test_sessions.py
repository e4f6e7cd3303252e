import json
import subprocess
from collections.abc import Generator

import pytest

from tests.claims import requirement
from tests.cli.program import COMMAND, Serving, antiphon, antiphon_json, environment, serving
from tests.engine.family import YIELD, spawn_directive

pytestmark = requirement("cli:1")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[Serving]:
    home = tmp_path_factory.mktemp("sessions") / "home"
    with serving(home) as running:
        antiphon_json("chat", "work", "--new", "-m", "first", home=home)
        antiphon_json("chat", "work", "-m", "!call session_status {}", home=home)
        yield running


def test_lists_show_sessions_to_programs_and_people(gateway: Serving) -> None:
    answer = antiphon_json("sessions", "list", "--search", "work", home=gateway.home)
    (row,) = answer["sessions"]
    assert answer["count"] == 1
    assert (row["key"], row["kind"], row["status"], row["model"]) == ("agent:main:cli:work", "other", "idle", "offline")
    assert isinstance(row["updatedAt"], int)
    shown = antiphon("sessions", "list", home=gateway.home)
    assert shown.returncode == 0 and "agent:main:cli:work" in shown.stdout
    refused = antiphon("sessions", "list", "--kind", "wrong", home=gateway.home)
    assert refused.returncode == 2 and "kinds" in refused.stderr


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["sessions", "tree", "--limit", "0"], "--limit"),
        (["sessions", "tree", "--bogus"], "--bogus"),
        (["sessions", "show"], "SESSION"),
        (["sessions", "nothing"], "nothing"),
        (["runs", "show", "x", "--wait", "soon"], "--wait"),
    ],
)
def test_programs_are_told_of_wrong_usage_in_json(gateway: Serving, arguments: list[str], told: str) -> None:
    done = antiphon(*arguments, "--json", home=gateway.home)
    answer = json.loads(done.stdout)
    assert (done.returncode, done.stderr, answer["ok"], answer["error"]["code"]) == (2, "", False, "usage")
    assert told in answer["error"]["message"]
    read = antiphon(*arguments, home=gateway.home)
    assert (read.returncode, read.stdout) == (2, "") and "Usage" in read.stderr


def test_a_session_is_shown_by_word_id_and_key_alike(gateway: Serving) -> None:
    rows = [
        antiphon_json("sessions", "show", name, home=gateway.home)
        for name in ("work", "cli:work", "agent:main:cli:work")
    ]
    assert rows[0] == rows[1] == rows[2]
    assert "agent:main:cli:work" in antiphon("sessions", "show", "work", home=gateway.home).stdout
    unknown = antiphon("sessions", "show", "nowhere", home=gateway.home)
    assert unknown.returncode == 3 and "Session not found: 'nowhere'" in unknown.stderr


def test_history_pages_and_shows_tools_on_demand(gateway: Serving) -> None:
    page = antiphon_json("sessions", "history", "work", "--limit", "2", home=gateway.home)
    assert len(page["messages"]) == 2 and page["hasMore"] is True
    older = antiphon_json("sessions", "history", "work", "--cursor", page["nextCursor"], home=gateway.home)
    assert older["messages"][0]["content"] == [{"type": "text", "text": "first"}]
    with_tools = antiphon_json("sessions", "history", "work", "--tools", home=gateway.home)
    assert "toolResult" in [message["role"] for message in with_tools["messages"]]
    read = antiphon("sessions", "history", "work", home=gateway.home).stdout
    assert "> first\necho: first\n" in read and "→ session_status" in read
    refused = antiphon("sessions", "history", "work", "--cursor", "wrong", home=gateway.home)
    assert refused.returncode == 2 and "Cursor is not valid" in refused.stderr


def test_sending_waits_appends_and_repeats_safely(gateway: Serving) -> None:
    home = gateway.home
    waited = antiphon("sessions", "send", "work", "hello", "--wait", "60", home=home)
    assert (waited.returncode, waited.stdout) == (0, "echo: hello\n")
    first, again = (
        antiphon_json("sessions", "send", "work", "once", "--message-id", "m-1", "--wait", "60", home=home)
        for _ in range(2)
    )
    assert first == again and first["reply"] == "echo: once"
    other = antiphon("sessions", "send", "work", "another", "--message-id", "m-1", home=home)
    assert other.returncode == 1 and "m-1" in other.stderr
    stored = antiphon_json("sessions", "send", "work", "only kept", "--append", home=home)
    assert "runId" not in stored and stored["triggered"] is False
    failed = antiphon("sessions", "send", "work", "!fail oh", "--wait", "60", home=home)
    assert failed.returncode == 1 and failed.stderr == "oh\n"
    late = antiphon("sessions", "send", "work", "!sleep 30", "--wait", "0", home=home)
    assert late.returncode == 5
    antiphon_json(
        "runs", "cancel", antiphon_json("runs", "list", "--limit", "1", home=home)["runs"][0]["runId"], home=home
    )


def test_forks_copy_up_to_a_number(gateway: Serving) -> None:
    fork = antiphon("sessions", "fork", "work", "--seq", "4", home=gateway.home).stdout.strip()
    assert fork.startswith("agent:main:")
    texts = antiphon_json("sessions", "history", fork, home=gateway.home)["messages"]
    assert texts[0]["content"] == [{"type": "text", "text": "first"}]
    assert antiphon_json("sessions", "fork", "work", home=gateway.home)["key"] != fork


def test_following_gives_a_message_a_line_as_they_come(gateway: Serving) -> None:
    antiphon_json("chat", "followed", "--new", "-m", "before", home=gateway.home)
    with subprocess.Popen(
        [*COMMAND, "sessions", "follow", "followed", "--json"],
        env=environment({"ANTIPHON_HOME": str(gateway.home)}),
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        lines = [json.loads(follower.stdout.readline()) for _ in range(2)]
        antiphon("chat", "followed", "-m", "after\N{LINE SEPARATOR}all", home=gateway.home)
        lines += [json.loads(follower.stdout.readline()) for _ in range(2)]
        follower.send_signal(2)
        assert follower.wait(20) == 130
    assert [line["content"][0]["text"] for line in lines] == [
        "before",
        "echo: before",
        "after\N{LINE SEPARATOR}all",
        "echo: after\N{LINE SEPARATOR}all",
    ]
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines)


def test_runs_are_listed_shown_and_cancelled(gateway: Serving) -> None:
    home = gateway.home
    run_id = antiphon_json("sessions", "send", "main", "!sleep 60", home=home)["runId"]
    waiting = antiphon("runs", "show", run_id, "--wait", "0.1", home=home)
    assert waiting.returncode == 5 and "has not ended" in waiting.stderr
    cancelled = antiphon_json("runs", "cancel", run_id, home=home)
    assert (cancelled["runId"], cancelled["status"]) == (run_id, "cancelled")
    listed = antiphon_json("runs", "list", "--session", "main", "--status", "cancelled", home=home)
    assert run_id in [run["runId"] for run in listed["runs"]]
    assert run_id in antiphon("runs", "list", home=home).stdout
    assert "cancelled" in antiphon("runs", "show", run_id, home=home).stdout
    assert antiphon("runs", "show", run_id, "--wait", "1", home=home).returncode == 130
    unknown = antiphon("runs", "show", "run_none", home=home)
    assert unknown.returncode == 3 and "Run not found" in unknown.stderr


@requirement("spawn:8")
def test_a_run_that_yielded_is_shown_with_what_became_of_its_work(gateway: Serving) -> None:
    home = gateway.home
    antiphon_json("chat", "yields", "--new", "-m", "hello", home=home)
    call = spawn_directive("!sleep 60", label="Slow")
    run_id = antiphon_json("sessions", "send", "yields", f"{call}\n{YIELD}", home=home)["runId"]

    def shown(run: str) -> dict[str, str]:
        lines = antiphon("runs", "show", run, home=home).stdout.splitlines()
        return {name: value for name, _, value in (line.partition(" ") for line in lines)}

    while "isParked" not in antiphon_json("runs", "show", run_id, home=home):
        assert antiphon_json("who", home=home)["sessions"]
    waits = shown(run_id)
    assert waits["Status"].strip() == "yielded, waits for its children" and "Ended" not in waits
    listed = antiphon("runs", "list", "--session", "yields", home=home).stdout
    assert "yielded, waits for its children" in listed
    (child,) = [row for row in antiphon_json("who", home=home)["sessions"] if row.get("label") == "Slow"]
    antiphon_json("runs", "cancel", run_id, home=home)
    cancelled = shown(run_id)
    assert cancelled["Status"].strip() == "cancelled", "the code says nothing else"
    assert cancelled["Continued"].strip().startswith("by run_") and cancelled["Ended"]
    assert shown(child["run"]["runId"])["Status"].strip().startswith("cancelled")
