"""Tokens, browsers and sign-in. Contract: access 2, gateway 6."""

from collections.abc import Mapping, Sequence
from typing import Literal

from antiphon.domain.classification import Compartments
from antiphon.domain.person import person_of
from antiphon.domain.tokens import TokenScope
from antiphon.engine.access.signin import Browser
from antiphon.engine.access.tokens import Token, TokenKind
from antiphon.wire.compartments import ClearanceShape, clearance
from antiphon.wire.encoding import Shape


class TokenRow(Shape, frozen=True, kw_only=True):
    """A token of a person, a channel, a node or a session, or a signed-in browser, without its secrets."""

    id: str
    kind: Literal["session", "person", "channel", "node", "browser"]
    session_key: str | None = None
    """The session as which it calls tools, or to which a node posts."""
    person_id: str | None = None
    """The person as whom it acts, for a node its guest; for a session's token, the one within whose rights it acts."""
    namespace: str | None = None
    """The namespace of the channel that it serves: the sessions whose ids begin with it and a colon."""
    scopes: Sequence[TokenScope] | None = None
    """What the token of a person or a channel may do."""
    clearance: ClearanceShape | None = None
    """The most that it may read, within what its person may."""
    created_at: int
    name: str | None = None
    last_used_at: int | None = None
    """Accurate to a minute; for a browser, to the day."""
    expires_at: int | None = None
    is_this: bool | None = None
    """Whether it is the browser that asks."""
    token: str | None = None
    """The secret; only in the answer to its creation."""


class TokenList(Shape, frozen=True, kw_only=True):
    count: int
    tokens: Sequence[TokenRow]


class RotatedToken(Shape, frozen=True, kw_only=True):
    ok: bool
    file: str
    """The file that holds the owner's new token."""


class SignInLink(Shape, frozen=True, kw_only=True):
    code: str
    """Works once."""
    expires_in_seconds: int


class SignedIn(Shape, frozen=True, kw_only=True):
    browser_id: str
    page_secret: str
    expires_at: int


class Proof(Shape, frozen=True, kw_only=True):
    """Proves that this is the home's gateway."""

    proof: str


_KINDS: Mapping[TokenKind, Literal["session", "person", "channel", "node"]] = {
    TokenKind.SESSION: "session",
    TokenKind.PERSON: "person",
    TokenKind.CHANNEL: "channel",
    TokenKind.NODE: "node",
}


def token_row(token: Token, compartments: Compartments, secret: str | None = None) -> TokenRow:
    return TokenRow(
        id=token.id,
        kind=_KINDS[token.kind],
        session_key=token.session_key,
        person_id=person_of(token.principal),
        namespace=token.namespace,
        scopes=None if token.kind is TokenKind.SESSION else sorted(token.scopes),
        clearance=clearance(token.clearance, compartments),
        created_at=token.created_at_ms,
        name=token.name,
        last_used_at=token.last_used_at_ms,
        expires_at=token.expires_at_ms,
        token=secret,
    )


def browser_row(browser: Browser, asking: Browser | None) -> TokenRow:
    return TokenRow(
        id=browser.id,
        kind="browser",
        person_id=person_of(browser.principal),
        name=browser.name,
        created_at=browser.created_at_ms,
        last_used_at=browser.last_used_at_ms,
        expires_at=browser.expires_at_ms,
        is_this=True if asking is not None and asking.id == browser.id else None,
    )
