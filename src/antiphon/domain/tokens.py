"""How the tokens that Antiphon makes begin; redaction knows them by it."""

OWNER_PREFIX = "ant"
"""The owner's: `ant_` and hexadecimal digits."""
BOUND_PREFIX = "tok"
"""Those bound to a session: `tok_`, the id's digits, `_`, and the secret's digits."""
