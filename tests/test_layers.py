"""The layers hold, and what crosses them is noticed."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.waiting import SECONDS

ROOT = Path(__file__).parents[1]

VIOLATIONS = {
    "Layers: nouns, rules, state, feed, use cases, run, tools, edges, app": (
        "feed/local.py",
        "from antiphon.engine.work.health import Health",
    ),
    "Rooms of the engine": ("engine/ledger/waits.py", "from antiphon.engine.runs.lifecycle import claim"),
    "Rooms of the command line": ("cli/rendering/rows.py", "from antiphon.cli.connection.client import Client"),
    "Rooms of the configuration": ("config/sections/sessions.py", "from antiphon.config.config import Config"),
    "Rooms of PostgreSQL": ("store/postgres/link.py", "from antiphon.store.postgres.lane import Lane"),
    "Floors of the gateway": ("gateway/operations/runs.py", "from antiphon.gateway.page.entries import PageEntry"),
    "Edges, tools and agents never touch the store": (
        "gateway/operations/runs.py",
        "from antiphon.store.runs import RunFilter as Stored",
    ),
    "Nouns and rules are pure": ("domain/run.py", "import time"),
    "Nobody outside names a channel": (
        "cli/homes/server.py",
        "from antiphon.channels.telegram.settings import NAME as TELEGRAM",
    ),
    "Runners of frameworks know of Antiphon the turn alone": (
        "runners/openai_session.py",
        "from antiphon.engine.work.health import Health",
    ),
    "Only its runner imports a framework": ("agents/runners/forms.py", "from agents import Agent as Framework"),
    "Only backends.py names a backend": ("engine/work/health.py", "from antiphon.store.sqlite import SqliteDatabase"),
}
"""By contract: the file that gets the import, and the import."""


def lint(directory: Path) -> subprocess.CompletedProcess[str]:
    """What import-linter says of the source tree in the directory, by the rules of `pyproject.toml`."""
    code = "from importlinter.cli import lint_imports_command; lint_imports_command()"
    return subprocess.run(
        [sys.executable, "-c", code, "--no-cache"],
        cwd=directory,
        env={**os.environ, "PYTHONPATH": str(directory / "src"), "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the source tree and its rules."""
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def test_the_source_tree_keeps_every_contract() -> None:
    answer = lint(ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr


def test_each_contract_has_a_violation_to_be_caught() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    assert {contract["name"] for contract in contracts} == VIOLATIONS.keys()


@pytest.mark.parametrize("contract", VIOLATIONS)
def test_a_planted_violation_is_caught(copy: Path, contract: str) -> None:
    name, line = VIOLATIONS[contract]
    file = copy / "src" / "antiphon" / name
    file.write_text(f"{file.read_text('utf-8')}\n{line}\n", "utf-8")
    answer = lint(copy)
    assert answer.returncode == 1, answer.stdout + answer.stderr
    assert f"{contract} BROKEN" in " ".join(answer.stdout.split())
