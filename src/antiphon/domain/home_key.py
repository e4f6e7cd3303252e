"""The home key, and the keys derived from it: one per purpose, so that none reveals another."""

import hashlib
import hmac
from dataclasses import dataclass, field

MIN_BYTES = 32


@dataclass(frozen=True, slots=True)
class HomeKey:
    """The same for every process on one database; never shown."""

    secret: bytes = field(repr=False)

    def __post_init__(self) -> None:
        assert len(self.secret) >= MIN_BYTES

    def subkey(self, purpose: str) -> bytes:
        """32 bytes, always the same for a purpose; each purpose, such as `fence`, has only one user."""
        return hmac.digest(self.secret, purpose.encode(), hashlib.sha256)
