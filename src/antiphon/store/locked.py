"""Which sessions a statement writes to: a unit holds those, so that no two units wait for each other's."""

import re
from collections.abc import Callable, Sequence
from functools import lru_cache

from antiphon.domain.ids import SessionRow
from antiphon.store.database import SqlValue

OF_SESSIONS = frozenset({"events", "incarnations", "participants", "runs", "unnoticed_events"})
"""Tables whose rows are a session's own, in the column `session`."""
_WRITES = re.compile(r"(INSERT INTO|UPDATE|DELETE FROM) (\w+)")
_COLUMNS = re.compile(r"INSERT INTO \w+ \(([^)]*)\) VALUES ")
_ROW = re.compile(r"(?s:.*) (?:WHERE|AND) id = \?(?: RETURNING [^?]*)?")
_LISTED = re.compile(r"(?s:.*) (?:WHERE|AND) id IN \(((?:\?, )*\?)\)")
_OWN = re.compile(r"(?s:(.*?)) WHERE session = \?")

Find = Callable[[Sequence[SqlValue]], Sequence[SqlValue]]


def written(statement: str, parameters: Sequence[SqlValue]) -> Sequence[SessionRow]:
    """The sessions whose rows the statement changes, those left out that it makes.

    Raises `AssertionError` for one that changes sessions and does not tell which.
    """
    find = _finder(statement)
    return () if find is None else [SessionRow(int(each)) for each in find(parameters) if each is not None]


@lru_cache(maxsize=4096)
def _finder(statement: str) -> Find | None:
    found = _WRITES.match(statement)
    if found is None:
        return None
    verb, table = found.groups()
    if table == "sessions" and verb == "UPDATE":
        return _of_sessions(statement)
    if table not in OF_SESSIONS:
        return None
    if verb == "INSERT INTO":
        return _inserted(statement)
    if own := _OWN.match(statement):
        at = own[1].count("?")
        return lambda parameters: parameters[at : at + 1]
    return None


def _of_sessions(statement: str) -> Find:
    if _ROW.fullmatch(statement):
        return lambda parameters: parameters[-1:]
    if listed := _LISTED.fullmatch(statement):
        count = listed[1].count("?")
        return lambda parameters: parameters[-count:]
    raise AssertionError(f"Statement does not tell which sessions it changes: {statement!r}")


def _inserted(statement: str) -> Find | None:
    columns = _COLUMNS.match(statement)
    if columns is None:
        return None
    names = columns[1].split(", ")
    if "session" not in names:
        return None
    at, step = names.index("session"), len(names)
    return lambda parameters: sorted({int(each) for each in parameters[at::step] if isinstance(each, int)})
