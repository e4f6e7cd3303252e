"""Puts changed heads into one, and adds it to a file outside the home. Contract: flow 12."""

import logging
from collections.abc import Collection, Sequence
from pathlib import Path

import anyio
from anyio import to_thread

from antiphon.domain.audit import AuditKind
from antiphon.domain.home_key import HomeKey
from antiphon.domain.ids import SessionRow
from antiphon.engine.audit.trail import Trail
from antiphon.feed.notifier import Notifier
from antiphon.seals import append_seals, last_lines, read_seals, seal_line
from antiphon.store import audit
from antiphon.store.audit import Sealed
from antiphon.store.database import Database
from antiphon.trouble import Trouble

logger = logging.getLogger(__name__)

SECONDS_BETWEEN = 1.0
FULL_LOOK_SECONDS = 60.0
"""Between looks at every session, for what other processes stored."""


def name_of_home(home_key: HomeKey) -> str:
    """The name of the home in its seals."""
    return home_key.subkey("audit-home").hex()[:16]


class Sealer:
    """Woken by changes, at most once a second. `run` must be running in a task."""

    def __init__(self, database: Database, notifier: Notifier, trail: Trail, *, path: Path, home: str) -> None:
        """`home` is its name in the seals."""
        self._database = database
        self._notifier = notifier
        self._trail = trail
        self._path = path
        self._home = home
        self._changed: set[SessionRow] | None = None
        """None for all."""
        self._turn = anyio.Lock()
        self._has_changed = anyio.Event()
        self._waiting: list[Sealed] = []
        """Seals that are not in the file yet."""
        self._has_written = False
        means = "The seals are in the database alone until this is over."
        self._sealing = Trouble(logger, "Sealing", action="seal_failed", means=means)

    async def run(self) -> None:
        """Runs until cancelled; begins with what was stored since the last seal."""
        unsubscribe = self._notifier.subscribe_all(self._note)
        self._trail.on_change(self._has_changed_rows)
        self._has_changed.set()
        is_begun = False
        try:
            while True:
                with anyio.move_on_after(FULL_LOOK_SECONDS) as waiting:
                    await self._has_changed.wait()
                try:
                    if not is_begun:
                        await self._compare()
                        is_begun = True
                    await self.seal(all=waiting.cancelled_caught)
                except Exception as error:
                    self._sealing.failed(error)
                    self._changed = None
                    self._has_changed.set()
                else:
                    self._sealing.worked()
                await anyio.sleep(SECONDS_BETWEEN)
        finally:
            unsubscribe()

    async def finish(self) -> None:
        """Seals what is left when the process stops."""
        try:
            await self.seal()
        except Exception as error:
            self._sealing.failed(error)

    async def seal(self, *, all: bool = False) -> None:
        """Seals what has changed, and adds the seal to the file, one after the other."""
        async with self._turn:
            await self._seal(is_whole=all)

    async def _seal(self, *, is_whole: bool) -> None:
        changed, self._changed = None if is_whole or self._changed is None else sorted(self._changed), set[SessionRow]()
        self._has_changed = anyio.Event()
        try:
            sealed = await self._database.run(audit.seal, changed)
        except BaseException:
            self._changed = None
            raise
        if sealed is not None:
            self._waiting.append(sealed)
        if self._waiting:
            began = await to_thread.run_sync(append_seals, self._path, self._lines(self._waiting))
            self._waiting.clear()
            if began and self._has_written:
                self._tell("The file of seals began anew", "seals_began_anew")
            self._has_written = True

    async def _compare(self) -> None:
        """Tells if the file holds a newer seal than the home, or the home has seals and the file has none."""
        newest = await self._database.read(audit.find_newest_seal)
        lines = await to_thread.run_sync(last_lines, self._path)
        ours = [seal for seal in read_seals(lines) if seal.home == self._home]
        self._has_written = newest is not None
        if ours and not await self._database.read(audit.is_sealed, ours[-1].n, ours[-1].hash):
            self._tell("The file of seals holds a seal that the home does not have", "seal_unknown", ours[-1].n)
            self._has_written = True

    def _tell(self, text: str, action: str, n: int | None = None) -> None:
        logger.warning(text, extra={"action": action, "seal": n, "path": str(self._path)})
        self._trail.note(AuditKind.SEALS_MOVED, {"what": action, **({} if n is None else {"n": n})})

    def _note(self, sessions: Collection[SessionRow]) -> None:
        changed = [session for session in sessions if session > 0]
        if changed:
            if self._changed is not None:
                self._changed.update(changed)
            self._has_changed.set()

    def _has_changed_rows(self) -> None:
        self._has_changed.set()

    def _lines(self, seals: Sequence[Sealed]) -> bytes:
        return b"".join(seal_line(self._home, seal.n, seal.at, seal.hash) for seal in seals)
