"""A migration step that SQL alone cannot express: it yields statements and receives their rows."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

from antiphon.store.database import SqlValue


class Statement(NamedTuple):
    """A statement with `?` for each value."""

    text: str
    values: tuple[SqlValue, ...] = ()


Rows: TypeAlias = list[tuple[Any, ...]]
Asking: TypeAlias = Generator[Statement, Rows]
Step: TypeAlias = Callable[[], Asking]
"""Yields statements, which run in the migration's transaction after its SQL; each yield returns the rows."""
