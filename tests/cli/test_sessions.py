import json
import re
import signal
import subprocess
import sys
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from antiphon.testing.ports import free_port
from tests.claims import requirement
from tests.cli.program import (
    COMMAND,
    Serving,
    antiphon,
    antiphon_json,
    begun,
    environment,
    on_terminal,
    serving,
)
from tests.directives import YIELD, to_spawn
from tests.processes import ending_soon
from tests.waiting import PROCESS_SECONDS
from tests.waiting import until as wait_until

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


def test_people_find_names_and_messages_and_read_a_message_in_its_place(gateway: Serving) -> None:
    home = gateway.home
    antiphon_json("chat", "umbrellas", "--new", "-m", "nothing of note", home=home)
    posted = antiphon_json("chat", "garden", "--new", "-m", "ein ROTER Regenschirm", home=home)
    antiphon_json("chat", "garden", "-m", "later", home=home)
    wait_until(lambda: antiphon_json("sessions", "search", "roter", home=home)["messages"])  # the index follows
    shown = antiphon("sessions", "search", "roter", "REGENSCHIRM", home=home).stdout
    assert f"agent:main:cli:garden  {posted['seq']} " in shown and "ein ROTER Regenschirm" in shown
    line = next(line for line in shown.splitlines() if "in its place" in line)
    place = line.partition("antiphon ")[2].partition("`")[0].split()
    read = antiphon(*place, home=home).stdout
    assert "> ein ROTER Regenschirm" in read or "echo: ein ROTER" in read
    assert "later" not in read
    found = antiphon_json("sessions", "search", "UMBRELLA", home=home)
    assert [row["key"] for row in found["sessions"]] == ["agent:main:cli:umbrellas"]
    none = antiphon("sessions", "search", "unheard", home=home).stdout
    assert none == "Nothing was found that contains all words of 'unheard'.\n"
    refused = antiphon("sessions", "search", "?!", home=home)
    assert refused.returncode == 2 and "no word" in refused.stderr


def test_an_empty_list_says_whether_there_are_sessions(gateway: Serving, tmp_path: Path) -> None:
    filtered = antiphon("sessions", "list", "--search", "unheard", home=gateway.home).stdout
    assert filtered.startswith("No session matches.")
    assert antiphon("sessions", "list", home=tmp_path / "home").stdout.startswith("There are no sessions yet.")


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


def test_earlier_conversations_are_listed_and_one_is_continued_by_a_fork(gateway: Serving) -> None:
    home = gateway.home
    assert "no earlier conversations" in antiphon("sessions", "incarnations", "work", home=home).stdout
    antiphon_json("chat", "plans", "--new", "-m", "plan the garden", home=home)
    antiphon_json("sessions", "reset", "plans", home=home)
    antiphon_json("chat", "plans", "-m", "of today", home=home)
    answer = antiphon_json("sessions", "incarnations", "plans", home=home)
    (row,) = answer["incarnations"]
    assert (answer["sessionKey"], row["firstWords"], row["messageCount"]) == (
        "agent:main:cli:plans",
        "plan the garden",
        2,
    )
    shown = antiphon("sessions", "incarnations", "plans", home=home).stdout
    assert row["sessionId"] in shown and "plan the garden" in shown
    fork = antiphon("sessions", "fork", row["sessionId"], home=home).stdout.strip()
    texts = [
        message["content"][0]["text"] for message in antiphon_json("sessions", "history", fork, home=home)["messages"]
    ]
    assert texts == ["plan the garden", "echo: plan the garden"]


def test_following_gives_a_message_a_line_as_they_come(gateway: Serving) -> None:
    antiphon_json("chat", "followed", "--new", "-m", "before", home=gateway.home)
    with ending_soon(
        subprocess.Popen(
            [*COMMAND, "sessions", "follow", "followed", "--json"],
            env=environment({"ANTIPHON_HOME": str(gateway.home)}),
            stdout=subprocess.PIPE,
            text=True,
        )
    ) as follower:
        assert follower.stdout is not None
        lines = [json.loads(follower.stdout.readline()) for _ in range(2)]
        antiphon("chat", "followed", "-m", "after\N{LINE SEPARATOR}all", home=gateway.home)
        lines += [json.loads(follower.stdout.readline()) for _ in range(2)]
        follower.send_signal(2)
        assert follower.wait(PROCESS_SECONDS) == 130
    assert [line["content"][0]["text"] for line in lines] == [
        "before",
        "echo: before",
        "after\N{LINE SEPARATOR}all",
        "echo: after\N{LINE SEPARATOR}all",
    ]
    assert [line["seq"] for line in lines] == sorted(line["seq"] for line in lines)


