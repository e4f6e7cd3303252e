"""`antiphon sessions tree` and `antiphon who`, on a home with a family of sessions."""

import json
import re
import subprocess
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest
from rich.cells import cell_len

from antiphon.app import open_app
from antiphon.cli.rendering.trees import guides, name_of
from antiphon.config.config import Config
from antiphon.domain.text import compact, short_age
from tests.claims import requirement
from tests.cli.program import COMMAND, Serving, antiphon, antiphon_json, environment, on_terminal, serving
from tests.directives import YIELD
from tests.engine.parley import key_of, open_peer
from tests.engine.stage import ask, config
from tests.processes import ending_soon
from tests.waiting import PROCESS_SECONDS

pytestmark = requirement("cli:1")


async def make_family(home: Path) -> None:
    async with open_app(home, Config()) as app:
        root = await open_peer(app, "garden", label="Plan the garden")
        child = await open_peer(app, "agent:main:subagent:1", label="Soil tests", parent=root.row)
        await open_peer(app, "agent:main:subagent:2", label="", parent=child.row)
        await open_peer(app, "agent:main:subagent:3", label="Frost dates", parent=root.row)
        await ask(app, key_of("garden"), "Please plan my garden " + "and the beds " * 20)
        await ask(app, "agent:main:subagent:2", "!fail The paper is wet")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Generator[Serving]:
    home = tmp_path_factory.mktemp("trees") / "home"
    anyio.run(make_family, home)
    with serving(home) as running:
        yield running


def test_a_tree_is_drawn_with_state_use_and_last_words(gateway: Serving) -> None:
    shown = antiphon("sessions", "tree", home=gateway.home)
    heading, root, soil, deep, frost = shown.stdout.splitlines()
    assert heading.split() == ["Session", "State", "Model", "Tokens", "Last", "words"]
    assert root.startswith("Plan the garden") and "✓ done" in root and "echo: Please plan my garden" in root
    assert soil.startswith("├─ Soil tests ") and "no run yet" in soil
    assert deep.startswith("│  └─ subagent:2 ") and "✗ failed" in deep and "The paper is wet" in deep
    assert frost.startswith("└─ Frost dates ")
    assert len({line.index(" offline ") for line in (root, soil, deep, frost)}) == 1, "columns stand under one another"
    of_one = antiphon("sessions", "tree", "agent:main:subagent:1", home=gateway.home).stdout
    assert of_one.splitlines()[1].startswith("Soil tests") and "garden" not in of_one
    unknown = antiphon("sessions", "tree", "nowhere", home=gateway.home)
    assert unknown.returncode == 3 and "Session not found: 'nowhere'" in unknown.stderr


def test_programs_get_the_rows_and_limits_are_told(gateway: Serving) -> None:
    answer = antiphon_json("sessions", "tree", "garden", home=gateway.home)
    assert [row["level"] for row in answer["sessions"]] == [0, 1, 2, 1]
    cut = antiphon("sessions", "tree", "--limit", "1", home=gateway.home).stdout
    assert "2 more under these are not shown" in cut


def test_inactive_sessions_are_in_the_tree_if_asked(gateway: Serving) -> None:
    assert "Soil tests" in antiphon("sessions", "tree", "--all", home=gateway.home).stdout


def test_a_line_fits_the_terminal(gateway: Serving) -> None:
    with on_terminal("sessions", "tree", home=gateway.home, env={"COLUMNS": "90"}) as terminal:
        assert terminal.wait() == 0
        lines = re.sub(r"\x1b\[[\d;]*m", "", terminal.seen).splitlines()
    assert lines[1].startswith("Plan the garden") and lines[1].endswith("…")
    assert max(map(len, lines)) <= 90
    assert "offline" not in terminal.seen, "there is no room for models"


TASK = "Find out when the last frost is"


