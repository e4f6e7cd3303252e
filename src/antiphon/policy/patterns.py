"""Matching names against patterns with `*`, in linear time, without regular expressions. Contract: visibility 3."""

from collections.abc import Iterable


def matches_any(name: str, patterns: Iterable[str]) -> bool:
    return any(matches(name, pattern) for pattern in patterns)


def matches(name: str, pattern: str) -> bool:
    """Whether the pattern covers the whole name. `*` stands for any part and makes the match ignore case."""
    pattern = pattern.strip()
    if "*" not in pattern:
        return bool(pattern) and name == pattern
    name = name.lower()
    first, *middle, last = pattern.lower().split("*")
    if not name.startswith(first) or not name.endswith(last) or len(name) < len(first) + len(last):
        return False
    at, end = len(first), len(name) - len(last)
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
