"""Options and fixtures for all tests."""

import gc
import logging
import os
import signal
import subprocess
from collections.abc import Callable, Generator
from contextlib import AbstractAsyncContextManager
from functools import cache
from pathlib import Path
from typing import Any, TypeAlias
from zlib import crc32

import pytest
from hypothesis import HealthCheck, settings
from msgspec.structs import replace
from pydantic import SecretStr

from antiphon.app import open_app
from antiphon.building import App, Parts
from antiphon.config.config import Config
from antiphon.config.sections.gateway import DatabaseSection
from antiphon.store.sqlite import connect_sqlite
from tests.held import checked_units
from tests.postgres import fresh_database
from tests.sqlite_template import connect_to_copy

# How fast examples are drawn and run says nothing on a machine that is busy.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

LONG = {
    "channels/deltachat/test_chats.py",
    "channels/email/test_mailbox.py",
    "channels/telegram/test_cuts.py",
    "channels/telegram/test_kill.py",
    "channels/telegram/test_kill_points.py",
    "channels/telegram/test_other_library.py",
    "channels/together/test_hour.py",
    "channels/together/test_suite.py",
    "channels/xmpp/test_suite.py",
    "cli/test_chats.py",
    "cli/test_demo.py",
    "cli/test_postgres_cli.py",
    "cli/test_rights.py",
    "cli/test_serve.py",
    "cli/test_together.py",
    "declarations/test_declarations.py",
    "engine/memory/test_drawing_notes.py",
    "flow/test_redteam.py",
    "flows/test_cluster.py",
    "flows/test_crowd.py",
    "flows/test_faults.py",
    "flows/test_kill.py",
    "flows/test_postgres_restarts.py",
    "flows/test_starved_statements.py",
    "gateway/socket/test_bounds.py",
    "gateway/test_matrix.py",
    "gateway/test_openapi_fuzz.py",
    "mcp/test_client.py",
    "planted/test_planted.py",
    "store/test_scopes.py",
    "test_public_names.py",
    "worlds/test_leaks.py",
    "worlds/test_worlds.py",
}
"""Files whose tests take long, below `tests`."""
DATABASES = ("sqlite", "postgres")
LEFT_OUT = pytest.StashKey[list[pytest.Item]]()
"""Tests that this run does not need; they exist nevertheless."""

OpenHome: TypeAlias = Callable[..., AbstractAsyncContextManager[App]]
"""`open_home(config, parts)`: a running system on the test's home; may be opened again after it was left."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the long forms of kill, power-cut and reconnect tests")
    parser.addoption(
        "--one-database",
        action="store_true",
        help="run each test on one of the databases, on the other at the next commit",
    )
    parser.addoption("--prove", action="store_true", help="run the long forms of the tests of information flow")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "browser: drives the page in Chromium")
    # Programs that tests start would inherit that a shell in the background, or nohup, had these ignored.
    for number, default in ((signal.SIGINT, signal.default_int_handler), (signal.SIGHUP, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, default)
    logging.Logger.manager.loggerDict = Loggers(logging.Logger.manager.loggerDict)
    gc.disable()  # until all tests are collected


class Loggers(dict[str, logging.Logger | logging.PlaceHolder]):
    """All loggers, which other threads may add to while pytest goes through them before a test."""

    def values(self) -> list[logging.Logger | logging.PlaceHolder]:  # type: ignore[override]
        return list(super().values())


def pytest_collection_finish() -> None:
    """Keeps the tests out of garbage collections, which would look at all of them again and again."""
    gc.collect()
    gc.freeze()
    gc.enable()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two more than there are processors: much of the time is waiting for other processes."""
    return (os.cpu_count() or 1) + 2


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--one-database"):
        tests = config.rootpath / "tests"
        left_out = [item for item in items if _runs_elsewhere(item, tests)]
        items[:] = [item for item in items if not _runs_elsewhere(item, tests)]
        config.hook.pytest_deselected(items=left_out)
        config.stash[LEFT_OUT] = left_out
    _deal(config, items)


def _runs_elsewhere(item: pytest.Item, tests: Path) -> bool:
    """Whether it is the turn of the same test on the other database; those of the store run on both."""
    if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
        return False
    parameters = item.callspec.params
    database = parameters.get("database_section", parameters.get("backend"))
    if database not in DATABASES or item.path.is_relative_to(tests / "store"):
        return False
    name = item.nodeid.replace("postgres", "sqlite")
    return database != DATABASES[(crc32(name.encode()) + turn()) % 2]


@cache
def turn() -> int:
    """A number that goes up with each commit, for what takes turns; 0 outside a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "rev-list", "--count", "HEAD"]
    try:
        return int(subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return 0


def _deal(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Lets each worker begin with its share of the long tests: those that end last should be short.

    The tests are first dealt out in blocks of the same size; a worker without work takes from the end of a block.
    """
    workers: int = getattr(config, "workerinput", {}).get("workercount", 1)
    if workers == 1:
        return
    tests = config.rootpath / "tests"
    long, others = list[pytest.Item](), list[pytest.Item]()
    for item in items:
        (long if item.path.relative_to(tests).as_posix() in LONG else others).append(item)
    dealt: list[pytest.Item] = []
    for worker in range(workers):
        size = (len(items) - len(dealt)) // (workers - worker)
        share = long[worker::workers]
        # Each at another place of the same way: else all would wait together, and then all need the processor.
        first = len(share) * worker // workers
        share = share[first:] + share[:first]
        dealt += [*share, *others[: max(0, size - len(share))]]
        del others[: max(0, size - len(share))]
    items[:] = [*dealt, *others]


@pytest.fixture(scope="session", autouse=True)
def held() -> Generator[None]:
    """Units say to which sessions they write, also on SQLite."""
    with checked_units():
        yield


@pytest.fixture
def anyio_backend() -> tuple[str, dict[str, Any]]:
    """The event loop of the gateway."""
    return "asyncio", {"use_uvloop": True}


@pytest.fixture
def is_soak(request: pytest.FixtureRequest) -> bool:
    """Whether the long form of the test is asked for."""
    return bool(request.config.getoption("--soak"))


@pytest.fixture
def is_proof(request: pytest.FixtureRequest) -> bool:
    """Whether the long form of a test of information flow is asked for."""
    return bool(request.config.getoption("--prove"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture(params=DATABASES)
def database_section(request: pytest.FixtureRequest) -> Generator[DatabaseSection]:
    """Where the test's home has its database: in a file, or in a PostgreSQL database of its own."""
    if request.param == "sqlite":
        yield DatabaseSection()
    else:
        with fresh_database() as url:
            yield DatabaseSection(url=SecretStr(url), connections=6)


@pytest.fixture
def open_home(home: Path, database_section: DatabaseSection) -> OpenHome:
    """Opens the test's home, on each backend; the one place that knows of them.

    What is stored outlives the process, not the machine: the tests of durability open homes of their own. Leaving it
    waits for no run, unless the test says how long.
    """

    def open_it(config: Config | None = None, parts: Parts | None = None) -> AbstractAsyncContextManager[App]:
        parts = replace(parts or Parts(), synchronous="OFF")
        if parts.connect is connect_sqlite:
            parts = replace(parts, connect=connect_to_copy)
        given = config or Config()
        changed: dict[str, object] = {"database": database_section}
        if "drain_seconds" not in given.gateway.model_fields_set:
            changed["gateway"] = given.gateway.model_copy(update={"drain_seconds": 0})
        return open_app(home, given.model_copy(update=changed), parts)

    return open_it
