"""Hashes of tokens, sign-in codes and browsers' secrets; the secrets themselves are never stored."""

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from antiphon.domain.actor import OWNER, Principal
from antiphon.domain.classification import Classification
from antiphon.domain.ids import SessionRow
from antiphon.domain.tokens import TokenScope
from antiphon.store import codec
from antiphon.store.database import Query, Row, Transaction
from antiphon.store.select_list import Combined, SelectList

_JOIN_PERSON = (
    "LEFT JOIN people m ON m.id = CASE WHEN SUBSTR(t.principal, 1, 7) = 'person:' THEN SUBSTR(t.principal, 8) END "
    "LEFT JOIN people p ON p.id = COALESCE(m.merged_into, m.id)"
)
"""Joins the person as whom a token `t` acts, as `p`; all NULL for none."""


class TokenKind(StrEnum):
    LINK = "link"
    """The code in a sign-in link; used once."""
    BROWSER = "browser"
    """The secret in a signed-in browser's cookie."""
    SESSION = "session"
    """A token of a program that acts as one session."""
    PERSON = "person"
    """A token of a program that acts as a person."""
    CHANNEL = "channel"
    """A token of a program that serves a channel."""
    NODE = "node"
    """A token of a node, which posts to its own session."""
    OWNER = "owner"
    """The owner's token; one row."""


class Validity(NamedTuple):
    """Whether a stored credential may still be used."""

    is_expired: bool
    """Whether its time is over, or its single use."""
    is_suspended: bool
    """Whether the person that it admits is suspended."""
    revision: int
    """Of that person's rights: another one than before means that they have changed."""


async def find_valid(query: Query, hashes: Sequence[str], at_ms: int) -> dict[str, Validity]:
    """The validity of each stored hash."""
    marks = ", ".join("?" * len(hashes))
    rows = await query.fetch_all(
        "SELECT t.hash, t.expires_at, t.used_at, p.is_suspended, COALESCE(p.revision, 0) FROM tokens t "
        f"{_JOIN_PERSON} WHERE t.hash IN ({marks})",
        hashes,
    )
    return {
        hash: Validity(
            (expires_at is not None and expires_at <= at_ms) or used_at is not None, bool(suspended), revision
        )
        for hash, expires_at, used_at, suspended, revision in rows
    }


async def delete_expired(tx: Transaction, at_ms: int) -> None:
    await tx.execute("DELETE FROM tokens WHERE expires_at <= ? OR used_at IS NOT NULL", (at_ms,))


async def insert_link(tx: Transaction, hash: str, principal: Principal, *, at_ms: int, expires_at_ms: int) -> None:
    await tx.execute(
        "INSERT INTO tokens (hash, kind, principal, created_at, expires_at) VALUES (?, ?, ?, ?, ?)",
        (hash, TokenKind.LINK.value, str(principal), at_ms, expires_at_ms),
    )


async def delete_links(tx: Transaction, principal: Principal) -> None:
    """Ends the links that would sign in the principal; browsers stay."""
    await tx.execute(f"DELETE FROM tokens WHERE kind = '{TokenKind.LINK}' AND principal = ?", (str(principal),))


async def use_up_link(tx: Transaction, hash: str, at_ms: int) -> Principal | None:
    """Marks a link's code as used; None if it is not valid (any more). Only one of two concurrent calls succeeds."""
    row = await tx.fetch_one(
        f"UPDATE tokens SET used_at = ? WHERE hash = ? AND kind = '{TokenKind.LINK}' AND expires_at > ? "
        "AND used_at IS NULL RETURNING principal",
        (at_ms, hash, at_ms),
    )
    return None if row is None else Principal.parse(row[0])


class OwnerToken(NamedTuple):
    hash: str
    is_suspended: bool
    """Whether its person is."""
    revision: int
    """Of that person's rights."""


async def find_owner_token(query: Query) -> OwnerToken | None:
    """The owner's token; None before the first gateway start."""
    row = await query.fetch_one(
        "SELECT t.hash, p.is_suspended, COALESCE(p.revision, 0) "
        f"FROM tokens t {_JOIN_PERSON} WHERE t.kind = '{TokenKind.OWNER}'"
    )
    return None if row is None else OwnerToken(row[0], bool(row[1]), row[2])


