"""What makes harnesses act without asking although they are in the mode in which they ask: files of the workspace.

Each was seen to start programs, or to allow calls, when a session opens: `.mcp.json` and `.claude` with Claude Code,
`.codex` with Codex, because `codex-acp` trusts each workspace. Gemini CLI reads none in a folder that is not trusted.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from antiphon.domain.message import JsonObject

OWN_SETTINGS_ALONE: Final[JsonObject] = {
    "claudeCode": {"options": {"settingSources": ["user"], "promptSuggestions": False}}
}
"""Sent with each session that has to ask: `claude-agent-acp` then reads no settings of the workspace, nor its
`.mcp.json`, nor its `CLAUDE.md`, and asks its model for no suggestions. Others do not know it."""

_FILES: Final[Mapping[str, tuple[str, ...]]] = {
    "@agentclientprotocol/codex-acp": (".codex/config.toml", ".codex/hooks.json", ".codex/rules"),
}
"""By the name that the harness gives itself."""


def find_silencing_file(harness: str, workspace: Path) -> Path | None:
    """The first file by which the workspace can make the harness act unasked; None if there is none. Blocks."""
    return next(
        (
            folder / name
            for folder in _folders_of_project(workspace)
            for name in _FILES.get(harness, ())
            if (folder / name).exists()
        ),
        None,
    )


def _folders_of_project(workspace: Path) -> Iterator[Path]:
    """The workspace, and the folders above it up to the root of its repository, if it has one."""
    folders = (workspace, *workspace.parents)
    root = next((index for index, folder in enumerate(folders) if (folder / ".git").exists()), 0)
    yield from folders[: root + 1]
