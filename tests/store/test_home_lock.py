"""The lock of a home: ends by itself, and names who holds it."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path
from threading import Timer

import pytest

from antiphon.app import open_app
from antiphon.backends import DATABASE_NAME
from antiphon.config.config import Config
from antiphon.store.home_lock import take_lock
from antiphon.store.migrations import StoreUnusable
from tests.cli.program import antiphon, antiphon_json, serving
from tests.processes import ending
from tests.waiting import PROCESS_SECONDS


def a_dead_process() -> int:
    with ending(subprocess.Popen([sys.executable, "-c", ""])) as ended:
        ended.wait(PROCESS_SECONDS)
    return ended.pid


def test_the_lock_of_a_process_that_was_killed_is_waited_for(tmp_path: Path) -> None:
    """The kernel gives the lock back a moment after the kill."""
    holder = os.open(tmp_path / "database.lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(holder, fcntl.LOCK_EX)
    os.write(holder, str(a_dead_process()).encode())
    ending = Timer(0.3, lambda: fcntl.flock(holder, fcntl.LOCK_UN))
    ending.start()
    file = take_lock(tmp_path / "database")
    ending.join()
    assert (tmp_path / "database.lock").read_text().strip() == str(os.getpid())
    os.close(file)
    os.close(holder)


@pytest.mark.parametrize("text", ["9" * 31, "0", "-1", "nobody", ""])
def test_a_lock_that_names_no_process_is_in_use_by_another(tmp_path: Path, text: str) -> None:
    path = tmp_path / "database.lock"
    path.write_text(text)
    with path.open() as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        with pytest.raises(StoreUnusable, match="in use by another process:"):
            take_lock(tmp_path / "database")


@pytest.mark.anyio
async def test_a_home_that_is_opened_twice_in_one_process_is_refused_and_says_so(home: Path) -> None:
    async with open_app(home, Config()):
        with pytest.raises(StoreUnusable, match=f"in use by this process \\({os.getpid()}\\)") as raised:
            async with open_app(home, Config()):
                pass
    assert raised.value.code == "home_in_use"


def test_a_home_in_use_names_the_process(home: Path) -> None:
    antiphon_json("sessions", "list", home=home)
    with serving(home) as gateway:
        (home / "gateway.json").unlink()  # as if the gateway had not yet said where it listens
        refused = antiphon("serve", "--port", "0", home=home)
        assert refused.returncode == 4
        assert f"in use by another process ({gateway.process.pid})" in " ".join(refused.stderr.split())


def test_a_start_that_follows_a_kill_at_once_needs_nobody(home: Path) -> None:
    for _ in range(3):
        with serving(home) as gateway:
            gateway.process.kill()
    with serving(home) as gateway:
        assert antiphon_json("doctor", home=home)["ok"]


def test_a_closed_home_can_be_taken_again(home: Path) -> None:
    home.mkdir()
    os.close(take_lock(home / DATABASE_NAME))
    os.close(take_lock(home / DATABASE_NAME))
