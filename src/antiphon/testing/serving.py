"""Fakes of services: real HTTP servers on a free port of 127.0.0.1, each in a thread of its own."""

import socket
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import Condition
from typing import ClassVar, Final, TypeVar, cast

import anyio
import uvicorn
from anyio import to_thread
from anyio.from_thread import start_blocking_portal
from starlette.applications import Starlette
from starlette.routing import BaseRoute

WAIT_SECONDS: Final = 60.0
"""Long enough for a busy machine; only a failing test waits this long."""


class FakeServer:
    """A fake of a service; subclasses give the routes, and notify `changed` when something happens."""

    speaks_websockets: ClassVar[bool] = False

    def __init__(self) -> None:
        self.changed = Condition()
        """Held while what the fake remembers is changed."""
        self.stopped = anyio.Event()
        self._socket = socket.create_server(("127.0.0.1", 0))

    def routes(self) -> Sequence[BaseRoute]:
        raise NotImplementedError

    @property
    def port(self) -> int:
        return cast("tuple[str, int]", self._socket.getsockname())[1]

    def wait_for(self, condition: Callable[[], object], *, timeout_seconds: float = WAIT_SECONDS) -> None:
        """Returns once the condition on this fake holds; raises `TimeoutError` if that takes too long."""
        with self.changed:
            if not self.changed.wait_for(condition, timeout_seconds):
                raise TimeoutError(f"{type(self).__name__} was not asked for what the test waits for")

    async def until(self, condition: Callable[[], object], *, timeout_seconds: float = WAIT_SECONDS) -> None:
        """`wait_for` for async tests."""
        await to_thread.run_sync(lambda: self.wait_for(condition, timeout_seconds=timeout_seconds))

    async def serve(self) -> None:
        application = Starlette(routes=self.routes())
        ws = "websockets-sansio" if self.speaks_websockets else "none"
        config = uvicorn.Config(application, log_config=None, log_level="critical", lifespan="off", ws=ws)
        await _ThreadServer(config, self.stopped).serve([self._socket])

    def stop(self) -> None:
        self.stopped.set()
        with self.changed:
            self.changed.notify_all()


class _ThreadServer(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, stopped: anyio.Event) -> None:
        super().__init__(config)
        self._stopped = stopped

    async def main_loop(self) -> None:
        await self._stopped.wait()


Fake = TypeVar("Fake", bound=FakeServer)


@contextmanager
def run_fake(fake: Fake) -> Generator[Fake]:
    """Serves the fake until left."""
    with start_blocking_portal() as portal:
        serving = portal.start_task_soon(fake.serve)
        try:
            yield fake
        finally:
            portal.call(fake.stop)
            serving.result()


@asynccontextmanager
async def serve_fake(fake: Fake) -> AsyncGenerator[Fake]:
    """`run_fake` for async tests."""
    running = run_fake(fake)
    await to_thread.run_sync(running.__enter__)
    try:
        yield fake
    finally:
        with anyio.CancelScope(shield=True):
            await to_thread.run_sync(running.__exit__, None, None, None)
