"""Hashes of tokens, sign-in codes and browser cookies; the secrets themselves are never stored."""

from dataclasses import dataclass
from enum import StrEnum

from antiphon.domain.actor import Principal
from antiphon.domain.ids import SessionRow
from antiphon.store.database import Query, Row, Transaction


class TokenKind(StrEnum):
    LINK = "link"
    """The code in a sign-in link; used once."""
    BROWSER = "browser"
    """What a signed-in browser's cookie holds."""
    SESSION = "session"
    """What a program shows that acts as one session."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionToken:
    """A token that is bound to one session, without its secret."""

    id: str
    hash: str
    session: SessionRow
    session_key: str
    name: str | None
    created_at_ms: int
    expires_at_ms: int | None
    """None for one that does not expire."""


_SESSION_TOKENS = (
    "SELECT t.id, t.hash, t.session, s.key, t.name, t.created_at, t.expires_at FROM tokens t "
    "JOIN sessions s ON s.id = t.session WHERE s.deleted_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > ?)"
)


async def insert_session_token(tx: Transaction, token: SessionToken, principal: Principal) -> None:
    await tx.execute(
        "INSERT INTO tokens (hash, kind, principal, created_at, expires_at, id, name, session) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            token.hash,
            TokenKind.SESSION.value,
            str(principal),
            token.created_at_ms,
            token.expires_at_ms,
            token.id,
            token.name,
            token.session,
        ),
    )


async def find_session_token(query: Query, id: str, at_ms: int) -> SessionToken | None:
    """The token, while it is valid and its session exists."""
    row = await query.fetch_one(f"{_SESSION_TOKENS} AND t.id = ?", (at_ms, id))
    return None if row is None else _session_token(row)


async def list_session_tokens(query: Query, at_ms: int) -> list[SessionToken]:
    """Valid ones, oldest first."""
    rows = await query.fetch_all(f"{_SESSION_TOKENS} ORDER BY t.created_at, t.id", (at_ms,))
    return [_session_token(row) for row in rows]


async def delete_session_token(tx: Transaction, id: str) -> bool:
    """Whether there was one."""
    return await tx.fetch_one("DELETE FROM tokens WHERE id = ? RETURNING id", (id,)) is not None


async def delete_of_session(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM tokens WHERE session = ?", (session,))


def _session_token(row: Row) -> SessionToken:
    id, hash, session, key, name, created_at_ms, expires_at_ms = row
    return SessionToken(
        id=id,
        hash=hash,
        session=SessionRow(session),
        session_key=key,
        name=name,
        created_at_ms=created_at_ms,
        expires_at_ms=expires_at_ms,
    )
