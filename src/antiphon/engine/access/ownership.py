"""The owner's token. Its hash is in the database and decides for every gateway. Contract: access 2."""

import hmac
import logging
import math
from pathlib import Path

import anyio
from anyio import to_thread

from antiphon.clock import Clock
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.ids import Ids
from antiphon.engine.access.reach import Rights, find_reach
from antiphon.engine.access.secrets import hash_of
from antiphon.engine.rules import Rules
from antiphon.feed.notifier import Notifier
from antiphon.owner_token import find_token, finish_replacing, next_token, owner_token
from antiphon.policy.acts import Act
from antiphon.store import tokens
from antiphon.store.database import Database, Transaction
from antiphon.store.people import NAMES, find_standing

MAX_AGE_SECONDS = 0.4
"""How long a gateway uses a hash it has read. A token replaced elsewhere may still be accepted for this long."""

logger = logging.getLogger(__name__)


class Ownership:
    def __init__(
        self, database: Database, notifier: Notifier, rules: Rules, home: Path, *, clock: Clock, ids: Ids
    ) -> None:
        self._database = database
        self._rules = rules
        self._home = home
        self._clock = clock
        self._ids = ids
        self._known: str | None = None
        self._known_at = -math.inf
        self._changes = 0
        """How often the token was replaced here, or the rights of somebody changed."""
        notifier.subscribe(NAMES, self._note_change)
        self.revision = 0
        """Of the rights of the token's person, at the last read."""
        self.is_suspended = False
        """Whether that person was, at the last read."""
        self._rotating = anyio.Lock()

    async def prepare(self, *, is_embedded: bool) -> str | None:
        """The home's token, if it is the owner's. Call once as a gateway starts. Raises `Denied`, `Unavailable`.

        The first start on a database makes the home's token the owner's. Later the database decides: a home with
        another token keeps it, but that token is refused. A home without a token file gets a new token if the
        database is its own, and none if homes share the database.
        """
        token, known = find_token(self._home), await self._read()
        if known is None:
            token = token or await to_thread.run_sync(owner_token, self._home, self._ids)
            await self.claim(token)
            known = await self._read()
        if token is not None and hash_of(token) == known:
            return token
        if left := finish_replacing(self._home, lambda new: hash_of(new) == known):
            return left
        if token is None and is_embedded:
            await self.rotate(OWNER)
            return find_token(self._home)
        logger.warning(
            "Owner's token of this home is not the database's: programs of this home are refused until it is copied "
            "from where it was made last, or replaced by `antiphon tokens rotate` while no gateway runs here",
            extra={"action": "owner_token_differs", "home": str(self._home)},
        )
        return None

    async def rotate(self, principal: Principal) -> Path:
        """Replaces the owner's token and ends everything it let in; returns the file that holds the new token.

        Raises `Denied` for anyone but the owner.
        """
        await self._database.read(find_reach, Rights(principal, self._rules), Act.TOKENS)
        async with self._rotating:
            making = next_token(self._home, self._ids)
            new = await to_thread.run_sync(making.__enter__)  # waits for other processes of the home
            try:
                await self.replace(principal, new.token)
                return new.keep()
            finally:
                making.__exit__(None, None, None)

    async def claim(self, token: str) -> bool:
        """Makes the token the owner's if there is none yet; returns whether it is the owner's now."""
        self._known = None
        hash = hash_of(token)
        await self._database.run(tokens.insert_owner_hash, hash, self._clock.now_ms())
        self._note_change()
        return await self._read() == hash

    async def replace(self, principal: Principal, token: str) -> None:
        """Replaces the owner's token, and ends the browsers and links that the previous one let in."""
        self._known = None
        rights = Rights(principal, self._rules)
        await self._database.run(_replace, rights, hash_of(token))
        self._known = None
        self._note_change()

    async def holds(self, token: str, *, first: str) -> bool:
        """Whether this is the owner's token. If the database has no token yet, `first` is claimed.

        Reads the database unless this token was read at most 0.4 s ago, its person was not suspended, and nobody's
        rights have changed since: a request would otherwise begin with rights that have ended. Raises `Unavailable`.
        """
        hash = hash_of(token)
        may_trust = self._is_recent() and not self.is_suspended
        if self._known is not None and may_trust and hmac.compare_digest(hash, self._known):
            return True
        known = await self._read()
        if known is None and first:
            await self.claim(first)
            known = await self._read()
        return hmac.compare_digest(hash, known or "")

    async def proof_key(self) -> bytes:
        """The hash of the owner's token, at most 0.4 s old. Raises `Unavailable`."""
        known = self._known if self._known is not None and self._is_recent() else await self._read()
        return bytes.fromhex(known or "")

    def held(self, token: str) -> bool:
        """Whether this was the owner's token at the last read. Does not read the database."""
        return hmac.compare_digest(hash_of(token), self._known or "")

    def _is_recent(self) -> bool:
        return self._clock.monotonic() - self._known_at <= MAX_AGE_SECONDS

    def _note_change(self) -> None:
        """What was read before counts no more."""
        self._changes += 1
        self._known_at = -math.inf

    async def _read(self) -> str | None:
        while True:
            read_at, changes = self._clock.monotonic(), self._changes
            found = await self._database.read(tokens.find_owner_token)
            if changes == self._changes:
                break
        self.revision, self.is_suspended = (0, False) if found is None else (found.revision, found.is_suspended)
        self._known, self._known_at = None if found is None else found.hash, read_at
        return self._known


async def _replace(tx: Transaction, rights: Rights, hash: str) -> None:
    await find_reach(tx, rights, Act.TOKENS)
    owner = (await find_standing(tx, OWNER)).principal
    await tokens.replace_owner_hash(tx, hash, owner, tx.now_ms)
