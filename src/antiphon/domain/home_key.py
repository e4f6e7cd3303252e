"""A home's secret, and the keys that are made of it: one for each purpose, so that none tells anything of another."""

import hashlib
import hmac
from dataclasses import dataclass, field

MIN_BYTES = 32


@dataclass(frozen=True, slots=True)
class HomeKey:
    """The same for every process on one database; it is never shown."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        assert len(self.secret) >= MIN_BYTES

    def subkey(self, purpose: str) -> bytes:
        """32 bytes that are always the same for a purpose; a name such as `fence` belongs to one user alone."""
        return hmac.digest(self.secret, purpose.encode(), hashlib.sha256)
