"""The credentials of open requests: revoking one ends its requests, in every process. Contract: access 2."""

import logging
from collections.abc import Callable
from enum import StrEnum

import anyio

from antiphon.clock import Clock
from antiphon.store import tokens
from antiphon.store.database import Database
from antiphon.trouble import Trouble

SWEEP_SECONDS = 0.5
NOTE_MS = 60_000
"""How exactly the last use of a token is stored: one write in this time, however often tokens are used."""
MAX_HASHES = 500
"""In one statement."""

logger = logging.getLogger(__name__)


class CredentialEnding(StrEnum):
    """Why a credential is no longer valid."""

    REVOKED = "revoked"
    """Revoked, signed out, replaced, or deleted with its session; or its person's rights changed."""
    EXPIRED = "expired"


class Watch:
    """An open request and the callback that ends it."""

    __slots__ = ("ended", "hash", "on_end", "revision")

    def __init__(self, hash: str, revision: int, on_end: Callable[[CredentialEnding], None]) -> None:
        self.hash = hash
        self.revision = revision
        """Of its person's rights when it began; if they change it ends, so that they are decided anew."""
        self.on_end = on_end
        """Called once, on the event loop."""
        self.ended: CredentialEnding | None = None


class Credentials:
    """Watches the credentials of this process's open requests. `run` must be running in a task."""

    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock
        self._watches: dict[str, set[Watch]] = {}
        self._used: set[str] = set()
        """Credentials used since uses were noted last."""
        self._noted_at_ms = 0
        self._is_watching = anyio.Event()
        self._reading = Trouble(
            logger, "Reading credentials", action="sweep_failed", means="Revoked credentials end open requests late."
        )
        self._ending = Trouble(
            logger, "Ending a request", action="request_not_ended", means="It may go on with a revoked credential."
        )

    def watch(self, hash: str, revision: int, on_end: Callable[[CredentialEnding], None]) -> Watch:
        """Calls `on_end` within a second after the credential with that hash ends, unless the watch was released.

        So it does if the rights of its person have another revision than the one that came with the credential.
        """
        watch = Watch(hash, revision, on_end)
        self._watches.setdefault(hash, set()).add(watch)
        self._used.add(hash)
        self._is_watching.set()
        return watch

    def release(self, watch: Watch) -> None:
        """May be called twice."""
        watches = self._watches.get(watch.hash)
        if watches is not None:
            watches.discard(watch)
            if not watches:
                del self._watches[watch.hash]

    @property
    def open_requests(self) -> int:
        """The number of requests watched now."""
        return sum(map(len, self._watches.values()))

    async def run(self) -> None:
        """Checks the credentials of all open requests every half second, in one statement, until cancelled."""
        while True:
            if not self._watches:
                self._is_watching = anyio.Event()
                await self._is_watching.wait()
            await anyio.sleep(SWEEP_SECONDS)
            try:
                await self.sweep()
                await self.note_uses()
            except Exception as error:
                self._reading.failed(error)
            else:
                self._reading.worked()

    async def sweep(self) -> None:
        """Ends the requests whose credential is no longer valid. Raises `Unavailable`."""
        hashes = list(self._watches)
        for start in range(0, len(hashes), MAX_HASHES):
            asked = hashes[start : start + MAX_HASHES]
            valid = await self._database.read(tokens.find_valid, asked, self._clock.now_ms())
            for hash in asked:
                found = valid.get(hash)
                if found is None or found.is_suspended:
                    self._end(hash, CredentialEnding.REVOKED)
                elif found.is_expired:
                    self._end(hash, CredentialEnding.EXPIRED)
                else:
                    self._end(hash, CredentialEnding.REVOKED, present=found.revision)

    async def note_uses(self) -> None:
        """Stores which tokens were used, at most once a minute. Raises `Unavailable`."""
        now_ms = self._clock.now_ms()
        if not self._used or now_ms - self._noted_at_ms < NOTE_MS:
            return
        used, self._used, self._noted_at_ms = list(self._used), set(), now_ms
        for start in range(0, len(used), MAX_HASHES):
            await self._database.run(tokens.note_uses, used[start : start + MAX_HASHES], now_ms)

    def _end(self, hash: str, reason: CredentialEnding, *, present: int | None = None) -> None:
        """Ends the requests with the credential; with `present`, only those of other revisions."""
        for watch in tuple(self._watches.get(hash, ())):
            if watch.revision == present:
                continue
            self.release(watch)
            watch.ended = reason
            try:
                watch.on_end(reason)
            except Exception as error:  # of that request: those of others end all the same
                self._ending.failed(error, credential=hash[:8])
