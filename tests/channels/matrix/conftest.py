"""A homeserver for all tests of the process, and a gateway with an account there."""

from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

import pytest

from tests.channels.matrix.matrix_platform import MatrixPlatform, matrix_platform
from tests.channels.matrix.synapse import MISSING, PROGRAM, Synapse
from tests.conftest import OpenHome
from tests.gateway.served import Json, Served, serve

Opened: TypeAlias = Callable[..., AbstractAsyncContextManager[Served]]


@pytest.fixture(scope="session")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Generator[Synapse]:
    if not PROGRAM.exists():
        pytest.skip(MISSING)
    synapse = Synapse(tmp_path_factory.mktemp("synapse"))
    with synapse.running():
        yield synapse


@pytest.fixture
async def platform(synapse: Synapse) -> AsyncGenerator[MatrixPlatform]:
    async with matrix_platform(synapse) as platform:
        yield platform


@pytest.fixture
def opened(open_home: OpenHome, platform: MatrixPlatform) -> Opened:
    """A gateway with the platform's account, and the settings that are given; its owner is `olga`."""

    @asynccontextmanager
    async def opened(more: Json | None = None, **section: Any) -> AsyncGenerator[Served]:
        settings = {
            "channels": {"matrix": platform.section(**section)},
            "session": {"identity_links": {"owner": [f"matrix:{platform.id_of('olga')}"]}},
            **(more or {}),
        }
        async with serve(open_home, settings) as served:
            yield served

    return opened
