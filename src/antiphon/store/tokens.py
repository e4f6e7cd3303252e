"""Hashes of tokens, sign-in codes and browser cookies; the secrets themselves are never stored."""

from dataclasses import dataclass
from enum import StrEnum

from antiphon.domain.actor import Principal
from antiphon.store.database import Query, Transaction


class TokenKind(StrEnum):
    LINK = "link"
    """The code in a sign-in link; used once."""
    BROWSER = "browser"
    """What a signed-in browser's cookie holds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredToken:
    hash: str
    kind: TokenKind
    principal: Principal
    expires_at_ms: int


async def insert(tx: Transaction, token: StoredToken, at_ms: int) -> None:
    await tx.execute(
        "INSERT INTO tokens (hash, kind, principal, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
        (token.hash, token.kind.value, str(token.principal), at_ms, token.expires_at_ms),
    )


async def find(query: Query, hash: str, kind: TokenKind, at_ms: int) -> Principal | None:
    """Whose token this is, if it has not expired and was not used up."""
    row = await query.fetch_one(
        "SELECT principal FROM tokens WHERE hash = ? AND kind = ? AND expires_at > ? AND used_at IS NULL",
        (hash, kind.value, at_ms),
    )
    return None if row is None else Principal.parse(row[0])


async def use_up(tx: Transaction, hash: str, kind: TokenKind, at_ms: int) -> Principal | None:
    """Marks a single-use token as used; None if it is not valid (any more). One of two racers gets it."""
    row = await tx.fetch_one(
        "UPDATE tokens SET used_at = ? WHERE hash = ? AND kind = ? AND expires_at > ? AND used_at IS NULL "
        "RETURNING principal",
        (at_ms, hash, kind.value, at_ms),
    )
    return None if row is None else Principal.parse(row[0])


async def delete_expired(tx: Transaction, at_ms: int) -> None:
    await tx.execute("DELETE FROM tokens WHERE expires_at <= ? OR used_at IS NOT NULL", (at_ms,))
