"""Fixtures of tests of channels."""

from collections.abc import AsyncGenerator

import pytest

from antiphon.gateway.server import bind, serving
from tests.channels.receiver import Receiver


@pytest.fixture
async def receiver() -> AsyncGenerator[Receiver]:
    receiver = Receiver()
    async with serving(receiver, bind("127.0.0.1", 0), on_stop=lambda: None) as url:
        receiver.url = f"{url}/bell?of=door"
        yield receiver
