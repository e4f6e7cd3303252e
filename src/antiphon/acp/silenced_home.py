"""Settings in HOME by which an unwalled harness acts without asking: the owner's own choice, which is named."""

import json
from pathlib import Path
from typing import Final, cast

OUR_TOOLS: Final = "mcp__antiphon"
"""Rules for these allow nothing that Antiphon does not judge itself."""
_CODEX: Final = (".codex/rules", ".codex/hooks.json")


def find_silencing_settings(harness: str, home: Path) -> str | None:
    """The first file that allows calls or starts programs, and what in it does; None if there is none. Blocks.

    `harness` is the name that the harness gives itself.
    """
    match harness:
        case "@agentclientprotocol/claude-agent-acp":
            return _in_claude(home / ".claude/settings.json")
        case "@agentclientprotocol/codex-acp":
            return next((str(home / name) for name in _CODEX if (home / name).exists()), None)
        case _:
            return None


def _in_claude(file: Path) -> str | None:
    try:
        read: object = json.loads(file.read_text("utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError):
        return f"{file} (unreadable)"
    settings = cast("dict[str, object]", read) if isinstance(read, dict) else {}
    permissions = settings.get("permissions")
    rules = cast("dict[str, object]", permissions).get("allow") if isinstance(permissions, dict) else None
    allowed = cast("list[object]", rules) if isinstance(rules, list) else []
    found = {
        "permissions.allow": any(not str(rule).startswith(OUR_TOOLS) for rule in allowed),
        "hooks": bool(settings.get("hooks")),
    }
    named = [name for name, is_there in found.items() if is_there]
    return f"{file} ({', '.join(named)})" if named else None