async def insert_owner_hash(tx: Transaction, hash: str, at_ms: int) -> None:
    """Stores the hash unless there is one."""
    await tx.execute(
        "INSERT INTO tokens (hash, kind, principal, created_at) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING",
        (hash, TokenKind.OWNER.value, str(OWNER), at_ms),
    )


async def replace_owner_hash(tx: Transaction, hash: str, owner: Principal, at_ms: int) -> None:
    """Ends the previous owner's token, and every browser and link that it signed in; other persons keep theirs.

    `owner` is the person as whom the owner acts now.
    """
    await tx.execute(
        f"DELETE FROM tokens WHERE kind IN ('{TokenKind.BROWSER}', '{TokenKind.LINK}') AND principal IN (?, ?)",
        (str(OWNER), str(owner)),
    )
    await tx.execute(f"DELETE FROM tokens WHERE kind = '{TokenKind.OWNER}'")
    await tx.execute(
        "INSERT INTO tokens (hash, kind, principal, created_at) VALUES (?, ?, ?, ?)",
        (hash, TokenKind.OWNER.value, str(owner), at_ms),
    )


class Browser(Struct, frozen=True, kw_only=True):
    """A signed-in browser, without its secrets."""

    id: str
    hash: str
    """The hash of the cookie's secret."""
    page_hash: str
    """The hash of the page secret."""
    principal: Principal
    is_owners: bool = False
    """Whether its person was an owner when it was read."""
    revision: int = 0
    """Of its person's rights when it was read."""
    name: str
    created_at_ms: int
    last_used_at_ms: int
    """Rounded to the day."""
    expires_at_ms: int


_BROWSERS = (
    "SELECT t.id, t.hash, t.page_hash, t.principal, COALESCE(p.role = 'owner', FALSE), COALESCE(p.revision, 0), "
    f"t.name, t.created_at, t.last_used_at, t.expires_at FROM tokens t {_JOIN_PERSON} "
    f"WHERE t.kind = '{TokenKind.BROWSER}' AND t.page_hash IS NOT NULL AND t.expires_at > ? "
    "AND COALESCE(p.is_suspended, 0) = 0"
)


async def insert_browser(tx: Transaction, browser: Browser) -> None:
    await tx.execute(
        "INSERT INTO tokens (id, hash, page_hash, kind, principal, name, created_at, last_used_at, expires_at) "
        "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            browser.id,
            browser.hash,
            browser.page_hash,
            TokenKind.BROWSER.value,
            str(browser.principal),
            browser.name,
            browser.created_at_ms,
            browser.last_used_at_ms,
            browser.expires_at_ms,
        ),
    )


async def find_browser(query: Query, hash: str, at_ms: int) -> Browser | None:
    """The browser whose cookie has this hash, while it is signed in."""
    row = await query.fetch_one(f"{_BROWSERS} AND t.hash = ?", (at_ms, hash))
    return None if row is None else _browser(row)


async def list_browsers(query: Query, at_ms: int) -> list[Browser]:
    """Signed-in browsers, oldest first."""
    rows = await query.fetch_all(f"{_BROWSERS} ORDER BY t.created_at, t.id", (at_ms,))
    return [_browser(row) for row in rows]


async def renew_browser(tx: Transaction, id: str, at_ms: int, expires_at_ms: int) -> None:
    """Records that it was used; a browser revoked meanwhile stays revoked."""
    await tx.execute("UPDATE tokens SET last_used_at = ?, expires_at = ? WHERE id = ?", (at_ms, expires_at_ms, id))


async def delete_by_id(tx: Transaction, id: str) -> bool:
    """Ends a browser or a token; returns whether it existed."""
    return await tx.fetch_one("DELETE FROM tokens WHERE id = ? RETURNING id", (id,)) is not None


def _browser(row: Row) -> Browser:
    id, hash, page_hash, principal, is_owners, revision, name, created_at_ms, last_used_at_ms, expires_at_ms = row
    return Browser(
        id=id,
        hash=hash,
        page_hash=page_hash,
        principal=Principal.parse(principal),
        is_owners=bool(is_owners),
        revision=revision,
        name=name,
        created_at_ms=created_at_ms,
        last_used_at_ms=last_used_at_ms,
        expires_at_ms=expires_at_ms,
    )


