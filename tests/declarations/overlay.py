"""The project with a few files changed, in a directory of its own: all others are links. The working tree stays."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from tests.waiting import SECONDS

ROOT = Path(__file__).parents[2]
SOURCES = "src/antiphon"


def with_lines(file: str, *added: tuple[str, str]) -> str:
    """The source with each text in front of the one line that begins with another, indented as that one is."""
    source = (ROOT / SOURCES / file).read_text("utf-8")
    for before, more in added:
        lines = source.splitlines(keepends=True)
        (at,) = [number for number, line in enumerate(lines) if line.strip().startswith(before)]
        indent = lines[at][: len(lines[at]) - len(lines[at].lstrip())]
        source = "".join([*lines[:at], *(f"{indent}{line}\n" for line in more.splitlines()), *lines[at:]])
    return source


def run_with(changed: Mapping[str, str], test: str, directory: Path) -> tuple[int, str]:
    """What pytest says of `test`, a file below `tests`, where these sources stand instead of what there is."""
    for place, folders, files in os.walk(ROOT / SOURCES):
        here = directory / Path(place).relative_to(ROOT)
        here.mkdir(parents=True)
        for name in files:
            (here / name).symlink_to(Path(place) / name)
        if "__pycache__" in folders:
            folders.remove("__pycache__")
            (here / "__pycache__").symlink_to(Path(place) / "__pycache__")
    for name in ("tests", "docs", "pyproject.toml"):
        (directory / name).symlink_to(ROOT / name)
    for file, source in changed.items():
        path = directory / SOURCES / file
        path.unlink(missing_ok=True)
        path.write_text(source, "utf-8")
    ran = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "anyio", "--rootdir", directory, f"tests/{test}"],
        cwd=directory,
        env={
            **{name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
            "PYTHONPATH": f"{directory}/src{os.pathsep}{directory}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=12 * SECONDS,
        check=False,
    )
    return ran.returncode, ran.stdout + ran.stderr
