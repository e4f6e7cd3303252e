"""A tool at which runs wait until the test opens it, so that what comes before what is the test's decision."""

import anyio

from antiphon.agents.toolset import DeclaredFunction, tool
from tests.waiting import SECONDS


class Gates:
    """Each is shut until it is opened, and stays open then; whoever waits at one when the gateway ends waits anew."""

    def __init__(self) -> None:
        self._opened: dict[str, anyio.Event] = {}
        self._reached: dict[str, anyio.Event] = {}

    @property
    def tool(self) -> DeclaredFunction:
        return tool(self.gate, is_idempotent=True, clearance={"level": "RESTRICTED"})

    async def gate(self, name: str) -> str:
        """Waits."""
        self._event(self._reached, name).set()
        await self._event(self._opened, name).wait()
        return "open"

    def open(self, name: str) -> None:
        self._event(self._opened, name).set()

    async def until_reached(self, name: str) -> None:
        """Returns when a run has come to the gate."""
        with anyio.fail_after(SECONDS):
            await self._event(self._reached, name).wait()

    def _event(self, events: dict[str, anyio.Event], name: str) -> anyio.Event:
        return events.setdefault(name, anyio.Event())
