"""Folders of skills, as people write them."""

from pathlib import Path

DESCRIPTION = "Plans walks in the hills. Use it when somebody asks for a walk."
BODY = "# Walks\n\nRead references/paths.md, then run scripts/plan.sh."


def manifest(name: str = "walks", description: str = DESCRIPTION, more: str = "", body: str = BODY) -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n\n{body}\n"


def write_skill(parent: Path, name: str = "walks", text: str | bytes | None = None) -> Path:
    """A skill with a file to read and a program."""
    folder = parent / name
    for inner in ("references", "scripts"):
        (folder / inner).mkdir(parents=True)
    content = manifest(name) if text is None else text
    (folder / "SKILL.md").write_bytes(content if isinstance(content, bytes) else content.encode())
    (folder / "references" / "paths.md").write_text("Over the ridge.")
    (folder / "scripts" / "plan.sh").write_text('#!/bin/sh\necho "plan $*"; pwd; cat; echo kept > plan.txt\n')
    (folder / "scripts" / "plan.sh").chmod(0o755)
    return folder
