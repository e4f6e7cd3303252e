"""Whether the process can do its work."""

from antiphon.domain.errors import Unavailable
from antiphon.domain.ids import SessionRow
from antiphon.store import sessions as rows
from antiphon.store.database import Database


class Health:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_draining = False

    def begin_drain(self) -> None:
        """From now on the process takes no new work."""
        self._is_draining = True

    async def check(self) -> None:
        """Raises `Unavailable` where messages cannot be taken or stored."""
        if self._is_draining:
            raise Unavailable("Gateway is stopping. Try again in a moment.", code="draining")
        if self._database.failure is not None:
            raise self._database.failure
        await self._database.read(rows.find_bounds, SessionRow(0))
