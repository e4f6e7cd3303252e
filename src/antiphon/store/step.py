"""A step of a migration that SQL alone cannot say: it yields statements and gets their rows."""

from collections.abc import Callable, Generator
from typing import Any, NamedTuple, TypeAlias

from antiphon.store.database import SqlValue


class Statement(NamedTuple):
    """With `?` for each value."""

    text: str
    values: tuple[SqlValue, ...] = ()


Rows: TypeAlias = list[tuple[Any, ...]]
Asking: TypeAlias = Generator[Statement, Rows]
Step: TypeAlias = Callable[[], Asking]
"""Yields statements, which run in the migration's transaction after its SQL; each is answered by its rows."""