@pytest.fixture(scope="module")
def crowd(tmp_path_factory: pytest.TempPathFactory) -> Generator[Serving]:
    """A session with a child of another agent that has no label, and with many that have long ones."""
    home = tmp_path_factory.mktemp("crowd") / "home"
    anyio.run(make_crowd, home)
    (home / "antiphon.toml").write_text(
        '[[agents.list]]\nid = "main"\nsubagents = {allowAgents = ["*"]}\n[[agents.list]]\nid = "research"\n', "utf-8"
    )
    with serving(home) as running:
        yield running


async def make_crowd(home: Path) -> None:
    async with open_app(home, Config()) as app:
        root = await open_peer(app, "garden", label="\N{CJK UNIFIED IDEOGRAPH-82B1}" * 60)
        for number in range(30):
            await open_peer(app, f"agent:main:subagent:{number:02}", label=f"Bed {number:02} " * 9, parent=root.row)


@pytest.fixture(scope="module")
def child(crowd: Serving) -> str:
    """The key of the child without a label, less what all keys of its agent begin with."""
    arguments = json.dumps({"task": TASK, "agentId": "research"})
    spawned = antiphon_json("tool", "sessions_spawn", arguments, "--as", "garden", home=crowd.home)
    antiphon_json("runs", "show", spawned["runId"], "--wait", "60", home=crowd.home)
    return str(spawned["childSessionKey"]).removeprefix("agent:research:")


def test_a_child_without_a_label_is_named_as_every_command_finds_it(crowd: Serving, child: str) -> None:
    (line,) = [
        line for line in antiphon("sessions", "tree", home=crowd.home).stdout.splitlines() if f"─ {child}" in line
    ]
    assert f"{child} {TASK} (research)" in line
    for columns, is_task_shown in ((80, False), (140, True)):
        (line,) = [line for line in screen_lines(crowd, columns, "sessions", "tree") if f"─ {child}" in line]
        assert (TASK[:8] in line.split("✓")[0]) == is_task_shown
    assert antiphon_json("sessions", "show", child, home=crowd.home)["key"] == f"agent:research:{child}"
    assert TASK in antiphon("sessions", "history", child, home=crowd.home).stdout
    assert antiphon("sessions", "tree", child, home=crowd.home).stdout.splitlines()[1].startswith(child)
    run = antiphon_json("sessions", "send", child, "!sleep 60", home=crowd.home)["runId"]
    assert child in antiphon("who", home=crowd.home).stdout
    antiphon_json("runs", "cancel", run, home=crowd.home)
    for missing in ("subagent:no", "spawn:no", "agent:main:subagent:no"):
        answer = antiphon("sessions", "show", missing, home=crowd.home)
        assert (answer.returncode, "--new" in answer.stderr) == (3, False)
    assert "--new" in antiphon("sessions", "show", "cli:no", home=crowd.home).stderr


def screen_lines(gateway: Serving, columns: int, *command: str) -> list[str]:
    with on_terminal(*command, home=gateway.home, env={"COLUMNS": str(columns)}) as terminal:
        assert terminal.wait() == 0
        return re.sub(r"\x1b\[[\d;]*m", "", terminal.seen).splitlines()


def test_no_row_of_a_tree_is_wider_than_the_terminal(crowd: Serving, child: str) -> None:
    run = antiphon_json("sessions", "send", "agent:main:subagent:00", "!sleep 60", home=crowd.home)["runId"]
    for command in (("sessions", "tree"), ("sessions", "tree", "garden"), ("who",)):
        lines = screen_lines(crowd, 80, *command)
        assert max(map(cell_len, lines)) <= 80
        assert any("…" in line for line in lines)
        (busy,) = [line for line in lines if "Bed 00" in line]
        assert "● running" in busy, "the key of another row takes no room from it"
    piped = antiphon("sessions", "tree", home=crowd.home).stdout
    assert "\N{CJK UNIFIED IDEOGRAPH-82B1}" * 60 in piped and "Bed 07 " * 8 + "Bed 07" in piped
    antiphon_json("runs", "cancel", run, home=crowd.home)


LEVELS = ("Plan the whole release", "worker-{:02} checks one part", "reader-{:02} of documents", "scribe-{:02} writes")


