"""Ids that the runtime draws, replaced by the order in which they first appear to an observer."""

import re

_DRAWN = re.compile(
    r"\b(?P<prefix>[a-z]{2,6})_[0-9a-f]{31}(?:_[0-9a-f]{48})?\b"  # of runs, messages, tokens and the like
    r"|\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b"  # of children
    r"|\b[0-9a-f]{32}\b|\b[0-9a-f]{12}\b"  # of new sessions and incarnations
    r"|\btask-[0-9a-f]{10}\b"  # of tasks
    r"|\b[a-z2-7]{52}\b"  # cursors, sealed: a cursor in any other form stays as it is
)
_CUT = re.compile(
    r"…(?:[a-z]{2,6}_)?[0-9a-f-]{3,}|(?:[a-z]{2,6}_)?[0-9a-f-]{3,}(?:\\*\n|\\+n)?…"
    r"|\b(?=[a-z]*[2-7])[a-z2-7]{3,51}(?:\\*\n|\\+n)?…"  # a cursor
)
"""What a snippet, or a text that was cut, leaves of an id at its end or beginning."""


def nameless(text: str) -> str:
    """The text without drawn ids, to sort by: how many ids were drawn before may depend on timing."""
    return _CUT.sub("", _DRAWN.sub("", text))


class Naming:
    """The names that one observer's world has given to drawn ids so far."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}

    def plain(self, text: str) -> str:
        return _CUT.sub("…", _DRAWN.sub(self._name, text))

    def _name(self, found: re.Match[str]) -> str:
        drawn = found[0]
        kind = found["prefix"] or f"id{len(drawn)}"
        return self._names.setdefault(drawn, f"<{kind} {len(self._names) + 1}>")
