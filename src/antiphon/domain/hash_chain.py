"""Chains of hashes: each row carries SHA-256 over its own values and the hash before it. Contract: flow 12."""

import hashlib
import hmac
from collections.abc import Sequence

from msgspec.msgpack import Encoder

_encode = Encoder().encode
_sha256 = hashlib.sha256
SEALS = "seals"
"""The name of the chain of seals."""


def first_hash(secret: str, chain: str) -> bytes:
    """The hash before the first row of a chain: of the home key's secret and the chain's name."""
    return hmac.digest(hmac.digest(secret.encode(), b"audit", "sha256"), chain.encode(), "sha256")


def name_of_log(session: int) -> str:
    """The name of the chain of a session's log."""
    return f"session:{session}"


def name_of_process(process: str) -> str:
    """The name of the chain of what a process decided."""
    return f"process:{process}"


def next_hash(before: bytes, values: Sequence[object]) -> bytes:
    """The hash of the row with these values.

    Over the hash before it and the values as MessagePack, which both databases give back alike: whole numbers, texts,
    nulls.
    """
    return _sha256(before + _encode(values)).digest()