def test_following_tells_of_a_lost_gateway_and_goes_on_with_the_next(tmp_path: Path) -> None:
    home, port = tmp_path / "home", str(free_port())
    with ExitStack() as stack:
        with begun("serve", "--port", port, home=home) as gateway:
            antiphon_json("sessions", "send", "main", "before", "--wait", "60", home=home)
            follower, *trees = (
                stack.enter_context(following(home, *command))
                for command in (
                    ("sessions", "follow", "main", "--json"),
                    ("sessions", "tree", "--follow", "--json"),
                    ("sessions", "tree", "main", "--follow"),
                )
            )
            screen = stack.enter_context(on_terminal("sessions", "tree", "--follow", home=home))
            screen.expect("echo: before")
            until("before", follower)
            for tree in trees:
                until("echo: before", tree)
            assert gateway.stop(signal.SIGKILL) == -signal.SIGKILL
            screen.expect("Connection to the gateway is lost; trying again.")
            for each in (follower, *trees):
                assert each.stderr is not None
                assert each.stderr.readline() == "Connection to the gateway is lost; trying again.\n"
        with begun("serve", "--port", port, home=home):
            antiphon_json("sessions", "send", "main", "after", "--wait", "60", home=home)
            screen.expect("echo: after")
            for each in (follower, *trees):
                until("echo: after", each)
                assert each.stderr is not None
                assert each.stderr.readline() == "Connection to the gateway is back.\n"
                each.send_signal(signal.SIGINT)
                assert each.wait(PROCESS_SECONDS) == 130


