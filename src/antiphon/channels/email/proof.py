"""Whether the receiving mail server proves the address in From: its Authentication-Results (RFC 8601)."""

import re
from collections.abc import Iterator, Mapping, Sequence

from msgspec import Struct

Headers = Sequence[tuple[str, str]]
"""In their order, the newest first, with lower-case names."""

LONGEST_FROM = 2_000
LONGEST_RESULTS = 8_000
"""Characters. Longer ones prove nothing: strangers write them, and reading them would take long."""
_QUOTED = re.compile(r'"(?:[^"\\]|\\.)*"')
_PAIR = re.compile(rf"(?<![\w./-])([\w./-]+)\s*=\s*((?:{_QUOTED.pattern}|[^\s;\"])+)")
"""The value may be an address, whose part before the last `@` its owner chooses and may quote."""
_SENDER = re.compile(r"(?:[^<>@,;:\"()]*<)?([^\s<>@,;:\"()\\\[\]]{1,64}@[\w.-]{1,255})>?")


class _AuthenticationResult(Struct, frozen=True):
    method: str
    result: str
    facts: Mapping[str, str]


def sender_in(headers: Headers) -> str | None:
    """The one address in From, in lower case; None if there is none, several, or one that can be read in two ways."""
    found = [value for name, value in headers if name == "from"]
    if len(found) != 1:
        return None
    if len(found[0]) > LONGEST_FROM:
        return None
    bare = re.sub(r"\([^()]*\)$", "", _QUOTED.sub("", found[0]).strip()).strip()
    match = _SENDER.fullmatch(bare)
    if match is None or ("<" in bare) is not bare.endswith(">"):
        return None
    return match[1].lower()


def is_proven(headers: Headers, authserv_id: str, sender: str) -> bool:
    """Whether the topmost results of that server say that the sender's domain has sent the mail.

    Results further down may be the sender's own. DMARC decides if the server judged it; else DKIM or SPF of the very
    domain in From, or of one above it, or a sender who signed in to the server.
    """
    domain = sender.rpartition("@")[2]
    results = _topmost(headers, authserv_id.lower())
    judged = [each for each in results if each.method == "dmarc" and each.result not in ("none", "temperror")]
    if judged:
        return all(each.result == "pass" and each.facts.get("header.from", "") == domain for each in judged)
    return any(each.result == "pass" and _vouches(each, sender, domain) for each in results)


def _vouches(result: _AuthenticationResult, sender: str, domain: str) -> bool:
    facts = result.facts
    match result.method:
        case "dkim":
            signed = facts.get("header.d") or facts.get("header.i", "").rpartition("@")[2]
            return _is_same_or_above(signed, domain)
        case "spf":
            return _is_same_or_above(facts.get("smtp.mailfrom", "").rpartition("@")[2], domain)
        case "auth":
            return sender == facts.get("smtp.auth", facts.get("smtp.mailfrom"))
        case _:
            return False


def _is_same_or_above(proven: str, domain: str) -> bool:
    return proven == domain or ("." in proven and domain.endswith(f".{proven}"))


def _topmost(headers: Headers, authserv_id: str) -> Sequence[_AuthenticationResult]:
    for name, value in headers:
        if name != "authentication-results":
            continue
        head, *rest = _segments(value)
        if head.split()[:1] == [authserv_id]:
            if len(value) > LONGEST_RESULTS:
                return ()
            return [each for each in map(_result_in, rest) if each is not None]
    return ()


def _result_in(segment: str) -> _AuthenticationResult | None:
    pairs = [(name, value[1:-1] if _QUOTED.fullmatch(value) else value) for name, value in _PAIR.findall(segment)]
    if not pairs:
        return None
    (method, result), *facts = pairs
    return _AuthenticationResult(method.partition("/")[0], result, dict(reversed(facts)))


def _segments(value: str) -> list[str]:
    """The parts between semicolons in lower case, without comments; nothing in quotes divides or comments."""
    return "".join(_without_comments(value.lower())).split("\0")


def _without_comments(value: str) -> Iterator[str]:
    depth, is_quoted, is_escaped = 0, False, False
    for each in value:
        if is_escaped:
            is_escaped = False
        elif each == "\\":
            is_escaped = True
        elif each == '"' and not depth:
            is_quoted = not is_quoted
        elif not is_quoted and each in "()":
            depth = max(0, depth + (1 if each == "(" else -1))
            continue
        if not depth and each != "\0":
            yield "\0" if each == ";" and not is_quoted else each
