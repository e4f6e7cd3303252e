"""Secrets taken out of text before another session's agent reads it. Contract: history 3."""

import re
from typing import NamedTuple

MASK = "[redacted]"


class Redacted(NamedTuple):
    text: str
    was_redacted: bool


_NAMES = (
    r"(?:[\w.-]{0,60}[_.-])?(?:api|access|refresh|client|auth|private|secret)?"
    r"(?:key|token|secret|passw(?:or)?d|credentials?)"
)
_FIELDS = r"(?:api[_-]?key|access[_-]?token|refresh[_-]?token|client[_-]?secret|token|secret|passw(?:or)?d)"

_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # a private key, whole or cut
        r"(?P<keep>)-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----(?:.|\n)*?(?:-----END [A-Z ]{0,30}PRIVATE KEY-----|\Z)",
        # Authorization: Bearer …, and a bearer token by itself
        r"(?P<keep>\bauthorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?:bearer|basic|token)\s{1,3})[^\s\"',;]+",
        r"(?P<keep>\bbearer\s{1,3})[\w.~+/=-]{18,}",
        # "apiKey": "…"
        rf"(?P<keep>[\"']{_FIELDS}[\"']\s{{0,3}}:\s{{0,3}}[\"'])(?:[^\"'\\]|\\.)+",
        # --token …
        rf"(?P<keep>--{_FIELDS}(?:\s{{1,3}}|=)[\"']?)[^\s\"']+",
        # NAME_TOKEN = …
        rf"(?P<keep>(?<![-.\w]){_NAMES}[\"']?\s{{0,3}}[=:]\s{{0,3}}[\"']?)(?!\[redacted\])[^\s\"',;]{{4,}}",
        # user:password@host in an address
        r"(?P<keep>\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@]{1,100}:)[^\s/@]{1,200}(?=@)",
        # tokens known by their form
        r"(?P<keep>)\b(?:sk|rk|pk)-[\w-]{8,}",
        r"(?P<keep>)\bgh[pousr]_\w{20,}",
        r"(?P<keep>)\bgithub_pat_\w{20,}",
        r"(?P<keep>)\bxox[baprse]-[\w-]{10,}",
        r"(?P<keep>)\bxapp-[\w-]{10,}",
        r"(?P<keep>)\bgsk_\w{10,}",
        r"(?P<keep>)\bAIza[\w-]{20,}",
        r"(?P<keep>)\bpplx-\w{10,}",
        r"(?P<keep>)\bnpm_\w{10,}",
        r"(?P<keep>)\bglpat-[\w-]{10,}",
        r"(?P<keep>)\bAKIA[A-Z0-9]{16}\b",
        r"(?P<keep>)\bant_[0-9a-f]{32,}\b",
        r"(?P<keep>)\beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]{5,}",
        r"(?P<keep>)\b\d{6,12}:[\w-]{20,}",
    )
)
_HINT = re.compile(
    r"key|token|secret|passw|credential|bearer|authorization|://|sk-|rk-|pk-|gh[pousr]_|github_pat_|xox|xapp-|gsk_|aiza"
    r"|pplx-|npm_|glpat-|akia|ant_|eyj|\d{6}:",
    re.IGNORECASE,
)


def redact(text: str) -> Redacted:
    """The text with `[redacted]` in place of keys, tokens, passwords and private keys.

    Twice is the same as once.
    """
    if not _HINT.search(text):
        return Redacted(text, False)
    redacted = text
    for pattern in _PATTERNS:
        redacted = pattern.sub(_mask, redacted)
    return Redacted(redacted, redacted != text)


def _mask(match: re.Match[str]) -> str:
    return match["keep"] + MASK
