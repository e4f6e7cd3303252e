"""Bound tokens: anyone who shows one calls tools as its session. Contract: access 2."""

import hmac
from datetime import timedelta

from msgspec import Struct

from antiphon.clock import Clock
from antiphon.domain.actor import Principal, session_principal
from antiphon.domain.errors import NotFound
from antiphon.domain.ids import Ids
from antiphon.domain.targets import NamedTarget
from antiphon.domain.tokens import BOUND_PREFIX
from antiphon.engine.access.reach import Rights, find_reach, find_session
from antiphon.engine.access.secrets import hash_of
from antiphon.engine.refusal import Refusal, accepted
from antiphon.engine.rules import Rules
from antiphon.policy.acts import Act
from antiphon.store import tokens
from antiphon.store.database import Database, Query, Transaction
from antiphon.store.tokens import SessionToken


class IssueToken(Struct, frozen=True, kw_only=True):
    rights: Rights
    target: NamedTarget
    id: str
    hash: str
    name: str | None
    at_ms: int
    expires_at_ms: int | None


class Tokens:
    def __init__(self, database: Database, rules: Rules, clock: Clock, ids: Ids) -> None:
        self._database = database
        self._rules = rules
        self._clock = clock
        self._ids = ids

    async def create(
        self, principal: Principal, target: NamedTarget, *, name: str | None = None, life: timedelta | None = None
    ) -> tuple[SessionToken, str]:
        """A new token and its secret, which is shown only once. Raises `NotFound` for the session, `Denied`."""
        id = self._ids.new(BOUND_PREFIX)
        secret = f"{id}_{self._ids.random_hex(48)}"
        now_ms = self._clock.now_ms()
        command = IssueToken(
            rights=Rights(principal, self._rules),
            target=target,
            id=id,
            hash=hash_of(secret),
            name=name,
            at_ms=now_ms,
            expires_at_ms=None if life is None else now_ms + int(life.total_seconds() * 1000),
        )
        return accepted(await self._database.run(issue_token, command, sessions=(target,))), secret

    async def list(self, principal: Principal) -> list[SessionToken]:
        """The valid tokens, oldest first. Raises `Denied`."""
        return accepted(await self._database.read(_list, Rights(principal, self._rules), self._clock.now_ms()))

    async def revoke(self, principal: Principal, id: str) -> None:
        """Ends a session's token or a browser's sign-in. Raises `NotFound`, `Denied`."""
        accepted(await self._database.run(_revoke, Rights(principal, self._rules), id))

    async def find(self, secret: str) -> SessionToken | None:
        """The valid token with this secret; compared in constant time."""
        id, _, _ = secret.rpartition("_")
        found = await self._database.read(tokens.find_session_token, id, self._clock.now_ms())
        is_same = hmac.compare_digest(hash_of(secret), found.hash if found else "")
        return found if is_same else None


async def issue_token(tx: Transaction, command: IssueToken) -> SessionToken | Refusal:
    found = await find_session(tx, command.rights, Act.TOKENS, command.target)
    if isinstance(found, Refusal):
        return found
    token = SessionToken(
        id=command.id,
        hash=command.hash,
        session=found.session.row,
        session_key=str(found.session.key),
        name=command.name,
        created_at_ms=command.at_ms,
        expires_at_ms=command.expires_at_ms,
    )
    await tokens.delete_expired(tx, command.at_ms)
    await tokens.insert_session_token(tx, token, session_principal(token.session_key))
    return token


async def _list(query: Query, rights: Rights, at_ms: int) -> list[SessionToken] | Refusal:
    reach = await find_reach(query, rights, Act.TOKENS)
    return reach if isinstance(reach, Refusal) else await tokens.list_session_tokens(query, at_ms)


async def _revoke(tx: Transaction, rights: Rights, id: str) -> Refusal | None:
    reach = await find_reach(tx, rights, Act.TOKENS)
    if isinstance(reach, Refusal):
        return reach
    if not await tokens.delete_by_id(tx, id):
        return Refusal(NotFound(f"Token not found: {id[:80]!r}. `antiphon tokens list` shows them."))
    return None
