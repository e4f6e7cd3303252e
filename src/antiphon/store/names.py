"""The names of sessions as searches compare them: folded by us, so that both databases find the same.

A folded name is stored beside its name, in `folded_<name>`; none is stored if the name is already folded.
"""

from collections.abc import Mapping

from antiphon.domain.words import folded
from antiphon.store.database import SqlValue
from antiphon.store.scopes import ANY, Condition, all_of
from antiphon.store.step import Asking, Statement

NAMES = ("key", "label", "display_name")
_NAMES = frozenset(NAMES)
MAX_WORDS = 32
"""Of a search; it ignores the others."""
ROWS_AT_ONCE = 500
_OF_CHAT = (
    "(SELECT {name} FROM chat_names c WHERE s.source_kind = 'channel' AND s.kind <> 'main' "
    "AND c.channel = s.delivery_channel AND c.account = COALESCE(s.delivery_account_id, 'default') "
    "AND c.address = s.delivery_to)"
)
"""What the platform calls the chat of `sessions s`. A main session is no chat: several may share it."""
DISPLAY_NAME = f"CASE WHEN s.display_name IS NOT NULL THEN s.display_name ELSE {_OF_CHAT.format(name='c.name')} END"
"""The name that somebody gave `sessions s`, else what the platform calls its chat."""
_SEARCHED = {name: f"COALESCE(s.folded_{name}, s.{name})" for name in NAMES} | {
    "display_name": "COALESCE(s.folded_display_name, s.display_name, "
    f"{_OF_CHAT.format(name='COALESCE(c.folded_name, c.name)')})"
}
UPGRADE_MS = 7 * 86_400_000
"""How long processes of the previous schema may run beside those of this one."""
CLOCKS_MS = 86_400_000
"""How far the clocks of two machines may differ."""

_COLUMNS = ("id", *NAMES, *(f"folded_{name}" for name in NAMES))
_FOLDED = ", ".join(f"folded_{name} = n.column{at}" for at, name in enumerate(NAMES, 2))
_UNCHANGED = "".join(
    f" AND COALESCE(sessions.{name}, '') = COALESCE(n.column{at}, '')" for at, name in enumerate(NAMES, 2 + len(NAMES))
)


def with_folded(columns: Mapping[str, SqlValue]) -> Mapping[str, SqlValue]:
    """The columns, and the folded names of the names among them."""
    if _NAMES.isdisjoint(columns):
        return columns
    changed = [name for name in NAMES if name in columns]
    return {**columns, **{f"folded_{name}": fold(columns[name]) for name in changed}}


def has_words(search: str, readable: Condition) -> Condition:
    """Each word of the search, between blanks, is a part of the key of `sessions s`, or of a `readable` name."""
    words = folded(search).split()[:MAX_WORDS]
    if any("\0" in word for word in words):
        return Condition("1 = 0")  # no name holds NUL, at which one database ends the pattern
    key, *names = (f"{_SEARCHED[name]} LIKE ? ESCAPE '!'" for name in NAMES)
    is_named = f"{key} OR ({readable.text} AND ({' OR '.join(names)}))"
    if readable is ANY:
        is_named = " OR ".join((key, *names))
    found = [
        Condition(f"({is_named})", (part, *readable.values, *[part] * len(names)))
        for word in words
        if (part := _part(word))
    ]
    return all_of(found or [Condition("1 = 1")])


def fold_names(since_ms: int = 0) -> Asking:
    """Stores the folded names of sessions that changed since then, where a program of an earlier schema wrote them."""
    last = -1
    while True:
        rows = yield Statement(
            f"SELECT {', '.join(_COLUMNS)} FROM sessions WHERE id > ? AND updated_at >= ? ORDER BY id LIMIT ?",
            (last, since_ms, ROWS_AT_ONCE),
        )
        if not rows:
            return
        last = int(rows[-1][0])
        changed: list[tuple[SqlValue, ...]] = []
        for row, *columns in rows:
            names, stored = columns[: len(NAMES)], columns[len(NAMES) :]
            if (wanted := [fold(name) for name in names]) != stored:
                changed.append((row, *wanted, *names))
        if changed:
            places = ", ".join(["(?, ?, ?, ?, ?, ?, ?)"] * len(changed))
            yield Statement(
                f"UPDATE sessions SET {_FOLDED} FROM (VALUES {places}) AS n WHERE sessions.id = n.column1{_UNCHANGED}",
                tuple(value for each in changed for value in each),
            )


def fold_names_again(now_ms: int) -> Asking:
    """Folds what processes of the previous schema stored since the names were folded, in the days after an upgrade."""
    found = yield Statement(
        "SELECT n.applied_at FROM schema_migrations n JOIN schema_migrations f ON f.version = 1 "
        "WHERE n.name = 'names' AND n.applied_at > f.applied_at AND n.applied_at > ?",
        (now_ms - UPGRADE_MS,),
    )
    if found:
        yield from fold_names(int(found[0][0]) - CLOCKS_MS)


def fold(name: SqlValue) -> str | None:
    """The name as searches compare it; None if it is that already."""
    if not isinstance(name, str):
        return None
    own = folded(name)
    return None if own == name else own


def _part(word: str) -> str:
    for special in "!%_":
        word = word.replace(special, "!" + special)
    return f"%{word}%"
