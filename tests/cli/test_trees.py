"""`antiphon sessions tree` and `antiphon who`, on a home with a family of sessions."""

import json
import re
import subprocess
from collections.abc import Generator
from pathlib import Path

import anyio
import pytest

from antiphon.app import open_app
from antiphon.cli.trees import guides, name_of
from antiphon.config import Config
from antiphon.domain.text import compact, short_age
from tests.claims import requirement
from tests.cli.program import COMMAND, Serving, antiphon, antiphon_json, environment, on_terminal, serving
from tests.engine.parley import key_of, open_peer
from tests.engine.stage import ask

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


def test_following_a_tree_writes_it_whenever_it_changes(gateway: Serving) -> None:
    with subprocess.Popen(
        [*COMMAND, "sessions", "tree", "garden", "--follow", "--json"],
        env=environment({"ANTIPHON_HOME": str(gateway.home)}),
        stdout=subprocess.PIPE,
        text=True,
    ) as follower:
        assert follower.stdout is not None
        before = json.loads(follower.stdout.readline())
        antiphon_json("sessions", "send", "agent:main:subagent:3", "look", "--wait", "20", home=gateway.home)
        after = json.loads(follower.stdout.readline())
        while "lastRun" not in after["sessions"][3]:
            after = json.loads(follower.stdout.readline())
        follower.send_signal(2)
        assert follower.wait(20) == 130
    assert "lastRun" not in before["sessions"][3] and after["sessions"][3]["preview"] == "echo: look"


def test_a_tree_is_drawn_anew_on_a_terminal_until_interrupted(gateway: Serving) -> None:
    with on_terminal("sessions", "tree", "--follow", home=gateway.home) as terminal:
        terminal.expect("Frost dates")
        terminal.expect("Plan the garden")
        terminal.type("\x03")
        assert terminal.wait() == 130


def test_who_tells_what_is_done_since_when_and_by_whom(gateway: Serving) -> None:
    idle = antiphon("who", home=gateway.home)
    assert idle.returncode == 0 and idle.stdout.startswith("Nobody is at work.\n")
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
    assert shown.stdout == "Nobody is at work.\n\nNo gateway is running here. `antiphon serve` starts one.\n"
    assert "There are no sessions yet" in antiphon("sessions", "tree", home=tmp_path / "home").stdout


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
