"""Prefixes of the tokens that Antiphon creates; redaction recognises them."""

OWNER_PREFIX = "ant"
"""The owner's token: `ant_` and hexadecimal digits."""
BOUND_PREFIX = "tok"
"""Bound tokens: `tok_`, the id's digits, `_`, and the secret's digits."""