@pytest.fixture(scope="module")
def levels(tmp_path_factory: pytest.TempPathFactory) -> Generator[Serving]:
    """A session of one agent with 20 children that failed; under each one of another agent, and one under that."""
    home = tmp_path_factory.mktemp("levels") / "home"
    anyio.run(make_levels, home)
    with serving(home) as running:
        yield running


async def make_levels(home: Path) -> None:
    async with open_app(home, config(agents__list=[{"id": "main"}, {"id": "research"}])) as app:
        root = await open_peer(app, "release", label=LEVELS[0])
        for number in range(20):
            above = root
            for level, agent in ((1, "main"), (2, "research"), (3, "research")):
                label = LEVELS[level].format(number)
                above = await open_peer(app, f"{agent}{level}{number}", agent=agent, label=label, parent=above.row)
            await ask(app, key_of(f"main1{number}"), "!fail " + "The paper is wet " * 9)


def test_labels_keep_room_at_every_level_before_other_columns_do(levels: Serving) -> None:
    for columns, headings in ((80, {"State", "Tokens", "words"}), (40, {"State"})):
        heading, *lines = screen_lines(levels, columns, "sessions", "tree", "release")
        assert max(map(cell_len, lines)) <= columns and headings <= set(heading.split())
        assert len(lines) == 61
        for number in range(20):
            for level, line in enumerate(lines[1 + 3 * number : 4 + 3 * number], 1):
                assert LEVELS[level].format(number)[:15] in line
                assert ("✗ failed" if level == 1 else "· no run") in line


def test_the_agent_is_named_where_it_is_another_than_above(levels: Serving) -> None:
    lines = antiphon("sessions", "tree", "release", home=levels.home).stdout.splitlines()[1:5]
    assert [re.findall(r" \((main|research)\) ", line) for line in lines] == [["main"], [], ["research"], []]


def test_whom_a_session_waits_for_takes_a_part_of_its_row(crowd: Serving) -> None:
    long = json.dumps({"task": "!sleep 60", "label": "A child that has a long label"})
    antiphon_json("chat", "waits", "--new", "-m", "hello", home=crowd.home)
    for arguments, on_screen in (
        (long, "waits for A child that ha…"),
        ('{"task": "!sleep 60"}', "waits for 1 session "),
    ):
        told = f"!call sessions_spawn {arguments}\n{YIELD}"
        run = antiphon_json("sessions", "send", "waits", told, home=crowd.home)["runId"]
        while "isParked" not in antiphon_json("runs", "show", run, home=crowd.home):
            assert antiphon_json("who", home=crowd.home)["sessions"]
        (line, *children) = screen_lines(crowd, 80, "sessions", "tree", "waits")[1:]
        assert on_screen in line and cell_len(line) <= 80
        piped = antiphon("sessions", "tree", "waits", home=crowd.home).stdout.splitlines()[1]
        (name, *_) = re.findall(r"subagent:\S+", " ".join(children)) or ["A child that has a long label"]
        assert f"waits for {name} " in piped
        antiphon_json("runs", "cancel", run, home=crowd.home)


def test_on_a_low_terminal_those_at_work_are_followed(crowd: Serving, child: str) -> None:
    run = antiphon_json("sessions", "send", "agent:main:subagent:00", "!sleep 60", home=crowd.home)["runId"]
    size = {"COLUMNS": "100", "LINES": "12"}
    with on_terminal("sessions", "tree", "garden", "--follow", home=crowd.home, env=size) as terminal:
        seen = terminal.expect(" more do not fit on the terminal")
        terminal.type("\x03")
        assert terminal.wait() == 130
    lines = re.sub(r"\x1b\[[\d;?]*[a-zA-Z]", "", seen).splitlines()
    assert len(lines) == 12 and "Bed 00" in seen and "● running" in seen
    assert lines[-1].startswith("22 more")
    antiphon_json("runs", "cancel", run, home=crowd.home)


