"""The HOME of a harness within walls: made afresh at each start, with what its sessions need and nothing else.

What a run leaves there, settings, hooks and rules above all, counts for no later run. Contract: foreign_agents 2.
"""

import heapq
import os
import re
import secrets
import stat
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from antiphon.engine.sessions.workspaces import DIRECTORY_MODE, Workspace, names_in, open_own, remove_entry, walked

MAX_DEPTH: Final = 16
"""Of folders in a HOME below each other; what lies deeper is not kept."""
MAX_FILES: Final = 10_000
"""Kept of a HOME, so that none takes long to make."""


def open_fresh_home(homes: Workspace, keeps: Sequence[str], most_bytes: int) -> Path:
    """A new HOME with the kept files of those before, which are removed. Blocks; raises as `Workspace.open`.

    Of more than so many bytes or `MAX_FILES` the newest are kept. A process that still has an older HOME has no way
    into this one. May be called again after any crash.
    """
    kept = re.compile("|".join(map(_expression, keeps)) or "(?!)")
    with homes.opened() as all_homes:
        older = sorted(names_in(all_homes), key=lambda name: _changed(all_homes, name))
        newest = _newest(all_homes, older, kept, most_bytes)
        name = secrets.token_hex(8)
        os.mkdir(name, DIRECTORY_MODE, dir_fd=all_homes)
        home = homes.path / name
        with walked(all_homes, [name], homes.path) as fresh:
            for each in older:
                for parts, folder in _files(all_homes, (each,)):
                    if parts in newest:
                        with walked(fresh, parts[1:-1], home) as place:
                            os.rename(parts[-1], parts[-1], src_dir_fd=folder, dst_dir_fd=place)
                remove_entry(all_homes, each)
    return home


def _newest(homes: int, names: Sequence[str], kept: re.Pattern[str], most_bytes: int) -> set[tuple[str, ...]]:
    """The paths of the files to keep."""
    found = (
        (state.st_mtime_ns, state.st_blocks * 512, parts)
        for each in names
        for parts, folder in _files(homes, (each,))
        if kept.fullmatch("/".join(parts[1:]))
        for state in [os.stat(parts[-1], dir_fd=folder, follow_symlinks=False)]
    )
    newest, left = set[tuple[str, ...]](), most_bytes
    for _, size, parts in heapq.nlargest(MAX_FILES, found):
        if size <= left:
            newest.add(parts)
            left -= size
    return newest


def _files(parent: int, parts: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], int]]:
    """The files in a folder, each by its path and the descriptor of its folder; follows no link."""
    if len(parts) > MAX_DEPTH or not stat.S_ISDIR(_mode(parent, parts[-1])):
        return
    with _opened(parent, parts[-1]) as folder:
        for name in names_in(folder):
            if stat.S_ISREG(_mode(folder, name)):
                yield (*parts, name), folder
            else:
                yield from _files(folder, (*parts, name))


@contextmanager
def _opened(parent: int, name: str) -> Generator[int]:
    folder = open_own(parent, name)
    try:
        yield folder
    finally:
        os.close(folder)


def _mode(parent: int, name: str) -> int:
    """0 for what has gone meanwhile."""
    with suppress(FileNotFoundError):
        return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mode
    return 0


def _changed(parent: int, name: str) -> int:
    return os.stat(name, dir_fd=parent, follow_symlinks=False).st_mtime_ns


def _expression(written: str) -> str:
    """That of a setting: `*` within a name, `**` over folders, at the end all that is in one."""
    *folders, last = written.split("/")
    above = "".join("(?:[^/]+/)*" if name == "**" else f"{_of_name(name)}/" for name in folders)
    return above + (".+" if last == "**" else _of_name(last))


def _of_name(name: str) -> str:
    return "[^/]*".join(map(re.escape, name.split("*")))
