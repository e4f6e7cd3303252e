"""Script files: read only from the home and from the directory of the configuration file."""

import os
import stat
from collections.abc import Sequence
from pathlib import Path

from antiphon.domain.errors import Invalid

MAX_SCRIPT_BYTES = 4 * 1024 * 1024


def read_script(name: str, directories: Sequence[Path]) -> bytes:
    """The content of the script; blocks. Looks for a relative name in each directory, in order.

    Raises `Invalid` (`unknown_model`), which shows neither the directory nor the content.
    """
    for directory in directories:
        path = _path_inside(name, directory)
        if path is None:
            continue
        try:
            return _read(name, path)
        except FileNotFoundError:
            continue
        except OSError as error:
            raise unplayable(name, f"it cannot be read ({error.strerror})") from error
    raise unplayable(name, "it is neither in the home nor beside the configuration file; move it there")


def unplayable(name: str, reason: str) -> Invalid:
    return Invalid(f"Script cannot be played: {name.rpartition('/')[2][:80]!r}: {reason}.", code="unknown_model")


def _path_inside(name: str, directory: Path) -> Path | None:
    """The file behind all links, if it is in the directory."""
    try:
        root = directory.resolve()
        path = (root / name).resolve()
    except (OSError, RuntimeError, ValueError):
        return None
    return path if path.is_relative_to(root) else None


def _read(name: str, path: Path) -> bytes:
    # Without waiting, because it may be a pipe. Its links were resolved, so any link found now is new.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with open(descriptor, "rb") as file:  # noqa: PTH123
        state = os.fstat(descriptor)
        if not stat.S_ISREG(state.st_mode):
            raise unplayable(name, "it is not a regular file")
        content = file.read(MAX_SCRIPT_BYTES + 1)
    if len(content) > MAX_SCRIPT_BYTES:
        raise unplayable(name, f"it has more than {MAX_SCRIPT_BYTES} bytes")
    return content
