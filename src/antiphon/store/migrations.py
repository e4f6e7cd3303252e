"""The migrations that this program has: numbered SQL files, in the words of each database."""

import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Literal

from antiphon.domain.errors import AntiphonError

SQLITE_WORDS = {"$serial": "INTEGER PRIMARY KEY", "$without_rowid": "WITHOUT ROWID", "$blob": "BLOB"}


class StoreUnusable(AntiphonError):
    """The database cannot be used as it is; the message says why and what to do."""

    default_code = "store_unusable"


def migrations(dialect: Literal["sqlite", "postgres"] | None = "sqlite") -> Iterator[tuple[int, str, str]]:
    """Number, name and text of each migration, ascending.

    What only one database understands stands in a file of its own, `NNNN_name.<dialect>.sql`, and comes after the rest;
    without a dialect it is left out.
    """
    folder = resources.files("antiphon.store").joinpath("schema")
    for entry in sorted(folder.iterdir(), key=lambda e: e.name):
        if match := re.fullmatch(r"(\d{4})_(\w+)\.sql", entry.name):
            own = folder.joinpath(f"{match[1]}_{match[2]}.{dialect}.sql")
            text = entry.read_text("utf-8") + (own.read_text("utf-8") if own.is_file() else "")
            yield int(match[1]), match[2], text


def newest_schema() -> int:
    """The number of the newest migration that this program has."""
    return max(number for number, _, _ in migrations())


def statements(text: str, words: Mapping[str, str]) -> Iterator[str]:
    """The statements of a migration without comments, its placeholders in the words of a dialect."""
    for word, meaning in words.items():
        text = text.replace(word, meaning)
    text = re.sub(r"--[^\n]*", "", text)
    yield from (statement.strip() for statement in text.split(";\n") if statement.strip())
