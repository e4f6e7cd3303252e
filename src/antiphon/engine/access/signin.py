"""Letting browsers in: a single-use code from a printed link becomes a cookie's secret. Contract: gateway 6."""

import hashlib
from datetime import timedelta

from antiphon.clock import Clock
from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.ids import Ids
from antiphon.store import tokens
from antiphon.store.database import Database
from antiphon.store.tokens import StoredToken, TokenKind

LINK_LIFE = timedelta(minutes=10)
BROWSER_LIFE = timedelta(days=30)


class SignIn:
    def __init__(self, database: Database, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._clock = clock
        self._ids = ids

    async def new_link_code(self) -> str:
        """A code that lets one browser in as the owner, once, within ten minutes."""
        return await self._issue(TokenKind.LINK, OWNER, LINK_LIFE)

    async def exchange(self, code: str) -> str | None:
        """The secret for the browser's cookie; None if the code is unknown, used or too old."""
        now_ms = self._clock.now_ms()
        principal = await self._database.run(tokens.use_up, _hash(code), TokenKind.LINK, now_ms)
        return None if principal is None else await self._issue(TokenKind.BROWSER, principal, BROWSER_LIFE)

    async def find(self, secret: str) -> Principal | None:
        """Whose browser holds this secret."""
        return await self._database.read(tokens.find, _hash(secret), TokenKind.BROWSER, self._clock.now_ms())

    async def sign_out(self, secret: str) -> None:
        await self._database.run(tokens.use_up, _hash(secret), TokenKind.BROWSER, self._clock.now_ms())

    async def _issue(self, kind: TokenKind, principal: Principal, life: timedelta) -> str:
        secret = self._ids.random_hex(48)
        now_ms = self._clock.now_ms()
        token = StoredToken(
            hash=_hash(secret),
            kind=kind,
            principal=principal,
            expires_at_ms=now_ms + int(life.total_seconds() * 1000),
        )
        await self._database.run(_store, token, now_ms)
        return secret


async def _store(tx: tokens.Transaction, token: StoredToken, at_ms: int) -> None:
    await tokens.delete_expired(tx, at_ms)
    await tokens.insert(tx, token, at_ms)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
