"""Secrets are stored and compared only as hashes."""

import hashlib


def hash_of(secret: str) -> str:
    """SHA-256 in hexadecimal. All secrets are long and random, so nobody can guess one from its hash."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
