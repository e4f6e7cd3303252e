"""Options and fixtures for all tests."""

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import TypeAlias

import pytest

from antiphon.app import App, Parts, open_app
from antiphon.config import Config

OpenHome: TypeAlias = Callable[..., AbstractAsyncContextManager[App]]
"""`open_home(config, parts)`: a running system on the test's home; may be opened again after it was left."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--soak", action="store_true", help="run the long forms of kill, power-cut and reconnect tests")


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def is_soak(request: pytest.FixtureRequest) -> bool:
    """Whether the long form of the test is asked for."""
    return bool(request.config.getoption("--soak"))


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A home that does not exist yet."""
    return tmp_path / "home"


@pytest.fixture
def open_home(home: Path) -> OpenHome:
    """Opens the test's home; the one place that knows of backends."""

    def open_it(config: Config | None = None, parts: Parts | None = None) -> AbstractAsyncContextManager[App]:
        return open_app(home, config or Config(), parts)

    return open_it
