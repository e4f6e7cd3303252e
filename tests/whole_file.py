"""Writes files of test processes that may be killed at any moment."""

import os
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Replaces the file's text. Whoever reads it, also after a kill, finds the old text or this one, never a part."""
    beside = path.with_name(f"{path.name}.{os.getpid()}.new")
    beside.write_text(text, "utf-8")
    beside.replace(path)
