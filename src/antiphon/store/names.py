"""The names of sessions as searches compare them: folded by us, so that both databases find the same.

A folded name is stored beside its name, in `folded_<name>`; none is stored if the name is already folded.
"""

from collections.abc import Mapping

from antiphon.domain.words import folded
from antiphon.store.database import SqlValue
from antiphon.store.scopes import Condition, all_of
from antiphon.store.step import Asking, Statement

NAMES = ("key", "label", "display_name")
MAX_WORDS = 32
"""Of a search; it ignores the others."""
ROWS_AT_ONCE = 500


def with_folded(columns: Mapping[str, SqlValue]) -> Mapping[str, SqlValue]:
    """The columns, and the folded names of the names among them."""
    changed = [name for name in NAMES if name in columns]
    if not changed:
        return columns
    return {**columns, **{f"folded_{name}": _fold(columns[name]) for name in changed}}


def has_words(search: str) -> Condition:
    """Each word of the search, between blanks, is a part of a name or of the key of `sessions s`."""
    words = folded(search).split()[:MAX_WORDS]
    is_named = " OR ".join(f"COALESCE(s.folded_{name}, s.{name}) LIKE ? ESCAPE '!'" for name in NAMES)
    return all_of([Condition(f"({is_named})", (_part(word),) * len(NAMES)) for word in words] or [Condition("1 = 1")])


def fold_names() -> Asking:
    """Stores the folded names of the sessions of an earlier schema."""
    last = -1
    while True:
        rows = yield Statement(
            f"SELECT id, {', '.join(NAMES)} FROM sessions WHERE id > ? ORDER BY id LIMIT ?", (last, ROWS_AT_ONCE)
        )
        if not rows:
            return
        last = int(rows[-1][0])
        found = [(row, *map(_fold, names)) for row, *names in rows]
        changed = [names for names in found if any(names[1:])]
        if changed:
            places = ", ".join(["(?, ?, ?, ?)"] * len(changed))
            columns = ", ".join(f"folded_{name} = n.column{at}" for at, name in enumerate(NAMES, 2))
            yield Statement(
                f"UPDATE sessions SET {columns} FROM (VALUES {places}) AS n WHERE sessions.id = n.column1",
                tuple(value for names in changed for value in names),
            )


def _fold(name: SqlValue) -> str | None:
    if not isinstance(name, str):
        return None
    own = folded(name)
    return None if own == name else own


def _part(word: str) -> str:
    for special in "!%_":
        word = word.replace(special, "!" + special)
    return f"%{word}%"