class Token(Struct, frozen=True, kw_only=True):
    """A token of a program, without its secret."""

    id: str
    kind: TokenKind
    hash: str
    principal: Principal
    """Who acts with it; for a token that is bound to a session, the person who made it; for a node, its guest."""
    scopes: frozenset[TokenScope] = frozenset()
    """Empty for a token that is bound to a session."""
    namespace: str | None = None
    """The namespace of the channel that it serves; None for other tokens."""
    session: SessionRow | None = None
    """The session that it is bound to, or posts to; None for a token of a person or a channel."""
    session_key: str | None = None
    clearance: Classification | None = None
    """The most that it may read, within what its principal may; None for all of that."""
    name: str | None = None
    created_at_ms: int
    last_used_at_ms: int | None = None
    """Accurate to a minute; None for a token that was not used yet."""
    expires_at_ms: int | None = None
    """None for a token that does not expire."""
    is_owners: bool = False
    """Whether its person was an owner when it was read."""
    is_suspended: bool = False
    """Whether its person was suspended when it was read."""
    revision: int = 0
    """Of its person's rights when it was read."""


def _scopes(text: str) -> frozenset[TokenScope]:
    return frozenset(map(TokenScope, text.split()))


_TOKEN = SelectList(
    Token,
    "t.id, t.kind, t.hash, t.principal, COALESCE(t.scopes, '') AS scopes, t.namespace, t.session, "
    "s.key AS session_key, t.name, t.created_at AS created_at_ms, t.last_used_at AS last_used_at_ms, "
    "t.expires_at AS expires_at_ms, t.clearance_level, t.clearance_compartments, t.clearance_person, "
    "COALESCE(p.role = 'owner', FALSE) AS is_owners, COALESCE(p.is_suspended, 0) AS is_suspended, "
    "COALESCE(p.revision, 0) AS revision",
    kind=TokenKind,
    principal=codec.stored_principal,
    scopes=_scopes,
    clearance=Combined(
        codec.optional_clearance,
        level="clearance_level",
        compartments="clearance_compartments",
        person="clearance_person",
    ),
    is_owners=bool,
    is_suspended=bool,
)
_TOKENS = (
    f"SELECT {_TOKEN.text} FROM tokens t {_JOIN_PERSON} "
    f"LEFT JOIN sessions s ON s.id = t.session WHERE t.kind IN ('{TokenKind.SESSION}', '{TokenKind.PERSON}', "
    f"'{TokenKind.CHANNEL}', '{TokenKind.NODE}') "
    "AND s.deleted_at IS NULL AND (t.expires_at IS NULL OR t.expires_at > ?)"
)


async def insert_token(tx: Transaction, token: Token) -> None:
    await tx.execute(
        "INSERT INTO tokens (hash, kind, principal, scopes, namespace, created_at, expires_at, id, name, session, "
        "clearance_level, clearance_compartments, clearance_person) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        (
            token.hash,
            token.kind.value,
            str(token.principal),
            " ".join(sorted(token.scopes)) or None,
            token.namespace,
            token.created_at_ms,
            token.expires_at_ms,
            token.id,
            token.name,
            token.session,
            *codec.clearance_columns(token.clearance).values(),
        ),
    )


async def find_token(query: Query, id: str, at_ms: int) -> Token | None:
    """The token, while it is valid and its session exists; also one whose person is suspended."""
    row = await query.fetch_one(f"{_TOKENS} AND t.id = ?", (at_ms, id))
    return None if row is None else _TOKEN.read(row)


async def list_tokens(query: Query, at_ms: int) -> list[Token]:
    """Valid tokens, oldest first."""
    rows = await query.fetch_all(f"{_TOKENS} ORDER BY t.created_at, t.id", (at_ms,))
    return [_TOKEN.read(row) for row in rows]


async def replace_hash(tx: Transaction, id: str, hash: str) -> None:
    """Gives the token another secret; the previous one is unknown from now on."""
    await tx.execute("UPDATE tokens SET hash = ?, last_used_at = NULL WHERE id = ?", (hash, id))


async def note_uses(tx: Transaction, hashes: Sequence[str], at_ms: int) -> None:
    """Records when these credentials were used; browsers record it themselves, as they are renewed."""
    marks = ", ".join("?" * len(hashes))
    await tx.execute(
        f"UPDATE tokens SET last_used_at = ? WHERE hash IN ({marks}) AND kind <> '{TokenKind.BROWSER}'",
        (at_ms, *hashes),
    )


async def delete_of_session(tx: Transaction, session: SessionRow) -> None:
    await tx.execute("DELETE FROM tokens WHERE session = ?", (session,))
