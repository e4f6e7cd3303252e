"""Code blocks of the documents, carried out as a reader would."""

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.cli.preloaded import preloaded_command
from tests.cli.program import environment
from tests.waiting import PROCESS_SECONDS

DOCS = Path(__file__).parents[1] / "docs"
ADDRESS = "http://127.0.0.1:7464"
"""What the documents write for the gateway's."""

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_TIME = re.compile(r"\b17\d{11}\b|\b18\d{11}\b")
_ID = re.compile(r"\b(run|msg|xch|note)_[0-9a-f]{6,}\b")
_TASK = re.compile(r"\btask-[0-9a-f]{10}\b")
_UUID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b")


@dataclass(frozen=True, slots=True)
class Block:
    language: str
    text: str


def blocks_of(text: str) -> list[Block]:
    return [Block(found[1], found[2]) for found in _BLOCK.finditer(text)]


def sections_of(text: str) -> dict[str, list[Block]]:
    """The blocks under each heading of the second level."""
    parts = re.split(r"^## (.+)$", text, flags=re.MULTILINE)
    return {parts[at]: blocks_of(parts[at + 1]) for at in range(1, len(parts), 2)}


def plain(text: str) -> str:
    """The text with the same times and ids whenever it was made."""
    named = _TASK.sub("task-0000000000", _ID.sub(r"\1_1", _TIME.sub("1790000000000", text)))
    return _UUID.sub("00000000-0000-0000-0000-000000000000", named)


def newest_id(text: str) -> str:
    """What stands for `run_1` where a document goes on with what its commands wrote; `run_1` if that names none."""
    found = [match[0] for match in _ID.finditer(text) if match[1] == "run"]
    return found[-1] if found else "run_1"


def run_shell(
    text: str, home: Path, *, url: str = ADDRESS, env: Mapping[str, str] | None = None, fails: bool = False
) -> str:
    """What the commands wrote; each must have succeeded, or, where it is to fail, the last one must have failed."""
    programs = home.parent / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / "antiphon"
    program.write_text(f'#!/bin/sh\nexec {shlex.join(preloaded_command())} "$@"\n', "utf-8")
    program.chmod(0o700)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return _run(["sh", "-eu", "-c", text.replace(ADDRESS, url)], home, {"PATH": path, **(env or {})}, fails=fails)


def run_python(text: str, home: Path) -> str:
    """What the program printed; it works in the directory that the home is in."""
    return _run([sys.executable, "-c", text], home, {})


def _run(command: list[str], home: Path, env: Mapping[str, str], *, fails: bool = False) -> str:
    done = subprocess.run(
        command,
        env=environment({"ANTIPHON_HOME": str(home), **env}),
        cwd=home.parent,
        capture_output=True,
        text=True,
        timeout=PROCESS_SECONDS,
        check=False,
    )
    assert (done.returncode != 0) is fails, done.stdout + done.stderr
    return done.stdout