@contextmanager
def following(home: Path, *command: str) -> Generator[subprocess.Popen[str]]:
    with ending_soon(
        subprocess.Popen(
            [*COMMAND, *command],
            env=environment({"ANTIPHON_HOME": str(home)}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def until(text: str, process: subprocess.Popen[str]) -> str:
    """The first line that has the text."""
    assert process.stdout is not None
    return next(line for line in process.stdout if text in line)


def test_who_asked_a_gateway_that_dies_is_told_what_shows_the_answer(tmp_path: Path) -> None:
    home = tmp_path / "home"
    with serving(home) as gateway, ExitStack() as stack:
        antiphon("tasks", "new", "every day at 8 Sleep: !sleep 60", home=home)
        asked = [
            stack.enter_context(following(home, *command))
            for command in (
                ("chat", "one", "--new", "-m", "!sleep 60"),
                ("sessions", "send", "main", "!sleep 60", "--wait", "60"),
                ("tasks", "run", "Sleep", "--wait", "60"),
            )
        ]
        terminal = stack.enter_context(on_terminal("chat", "two", "--new", "-m", "!sleep 60", home=home))
        listed: list[dict[str, str]] = []
        while len(listed) < 4:
            listed = antiphon_json("runs", "list", "--status", "running", home=home)["runs"]
        assert gateway.stop(signal.SIGKILL) == -signal.SIGKILL
        assert terminal.wait() == 4
        said = [terminal.seen, *(process.communicate(timeout=PROCESS_SECONDS)[1] for process in asked)]
    is_repeated: dict[str, bool] = {}
    for run in listed:
        shows = f"`antiphon runs show {run['runId']} --wait 600` shows what came of it."
        (text,) = [text for text in said if shows in text]
        is_repeated[run["runId"]] = "The message is stored, and its run continues once the gateway is back" in text
        assert is_repeated[run["runId"]] or "The run is stored" in text
    assert sorted(is_repeated.values()) == [False, True, True, True], "that of a task is not"
    with serving(home):
        for run_id, is_left in is_repeated.items():
            if is_left:
                assert antiphon_json("runs", "cancel", run_id, home=home)["cancelled"] is True
            else:
                ended = antiphon("runs", "show", run_id, "--wait", "60", "--json", home=home)
                assert json.loads(ended.stdout)["code"] == "recovered"


def test_the_tools_of_a_session_are_listed_and_an_empty_key_is_refused(gateway: Serving) -> None:
    home = gateway.home
    child = antiphon_json("tool", "sessions_spawn", '{"task": "hello"}', home=home)["childSessionKey"]
    all_tools, own = (
        {tool["name"] for tool in antiphon_json("tool", *command, home=home)["tools"]}
        for command in ((), ("--as", child))
    )
    assert own < all_tools and "sessions_spawn" in all_tools - own
    unknown = antiphon("tool", "--as", "nowhere", home=home)
    assert unknown.returncode == 3 and "Session not found: 'nowhere'" in unknown.stderr
    for key in ("", " "):
        refused = antiphon("tool", "session_status", "--idempotency-key", key, home=home)
        assert (refused.returncode, refused.stdout) == (2, "")
        assert refused.stderr == "Error: Idempotency key is empty. Give one, or leave --idempotency-key out.\n"


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
    for command in (("show", "run_none"), ("show", "run_none", "--wait", "1"), ("show", ""), ("cancel", "run_none")):
        unknown = antiphon("runs", *command, home=home)
        assert unknown.returncode == 3 and "`antiphon runs list` shows all runs." in unknown.stderr


def test_cancelling_a_run_that_had_ended_says_that_nothing_was_cancelled(gateway: Serving) -> None:
    home = gateway.home
    done = antiphon_json("sessions", "send", "main", "hello", "--wait", "60", home=home)["runId"]
    shown = antiphon("runs", "cancel", done, home=home)
    assert (shown.returncode, shown.stdout.splitlines()[0]) == (0, "The run had already ended: nothing was cancelled.")
    answer = antiphon_json("runs", "cancel", done, home=home)
    assert (answer["status"], answer["cancelled"]) == ("ok", False)
    running = antiphon_json("sessions", "send", "main", "!sleep 60", home=home)["runId"]
    first, again = (antiphon_json("runs", "cancel", running, home=home) for _ in range(2))
    assert [(each["status"], each["cancelled"]) for each in (first, again)] == [
        ("cancelled", True),
        ("cancelled", False),
    ]


@requirement("spawn:8")
def test_a_run_that_yielded_is_shown_with_what_became_of_its_work(gateway: Serving) -> None:
    home = gateway.home
    antiphon_json("chat", "yields", "--new", "-m", "hello", home=home)
    call = to_spawn("!sleep 60", label="Slow")
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


@requirement("keys:6")
def test_a_word_names_the_chat_and_an_id_the_conversation_that_ended(gateway: Serving) -> None:
    antiphon_json("chat", "twice", "--new", "-m", "first", home=gateway.home)
    token = (gateway.home / "owner.token").read_text("ascii").strip()
    headers = {"Authorization": f"Bearer {token}"}
    address = f"{gateway.url}/sessions/agent:main:cli:twice/reset"
    httpx.post(address, headers=headers, timeout=PROCESS_SECONDS, trust_env=False).raise_for_status()
    antiphon_json("chat", "twice", "-m", "second", home=gateway.home)
    for name, text in (("twice", "second"), ("agent:main:cli:twice", "second"), ("cli:twice", "first")):
        row = antiphon_json("sessions", "show", name, home=gateway.home)
        assert (row["sessionId"] == "cli:twice") == (text == "first") and row["key"] == "agent:main:cli:twice"
        page = antiphon_json("sessions", "history", name, home=gateway.home)
        assert [message["content"][0]["text"] for message in page["messages"]] == [text, f"echo: {text}"]


def test_a_session_is_renamed_reset_and_deleted(gateway: Serving) -> None:
    home = gateway.home
    antiphon("chat", "gone", "--new", "-m", "first words", home=home)
    assert "is now named 'Old things'" in antiphon("sessions", "rename", "gone", "Old things", home=home).stdout
    named = antiphon_json("sessions", "show", "gone", home=home)
    assert named["label"] == "Old things"
    assert "label" not in antiphon_json("sessions", "rename", "gone", "", home=home)
    told = antiphon("sessions", "reset", "gone", home=home).stdout
    assert antiphon_json("sessions", "history", "gone", home=home)["messages"] == []
    assert f"sessions history {named['sessionId']}` shows the old messages" in told
    assert "> first words" in antiphon("sessions", "history", named["sessionId"], home=home).stdout
    refused = antiphon("sessions", "delete", "gone", home=home)
    assert refused.returncode == 2 and "add --yes" in refused.stderr
    assert antiphon("sessions", "delete", "gone", "--yes", home=home).stdout == "agent:main:cli:gone is deleted.\n"
    assert antiphon("sessions", "show", "gone", home=home).returncode == 3
    main = antiphon("sessions", "delete", "main", "--yes", home=home)
    assert main.returncode == 1 and "main" in main.stderr


def test_a_session_gets_a_queue_mode_of_its_own_and_people_see_where_it_came_from(gateway: Serving) -> None:
    home = gateway.home
    antiphon("chat", "busy", "--new", "-m", "first words", home=home)
    assert antiphon("sessions", "edit", "busy", "--queue-mode", "steer", home=home).stdout.endswith("busy: steer\n")
    row = antiphon_json("sessions", "show", "busy", home=home)
    assert row["queueMode"] == "steer" and row["source"]["kind"] == "cli"
    assert row["createdAt"] == row["startedAt"] <= row["interactedAt"]
    shown = antiphon("sessions", "show", "busy", home=home).stdout
    assert "Queue mode" in shown and "steer" in shown and "Source" in shown
    assert "queueMode" not in antiphon_json("sessions", "edit", "busy", "--queue-mode", "inherit", home=home)
    wrong = antiphon("sessions", "edit", "busy", "--queue-mode", "later", home=home)
    assert wrong.returncode == 2 and "queueMode" in wrong.stderr
    mute = antiphon("sessions", "send", "busy", "hello", "--deliver", home=home)
    assert mute.returncode != 0 and "Leave out 'deliver'" in mute.stderr


def test_a_word_names_a_chat_in_any_case_and_keeps_its_capitals_as_its_name(home: Path) -> None:
    with serving(home):
        begun = antiphon("chat", "Ärger", "--new", "-m", "hello", home=home)
        assert (begun.returncode, begun.stdout) == (0, "echo: hello\n")
        assert begun.stderr == "Session cli:ärger is new; its name is 'Ärger'.\n"
        row = antiphon_json("sessions", "show", "ÄRGER", home=home)
        assert (row["key"], row["label"]) == ("agent:main:cli:ärger", "Ärger")
        antiphon("sessions", "rename", "Ärger", "", home=home)
        again = antiphon("chat", "ÄRGER", "--new", "-m", "again", home=home)
        assert (again.stdout, again.stderr) == ("echo: again\n", "")
        assert "label" not in antiphon_json("sessions", "show", "ärger", home=home)
        assert antiphon_json("chat", "Main", "-m", "hello", home=home)["sessionKey"] == "agent:main:main"
        key = antiphon("chat", "cli:Work", "--new", "-m", "hello", home=home)
        assert key.returncode == 2 and "upper case" in key.stderr  # a key is never repaired


def test_a_list_shows_names_beside_the_last_messages(home: Path) -> None:
    with serving(home):
        antiphon_json("chat", "-m", "hello", home=home)
        head, row = antiphon("sessions", "list", home=home).stdout.splitlines()
        assert "Name" not in head and row.endswith("echo: hello")
        antiphon("sessions", "rename", "main", "The daily round of a small museum", home=home)
        head, row = antiphon("sessions", "list", home=home).stdout.splitlines()
        place = head.index("Name")
        assert row[place:].startswith("The daily round of a small museum  idle") and row.endswith("echo: hello")
        with on_terminal("sessions", "list", home=home) as terminal:
            assert terminal.wait() == 0
        assert "The daily round of …  idle" in terminal.seen


@pytest.mark.parametrize("command", ["sessions", "runs"])
def test_a_list_fits_a_terminal_of_eighty_columns(home: Path, command: str) -> None:
    with serving(home):
        answer = antiphon_json(
            "tool", "sessions_spawn", "--as", "main", '{"task": "!sleep 60", "label": "far"}', home=home
        )
        listed = antiphon(command, "list", home=home).stdout
        assert answer["childSessionKey"] in listed  # in a pipe, nothing is cut
        with on_terminal(command, "list", home=home, env={"COLUMNS": "80"}) as terminal:
            assert terminal.wait() == 0
        lines = re.sub(r"\x1b\[[0-9;]*m", "", terminal.seen).splitlines()
        assert max(map(len, lines)) <= 80 and answer["childSessionKey"][-11:] in terminal.seen
        antiphon("runs", "cancel", answer["runId"], home=home)


def test_failed_turns_are_seen_in_lists_history_and_follow(gateway: Serving) -> None:
    home = gateway.home
    antiphon("chat", "failing", "--new", "-m", "!fail The quota is used up.", home=home)
    assert "failed: The quota is used up." in antiphon("sessions", "list", home=home).stdout
    assert "✕ The turn failed: The quota is used up." in antiphon("sessions", "history", "failing", home=home).stdout
    (end,) = antiphon_json("sessions", "history", "failing", home=home)["endings"]
    assert (end["status"], end["error"]) == ("error", "The quota is used up.")
    with on_terminal("sessions", "follow", "failing", home=home) as following:
        following.expect("✕ The turn failed: The quota is used up.")
        antiphon("sessions", "send", "failing", "!fail Again.", home=home)
        following.expect("✕ The turn failed: Again.")


def test_a_reader_that_leaves_early_is_no_failure(gateway: Serving) -> None:
    home = gateway.home
    for number in range(40):
        antiphon_json("sessions", "send", "work", f"{number} {'long ' * 2000}", "--append", home=home)
    for command in (["history", "work"], ["history", "work", "--json"], ["list"]):
        with ending_soon(
            subprocess.Popen(
                [*COMMAND, "sessions", *command],
                env=environment({"ANTIPHON_HOME": str(home)}),
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        ) as reading:
            assert reading.stdout is not None and reading.stderr is not None
            reading.stdout.read(1)
            reading.stdout.close()
            assert reading.wait(PROCESS_SECONDS) == 0
            assert reading.stderr.read() == b""


def test_ctrl_c_cancels_the_turn_of_one_message(gateway: Serving) -> None:
    home = gateway.home
    with on_terminal("chat", "stopped", "--new", "-m", "!stream 30\n!sleep 60", home=home) as terminal:
        terminal.expect("29 30")
        terminal.type("\x03")
        terminal.expect("The turn was cancelled.")
        assert terminal.wait() == 130
    (run,) = antiphon_json("runs", "list", "--session", "stopped", home=home)["runs"]
    shown = antiphon("runs", "show", run["runId"], "--wait", "60", "--json", home=home)
    assert json.loads(shown.stdout)["status"] == "cancelled"


def test_a_narrow_terminal_cuts_keys_and_no_rows(gateway: Serving) -> None:
    with on_terminal("sessions", "list", "--search", "work", home=gateway.home, env={"COLUMNS": "70"}) as terminal:
        assert terminal.wait() == 0
    rows = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in terminal.seen.splitlines() if line.strip()]
    assert all(len(row) <= 70 for row in rows), rows
    assert any(row.startswith("…") and "work" in row for row in rows)


def test_commands_in_messages_are_the_ones_that_work_here(gateway: Serving) -> None:
    program = COMMAND[0] if len(COMMAND) == 1 else str(Path(sys.executable).with_name("antiphon"))
    done = subprocess.run(
        [program, "sessions", "show", "nowhere"],
        env={**environment({"ANTIPHON_HOME": str(gateway.home)}), "PATH": "/usr/bin:/bin"},
        cwd=gateway.home,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )
    assert f"`{program} sessions list` shows all sessions" in done.stderr
    assert f"`{program} chat nowhere --new` creates it" in done.stderr
