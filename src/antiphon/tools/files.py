"""`files`: lists, reads, writes and searches the files of the caller's workspace. Contract: foreign_agents 6."""

import json
from collections.abc import Mapping
from functools import partial
from typing import Any, Literal

from anyio import to_thread
from pydantic import Field

from antiphon.domain.agent import Effect
from antiphon.domain.classification import EVERYTHING
from antiphon.domain.errors import Invalid, NotFound
from antiphon.engine.access.caller import Caller
from antiphon.engine.access.callers import Callers
from antiphon.engine.rules import Rules
from antiphon.engine.sessions import session_files
from antiphon.engine.sessions.session_files import FileMatch, FilePath, FoundEntry
from antiphon.engine.sessions.workspaces import Workspace, Workspaces
from antiphon.policy.shipped_tools import FILES
from antiphon.tools.session_tool import Arguments, SessionTool

DESCRIPTION = (
    "The files of this conversation, which stay between turns: list a directory, read or write a text file, search "
    "names and lines. Files that people sent are read at the paths that their messages name."
)
MAX_ANSWER = 64 * 1024
"""Bytes of an answer."""


class FilesArguments(Arguments):
    action: Literal["list", "read", "write", "search"] = Field(description="What to do.")
    path: str = Field("", description="A file, or for list and search a directory; '' is the top.")
    text: str | None = Field(None, description="For write: the whole file.")
    query: str | None = Field(None, description="For search: words as they stand there, in any case.")
    offset: int = Field(0, ge=0, le=2**53, description="For list and read: the nextOffset of the answer before.")


_NEEDED = {"list": frozenset[str](), "read": frozenset({"path"}), "write": frozenset({"path", "text"})}
_NEEDED["search"] = frozenset({"query"})


def files(callers: Callers, workspaces: Workspaces, rules: Rules) -> SessionTool[FilesArguments]:
    async def carry_out(caller: Caller, arguments: FilesArguments) -> Mapping[str, Any]:
        _check(arguments)
        session, _ = await callers.session_of(caller)
        if caller.run is not None and caller.run.run.session_id != session.id:
            raise NotFound("Session not found: it was reset while this run was at work.")
        workspace = workspaces.of_session(session)
        path = session_files.read_path(arguments.path, workspace)
        most_bytes = rules.agent(caller.agent_id).command_limits.disk_bytes
        return await to_thread.run_sync(partial(_answer, workspace, path, arguments, most_bytes))

    files_tool = SessionTool(
        FILES,
        DESCRIPTION,
        FilesArguments,
        carry_out,
        codes=(
            "file_too_large",
            "invalid_path",
            "no_file",
            "not_found",
            "not_text",
            "read_only",
            "workspace_full",
            "workspace_unsafe",
            "workspace_unusable",
        ),
        effects=frozenset({Effect.READS, Effect.WRITES}),
    )
    files_tool.clearance = EVERYTHING  # nothing leaves the session
    return files_tool


def _answer(workspace: Workspace, path: FilePath, arguments: FilesArguments, most_bytes: int) -> Mapping[str, Any]:
    match arguments.action:
        case "list":
            entries, following = session_files.list_directory(workspace, path, arguments.offset)
            return _bounded("entries", list(map(_shown_entry, entries)), arguments.offset, following)
        case "read":
            return _read(workspace, path, arguments.offset)
        case "write":
            size = session_files.write_file(workspace, path, arguments.text or "", most_bytes)
            return {"status": "ok", "path": path.shown, "bytes": size}
        case "search":
            found = session_files.search(workspace, path, arguments.query or "")
            answer = _bounded("matches", list(map(_shown_match, found.found)), 0, None)
            has_more = found.has_more or "nextOffset" in answer
            answer.pop("nextOffset", None)
            more = {"hasMore": True} if has_more else {}
            return {**answer, **({"skipped": found.skipped} if found.skipped else {}), **more}


def _read(workspace: Workspace, path: FilePath, offset: int) -> dict[str, Any]:
    most_bytes = session_files.MAX_READ
    while True:
        page = session_files.read_file(workspace, path, offset, most_bytes)
        more = {} if page.next_offset is None else {"nextOffset": page.next_offset}
        answer = {"status": "ok", "text": page.text, "bytes": page.size, **more}
        if _size(answer) <= MAX_ANSWER:
            return answer
        most_bytes //= 2  # of characters that take more room in JSON than in the file


def _bounded(name: str, shown: list[dict[str, Any]], offset: int, following: int | None) -> dict[str, Any]:
    """An answer with as many of them as it has room for."""
    left = MAX_ANSWER - 200
    for number, each in enumerate(shown):
        left -= _size(each) + 2
        if left < 0:
            shown, following = shown[:number], offset + number
            break
    return {"status": "ok", name: shown, **({} if following is None else {"nextOffset": following})}


def _size(answer: Mapping[str, Any]) -> int:
    return len(json.dumps(answer, ensure_ascii=False).encode())


def _shown_entry(entry: FoundEntry) -> dict[str, Any]:
    if entry.kind == "file":
        return {"name": entry.name, "bytes": entry.size}
    return {"name": entry.name, "kind": entry.kind}


def _shown_match(match: FileMatch) -> dict[str, Any]:
    return {"path": match.path} if match.line is None else {"path": match.path, "line": match.line, "text": match.text}


def _check(arguments: FilesArguments) -> None:
    """Raises `Invalid` for a parameter that is missing, or that the action does not have."""
    action = arguments.action
    given = {name for name in ("text", "query") if getattr(arguments, name) is not None}
    given |= {"path"} if arguments.path else set()
    allowed = _NEEDED[action] | {"path"}
    if missing := sorted(_NEEDED[action] - given):
        why = f"{action} needs {' and '.join(missing)}"
    elif more := sorted(given - allowed):
        why = f"{action} takes no {' and no '.join(more)}"
    elif arguments.offset and action not in ("list", "read"):
        why = f"{action} takes no offset"
    elif arguments.query is not None and not 0 < len(arguments.query.strip()) <= 200:
        why = "query has 1 to 200 characters"
    else:
        return
    raise Invalid(f"Arguments of {FILES} do not fit: {why}", code="invalid_arguments")
