"""Tokens: their prefixes, which redaction recognises, and the scopes that limit them. Contract: access 2."""

from collections.abc import Collection
from enum import StrEnum

from antiphon.domain.errors import Invalid

OWNER_PREFIX = "ant"
"""The owner's token: `ant_` and hexadecimal digits."""
TOKEN_PREFIX = "tok"
"""Other tokens: `tok_`, the id's digits, `_`, and the secret's digits."""


class TokenScope(StrEnum):
    """What a token lets its person do, within that person's rights."""

    READ = "sessions.read"
    WRITE = "sessions.write"
    APPROVALS = "approvals"
    ADMIN = "admin"


ALL_SCOPES = frozenset(TokenScope)
"""Those of the owner's token and of signed-in browsers."""
USUAL_SCOPES = frozenset({TokenScope.READ, TokenScope.WRITE})
"""Those of a new token that names none."""
CHANNEL_SCOPES = USUAL_SCOPES
"""The most that the token of a channel may have."""
NODE_SCOPES = frozenset({TokenScope.WRITE})
"""What the token of a node may do, in its own session only."""


def read_scopes(names: Collection[str]) -> frozenset[TokenScope]:
    """The scopes with these names. Raises `Invalid` (`unknown_scope`)."""
    known = {scope.value: scope for scope in TokenScope}
    for name in names:
        if name not in known:
            raise Invalid(f"Scope does not exist: {name[:60]!r}. Scopes: {', '.join(known)}.", code="unknown_scope")
    return frozenset(known[name] for name in names)
