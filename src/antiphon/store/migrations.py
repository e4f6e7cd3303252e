"""The migrations of this program: numbered SQL files, with placeholders for each database's words."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib import resources
from typing import Literal, NamedTuple

from antiphon.domain.errors import AntiphonError

SQLITE_WORDS = {"$serial": "INTEGER PRIMARY KEY", "$without_rowid": "WITHOUT ROWID", "$blob": "BLOB"}


PROBE = (
    *(f"UPDATE schema_migrations SET applied_at = applied_at {change} WHERE version = 1" for change in ("+ 1", "- 1")),
    *(f"DELETE FROM {table} WHERE false" for table in ("sessions", "events", "runs")),
)
"""In one transaction, these write and change nothing, to find out whether anything can be stored and nothing is locked.

SQLite does not write a row that is set to what it was.
"""


EXCLUSIVE = frozenset(
    {
        "audit",
        "chats",
        "classifications",
        "flow",
        "people",
        "people_usage",
        "positions",
        "token_makers",
        "trusted_content",
        "usage_in_parts",
    }
)
"""The names of migrations that rewrite or move stored values, which processes of an older version would miss."""


class StoreUnusable(AntiphonError):
    """The database cannot be used as it is; the message gives the reason and the remedy."""

    default_code = "store_unusable"


class Migration(NamedTuple):
    """One step of the schema."""

    number: int
    name: str
    text: str
    """Its statements, with placeholders."""


@cache
def migrations(dialect: Literal["sqlite", "postgres"] | None = "sqlite") -> Sequence[Migration]:
    """Each migration, ascending by number.

    Text for one database only is in its own file, `NNNN_name.<dialect>.sql`, and follows the rest; it is left out
    without a dialect.
    """
    found = list[Migration]()
    folder = resources.files("antiphon.store").joinpath("schema")
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name):
            own = folder.joinpath(f"{match[1]}_{match[2]}.{dialect}.sql")
            text = entry.read_text("utf-8") + (own.read_text("utf-8") if own.is_file() else "")
            found.append(Migration(int(match[1]), match[2], text))
    return tuple(found)


def newest_schema() -> int:
    """The number of this program's newest migration."""
    return migrations()[-1].number


def statements(text: str, words: Mapping[str, str]) -> Iterator[str]:
    """The statements of a migration without comments, with its placeholders replaced by words of a dialect."""
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    text = re.sub(r"--[^\n]*", "", text)
    yield from (statement.strip() for statement in text.split(";\n") if statement.strip())
