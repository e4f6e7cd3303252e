"""The clients of docs/WEBSOCKET.md, run as a reader would, and its tables."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from antiphon.gateway.connections import ConnectionLimits
from antiphon.gateway.operations.table import TABLE
from antiphon.gateway.socket.connection import MAX_FRAME_BYTES, MAX_OPEN
from antiphon.gateway.socket.methods import METHODS
from antiphon.gateway.socket.schemas import EVENTS
from antiphon.gateway.socket.subscribing import SUBSCRIBING
from antiphon.gateway.socket.subscriptions import MAX_LISTS, MAX_SUBSCRIPTIONS, MAX_WAITING_BYTES
from tests.claims import requirement
from tests.cli.program import serving
from tests.pages import DOCS, sections_of
from tests.waiting import PROCESS_SECONDS

PAGE = DOCS / "WEBSOCKET.md"
ADDRESS = "127.0.0.1:7464"
LONGEST_CLIENT = 32
"""Lines."""


def run(command: list[str], program: str, home: Path) -> str:
    """What the client prints against a gateway of the home."""
    home.mkdir(mode=0o700)
    with serving(home) as gateway:
        token = (home / "owner.token").read_text("utf-8").strip()
        env = {"PATH": os.environ["PATH"], "TOKEN": token}
        text = program.replace(ADDRESS, gateway.url.removeprefix("http://"))
        done = subprocess.run(
            [*command, text], env=env, capture_output=True, text=True, timeout=PROCESS_SECONDS, check=False
        )
    assert done.returncode == 0, done.stderr
    return done.stdout


@requirement("gateway:2", "gateway:3")
def test_the_client_in_python_prints_what_the_page_says(tmp_path: Path) -> None:
    program, printed = sections_of(PAGE.read_text("utf-8"))["A client in Python"]
    assert program.text.count("\n") <= LONGEST_CLIENT
    assert run([sys.executable, "-c"], program.text, tmp_path / "home") == printed.text


@requirement("gateway:2", "gateway:3")
def test_the_client_in_javascript_prints_what_the_page_says(tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs node")
    program, printed = sections_of(PAGE.read_text("utf-8"))["A client in JavaScript"]
    assert program.text.count("\n") <= LONGEST_CLIENT
    major = int(
        subprocess.run([node, "--version"], capture_output=True, text=True, check=True, timeout=PROCESS_SECONDS)
        .stdout[1:]
        .split(".")[0]
    )
    flags = [] if major >= 22 else ["--experimental-websocket"]
    assert run([node, *flags, "-e"], program.text, tmp_path / "home") == printed.text


def test_the_page_names_every_event_method_and_limit() -> None:
    text = PAGE.read_text("utf-8")
    named = set(re.findall(r"`([a-z]+(?:\.[a-z-]+)+)`", text))
    assert named >= EVENTS.keys(), EVENTS.keys() - named
    assert {name for name in SUBSCRIBING if not name.endswith("unsubscribe")} <= named
    assert {name for name in METHODS if name not in TABLE} - named <= {"agent", "health"}
    limits = ConnectionLimits()
    for shown in (
        f"{limits.first_frame_bytes >> 10} KiB before `connect`, {limits.frame_bytes >> 20} MiB after",
        f"| {MAX_OPEN}; more are refused",
        f"{MAX_SUBSCRIPTIONS}; and {MAX_LISTS} lists",
        f"| {MAX_WAITING_BYTES >> 20} MiB |",
        f"| {limits.socket_stall_seconds:g} s |",
        f"{limits.pings} at once",
    ):
        assert shown in text, shown
    assert limits.frame_bytes == MAX_FRAME_BYTES
