"""Secrets as they are stored and compared: by their hashes alone."""

import hashlib


def hash_of(secret: str) -> str:
    """SHA-256 in hexadecimal; all secrets are random and long, so that none can be guessed from it."""
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()