def test_following_a_tree_writes_it_whenever_it_changes(gateway: Serving) -> None:
    with ending_soon(
        subprocess.Popen(
            [*COMMAND, "sessions", "tree", "garden", "--follow", "--json"],
            env=environment({"ANTIPHON_HOME": str(gateway.home)}),
            stdout=subprocess.PIPE,
            text=True,
        )
    ) as follower:
        assert follower.stdout is not None
        before = json.loads(follower.stdout.readline())
        antiphon_json("sessions", "send", "agent:main:subagent:3", "look", "--wait", "60", home=gateway.home)
        after = json.loads(follower.stdout.readline())
        while "lastRun" not in after["sessions"][3]:
            after = json.loads(follower.stdout.readline())
        follower.send_signal(2)
        assert follower.wait(PROCESS_SECONDS) == 130
    assert "lastRun" not in before["sessions"][3] and after["sessions"][3]["preview"] == "echo: look"


def test_a_tree_is_drawn_anew_on_a_terminal_until_interrupted(gateway: Serving) -> None:
    with on_terminal("sessions", "tree", "--follow", home=gateway.home) as terminal:
        terminal.expect("Frost dates")
        terminal.expect("Plan the garden")
        terminal.type("\x03")
        assert terminal.wait() == 130


def test_who_tells_what_is_done_since_when_and_by_whom(gateway: Serving) -> None:
    idle = antiphon("who", home=gateway.home)
    assert idle.returncode == 0 and idle.stdout.startswith("No session is at work.\n")
    assert f"/{gateway.process.pid} " in idle.stdout and " all " in idle.stdout
    run = antiphon_json("sessions", "send", "agent:main:subagent:3", "!sleep 60", home=gateway.home)["runId"]
    answers = (antiphon_json("who", home=gateway.home) for _ in range(20))
    assert any("processId" in answer["sessions"][0] for answer in answers)
    (line,) = [line for line in antiphon("who", home=gateway.home).stdout.splitlines() if "Frost dates" in line]
    assert line.startswith("main ") and "● running" in line and line.endswith("!sleep 60")
    assert f"/{gateway.process.pid} " in line
    tree = antiphon("sessions", "tree", "garden", home=gateway.home).stdout
    assert "1 at work below" in tree.splitlines()[1] and "● running" in tree.splitlines()[4]
    antiphon_json("runs", "cancel", run, home=gateway.home)


def test_without_a_gateway_who_says_so(tmp_path: Path) -> None:
    shown = antiphon("who", home=tmp_path / "home")
    assert shown.returncode == 0
    assert shown.stdout == "No session is at work.\n\nNo gateway is running. `antiphon serve` starts one.\n"
    assert "There are no sessions to show" in antiphon("sessions", "tree", home=tmp_path / "home").stdout


@pytest.mark.parametrize(
    ("levels", "drawn"),
    [
        ([0], [""]),
        ([0, 1, 1], ["", "├─ ", "└─ "]),
        ([0, 1, 2, 2, 1], ["", "├─ ", "│  ├─ ", "│  └─ ", "└─ "]),
        ([0, 1, 2, 3, 0, 1], ["", "└─ ", "   └─ ", "      └─ ", "", "└─ "]),
    ],
)
def test_guides_lead_to_each_line_of_an_outline(levels: list[int], drawn: list[str]) -> None:
    assert guides(levels) == drawn


def test_names_numbers_and_ages_are_short() -> None:
    assert name_of({"key": "agent:main:subagent:7"}) == "subagent:7"
    assert name_of({"key": "agent:main:main", "displayName": "Home"}) == "Home"
    assert [compact(count) for count in (0, 999, 1000, 9949, 9950, 999_499, 999_500, 5_600_000)] == [
        "0",
        "999",
        "1.0k",
        "9.9k",
        "10k",
        "999k",
        "1.0M",
        "5.6M",
    ]
    assert [short_age(seconds) for seconds in (-3, 59.9, 60, 7200, 200_000)] == ["0 s", "59 s", "1 min", "2 h", "2 d"]
